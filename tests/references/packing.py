"""Patches and their sizes as the models' own processors compute them, one image at a time."""

from __future__ import annotations

import math

import numpy as np

Image = np.ndarray


def patches(frames: Image, size: int, merge: int = 1, temporal: int = 1, order: str = "chw") -> Image:
    """(patches, values) of (T, C, H, W): Transformers' Qwen2VLImageProcessor; "hwc" transposes each patch."""
    missing = -len(frames) % temporal
    frames = np.concatenate([frames, np.repeat(frames[-1:], missing, axis=0)])
    count, channels, height, width = frames.shape
    grid = count // temporal, height // size, width // size
    blocks = frames.reshape(grid[0], temporal, channels, grid[1] // merge, merge, size, grid[2] // merge, merge, size)
    blocks = blocks.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)  # (..., C, temporal, size, size)
    if order == "hwc":
        blocks = np.moveaxis(blocks, 5, -1)
    return blocks.reshape(math.prod(grid), -1)


def smart_resize(height: int, width: int, of: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Transformers' function for Qwen2-VL."""
    if max(height, width) / min(height, width) > 200:
        raise ValueError("aspect ratio")
    new_height, new_width = round(height / of) * of, round(width / of) * of
    if new_height * new_width > max_pixels:
        beta = math.sqrt((height * width) / max_pixels)
        new_height = max(of, math.floor(height / beta / of) * of)
        new_width = max(of, math.floor(width / beta / of) * of)
    elif new_height * new_width < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        new_height, new_width = math.ceil(height * beta / of) * of, math.ceil(width * beta / of) * of
    return new_height, new_width


def longest(height: int, width: int, of: int, max_size: int) -> tuple[int, int]:
    """nanoVLM's DynamicResize; a rounding error must not make the shorter side the longer one."""
    long, short = max(height, width), min(height, width)
    new_long = min(max_size, math.ceil(long / of) * of)
    new_short = min(new_long, max(of, math.ceil(short * (new_long / long) / of) * of))
    return (new_short, new_long) if width >= height else (new_long, new_short)


def most_patches(height: int, width: int, of: int, max_patches: int) -> tuple[int, int]:
    """Transformers' get_image_size_for_max_num_patches for SigLIP 2."""

    def scaled(scale: float, side: int) -> int:
        return max(of, math.ceil(side * scale / of) * of)

    low, high = 1e-5 / 10, 100.0
    while high - low >= 1e-5:
        scale = (low + high) / 2
        if (scaled(scale, height) / of) * (scaled(scale, width) / of) <= max_patches:
            low = scale
        else:
            high = scale
    return scaled(low, height), scaled(low, width)
