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
from cuaug.codec.device_jpegs import DeviceJpegs, memory_bound
from cuaug.codec.jpeg_index import IndexFile
from cuaug.codec.sniff import Region
from tests.support.codec.index_files import RECORD, Record, open_descriptor, parse
from tests.support.device_jpegs import GuardedMemory, Outcome, add, request

__all__ = ["FirstVisit", "index_of", "records_of", "visit"]


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
    memory = GuardedMemory(memory_bound(rows))
    batch = DeviceJpegs(memory.array, len(rows), scan=True)
    added = add(batch, rows, index)
    plan = batch.plan()
    sizes = [plan.sample_bytes, plan.target_bytes, plan.lookup_bytes, plan.scan_bytes]
    device = [memory, *map(GuardedMemory, sizes)]
    upload, _, _, lookups, _ = addresses = [its.address for its in device]
    targets = batch.finish(*addresses)
    if damage is not None:
        damage(memory.array[: min(plan.images_at, plan.scans_at)])
    before = memory.array.copy()
    rounds = np.zeros(plan.scans, np.int32)
    kernels.cuaug_build_lookups(upload + plan.definitions_at, plan.sets, lookups)
    kernels.cuaug_scan_jpegs(upload + plan.scans_at, plan.scans, rounds.ctypes.data)
    kernels.cuaug_decode_jpegs(upload + plan.images_at, upload + plan.blocks_at, plan.blocks)
    kernels.cuaug_color_jpegs(upload + plan.images_at, upload + plan.tiles_at, plan.tiles)
    for number, its in enumerate(device):
        its.check(f"memory {number}")
    statuses = memory.array[plan.statuses_at :][: 4 * len(rows)].view(np.int32)
    before[plan.statuses_at :][: 4 * len(rows)] = statuses.view(np.uint8)
    np.testing.assert_array_equal(memory.array, before, "the kernels write statuses alone")
    if index is not None:
        batch.keep(device[4].array[: plan.segment_bytes].copy(), statuses, index)
    outcomes = []
    for row, target, status, is_added in zip(rows, targets, statuses, added, strict=True):
        height, width = row[9] - row[7], row[10] - row[8]
        pixels = device[2].array[int(target) - device[2].address :][: 3 * height * width] if is_added else None
        outcomes.append(Outcome(None if pixels is None else pixels.reshape(height, width, 3), bool(status)))
    return FirstVisit(outcomes, rounds)


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
