"""Decodes JPEGs by `DeviceJpegs` and the CPU build of the GPU's kernels, with guards around all memory."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from cuaug._runtime.native import address, library
from cuaug.codec import JpegIndex
from cuaug.codec.device_jpegs import DeviceJpegs, memory_bound
from cuaug.codec.sniff import Region

_GUARD, _FRESH = 0xA5, 77


class GuardedMemory:
    """(size,) uint8 in `array`, from a multiple of 16 bytes on, between 256 bytes that must not change."""

    def __init__(self, size: int) -> None:
        memory = np.full(size + 528, _GUARD, dtype=np.uint8)
        begin = 256 + -memory.ctypes.data % 16
        self._before, self.array, self._after = memory[:begin], memory[begin : begin + size], memory[begin + size :]
        self.array.fill(_FRESH)

    @property
    def address(self) -> int:
        return self.array.ctypes.data

    def check(self, name: str) -> None:
        assert (self._before == _GUARD).all(), f"a write before the {name}"
        assert (self._after == _GUARD).all(), f"a write after the {name}"


class Outcome(NamedTuple):
    """What the kernels made of an image.

    Attributes:
        pixels: (h, w, 3) of the region; None: it was not added.
        is_damaged: what its status says.
    """

    pixels: np.ndarray | None
    is_damaged: bool


def request(data: bytes, region: Region | None = None, orientation: int = 1) -> tuple[int, ...]:
    """An `EncodedRegion` of a file that Pillow opens. Keep `data` while it is used."""
    width, height = Image.open(io.BytesIO(data)).size
    if orientation > 4:
        height, width = width, height
    region = region or (0, 0, height, width)
    return (np.frombuffer(data, np.uint8).ctypes.data, len(data), height, width, orientation, 0, 1, *region)


def decode(
    files: Sequence[bytes], regions: Sequence[Region | None] = (), orientations: Sequence[int] = (), **options: Any
) -> list[Outcome]:
    """Decodes a batch; whole images as stored by default. Options are those of `decode_rows`."""
    regions, orientations = regions or [None] * len(files), orientations or [1] * len(files)
    rows = [request(*its) for its in zip(files, regions, orientations, strict=True)]
    return decode_rows(np.array(rows, dtype=np.int64), **options)


def add(batch: DeviceJpegs, rows: np.ndarray, index: JpegIndex | None) -> np.ndarray:
    """Adds images; (n,) whether the kernels decode it."""
    handle = None if index is None else index.handle
    numbers, added = np.arange(len(rows)), np.zeros(len(rows), dtype=np.bool_)
    library.cuaug_device_batch_add(batch.handle, address(numbers), address(rows), len(rows), handle, address(added))
    return added


def decode_rows(
    rows: np.ndarray, *, index: JpegIndex | None = None, fancy_upsampling: bool = True, kernels: Any = library
) -> list[Outcome]:
    """Decodes a batch.

    Args:
        rows: (n, 11), an `EncodedRegion` each.
        index: of entry points; by default a new one, 16 pixels apart.
        fancy_upsampling: interpolate chroma.
        kernels: the library that decodes.
    """
    return run_batch(rows, index or JpegIndex(1 << 30), kernels, fancy_upsampling=fancy_upsampling)[0]


def run_batch(
    rows: np.ndarray, index: JpegIndex | None, kernels: Any, *, damage: Any = None, scan: bool = False, **options: Any
) -> tuple[list[Outcome], np.ndarray]:
    """Decodes a batch; what became of each image, and how often runs of each scanned image were read again.

    Args:
        damage: called with the uploaded data, which it may change.
        scan: the kernels find the entry points of files that the index does not know, which are kept in it.
        options: of `DeviceJpegs`.
    """
    memory = GuardedMemory(memory_bound(rows))
    batch = DeviceJpegs(memory.array, len(rows), scan=scan, **options)
    added = add(batch, rows, index)
    launch = batch.prepare()
    assert launch.images == added.sum() and launch.upload_bytes <= len(memory.array)
    sizes = [launch.sample_bytes, launch.target_bytes, launch.lookup_bytes, launch.scan_bytes if scan else 0]
    device = [memory, *map(GuardedMemory, sizes)]
    upload, _, first_target, lookups, _ = addresses = [its.address for its in device]
    targets = batch.finish(*addresses)
    if damage is not None:
        damage(memory.array[: min(launch.images_at, launch.scans_at)])
    before = memory.array.copy()
    statuses = memory.array[launch.statuses_at :][: 4 * len(rows)].view(np.int32)
    assert not statuses.any()
    rounds = np.zeros(launch.scans if scan else 0, np.int32)
    kernels.cuaug_build_lookups(upload + launch.definitions_at, launch.sets, lookups)
    if scan:
        kernels.cuaug_scan_jpegs(upload + launch.scans_at, launch.scans, rounds.ctypes.data)
    kernels.cuaug_decode_jpegs(upload + launch.images_at, upload + launch.blocks_at, launch.blocks)
    kernels.cuaug_color_jpegs(upload + launch.images_at, upload + launch.tiles_at, launch.tiles)
    before[launch.statuses_at :][: 4 * len(rows)] = statuses.view(np.uint8)
    np.testing.assert_array_equal(memory.array, before, "the kernels write statuses alone")
    for number, its in enumerate(device):
        its.check(f"memory {number}")
    assert (statuses[~added] == 0).all() and np.array_equal(targets != 0, added)
    if scan and index is not None:
        batch.keep(device[4].array[: launch.segment_bytes].copy(), statuses, index)
    outcomes = []
    for row, target, status in zip(rows, targets, statuses, strict=True):
        height, width = row[9] - row[7], row[10] - row[8]
        pixels = device[2].array[int(target) - first_target :][: 3 * height * width] if target else None
        outcomes.append(Outcome(None if pixels is None else pixels.reshape(height, width, 3), bool(status)))
    return outcomes, rounds
