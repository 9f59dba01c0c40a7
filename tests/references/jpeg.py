"""JPEG by its standards, in real numbers: ITU-T T.81's DCT and quantization, JFIF's colors, 4:2:0.

libjpeg computes with integers of a few bits, so a coefficient near the middle between two steps may round to the other.
Its results are close to `jpeg`, not equal; `by_pillow` gives them.
"""

from __future__ import annotations

import io
import math

import numpy as np
from PIL import Image

TO_YCC = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
DCT = np.array(
    [
        [math.cos((2 * x + 1) * u * math.pi / 16) * (math.sqrt(1 / 8) if u == 0 else 0.5) for x in range(8)]
        for u in range(8)
    ]
)


def steps(quality: int) -> list[np.ndarray]:
    """(8, 8) quantization steps of luma and of chroma, from the header that Pillow writes."""
    with Image.open(io.BytesIO(encoded(np.zeros((8, 8, 3), np.uint8), quality))) as image:
        # By rows since Pillow 8.3; in zigzag order before.
        return [np.array(image.quantization[k]).reshape(8, 8) for k in (0, 1)]


def encoded(image: np.ndarray, quality: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality, subsampling="4:2:0")
    return file.getvalue()


def by_pillow(image: np.ndarray, quality: int) -> np.ndarray:
    """(H, W, 3) uint8 image, saved and loaded by Pillow."""
    with Image.open(io.BytesIO(encoded(image, quality))) as decoded:
        return np.asarray(decoded.convert("RGB"))


def quantized(plane: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """A plane after DCT, quantization and inverse DCT; the last row and column repeat to whole blocks."""
    h, w = plane.shape
    padded = np.pad(plane, ((0, -h % 8), (0, -w % 8)), mode="edge") - 128
    for y in range(0, h, 8):
        for x in range(0, w, 8):
            block = DCT @ padded[y : y + 8, x : x + 8] @ DCT.T
            block = np.round(block / steps) * steps
            padded[y : y + 8, x : x + 8] = DCT.T @ block @ DCT
    return np.clip(padded[:h, :w] + 128, 0, 255)


def halved(plane: np.ndarray) -> np.ndarray:
    h, w = plane.shape
    padded = np.pad(plane, ((0, h % 2), (0, w % 2)), mode="edge")
    return (padded[::2, ::2] + padded[1::2, ::2] + padded[::2, 1::2] + padded[1::2, 1::2]) / 4


def doubled(plane: np.ndarray, axis: int) -> np.ndarray:
    """Fancy upsampling: three quarters of the nearest sample, one quarter of the next."""
    plane = np.moveaxis(plane, axis, 0)
    before, after = np.concatenate([plane[:1], plane[:-1]]), np.concatenate([plane[1:], plane[-1:]])
    both = np.stack([0.75 * plane + 0.25 * before, 0.75 * plane + 0.25 * after], axis=1)
    return np.moveaxis(both.reshape(-1, plane.shape[1]), 0, axis)


def jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    """Encodes and decodes an image of uint8 levels, in real numbers."""
    h, w, _ = image.shape
    ycc = image.astype(np.float64) @ TO_YCC.T + (0, 128, 128)
    luma, chroma = steps(quality)
    planes = [quantized(ycc[..., 0], luma)]
    for k in (1, 2):
        plane = quantized(halved(ycc[..., k]), chroma)
        if plane.shape[1] > 2:
            planes.append(doubled(doubled(plane, 0), 1)[:h, :w])
        else:  # libjpeg's rule for narrow images
            planes.append(plane.repeat(2, axis=0).repeat(2, axis=1)[:h, :w])
    ycc = np.stack(planes, axis=-1) - (0, 128, 128)
    return np.clip(ycc @ np.linalg.inv(TO_YCC).T, 0, 255)
