"""`show`: a batch as a grid of pictures, with its boxes, masks, keypoints and labels."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cuaug._runtime.migration_hints import suggest_arguments
from cuaug.errors import ArgumentError

__all__ = ["Cell", "Normalization", "draw_targets", "grid", "show", "shrink", "to_html", "to_pixels"]

#: (mean, std) of a `Normalize`, one value per channel or one for all.
Normalization = tuple[Sequence[float], Sequence[float]]

_BACKGROUND = (119, 119, 119)  # half the lightness of white
_GAP = 6
_HALF_A_LEVEL = 0.5 / 255.0
# Colors that stay apart for readers with any color vision: Okabe and Ito 2008, without black.
_COLORS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167))
_MASK_OPACITY = 0.5
_LONGEST_CAPTION = 60
_HTML_SAMPLES, _HTML_SIDE = 16, 112
_TO_CORNERS: dict[str, Callable[[float, float, float, float], tuple[float, float, float, float]]] = {
    "xyxy": lambda x0, y0, x1, y1: (x0, y0, x1, y1),
    "xywh": lambda x, y, w, h: (x, y, x + w, y + h),
    "cxcywh": lambda x, y, w, h: (x - w / 2, y - h / 2, x + w / 2, y + h / 2),
}


@dataclass(frozen=True)
class Cell:
    """One image of a grid and its caption."""

    image: Image.Image
    caption: str = ""


@suggest_arguments({})
def show(
    batch: Any,
    *,
    classes: Sequence[str] | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    columns: int = 8,
    limit: int = 64,
    side: int = 224,
    box_format: str = "xyxy",
) -> Image.Image:
    """Draw a batch as a grid of pictures.

        cuaug.show(next(iter(loader)), classes=loader.classes).save("batch.png")

    Boxes, instance masks, class masks and keypoints are drawn where a sample's label is a dict with "boxes", "masks",
    "mask" or "keypoints". Other labels are captions. Padding and replacements, which are not `valid`, are marked.

    Args:
        batch: a `cuaug.Batch`, an (images, labels) pair, or images: (N, C, H, W), (C, H, W), views (N, V, C, H, W), or
            a list of (C, H, W). Of more than three channels the first three are shown, of two the first.
        classes: names of the labels 0, 1, ....
        mean, std: of the `Normalize` to undo. None: those of the loader's chain, which its batches know. Floats that
            still leave [0, 1] are stretched to that range, and the caption says so.
        columns: pictures per row; the views of a sample, and the frames of a clip, are a row.
        limit: most samples to draw.
        side: longest side of each picture, in pixels. Small images are magnified by whole numbers.
        box_format: "xyxy", "xywh" or "cxcywh", for labels without a "format".

    Returns:
        A PIL image, which notebooks display.

    Raises:
        ArgumentError: an argument, or the batch, has none of these forms.
    """
    if box_format not in _TO_CORNERS:
        raise ArgumentError(f"box_format must be one of {', '.join(map(repr, _TO_CORNERS))}, not {box_format!r}")
    if (mean is None) != (std is None):
        raise ArgumentError("mean and std undo a Normalize together: give both")
    if hasattr(batch, "images") and hasattr(batch, "labels"):
        images, labels = batch.images, batch.labels
    elif isinstance(batch, tuple) and len(batch) == 2:
        images, labels = batch
    else:
        images, labels = batch, None
    normalization = getattr(batch, "normalization", None) if mean is None else (_to_list(mean), _to_list(std))
    if getattr(batch, "packing", None) is not None and batch.packing.grid_thw is not None:
        raise ArgumentError("batch holds patches, not pictures: show a batch of the chain without T.Patches")
    valid = getattr(batch, "valid", None)
    clips = getattr(batch, "clips", None)
    samples = _split_views(images if clips is None else _frames_of_clips(images, clips.numbers.shape[1]))
    if not samples:
        raise ArgumentError("batch is empty: there is nothing to show")
    rows: list[list[Cell]] = []
    for k, views in enumerate(samples[:limit]):
        label = _label_of(labels, k, len(samples))
        is_valid = valid is None or bool(valid[k])
        own = [label if clips is None else _label_of_frame(label, t) for t in range(len(views))]
        rows.append(
            [
                _draw(view, one, classes, normalization, side, box_format, is_valid)
                for view, one in zip(views, own, strict=True)
            ]
        )
    if max(map(len, rows)) == 1:
        cells = [row[0] for row in rows]
        rows = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    return grid(rows, side)


def to_html(batch: Any) -> str:
    """A batch as HTML: its repr, and its first pictures."""
    text = f"<code>{html.escape(repr(batch))}</code>"
    is_cut = getattr(batch, "packing", None) is not None and batch.packing.grid_thw is not None
    if is_cut or not len(batch.valid if hasattr(batch, "valid") else _split_views(batch.images)):
        return text
    file = io.BytesIO()
    show(batch, limit=_HTML_SAMPLES, side=_HTML_SIDE).save(file, "PNG")
    return f'{text}<br><img src="data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}">'


def _to_list(value: Any) -> list[float]:
    return [float(item) for item in np.atleast_1d(np.asarray(value, dtype=np.float64))]


def _frames_of_clips(images: torch.Tensor, frames: int) -> torch.Tensor:
    """(N, T, C, H, W): the frames of clips in either layout; of several views, those of the first."""
    if images.ndim == 6:
        images = images[:, 0]
    return images if images.shape[1] == frames else images.transpose(1, 2)


def _label_of_frame(label: Any, frame: int) -> Any:
    """A clip's label, with the boxes, masks and keypoints of one frame."""
    if not isinstance(label, Mapping):
        return label
    moving = {"boxes", "masks", "mask", "keypoints"}
    return {key: value[frame] if key in moving else value for key, value in label.items()}


