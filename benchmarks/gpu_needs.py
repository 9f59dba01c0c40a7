"""Tells what `gpu.sh` would miss on this machine, and for what, before minutes go by; fails if a step would fail.

python benchmarks/gpu_needs.py
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec

PHOTOS = "the photos of the benchmarks of images a second, training and Python"
#: Where a step fails without it.
NEEDED = {
    "PIL": "everything",
    "cupy": "the GPU",
    "nvidia.nvimgcodec": "decoding",
    "nvidia.nvjpeg": "decoding on the GPU",
    "pytest": "tests",
    "hypothesis": "tests",
    "cv2": "tests",
    "psutil": "tests",
    "skimage": f"tests, and {PHOTOS}",
    "sklearn": PHOTOS,
    "matplotlib": "the plot of the training step, which fails once its JSON is written",
}
#: What is left out without it.
LEFT_OUT = {
    "torchvision": "as a peer",
    "kornia": "as a peer",
    "nvidia.dali": "as a peer",
    "lmdb": "in tests",
    "h5py": "in tests",
    "pycocotools": "in tests",
    "fsspec": "in tests",
    "aiohttp": "in tests",
    "pytest_timeout": "so a test that hangs takes its step's time",
    "xdist": "so tests take turns",
}


def found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # nor is there what it would be in
        return False


def main() -> None:
    for module, where in LEFT_OUT.items():
        if not found(module):
            print(f"{module} is left out {where}" if where.startswith(("as", "in")) else f"no {module}, {where}")
    lacking = {module: what for module, what in NEEDED.items() if not found(module)}
    if shutil.which("compute-sanitizer") is None:
        lacking["compute-sanitizer"] = "memcheck and racecheck"
    for what, purpose in lacking.items():
        print(f"MISSING: {what}, for {purpose}")
    raise SystemExit(bool(lacking))


if __name__ == "__main__":
    main()
