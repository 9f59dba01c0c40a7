"""What a chain does, seen: `cuaug preview` shows pictures beside what successive draws make of them."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import runpy
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import cuaug
from cuaug import transforms as T
from cuaug.codec import CpuDecoder, MessageLog, read_header
from cuaug.errors import CuaugError, DecodeError, LoaderError, TransformError
from cuaug.sampling.rng import hash_seed
from cuaug.sources.files import EXTENSIONS, images_below

__all__ = ["Cell", "chain_of", "draw", "grid", "preview", "shown"]

_BACKGROUND = (119, 119, 119)  # half of white's lightness
_GAP = 6
_ABREAST = 5  # FiveCrop's results; TenCrop's second five are the mirrored ones
_MOST_ROWS = 64  # more make a picture that nothing shows, of hundreds of megabytes
_HALF_A_LEVEL = 0.5 / 255.0


@dataclass(frozen=True)
class Cell:
    """One picture of a grid, and the words under it."""

    picture: Image.Image
    caption: str = ""


def preview(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """The command: writes the grid, and returns the exit status. What is wrong is said in one line on `errors`.

    Of more than 64 pictures it has 64, from throughout.
    """
    try:
        chain = chain_of(options.transforms)
        paths = _pictures(options.images)
        some = paths if len(paths) <= _MOST_ROWS else [paths[i * len(paths) // _MOST_ROWS] for i in range(_MOST_ROWS)]
        rows = [
            _row(path, number, chain, options.columns, options.seed, options.side) for number, path in enumerate(some)
        ]
        picture = grid(rows, options.side)
        picture.save(options.output)
    except (CuaugError, OSError, ValueError) as error:  # ValueError: a name from which Pillow tells no format
        print(f"cuaug preview: {error}", file=errors)
        return 1
    left_out = "" if some is paths else f", of {len(paths)} evenly chosen"
    print(f"{options.output}: {len(rows)} x {options.columns + 1} pictures{left_out}", file=out)
    return 0


def _pictures(given: Sequence[str]) -> list[str]:
    """The paths, and for a folder all pictures below it.

    Raises:
        LoaderError: there is none below a folder.
    """
    paths: list[str] = []
    for path in given:
        found = images_below(path) if os.path.isdir(path) else [path]
        if not found:
            raise LoaderError(f"folder {path!r} holds no {', '.join(EXTENSIONS)} file")
        paths += found
    return paths


def chain_of(text: str) -> T.Compose:
    """The chain that a Python file defines as `transforms`, or that an expression makes. Their code is run.

    An expression sees `T` (cuaug.transforms), `cuaug`, `math` and `torch`.

    Raises:
        TransformError: says which of the two it was taken for, and what was wrong.
    """
    is_file = text.endswith(".py") or os.path.isfile(text)
    what = f"--transforms {text}" if is_file else f"--transforms {text!r}"
    try:
        value = _from_file(text) if is_file else _from_expression(text)
    except TransformError as error:
        raise TransformError(f"{what}: {error}") from error
    except (Exception, SystemExit) as error:
        raise TransformError(f"{what}: {_place(error, text)}{type(error).__name__}: {error}") from error
    try:
        return T.Compose([value] if isinstance(value, T.Transform) else value)
    except TransformError as error:
        raise TransformError(f"{what}: {error}") from error


def _from_file(path: str) -> Any:
    names = runpy.run_path(path)
    if "transforms" not in names:
        raise TransformError("the file defines no `transforms`: a transform, or a list of them")
    return names["transforms"]


def _from_expression(text: str) -> Any:
    return eval(text.strip(), {"T": T, "cuaug": cuaug, "math": math, "torch": torch})


def _place(error: BaseException, path: str) -> str:
    """Where in the file an exception was raised; a SyntaxError says it itself."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"line {lines[-1]}: " if lines else ""


def _row(path: str, number: int, chain: T.Compose, columns: int, seed: int, side: int) -> list[Cell]:
    """The picture of a file and its draws, no larger than they are shown: memory holds no more."""
    pixels = _decoded(path)
    name = Path(path).name.encode("ascii", "replace").decode()
    cells = [Cell(Image.fromarray(pixels), f"{name} {pixels.shape[1]} x {pixels.shape[0]}")]
    try:
        for result in draw(pixels, chain, columns, seed=seed, number=number):
            picture, note = shown(result, chain)
            cells.append(Cell(picture, f"{picture.width} x {picture.height} {note}".rstrip()))
    except TransformError as error:
        raise TransformError(f"{path}: {error}") from error
    return [Cell(_fitted(cell.picture, side), cell.caption) for cell in cells]


def _decoded(path: str) -> NDArray[np.uint8]:
    """(H, W, 3), as the loader sees the file."""
    data, decoder = Path(path).read_bytes(), CpuDecoder()
    try:
        return decoder.decode(read_header(data)).copy()
    except DecodeError as error:
        raise error.at(path, None) from error
    finally:
        MessageLog().warn(repr(path), decoder.messages.get(0, []))


