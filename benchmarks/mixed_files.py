"""Mixed JPEGs for decoder benchmarks: three chroma subsamplings, gray, EXIF orientations, 0.2 to 12 megapixels.

Real data sets mix these, and a GPU's decoders choose their path by them (docs/cuda.md).
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["mixed_files"]

#: Sizes of the files in turn; half of them have less than one megapixel.
MEGAPIXELS = (0.2, 0.4, 0.2, 1.5, 0.7, 3.0, 0.2, 12.0)
_SUBSAMPLINGS = ("4:2:0", "4:2:0", "4:2:2", "4:4:4", "gray")
_ORIENTATIONS = (1, 1, 1, 6, 1, 8, 1)
_BASE_SIDE = 1024


def mixed_files(count: int, scale: float = 1.0) -> list[bytes]:
    """`count` encoded files; `scale` multiplies their megapixels. The seed of file i is i."""
    base = _draw_base()
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda i: _encode(base, i, MEGAPIXELS[i % len(MEGAPIXELS)] * scale), range(count)))


def _encode(base: NDArray[np.uint8], i: int, megapixels: float) -> bytes:
    rng = np.random.default_rng(i)
    height = max(16, round((megapixels * 1e6 * 3 / 4) ** 0.5) + int(rng.integers(-7, 8)))
    width = max(16, round(megapixels * 1e6 / height))
    view = np.roll(base, rng.integers(0, _BASE_SIDE, 2), axis=(0, 1))
    image = np.asarray(Image.fromarray(view).resize((width, height), Image.Resampling.BILINEAR))
    grain = rng.normal(0, 6, (height, width, 1)).astype(np.float32)
    picture: Any = Image.fromarray((image + grain).clip(0, 255).astype(np.uint8))
    subsampling, exif = _SUBSAMPLINGS[i % len(_SUBSAMPLINGS)], Image.Exif()
    exif[0x0112] = _ORIENTATIONS[i % len(_ORIENTATIONS)]
    encoded = io.BytesIO()
    if subsampling == "gray":
        picture.convert("L").save(encoded, "JPEG", quality=90, exif=exif)
    else:
        picture.save(encoded, "JPEG", quality=90, subsampling=subsampling, exif=exif)
    return encoded.getvalue()


def _draw_base() -> NDArray[np.uint8]:
    """(_BASE_SIDE, _BASE_SIDE, 3): noise with the amplitude spectrum of photographs, 1/f."""
    rng = np.random.default_rng(0)
    side = _BASE_SIDE
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = 1.0
    spectrum = np.fft.rfft2(rng.standard_normal((3, side, side))) / frequency
    spectrum[:, 0, 0] = 0.0
    luma, first, second = np.fft.irfft2(spectrum, s=(side, side))
    luma, first, second = 128 + 50 * luma / luma.std(), 15 * first / first.std(), 15 * second / second.std()
    return np.stack([luma + first, luma + second, luma - first], -1).clip(0, 255).astype(np.uint8)
