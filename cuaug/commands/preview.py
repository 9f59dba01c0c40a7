"""`cuaug preview`: a grid of images and random results of a chain of transforms."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import runpy
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.codec import CpuDecoder, MessageLog, read_header
from cuaug.drawing import Cell, grid, shrink, to_pixels
from cuaug.errors import CuaugError, DecodeError, LoaderError, TransformError
from cuaug.sampling.rng import hash_seed
from cuaug.sources.files import EXTENSIONS, images_below
from cuaug.transforms.normalization import normalization_of

__all__ = ["Cell", "chain_of", "draw", "grid", "preview", "to_image"]

_VIEWS_PER_ROW = 5  # FiveCrop's views; TenCrop's second five are mirrored
_MAX_ROWS = 64  # more rows make an image of hundreds of megabytes that no viewer opens


def preview(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """Writes the grid and returns the exit status; errors are one line on `errors`.

    The grid has at most 64 images, evenly chosen.
    """
    try:
        chain = chain_of(options.transforms)
        paths = _image_paths(options.images)
        shown = paths if len(paths) <= _MAX_ROWS else [paths[i * len(paths) // _MAX_ROWS] for i in range(_MAX_ROWS)]
        rows = [
            _row(path, number, chain, options.columns, options.seed, options.side) for number, path in enumerate(shown)
        ]
        grid(rows, options.side).save(options.output)
    except (CuaugError, OSError, ValueError) as error:  # ValueError: Pillow knows no format for this file name
        print(f"cuaug preview: {error}", file=errors)
        return 1
    selection = "" if shown is paths else f", evenly chosen from {len(paths)}"
    print(f"{options.output}: {len(rows)} x {options.columns + 1} images{selection}", file=out)
    return 0


def _image_paths(arguments: Sequence[str]) -> list[str]:
    """The paths, and all images below each folder.

    Raises:
        LoaderError: a folder has no image.
    """
    paths: list[str] = []
    for path in arguments:
        found = images_below(path) if os.path.isdir(path) else [path]
        if not found:
            raise LoaderError(f"folder {path!r} holds no {', '.join(EXTENSIONS)} file")
        paths += found
    return paths


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


def _row(path: str, number: int, chain: T.Compose, columns: int, seed: int, side: int) -> list[Cell]:
    """A file's image and its results, shrunk at once to their shown size to save memory."""
    pixels = _decode(path)
    name = Path(path).name.encode("ascii", "replace").decode()
    cells = [Cell(Image.fromarray(pixels), f"{name} {pixels.shape[1]} x {pixels.shape[0]}")]
    try:
        for result in draw(pixels, chain, columns, seed=seed, number=number):
            image, note = to_image(result, chain)
            cells.append(Cell(image, f"{image.width} x {image.height} {note}".rstrip()))
    except TransformError as error:
        raise TransformError(f"{path}: {error}") from error
    return [Cell(shrink(cell.image, side), cell.caption) for cell in cells]


def _decode(path: str) -> NDArray[np.uint8]:
    """(H, W, 3), decoded as by a loader."""
    data, decoder = Path(path).read_bytes(), CpuDecoder()
    try:
        return decoder.decode(read_header(data)).copy()
    except DecodeError as error:
        raise error.at(path, None) from error
    finally:
        MessageLog().warn(repr(path), decoder.messages.get(0, []))


def draw(pixels: NDArray[Any], chain: T.Compose, count: int, *, seed: int = 0, number: int = 0) -> Iterator[Any]:
    """`count` results of a chain for an image (H, W, 3), a function of the seed and number."""
    generator = torch.Generator().manual_seed(hash_seed(seed, number))
    seeded = T.Compose(chain.transforms, generator=generator)
    if chain.partners:  # a batch of one, which is mixed with itself
        return (_first(seeded(pixels[None])) for _ in range(count))
    return (seeded(pixels) for _ in range(count))


def _first(batch: Any) -> Any:
    """The one image of a batch; a tuple where views have several sizes."""
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
