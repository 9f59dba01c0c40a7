"""`cuaug preview`: a grid of images and random results of a chain of transforms."""

from __future__ import annotations

import argparse
import inspect
import itertools
import math
import os
import runpy
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug._runtime.limits import DEFAULT_MAX_BYTES, DEFAULT_MAX_PIXELS
from cuaug.codec import CpuDecoder, DecodedImage, MessageLog, read_header
from cuaug.commands.open_paths import open_videos
from cuaug.commands.progress_bar import Progress
from cuaug.drawing import Cell, draw_targets, grid, shrink, to_pixels
from cuaug.errors import CuaugError, DecodeError, SourceError, TransformError
from cuaug.pipeline.clip_reader import decode_clip, read_clip
from cuaug.sampling.rng import hash_seed
from cuaug.sources import Files, Source, open_source, optional_method
from cuaug.sources.file_bytes import read_bytes
from cuaug.sources.files import EXTENSIONS, images_below
from cuaug.sources.videos import ClipRequest
from cuaug.targets import holds_targets
from cuaug.transforms.compose import normalization_of

__all__ = ["Cell", "chain_of", "draw", "grid", "preview", "to_image"]

_VIEWS_PER_ROW = 5  # FiveCrop's views; TenCrop's second five are mirrored


class _Sample(NamedTuple):
    """A decoded image (H, W, 3), and its label if that holds boxes, masks or keypoints; or a clip (T, H, W, 3)."""

    path: str
    pixels: NDArray[np.uint8]
    target: Any
    seconds: list[float] | None = None  # of a clip's frames