def _split_views(images: Any) -> list[list[NDArray[Any]]]:
    """The views of each sample, (H, W, C) each."""
    if isinstance(images, list):
        return [[_to_array(image)] for image in images]
    if isinstance(images, tuple):  # views of several sizes
        stacks = [_split_views(stack) for stack in images]
        return [[view for views in sample for view in views] for sample in zip(*stacks, strict=True)]
    ndim = getattr(images, "ndim", 0)
    if ndim == 5:
        return [[_to_array(view) for view in sample] for sample in images]
    if ndim == 4:
        return [[_to_array(image)] for image in images]
    return [[_to_array(images)]]


def _to_array(image: Any) -> NDArray[Any]:
    if isinstance(image, torch.Tensor):
        image = image.detach().cpu()
        image = (image.float() if image.dtype in (torch.float16, torch.bfloat16) else image).numpy()
    if not isinstance(image, np.ndarray) or image.ndim != 3 or not 0 < len(image) <= 16 or not image.size:
        shape = f"of shape {tuple(image.shape)}" if hasattr(image, "shape") else f"{image!r:.60}"
        raise ArgumentError(f"batch must hold images (C, H, W) of 1 to 16 channels, not one {shape}")
    return np.moveaxis(image, 0, -1)


def to_pixels(image: NDArray[Any], normalization: Normalization | None) -> tuple[NDArray[np.uint8], str]:
    """(H, W, 3) uint8 of an image (H, W, C), and a note on changed values and hidden channels.

    A normalization is undone and values are clipped to [0, 1]. Without one, floats beyond [0, 1] are stretched to that
    range.
    """
    channels = image.shape[-1]
    note, hidden = "", ""
    if image.dtype == np.uint16:
        image = (image >> 8).astype(np.uint8)
    elif image.dtype != np.uint8:
        values = image.astype(np.float64)
        is_undone = normalization is not None and len(normalization[0]) in (1, values.shape[-1])
        if normalization is not None and is_undone:
            values = values * normalization[1] + normalization[0]
            if max(normalization[0]) > 1.0:  # it normalized levels
                values /= 255.0
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        if low < -_HALF_A_LEVEL or high > 1.0 + _HALF_A_LEVEL:
            note = f"{'clipped' if is_undone else 'stretched'} from {_short(low)} ... {_short(high)}"
            values = values if is_undone else (values - low) / (high - low or 1.0)
        image = np.rint(np.nan_to_num(values).clip(0.0, 1.0) * 255.0).astype(np.uint8)
    if channels not in (1, 3):
        shown = 3 if channels > 3 else 1
        image, hidden = image[..., :shown], f"{shown} of {channels} channels"
    return np.repeat(image, 3 // image.shape[-1], axis=-1), " ".join(filter(None, [note, hidden]))


def _short(value: float) -> str:
    return f"{round(value, 3) + 0.0:g}"


# --- labels ----------------------------------------------------------------------------------------------------------


def _label_of(labels: Any, k: int, count: int) -> Any:
    """The label of sample k, from collated labels; None where there are none."""
    if isinstance(labels, Mapping):
        return {name: _label_of(field, k, count) for name, field in labels.items()}
    if isinstance(labels, tuple):
        return tuple(_label_of(field, k, count) for field in labels)
    return labels[k] if hasattr(labels, "__len__") and len(labels) == count else None


def _draw(
    view: NDArray[Any],
    label: Any,
    classes: Sequence[str] | None,
    normalization: Normalization | None,
    side: int,
    box_format: str,
    is_valid: bool,
) -> Cell:
    pixels, note = to_pixels(view, normalization)
    image = _fit(Image.fromarray(pixels), side)
    scale = image.width / view.shape[1], image.height / view.shape[0]
    image = draw_targets(image, label, scale, classes, box_format)
    if not is_valid:
        image = Image.blend(image, Image.new("RGB", image.size, _BACKGROUND), 0.6)
    words = [_caption(label, classes), note, "" if is_valid else "(not valid)"]
    return Cell(image, " ".join(filter(None, words)))


def draw_targets(
    image: Image.Image,
    label: Any,
    scale: tuple[float, float] = (1.0, 1.0),
    classes: Sequence[str] | None = None,
    box_format: str = "xyxy",
) -> Image.Image:
    """Draws the boxes, masks and keypoints of a label.

    Args:
        scale: width and height of the picture, by those of the image that the label describes.
    """
    for target in _targets(label):
        image = _draw_target(image, target, scale, classes, box_format)
    return image


def _targets(label: Any) -> Iterator[Mapping[str, Any]]:
    """The dicts in a label that may hold boxes, masks and keypoints."""
    if isinstance(label, Mapping):
        yield label
    for value in label.values() if isinstance(label, Mapping) else label if isinstance(label, tuple) else ():
        if isinstance(value, (Mapping, tuple)):
            yield from _targets(value)


def _numbers(value: Any) -> NDArray[np.float64]:
    return np.asarray(value.detach().cpu().float() if isinstance(value, torch.Tensor) else value, dtype=np.float64)


def _draw_target(
    image: Image.Image,
    target: Mapping[str, Any],
    scale: tuple[float, float],
    classes: Sequence[str] | None,
    box_format: str,
) -> Image.Image:
    labels = _numbers(target["labels"]).astype(int).ravel().tolist() if "labels" in target else []

    def color(k: int) -> tuple[int, int, int]:
        return _COLORS[(labels[k] if k < len(labels) else k) % len(_COLORS)]

    if "masks" in target:
        for k, mask in enumerate(_numbers(target["masks"])):
            image = _overlay(image, mask > 0, color(k))
    if "mask" in target:
        mask = _numbers(target["mask"])
        for value in np.unique(mask[mask != 0]) if mask.ndim == 2 else ():
            image = _overlay(image, mask == value, _COLORS[int(value) % len(_COLORS)])
    pen, font = ImageDraw.Draw(image), ImageFont.load_default()
    if "boxes" in target:
        to_corners = _TO_CORNERS[str(target.get("format", box_format)).lower()]
        for k, box in enumerate(_numbers(target["boxes"]).reshape(-1, 4)):
            corners = np.asarray(to_corners(*box.tolist())).reshape(2, 2) * scale
            corners = corners.clip(0, (image.width - 1, image.height - 1))
            pen.rectangle([tuple(corner) for corner in corners.tolist()], outline=color(k), width=2)
            if k < len(labels):
                name, at = _class_name(labels[k], classes), tuple(corners[0].tolist())
                pen.rectangle(pen.textbbox(at, name, font=font), fill=color(k))
                pen.text(at, name, fill="black", font=font)
    if "keypoints" in target:
        points = _numbers(target["keypoints"])
        for point in points.reshape(-1, points.shape[-1]) if points.size else ():
            if len(point) == 2 or point[2] > 0:
                x, y = point[:2] * scale
                pen.ellipse([x - 3, y - 3, x + 3, y + 3], outline="white", fill=_COLORS[5])
    return image


def _overlay(image: Image.Image, mask: NDArray[np.bool_], color: tuple[int, int, int]) -> Image.Image:
    """Tints the pixels of a mask of the original size."""
    alpha = Image.fromarray((mask * round(255 * _MASK_OPACITY)).astype(np.uint8))
    tinted = image.copy()
    tinted.paste(color, (0, 0), alpha.resize(image.size, Image.Resampling.NEAREST))
    return tinted


def _class_name(number: int, classes: Sequence[str] | None) -> str:
    return classes[number] if classes is not None and 0 <= number < len(classes) else str(number)


def _caption(label: Any, classes: Sequence[str] | None) -> str:
    """A label as text: a class name, the largest two of mixed classes, or the values of a dict that are no arrays."""
    if label is None:
        return ""
    if isinstance(label, Mapping):
        texts = {name: _caption(value, None) for name, value in label.items() if np.ndim(value) == 0}
        return ", ".join(f"{name} {text}" for name, text in texts.items() if text)
    if isinstance(label, tuple):
        return ", ".join(filter(None, (_caption(value, classes) for value in label)))
    if isinstance(label, str):
        return label if len(label) <= _LONGEST_CAPTION else f"{label[: _LONGEST_CAPTION - 3]}..."
    values = np.asarray(label.detach().cpu().float() if isinstance(label, torch.Tensor) else label)
    if values.dtype.kind not in "biuf":
        return f"{label!r:.{_LONGEST_CAPTION}}"
    if values.ndim == 0:
        number = values.item()
        return _class_name(int(number), classes) if number == int(number) else f"{number:.4g}"
    if values.ndim == 1 and len(values) and (values >= 0).all() and abs(values.sum() - 1.0) < 1e-3:
        largest = np.argsort(-values)[: min(2, np.count_nonzero(values))].tolist()
        return ", ".join(f"{_class_name(k, classes)} {values[k]:.2g}" for k in largest)
    return "" if values.size > 4 else " ".join(f"{value:.4g}" for value in values.ravel().tolist())


# --- grids -----------------------------------------------------------------------------------------------------------


def _fit(image: Image.Image, side: int) -> Image.Image:
    """Shrinks an image to at most `side` pixels in height and width, or magnifies it by a whole number."""
    factor = side // max(image.size)
    if factor > 1:
        return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    return shrink(image, side)


def shrink(image: Image.Image, side: int) -> Image.Image:
    """Shrinks an image to at most `side` pixels in height and width."""
    scale = min(1.0, side / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image if scale == 1.0 else image.resize(size, Image.Resampling.LANCZOS)


def grid(rows: Sequence[Sequence[Cell]], side: int) -> Image.Image:
    """Cells in columns of `side` pixels on gray; each row is as high as its highest image."""
    rows = [[Cell(shrink(cell.image, side), cell.caption) for cell in row] for row in rows]
    font = ImageFont.load_default()
    texts = [[_wrap(cell.caption, font, side) for cell in row] for row in rows]
    line_height = sum(font.getmetrics()) if isinstance(font, ImageFont.FreeTypeFont) else 11
    heights = [max(cell.image.height for cell in row) for row in rows]
    caption_heights = [max(len(lines) for lines in row) * line_height for row in texts]
    width = _GAP + max(map(len, rows)) * (side + _GAP)
    canvas = Image.new("RGB", (width, _GAP + sum(heights) + sum(caption_heights) + _GAP * len(rows)), _BACKGROUND)
    pen, top = ImageDraw.Draw(canvas), _GAP
    for row, captions, height, caption_height in zip(rows, texts, heights, caption_heights, strict=True):
        for i, cell in enumerate(row):
            left = _GAP + i * (side + _GAP)
            image = cell.image
            canvas.paste(image, (left + (side - image.width) // 2, top + (height - image.height) // 2))
            for k, text in enumerate(captions[i]):
                pen.text((left, top + height + k * line_height), text, fill="white", font=font)
        top += height + caption_height + _GAP
    return canvas


def _wrap(text: str, font: Any, width: int) -> list[str]:
    """Lines of whole words, at most `width` pixels wide unless one word is wider."""
    lines: list[str] = []
    for word in text.split():
        if lines and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
