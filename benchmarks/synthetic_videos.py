"""Draws a set of videos whose bitrates are those of real footage; no real video is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

__all__ = ["FRAMES", "write_videos"]

FRAMES = 300  # of a video: 10 s
RATE = 30  # frames a second


def write_videos(folder: Path, count: int, height: int, width: int, *, key_distance: int, bitrate: int) -> list[str]:
    """Write H.264 videos in MP4 files unless they exist. Returns their paths.

    x264's preset is "medium": three B-frames in a row, pyramids of them, three reference frames.

    Args:
        height, width: of a frame, in pixels.
        key_distance: most frames from one key frame to the next.
        bitrate: bits per second.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:02}.mp4" for number in range(count)]
    for seed, path in enumerate(paths):
        if path.exists():
            continue
        unfinished = path.with_suffix(".part")
        with av.open(str(unfinished), "w", format="mp4") as container:
            options = {"preset": "medium", "g": str(key_distance), "sc_threshold": "0"}
            stream = container.add_stream("libx264", rate=RATE, options=options)
            stream.width, stream.height, stream.pix_fmt, stream.bit_rate = width, height, "yuv420p", bitrate
            for planes in _scene(height, width, seed):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(planes, format="yuv420p")))
            container.mux(stream.encode())
        unfinished.rename(path)
    return [str(path) for path in paths]


def _texture(rng: np.random.Generator, height: int, width: int) -> NDArray[np.int16]:
    """Noise of spectrum 1 / f, as photos have it; (height, width), periodic, about [16, 235]."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(rng.standard_normal((height, width))) / frequency**1.2
    noise = np.fft.irfft2(spectrum, (height, width))
    return (126 + 40 * noise / noise.std()).clip(16, 235).astype(np.int16)


def _scene(height: int, width: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    """Frames in yuv420p, (height * 3 / 2, width): a panning camera, a moving disc, and grain."""
    rng = np.random.default_rng(seed)
    background, disc = _texture(rng, 2 * height, 2 * width), _texture(rng, height, width)
    chroma = [_texture(rng, height, width) // 4 + 96 for _ in range(2)]
    grain = rng.normal(0, 1.5, (2 * height, 2 * width)).round().astype(np.int16)
    speed_y, speed_x = rng.uniform(-1.5, 1.5, 2)  # pixels a frame, of the camera
    radius = height // 5
    y, x = np.mgrid[-radius:radius, -radius:radius]
    inside = y**2 + x**2 < radius**2
    for number in range(FRAMES):
        top, left = (int(height / 2 + speed_y * number) % height) & ~1, (int(width / 2 + speed_x * number) % width) & ~1
        luma = background[top : top + height, left : left + width].copy()
        center_y = height // 2 + round(height / 4 * np.sin(number / 20 + seed))
        center_x = width // 2 + round(width / 3 * np.sin(number / 33 + 2 * seed))
        spot = luma[center_y - radius : center_y + radius, center_x - radius : center_x + radius]
        spot[inside] = disc[: 2 * radius, : 2 * radius][inside]
        down, right = rng.integers(0, (height, width))
        luma += grain[down : down + height, right : right + width]
        size = height // 2, width // 2
        parts = [plane[top // 2 : top // 2 + size[0], left // 2 : left // 2 + size[1]] for plane in chroma]
        flat = np.concatenate([luma.ravel(), *(part.ravel() for part in parts)])
        yield flat.clip(0, 255).astype(np.uint8).reshape(height * 3 // 2, width)
