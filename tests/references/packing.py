"""Patches and their sizes as the models' own processors compute them, one image at a time."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image as Pil

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


def nearest_grid(height: int, width: int, size: int, least: int, most: int) -> tuple[int, int]:
    """(columns, rows) of InternVL's dynamic_preprocess."""
    sides = range(1, most + 1)
    ratios = {(i, j) for n in range(least, most + 1) for i in sides[:n] for j in sides[:n] if least <= i * j <= most}
    best, difference = (1, 1), float("inf")
    for ratio in sorted(ratios, key=lambda ratio: (ratio[0] * ratio[1], ratio)):
        own = abs(width / height - ratio[0] / ratio[1])
        if own < difference:
            best, difference = ratio, own
        elif own == difference and width * height > 0.5 * size * size * ratio[0] * ratio[1]:
            best = ratio
    return best


def internvl_tiles(image: Pil.Image, size: int, least: int, most: int, thumbnail: str | None) -> list[Pil.Image]:
    columns, rows = nearest_grid(image.height, image.width, size, least, most)
    tiles = cut(image.resize((size * columns, size * rows), Pil.Resampling.BICUBIC), size)
    if thumbnail is None or len(tiles) == 1:
        return tiles
    small = [image.resize((size, size), Pil.Resampling.BICUBIC)]
    return tiles + small if thumbnail == "last" else small + tiles


def llava_tiles(image: Pil.Image, size: int, grids: list[tuple[int, int]], thumbnail: str | None) -> list[Pil.Image]:
    """LLaVA-NeXT's process_anyres_image: select_best_resolution, resize_and_pad_image, divide_to_patches."""
    width, height = image.size
    best, most, least = (0, 0), 0, math.inf
    for rows, columns in grids:
        scale = min(size * columns / width, size * rows / height)
        shown = min(int(width * scale) * int(height * scale), width * height)
        wasted = size * size * rows * columns - shown
        if shown > most or (shown == most and wasted < least):
            best, most, least = (size * rows, size * columns), shown, wasted
    down, across = best[0] / height, best[1] / width
    if across < down:
        new = min(math.ceil(height * across), best[0]), best[1]
    else:
        new = best[0], min(math.ceil(width * down), best[1])
    canvas = Pil.new("RGB", best[::-1])
    resized = image.resize(new[::-1], Pil.Resampling.BICUBIC)
    canvas.paste(resized, ((best[1] - new[1]) // 2, (best[0] - new[0]) // 2))
    small = [] if thumbnail is None else [image.resize((size, size), Pil.Resampling.BICUBIC)]
    return cut(canvas, size) + small if thumbnail == "last" else small + cut(canvas, size)


def cut(image: Pil.Image, size: int) -> list[Pil.Image]:
    corners = [(x, y) for y in range(0, image.height, size) for x in range(0, image.width, size)]
    return [image.crop((x, y, x + size, y + size)) for x, y in corners]
