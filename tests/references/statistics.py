"""Operations that read a statistic of the whole image, on (H, W, 3) float64 arrays; `limit` is the value of white."""

from __future__ import annotations

import numpy as np

from tests.references import sampling
from tests.references.color import levels


def autocontrast(image: np.ndarray, limit: float) -> np.ndarray:
    """torchvision's autocontrast before truncation; uint8 images have the range of their rounded levels."""
    result = image.copy()
    for c in range(3):
        channel = image[..., c]
        rounded = levels(channel).astype(np.float64) if limit == 255.0 else channel
        low, high = rounded.min(), rounded.max()
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


def clahe(image: np.ndarray, clip_limit: float, grid: tuple[int, int], limit: float) -> np.ndarray:
    """OpenCV's CLAHE of the nearest levels, before rounding; `grid` is cells (down, across)."""
    h, w, _ = image.shape
    rounded = levels(image * (255.0 / limit))
    if h % grid[0] or w % grid[1]:
        rounded = sampling.pad(rounded, 0, 0, grid[1] - w % grid[1], grid[0] - h % grid[0], "reflect")
    height, width = rounded.shape[0] // grid[0], rounded.shape[1] // grid[1]
    tables = np.empty((*grid, 256, 3))
    for i, j, c in np.ndindex(*grid, 3):
        cell = rounded[i * height : (i + 1) * height, j * width : (j + 1) * width, c]
        tables[i, j, :, c] = clahe_table(np.bincount(cell.reshape(-1), minlength=256), clip_limit)
    result = np.empty((h, w, 3))
    for y, x, c in np.ndindex(h, w, 3):
        down, across = np.float32(y) / np.float32(height) - 0.5, np.float32(x) / np.float32(width) - 0.5
        i, j = np.floor(down), np.floor(across)
        rows, columns = np.clip([i, i + 1], 0, grid[0] - 1), np.clip([j, j + 1], 0, grid[1] - 1)
        corners = tables[np.ix_(rows.astype(int), columns.astype(int))][:, :, rounded[y, x, c], c]
        result[y, x, c] = [1 - (down - i), down - i] @ corners @ [1 - (across - j), across - j]
    return result * (limit / 255.0)


def clahe_table(counts: np.ndarray, clip_limit: float) -> np.ndarray:
    """(256,) look-up table of a cell with these counts."""
    counts, area = counts.astype(np.int64), int(counts.sum())
    if clip_limit > 0:
        limit = max(int(clip_limit * area / 256), 1)
        excess = int(np.maximum(counts - limit, 0).sum())
        counts = np.minimum(counts, limit) + excess // 256
        rest = excess % 256
        if rest:
            counts[:: max(256 // rest, 1)][:rest] += 1
    scale = np.float32(255) / np.float32(area)
    return np.rint(np.minimum(counts.cumsum().astype(np.float32) * scale, 255))
