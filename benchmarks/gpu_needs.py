"""Lists the software that `gpu.sh` would miss on this machine. Exit status 1 if a step would fail.

python benchmarks/gpu_needs.py
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec

PHOTOS = "photos of the loader, training and Python benchmarks"
#: Module -> the steps that fail without it.
REQUIRED = {
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
    "matplotlib": "the plot of the training step, written after its JSON",
}
#: Module -> the effect of its absence.
OPTIONAL = {
    "torchvision": "this peer is left out",
    "kornia": "this peer is left out",
    "nvidia.dali": "this peer is left out",
    "lmdb": "its tests are skipped",
    "h5py": "its tests are skipped",
    "pycocotools": "its tests are skipped",
    "fsspec": "its tests are skipped",
    "aiohttp": "its tests are skipped",
    "pytest_timeout": "a test that hangs uses up its step's time",
    "xdist": "tests run one after the other",
}


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # its parent package is missing
        return False


def main() -> None:
    for module, effect in OPTIONAL.items():
        if not is_installed(module):
            print(f"no {module}: {effect}")
    missing = {module: purpose for module, purpose in REQUIRED.items() if not is_installed(module)}
    if shutil.which("compute-sanitizer") is None:
        missing["compute-sanitizer"] = "memcheck and racecheck"
    for name, purpose in missing.items():
        print(f"MISSING: {name}, for {purpose}")
    raise SystemExit(bool(missing))


if __name__ == "__main__":
    main()
