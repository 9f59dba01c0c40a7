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

__all__ = ["GuardedMemory", "Outcome", "add", "decode", "decode_rows", "request"]

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
    memory = GuardedMemory(memory_bound(rows))
    batch = DeviceJpegs(memory.array, len(rows), fancy_upsampling=fancy_upsampling)
    added = add(batch, rows, index or JpegIndex(1 << 30))
    plan = batch.plan()
    assert plan.images == added.sum() and plan.upload_bytes <= len(memory.array)
    sizes = {"samples": plan.sample_bytes, "targets": plan.target_bytes, "lookups": plan.lookup_bytes}
    device = {name: GuardedMemory(size) for name, size in sizes.items()} | {"upload": memory}
    targets = batch.finish(*(device[name].address for name in ("upload", "samples", "targets", "lookups")))
    uploaded = memory.array.copy()
    statuses = memory.array[plan.statuses_at :][: 4 * len(rows)].view(np.int32)
    assert not statuses.any()
    _launch(kernels, plan, device)
    uploaded[plan.statuses_at :][: 4 * len(rows)] = statuses.view(np.uint8)
    np.testing.assert_array_equal(memory.array, uploaded, "the kernels write statuses alone")
    for name, its in device.items():
        its.check(name)
    assert (statuses[~added] == 0).all() and np.array_equal(targets != 0, added)
    return [
        Outcome(_pixels(device["targets"], int(target), row) if target else None, bool(status))
        for row, target, status in zip(rows, targets, statuses, strict=True)
    ]


def _launch(kernels: Any, plan: Any, device: dict[str, GuardedMemory]) -> None:
    upload = device["upload"].address
    kernels.cuaug_build_lookups(upload + plan.definitions_at, plan.sets, device["lookups"].address)
    kernels.cuaug_decode_jpegs(upload + plan.images_at, upload + plan.blocks_at, plan.blocks)
    kernels.cuaug_color_jpegs(upload + plan.images_at, upload + plan.tiles_at, plan.tiles)


def _pixels(targets: GuardedMemory, target: int, row: np.ndarray) -> np.ndarray:
    height, width = row[9] - row[7], row[10] - row[8]
    begin = target - targets.address
    return targets.array[begin : begin + 3 * height * width].reshape(height, width, 3)
