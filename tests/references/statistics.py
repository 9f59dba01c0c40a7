"""Operations that know the whole image first, on (H, W, 3) float64 arrays; `limit` is the value of white."""

from __future__ import annotations

import numpy as np

from tests.references.color import levels


def autocontrast(image: np.ndarray, limit: float) -> np.ndarray:
    """torchvision's autocontrast before it truncates; the range of uint8 images is that of whole levels."""
    result = image.copy()
    for c in range(3):
        channel = image[..., c]
        known = levels(channel).astype(np.float64) if limit == 255.0 else channel
        low, high = known.min(), known.max()
        if high > low:
            result[..., c] = (channel - low) * limit / (high - low)
    return np.clip(result, 0.0, limit)


def equalize(image: np.ndarray, limit: float) -> np.ndarray:
    """Pillow's ImageOps.equalize of the nearest levels."""
    result = np.empty_like(image)
    for c in range(3):
        channel = levels(image[..., c] * (255.0 / limit))
        histogram = [int((channel == level).sum()) for level in range(256)]
        present = [count for count in histogram if count > 0]
        step = (sum(present) - present[-1]) // 255
        table, darker = [], step // 2
        for level in range(256):
            table.append(min(darker // step, 255) if step else level)
            darker += histogram[level]
        result[..., c] = np.array(table)[channel] * (limit / 255.0)
    return result
