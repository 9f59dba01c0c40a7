"""Lists the packages that `gpu.sh` misses on this machine; exits with 1 if a step would fail.

python benchmarks/gpu_needs.py
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec

#: Module -> its purpose; a step fails without it.
REQUIRED = {
    "PIL": "everything",
    "cupy": "the GPU",
    "nvidia.nvimgcodec": "decoding",
    "nvidia.nvjpeg": "decoding on the GPU",
    "pytest": "tests",
    "av": "tests and clips",
    "hypothesis": "tests",
    "cv2": "tests",
    "psutil": "tests",
    "skimage": "tests",
}
#: Module -> the part that is skipped without it.
OPTIONAL = {
    "torchvision": "as a peer",
    "kornia": "as a peer",
    "nvidia.dali": "as a peer",
    "PyNvVideoCodec": "in tests, and as a decoder of clips",
    "lmdb": "in tests",
    "h5py": "in tests",
    "pycocotools": "in tests",
    "sklearn": "as a source of photos, so benchmarks draw their images",
    "pytest_timeout": "so a hanging test takes its step's time",
    "xdist": "so tests run one after the other",
}


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # its parent package is missing
        return False


def main() -> None:
    if shutil.which("compute-sanitizer") is None:
        print("no compute-sanitizer, so the stage sanitizer is skipped")
    for module, where in OPTIONAL.items():
        if not is_installed(module):
            print(f"{module} is skipped {where}" if where.startswith(("as", "in")) else f"no {module}, {where}")
    missing = {module: purpose for module, purpose in REQUIRED.items() if not is_installed(module)}
    for name, purpose in missing.items():
        print(f"MISSING: {name}, for {purpose}")
    raise SystemExit(bool(missing))


if __name__ == "__main__":
    main()
