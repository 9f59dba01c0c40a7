"""JPEG by Pillow, whose libjpeg the kernels equal bit for bit."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def encoded(image: np.ndarray, quality: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality, subsampling="4:2:0")
    return file.getvalue()


def by_pillow(image: np.ndarray, quality: int) -> np.ndarray:
    """(H, W, 3) uint8 image, saved and loaded by Pillow."""
    with Image.open(io.BytesIO(encoded(image, quality))) as decoded:
        return np.asarray(decoded.convert("RGB"))