def draw(pixels: NDArray[Any], chain: T.Compose, count: int, *, seed: int = 0, number: int = 0) -> Iterator[Any]:
    """`count` draws of an image, (H, W, 3): the same ones for a seed and number, however many are taken."""
    generator = torch.Generator().manual_seed(hash_seed(seed, number))
    seeded = T.Compose(chain.transforms, generator=generator)
    if chain.partners:  # of a batch of one, which it mixes with itself
        return (_only(seeded(pixels[None])) for _ in range(count))
    return (seeded(pixels) for _ in range(count))


def _only(batch: Any) -> Any:
    """What became of the one image of a batch; the batch may be a tuple, with views in several sizes."""
    return tuple(stack[0] for stack in batch) if isinstance(batch, tuple) else batch[0]


def shown(result: NDArray[Any], chain: T.Transform) -> tuple[Image.Image, str]:
    """A picture of what a chain makes of one image, and what had to be done to show it.

    The result is (H, W, C), or (V, H, W, C) for chains that make several of one, which are put side by side; or a tuple
    of these for those that make them in several sizes, one below the other.
    Where all samples pass a `Normalize`, the last one is undone, and values saturate at black and white then. Other
    floats that lie beyond [0, 1] are stretched to it.
    """
    if isinstance(result, tuple):  # views of several sizes
        pictures, notes = zip(*(shown(views, chain) for views in result), strict=True)
        widths, heights = zip(*(picture.size for picture in pictures), strict=True)
        together = Image.new("RGB", (max(widths), sum(heights)))
        for picture, top in zip(pictures, itertools.accumulate(heights[:-1], initial=0), strict=True):
            together.paste(picture, (0, top))
        return together, notes[0]
    if isinstance(result, np.ndarray) and result.ndim == 4:
        views = list(result)
        result = np.vstack([np.hstack(views[i : i + _ABREAST]) for i in range(0, len(views), _ABREAST)])
    if not isinstance(result, np.ndarray) or result.ndim != 3 or result.shape[-1] not in (1, 3):
        what = f"an array of shape {result.shape}" if isinstance(result, np.ndarray) else f"{type(result).__name__}"
        raise TransformError(f"the chain makes no picture of (H, W, 1 or 3) but {what}")
    note = ""
    if result.dtype != np.uint8:
        values, last = result.astype(np.float64), _last_normalize(chain)
        undone = last is not None and len(last.mean) in (1, values.shape[-1])
        if last is not None and undone:
            values = values * last.std + last.mean
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        if low < -_HALF_A_LEVEL or high > 1.0 + _HALF_A_LEVEL:
            note = f"{'cut' if undone else 'stretched'} from {_short(low)} ... {_short(high)}"
            values = values if undone else (values - low) / (high - low or 1.0)
        result = np.rint(np.nan_to_num(values).clip(0.0, 1.0) * 255.0).astype(np.uint8)
    return Image.fromarray(np.repeat(result, 3 // result.shape[-1], axis=-1)), note


def _short(value: float) -> str:
    return f"{round(value, 3) + 0.0:g}"


def _last_normalize(chain: T.Transform) -> T.Normalize | None:
    """The last one that all samples pass through."""
    if isinstance(chain, T.Compose):
        return next(filter(None, map(_last_normalize, reversed(chain.transforms))), None)
    return chain if isinstance(chain, T.Normalize) else None


def _fitted(picture: Image.Image, side: int) -> Image.Image:
    """Shrunk to at most `side` pixels either way; never enlarged."""
    part = min(1.0, side / max(picture.size))
    size = (max(1, round(picture.width * part)), max(1, round(picture.height * part)))
    return picture if part == 1.0 else picture.resize(size, Image.Resampling.LANCZOS)


def grid(rows: Sequence[Sequence[Cell]], side: int) -> Image.Image:
    """The cells in columns of `side` pixels, each row as high as its highest picture, on neutral gray."""
    rows = [[Cell(_fitted(cell.picture, side), cell.caption) for cell in row] for row in rows]
    font = ImageFont.load_default()
    texts = [[_wrapped(cell.caption, font, side) for cell in row] for row in rows]
    line = sum(font.getmetrics()) if isinstance(font, ImageFont.FreeTypeFont) else 11
    heights = [max(cell.picture.height for cell in row) for row in rows]
    below = [max(len(lines) for lines in row) * line for row in texts]
    width = _GAP + max(map(len, rows)) * (side + _GAP)
    whole = Image.new("RGB", (width, _GAP + sum(heights) + sum(below) + _GAP * len(rows)), _BACKGROUND)
    pen, top = ImageDraw.Draw(whole), _GAP
    for row, lines, height, words in zip(rows, texts, heights, below, strict=True):
        for i, cell in enumerate(row):
            left = _GAP + i * (side + _GAP)
            picture = cell.picture
            whole.paste(picture, (left + (side - picture.width) // 2, top + (height - picture.height) // 2))
            for k, text in enumerate(lines[i]):
                pen.text((left, top + height + k * line), text, fill="white", font=font)
        top += height + words + _GAP
    return whole


def _wrapped(text: str, font: Any, width: int) -> list[str]:
    """Lines of whole words, each at most `width` pixels wide where its words are."""
    lines: list[str] = []
    for word in text.split():
        if lines and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
