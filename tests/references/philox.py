"""Philox4x32-10 and the numbers of cuaug.sampling.rng, in Python integers and NumPy."""

from __future__ import annotations

import hashlib

import numpy as np

#: (counter, key, result) from Random123's file kat_vectors, philox4x32 with 10 rounds.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def philox(counter, key) -> np.ndarray:
    """(..., 4) uint32 words of (..., 4) counters and a (2,) key: section 4.3 of Salmon et al. 2011."""
    c0, c1, c2, c3 = np.moveaxis(np.asarray(counter, dtype=np.uint64), -1, 0)
    k0, k1 = (int(word) for word in key)
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        hi0, lo0, hi1, lo1 = first >> np.uint64(32), first & low, second >> np.uint64(32), second & low
        c0, c1, c2, c3 = hi1 ^ c1 ^ np.uint64(k0), lo1, hi0 ^ c3 ^ np.uint64(k1), lo0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def pixel_words(h: int, w: int, key, third: int = 0) -> np.ndarray:
    """(H, W, 4) words of each pixel's own generator, counter (x, y, third, 0)."""
    y, x = np.mgrid[:h, :w]
    return philox(np.stack([x, y, np.full_like(x, third), np.zeros_like(x)], axis=-1), key)


def split_mix(value: int) -> int:
    """One output of SplitMix64 from state `value`."""
    z = (value + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def key_of(seed: int, epoch: int, name: str = "") -> tuple[int, int]:
    """The key of a transform's class; without a name, that of the order."""
    key = split_mix(split_mix(seed % 2**64) ^ (epoch % 2**64))
    if name:
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        key = split_mix(key ^ sum(byte << 8 * i for i, byte in enumerate(digest)))
    return key % 2**32, key >> 32


def rng(seed: int, epoch: int, indices, name: str, position: int, first: int, count: int) -> np.ndarray:
    """(N, count) numbers first ... first + count - 1 of the `position`-th transform of a class, by sample index."""
    result = np.empty((len(indices), count))
    for i, index in enumerate(indices):
        index = int(index) % 2**64
        for k in range(count):
            number = first + k
            words = philox([index % 2**32, index >> 32, position, number // 4], key_of(seed, epoch, name))
            result[i, k] = int(words[number % 4]) / 2**32
    return result
