"""The JPEG files of the GPU benchmarks: by default about 500 x 375, 108 kB each."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from photos import write_photos

__all__ = ["draw_photo", "index_files", "origin", "write_files"]

HEIGHT, WIDTH = 375, 500


def origin() -> str:
    """Where the images come from, for a benchmark's JSON."""
    missing = [name for name in ("skimage", "sklearn") if find_spec(name) is None]
    return f"drawn, as there is no {' and no '.join(missing)}" if missing else "photos of scikit-image and scikit-learn"


def write_files(root: Path, count: int, height: int = HEIGHT, width: int = WIDTH) -> list[str]:
    """Writes the files into a folder of `root`, unless it has them, and reads them to warm their pages."""
    if origin().startswith("drawn"):
        folder = root / f"drawn-{width}x{height}-{count}"
        folder.mkdir(parents=True, exist_ok=True)
        missing = [n for n in range(count) if not (folder / f"{n:05}.jpg").exists()]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda n: _write(folder / f"{n:05}.jpg", n, height, width), missing))
    else:
        folder = write_photos(root / f"{width}x{height}-{count}", count, height, width)
    paths = sorted(folder.glob("*.jpg"))
    for path in paths:
        path.read_bytes()
    return [str(path) for path in paths]


def index_files(paths: list[str]) -> None:
    """Makes the kept JPEG index of the files' folder: a stand-in for a GPU would find no entry points."""
    command = [sys.executable, "-m", "cuaug", "index", str(Path(paths[0]).resolve().parent)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).resolve().parents[1])


def _write(path: Path, seed: int, height: int, width: int) -> None:
    partial: Any = path.with_suffix(".partial")
    Image.fromarray(draw_photo(seed, height, width)).save(partial, "JPEG", quality=90, subsampling="4:2:0")
    partial.rename(path)


def draw_photo(seed: int, height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.uint8]:
    """(height, width, 3): noise with the amplitude spectrum of photographs, 1/f, and film grain."""
    rng = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    frequency[0, 0] = 1.0
    spectrum = np.fft.rfft2(rng.standard_normal((3, height, width))) / frequency
    spectrum[:, 0, 0] = 0.0
    luma, *chroma = np.fft.irfft2(spectrum, s=(height, width))
    gray = 128 + 55 * luma / luma.std() + rng.normal(0, 5, luma.shape)
    first, second = (15 * plane / plane.std() for plane in chroma)
    return np.stack([gray + first, gray - first / 2 + second, gray - second], -1).clip(0, 255).astype(np.uint8)
