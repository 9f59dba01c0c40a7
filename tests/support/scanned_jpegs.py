"""Decodes JPEGs on their first visit, whose segments the kernels find, with guards around all memory."""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from cuaug._runtime.native import library
from cuaug.codec import JpegIndex
from cuaug.codec.jpeg_index import IndexFile
from cuaug.codec.sniff import Region
from tests.support.codec.index_files import RECORD, Record, open_descriptor, parse
from tests.support.device_jpegs import Outcome, request, run_batch


class FirstVisit(NamedTuple):
    """What the kernels made of a batch.

    Attributes:
        outcomes: of each image.
        rounds: (scans,) how often runs of each scanned image were read again.
    """

    outcomes: list[Outcome]
    rounds: np.ndarray


def visit(
    files: Sequence[bytes],
    regions: Sequence[Region | None] = (),
    *,
    index: JpegIndex | None = None,
    kernels: Any = library,
    damage: Any = None,
) -> FirstVisit:
    """Decodes a batch; whole images by default. Entry points that the kernels find are kept in the index.

    Args:
        index: None: nothing is kept.
        kernels: the library that scans and decodes.
        damage: called with the uploaded data, which it may change.
    """
    regions = regions or [None] * len(files)
    rows = np.array([request(*its) for its in zip(files, regions, strict=True)], dtype=np.int64)
    return FirstVisit(*run_batch(rows, index, kernels, damage=damage, scan=True))


def index_of(data: bytes, pixels: int, path: Path | None = None) -> JpegIndex:
    """An index whose entry points for this file are about `pixels` apart: 16, 32 or 64."""
    with Image.open(io.BytesIO(data)) as image:
        (width, height), layer = image.size, getattr(image, "layer", [(1, 1, 1)])
    mcu_width, mcu_height = (8 * max(its[i] for its in layer) if len(layer) > 1 else 8 for i in (1, 2))
    columns = math.ceil(math.ceil(width / mcu_width) / max(pixels // mcu_width, 1))
    count = math.ceil(height / mcu_height) * columns + 1
    share = RECORD.size + math.ceil(count * (4 + 2 * len(layer)) / 8) * 8
    room = 1 << 20
    open_file = None if path is None else lambda: IndexFile(open_descriptor(path), True, str(path), 1 << 60)
    return JpegIndex(share * room, room, open_file)


def records_of(fill: Callable[[JpegIndex], object], data: bytes, pixels: int = 16) -> list[Record]:
    """The records of an index that `fill` filled, without their keys, which are random. data, pixels: `index_of`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        fill(index_of(data, pixels, path))
        return [record._replace(key=(0, 0)) for record in parse(path.read_bytes())]
