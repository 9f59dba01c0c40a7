"""Pillow's resize of uint8 images in NumPy's integers, with the order of passes of either version."""

from __future__ import annotations

import math

import numpy as np

from tests.references.sampling import sinc

#: Bits of a weight's fraction.
BITS = 22


def cubic(x: float) -> float:
    x, a = abs(x), -0.5
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


def hamming(x: float) -> float:
    a, b = (float(np.float32(value)) for value in (0.54, 0.46))
    return sinc(x) * (a + b * math.cos(x * math.pi)) if abs(x) < 1 else 0.0


#: The filters, and half of their widths in pixels.
FILTERS = {
    "bilinear": (lambda x: max(1 - abs(x), 0.0), 1.0),
    "bicubic": (cubic, 2.0),
    "box": (lambda x: float(-0.5 < x <= 0.5), 0.5),
    "hamming": (hamming, 1.0),
    "lanczos": (lambda x: sinc(x) * sinc(x / 3) if -3 <= x < 3 else 0.0, 3.0),
}


def weights(old: int, new: int, filter: str) -> list[tuple[int, np.ndarray]]:
    """For each output: its first input, and integer weights."""
    shape, support = FILTERS[filter]
    scale = old / new
    stretch = max(scale, 1.0)
    rows = []
    for i in range(new):
        center = (i + 0.5) * scale
        first = max(int(center - support * stretch + 0.5), 0)
        last = min(int(center + support * stretch + 0.5), old)
        values = [shape((k - center + 0.5) * (1.0 / stretch)) for k in range(first, last)]
        total = 0.0
        for value in values:
            total += value
        shares = np.array([value / total if total else value for value in values])
        rows.append((first, np.trunc(shares * 2**BITS + np.copysign(0.5, shares)).astype(np.int64)))
    return rows


def along_columns(image: np.ndarray, new: int, filter: str) -> np.ndarray:
    """Resizes axis 0 of (H, ...) uint8 to `new`."""
    out = np.empty((new, *image.shape[1:]), dtype=np.uint8)
    for i, (first, shares) in enumerate(weights(len(image), new, filter)):
        sums = np.tensordot(shares, image[first : first + len(shares)].astype(np.int64), (0, 0))
        assert (np.abs(sums) < 2**31 - 2**BITS).all()  # the kernels sum in 32 bits
        out[i] = np.clip((sums + 2 ** (BITS - 1)) >> BITS, 0, 255)
    return out


def along_rows(image: np.ndarray, new: int, filter: str) -> np.ndarray:
    return along_columns(image.swapaxes(0, 1), new, filter).swapaxes(0, 1)


def nearest(old: int, new: int) -> list[int]:
    """The input under the center of each output. Centers are added up, and rounded by each addition."""
    places, at = [], old / new * 0.5
    for _ in range(new):
        places.append(int(at))
        at += old / new
    return places


def resize(image: np.ndarray, height: int, width: int, filter: str, version: int) -> np.ndarray:
    """(H, W, C) uint8 resized as version 12 or 13 of Pillow does."""
    h, w = image.shape[:2]
    if filter in ("nearest", "nearest_exact"):
        return image[nearest(h, height)][:, nearest(w, width)]
    columns_first = version >= 13 and height < h and h - height > 2 * (w - width)
    if columns_first:
        return along_rows(along_columns(image, height, filter), width, filter)
    return along_columns(along_rows(image, width, filter), height, filter)