def preview(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """Writes the grid and returns the exit status; errors are one line on `errors`.

    More samples than `options.limit` are evenly chosen.
    """
    progress = Progress(errors, unit="images")
    try:
        chain = chain_of(options.transforms)
        clips = {"frames": options.frames, "stride": options.stride, "sampling": "uniform", "pad": "last"}
        videos = open_videos(options.images, clips)
        source = _open(options.images) if videos is None else videos
        count, limit = len(source), options.limit
        indices = range(count) if count <= limit else [i * count // limit for i in range(limit)]
        progress.total = len(indices)
        rows = _rows(source, indices, chain, options, progress)
        grid(rows, options.side).save(options.output)
    except (CuaugError, OSError, ValueError) as error:  # ValueError: Pillow knows no format for this file name
        progress.clear()
        print(f"cuaug preview: {error}", file=errors)
        return 1
    progress.clear()
    selection = "" if count <= limit else f", evenly chosen from {count}"
    print(f"{options.output}: {len(rows)} x {len(rows[0])} images{selection}", file=out)
    return 0


def _open(arguments: Sequence[str]) -> Source:
    """The paths, and all images below each folder; or another source, given alone.

    Raises:
        LoaderError: a folder has no image, or the path is no source.
    """
    (first, *others) = arguments
    is_images = os.path.isdir(first) or first.lower().endswith(EXTENSIONS)
    if not others and (not is_images or os.path.isfile(os.path.join(first, "data.mdb"))):
        return open_source(first)
    paths: list[str] = []
    for path in arguments:
        found = images_below(path) if os.path.isdir(path) else [path]
        if not found:
            raise SourceError(f"folder {path!r} holds no {', '.join(EXTENSIONS)} file")
        paths += found
    return Files(paths)


def _rows(
    source: Source, indices: Sequence[int], chain: T.Compose, options: argparse.Namespace, progress: Progress
) -> list[list[Cell]]:
    """A row per sample: the image and its results. Mixes take the other samples that are shown.

    The frames of a clip are a row, and those of each of its results.

    Images are shrunk at once to their shown size, to save memory.
    """
    first, *later = chain.segments if chain.partners else [chain]
    names = inspect.signature(T.Compose).parameters
    settings = {name: value for name, value in chain.target_format.items() if name in names}
    before_mix, after_mix = T.Compose([first], **settings), T.Compose(later, **settings)
    shown: list[list[list[Cell]]] = []  # of each sample the image and the results, each as one cell or one per frame
    unmixed = []
    for number, index in enumerate(indices):
        sample = _read(source, index)
        is_clip = sample.pixels.ndim == 4
        shown.append([_original(sample, options)])
        try:
            results = draw(sample.pixels, before_mix, options.columns, sample.target, seed=options.seed, number=number)
            if later:
                unmixed.append(list(results))
            else:
                shown[-1] += [_result(result, sample.target, chain, options, is_clip) for result in results]
        except TransformError as error:
            raise TransformError(f"{sample.path}: {error}") from error
        progress.advance()
    for column in range(options.columns if later else 0):
        images = [results[column] for results in unmixed]
        for row, result, had_target in _mix(images, after_mix, options.seed, column):
            shown[row].append(_result(result, had_target, chain, options, is_clip))
    if is_clip:
        return [row for results in shown for row in results]
    return [[cell for cells in results for cell in cells] for results in shown]


def _mix(images: list[Any], later: T.Compose, seed: int, column: int) -> Iterator[tuple[int, Any, Any]]:
    """(row, result, target) of the transforms from a mix on, which take a batch; the last mixes with the first."""
    targets: list[Any] | None = None
    if any(isinstance(image, tuple) for image in images):
        pairs = [image if isinstance(image, tuple) else (image, {}) for image in images]
        images, targets = [image for image, _ in pairs], [target for _, target in pairs]
    if len({image.shape for image in images}) > 1:
        sizes = sorted({image.shape[:2] for image in images})
        raise TransformError(f"the images before {later.transforms[0]!r:.80} have different sizes: {sizes[:4]}")
    seeded = T.Compose([later], generator=torch.Generator().manual_seed(hash_seed(seed, -1 - column)))
    mixed = seeded(np.stack(images)) if targets is None else seeded(np.stack(images), targets)
    stack, mixed_targets = mixed if targets is not None else (mixed, [None] * len(images))
    for row, target in enumerate(mixed_targets):
        result = tuple(views[row] for views in stack) if isinstance(stack, tuple) else stack[row]
        yield row, result if target is None else (result, target), target


def _read(source: Source, index: int) -> _Sample:
    """A sample, decoded as by a loader."""
    path_of = optional_method(source, "path")
    path = f"sample {index}" if path_of is None else os.fspath(path_of(index))
    decoder = CpuDecoder()
    try:
        data, label = source.read(index)
        if isinstance(data, ClipRequest):
            clip = read_clip(data, np.zeros(data.sampler.frames), DEFAULT_MAX_PIXELS)
            decoded = decode_clip(clip, (0, 0, clip.height, clip.width))
            if isinstance(decoded, DecodeError):
                raise decoded
            return _Sample(path, decoded.pixels.copy(), None, clip.index.seconds[clip.numbers].tolist())
        if isinstance(data, (str, os.PathLike)):
            data = read_bytes(data, DEFAULT_MAX_BYTES)
        is_decoded = isinstance(data, np.ndarray) and data.ndim > 1
        image = DecodedImage(data) if is_decoded else read_header(data, lossy=True)  # the page has 8 bits
        pixels = decoder.decode(image).copy()
    except DecodeError as error:
        raise error.at(path, None) from error
    finally:
        MessageLog().warn(repr(path), decoder.lines)
    return _Sample(path, pixels, label if holds_targets(label) else None)


def _original(sample: _Sample, options: argparse.Namespace) -> list[Cell]:
    """The cell of an image, or those of a clip's frames, with their times."""
    height, width, _ = sample.pixels.shape[-3:]
    caption = f"{Path(sample.path).name.encode('ascii', 'replace').decode()} {width} x {height}"
    if sample.seconds is None:
        return [_cell(Image.fromarray(sample.pixels), sample.target, caption, options)]
    captions = [f"{seconds:.3f} s" for seconds in sample.seconds]
    captions[0] = f"{caption}, {captions[0]}"
    return [
        _cell(Image.fromarray(frame), None, text, options) for frame, text in zip(sample.pixels, captions, strict=True)
    ]


def _result(result: Any, target: Any, chain: T.Compose, options: argparse.Namespace, is_clip: bool) -> list[Cell]:
    """The cell of a result, or those of a clip's frames."""
    if not is_clip:
        return [_result_cell(result, target, chain, options)]
    views = result if isinstance(result, tuple) else (result,)
    # (..., T, H, W, C): the views of a frame share a cell.
    frames = zip(*(np.moveaxis(view, -4, 0) for view in views), strict=True)
    return [_result_cell(frame if len(frame) > 1 else frame[0], None, chain, options) for frame in frames]


def _result_cell(result: Any, target: Any, chain: T.Compose, options: argparse.Namespace) -> Cell:
    if target is not None:
        result, target = result
    image, note = to_image(result, chain)
    has_one_view = isinstance(result, np.ndarray) and result.ndim == 3
    caption = f"{image.width} x {image.height} {note}".rstrip()
    return _cell(image, target if has_one_view else None, caption, options)


def _cell(image: Image.Image, target: Any, caption: str, options: argparse.Namespace) -> Cell:
    shown = shrink(image, options.side)
    scale = shown.width / image.width, shown.height / image.height
    return Cell(shown if target is None else draw_targets(shown, target, scale), caption)


def chain_of(text: str) -> T.Compose:
    """The chain from a Python file that defines `transforms`, or from an expression. Runs their code.

    An expression may use `T` (cuaug.transforms), `cuaug`, `math` and `torch`.

    Raises:
        TransformError: the code fails or makes no chain.
    """
    is_file = text.endswith(".py") or os.path.isfile(text)
    argument = f"--transforms {text}" if is_file else f"--transforms {text!r}"
    try:
        value = _from_file(text) if is_file else _from_expression(text)
    except TransformError as error:
        raise TransformError(f"{argument}: {error}") from error
    except (Exception, SystemExit) as error:
        raise TransformError(f"{argument}: {_line_number(error, text)}{type(error).__name__}: {error}") from error
    try:
        return T.Compose([value] if isinstance(value, T.Transform) else value)
    except TransformError as error:
        raise TransformError(f"{argument}: {error}") from error


def _from_file(path: str) -> Any:
    names = runpy.run_path(path)
    if "transforms" not in names:
        raise TransformError("the file must define `transforms`, a transform or a list of transforms")
    return names["transforms"]


def _from_expression(text: str) -> Any:
    return eval(text.strip(), {"T": T, "cuaug": cuaug, "math": math, "torch": torch})


def _line_number(error: BaseException, path: str) -> str:
    """The line of the file that raised; a SyntaxError names its line itself."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"line {lines[-1]}: " if lines else ""


def draw(
    pixels: NDArray[Any], chain: T.Compose, count: int, target: Any = None, *, seed: int = 0, number: int = 0
) -> Iterator[Any]:
    """`count` results of a chain for an image (H, W, 3) or a clip (T, H, W, 3), a function of the seed and number.

    With a target, results are (image, target).
    """
    generator = torch.Generator().manual_seed(hash_seed(seed, number))
    seeded = T.Compose([chain], generator=generator)
    if chain.partners or pixels.ndim == 4:  # a batch of one, which a mix mixes with itself
        return (_first(seeded(pixels[None])) for _ in range(count))
    return (seeded(pixels) if target is None else seeded(pixels, target) for _ in range(count))


def _first(batch: Any) -> Any:
    """The one sample of a batch; a tuple where views have several sizes."""
    return tuple(stack[0] for stack in batch) if isinstance(batch, tuple) else batch[0]


def to_image(result: NDArray[Any], chain: T.Transform) -> tuple[Image.Image, str]:
    """A result of a chain as a PIL image, and a note on changed values.

    The result is (H, W, C), or (V, H, W, C) with views, which are placed side by side; or a tuple of these with views
    of several sizes, placed one below the other. If all samples pass a `Normalize`, the last one is undone and values
    are clipped to [0, 1]. Otherwise floats beyond [0, 1] are stretched to that range.
    """
    if isinstance(result, tuple):  # views of several sizes
        images, notes = zip(*(to_image(views, chain) for views in result), strict=True)
        widths, heights = zip(*(image.size for image in images), strict=True)
        column = Image.new("RGB", (max(widths), sum(heights)))
        for image, top in zip(images, itertools.accumulate(heights[:-1], initial=0), strict=True):
            column.paste(image, (0, top))
        return column, notes[0]
    if isinstance(result, np.ndarray) and result.ndim == 4:
        views = list(result)
        result = np.vstack([np.hstack(views[i : i + _VIEWS_PER_ROW]) for i in range(0, len(views), _VIEWS_PER_ROW)])
    if not isinstance(result, np.ndarray) or result.ndim != 3 or result.shape[-1] not in (1, 3):
        kind = f"an array of shape {result.shape}" if isinstance(result, np.ndarray) else f"{type(result).__name__}"
        raise TransformError(f"the chain returns {kind}, not an image (H, W, 1 or 3)")
    pixels, note = to_pixels(result, normalization_of(chain))
    return Image.fromarray(pixels), note
