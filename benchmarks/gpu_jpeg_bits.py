"""`check_bits`: our JPEG kernels against Pillow, on drawn files of all kinds, whole and in part, sound and damaged."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuaug.codec import JpegIndex
from tests.support.codec.encoded_images import as_pillow
from tests.support.cuda_jpegs import CudaJpegs, damage_data, draw_jpeg, random_region

__all__ = ["check_bits"]

_BATCH = 250
#: Number of files of an index: entry points are 16 and 64 pixels apart.
_INDEX_FILES = (1, 1 << 40)


def check_bits(count: int) -> dict[str, Any]:
    """Decodes `count` drawn files, and a quarter of them damaged.

    Returns:
        bit_exact: whether none is wrong.
        compared: images of sound files that were compared: whole and in part, with an index and without.
        unsynchronized: images whose entry points the kernels did not find, so that the CPU would: at most one in 400.
        noticed: damaged images that the kernels reported.
        wrong: what was done to files -> the seeds of those with wrong pixels or statuses.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        files = list(pool.map(draw_jpeg, range(count)))
        images = list(pool.map(as_pillow, files))
    sound, compared, unsynchronized = _check_sound(files, images)
    damaged = range(1, count, 4)
    stale, noticed_stale = _check_stale(files, images, damaged)
    mutants, noticed_mutants = _check_mutants(files, damaged)
    wrong = {"nothing": sound, "a stale index": stale, "damage": mutants}
    return {
        "bit_exact": compared + unsynchronized == 4 * count
        and 100 * unsynchronized <= count
        and noticed_stale > 0
        and noticed_mutants > 0
        and not any(wrong.values()),
        "compared": compared,
        "unsynchronized": unsynchronized,
        "noticed": {"a stale index": noticed_stale, "damage": noticed_mutants},
        "wrong": wrong,
    }


def _batches(seeds: Iterable[int]) -> list[list[int]]:
    seeds = list(seeds)
    return [seeds[begin : begin + _BATCH] for begin in range(0, len(seeds), _BATCH)]


def _check_sound(files: list[bytes], images: list[NDArray[np.uint8]]) -> tuple[list[int], int, int]:
    """Files and their regions, with an index and without: wrong seeds, how many were compared, how many could not."""
    wrong, compared, unsynchronized = set(), 0, 0
    for number, seeds in enumerate(_batches(range(len(files)))):
        parts = [random_region(seed, *images[seed].shape[:2]) for seed in seeds]
        indexes = JpegIndex(1 << 40, _INDEX_FILES[number % 2]), None
        for index, regions in itertools.product(indexes, (None, parts)):
            batch = CudaJpegs([files[seed] for seed in seeds], regions, index=index)
            pixels, statuses = batch.decode()
            for seed, got, status, (y0, x0, y1, x1) in zip(seeds, pixels, statuses, batch.regions, strict=True):
                if status and index is None:
                    unsynchronized += 1
                    continue
                compared += got is not None
                if status or not np.array_equal(got, images[seed][y0:y1, x0:x1]):
                    wrong.add(seed)
    return sorted(wrong), compared, unsynchronized


def _check_stale(files: list[bytes], images: list[NDArray[np.uint8]], damaged: Iterable[int]) -> tuple[list[int], int]:
    """Changes data after the entry points were found: neighbors keep their pixels. Wrong seeds, and noticed files."""
    wrong, noticed, damaged = [], 0, set(damaged)
    for seeds in _batches(range(len(files))):
        batch = CudaJpegs([files[seed] for seed in seeds], index=JpegIndex(1 << 40))
        damage_data(batch, [i for i, seed in enumerate(seeds) if seed in damaged], seed=0)
        pixels, statuses = batch.decode()
        noticed += int(np.count_nonzero(statuses))
        for seed, got, status in zip(seeds, pixels, statuses, strict=True):
            if seed not in damaged and (status or not np.array_equal(got, images[seed])):
                wrong.append(seed)
    return wrong, noticed


def _check_mutants(files: list[bytes], damaged: Iterable[int]) -> tuple[list[int], int]:
    """Damaged files: the kernels report it, or give Pillow's pixels. Wrong seeds, and noticed or refused files."""
    wrong, noticed = [], 0
    for seeds in _batches(damaged):
        mutants = [_mutate(files[seed], seed) for seed in seeds]
        pixels, statuses = CudaJpegs(mutants, index=JpegIndex(1 << 40)).decode()
        for seed, got, status, mutant in zip(seeds, pixels, statuses, mutants, strict=True):
            noticed += bool(got is None or status)
            if got is not None and not status and not _equals_pillow(got, mutant):
                wrong.append(seed)
    return wrong, noticed


def _mutate(data: bytes, seed: int) -> bytes:
    """Changes up to four bytes of the entropy-coded data."""
    rng, begin, mutant = np.random.default_rng(seed), data.index(b"\xff\xda") + 14, bytearray(data)
    for at in rng.integers(begin, len(data) - 2, rng.integers(1, 5)).tolist():
        mutant[at] = int(rng.integers(256))
    return bytes(mutant)


def _equals_pillow(pixels: NDArray[np.uint8], data: bytes) -> bool:
    try:
        return np.array_equal(pixels, as_pillow(data))
    except OSError:  # Pillow refuses it
        return False
