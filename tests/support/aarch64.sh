#!/usr/bin/env bash
# Tests the aarch64 wheel in dist/ under QEMU, on x86-64. Its results must have the bits of the build in .venv, and the
# tests below must pass; more pytest arguments may follow. Needs Debian's qemu-user and debootstrap, and root, which
# debootstrap asks for. Downloads 0.5 GB into build/aarch64 the first time.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$PWD/build/aarch64
root=$folder/root

if [ ! -f "$folder/installed" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    # Debian's Python, unpacked and not installed: no program of it runs outside QEMU.
    debootstrap --arch=arm64 --foreign --variant=minbase --include=python3,libgomp1,libstdc++6 bookworm "$root"
    for package in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
    # By name, without what they depend on: pip would take this machine's markers. torch 2.10 is the last small one.
    .venv/bin/pip install --quiet --no-deps --only-binary=:all: --target "$folder/packages" --python-version 3.11 \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 \
        torch==2.10.0 typing_extensions filelock sympy mpmath networkx jinja2 markupsafe fsspec numpy pillow \
        "nvidia-nvimgcodec-cu12>=0.9,<0.10" opencv-python-headless scikit-image lazy-loader scipy imageio tifffile imagecodecs \
        pytest pytest-timeout pluggy iniconfig packaging pygments hypothesis sortedcontainers psutil
    touch "$folder/installed"
fi
rm -rf "$folder/wheel"
.venv/bin/python -m zipfile -e dist/*_aarch64.whl "$folder/wheel"

emulate() {
    CUAUG_KERNEL_LIBRARY=$folder/wheel/cuaug/_kernels.so PYTHONPATH=$folder/packages PYTHONDONTWRITEBYTECODE=1 \
        HYPOTHESIS_PROFILE=everyday qemu-aarch64 -L "$root" "$root/usr/bin/python3" "$@"
}

plans="tests.support.sanitizer_plans 1 baseline"
here=$(.venv/bin/python -m $plans)
there=$(emulate -m $plans)
echo "x86-64:  $here"
echo "aarch64: $there"
[ "$here" = "$there" ]
emulate -m pytest -p no:cacheprovider --timeout 3600 -m "not slow" tests/kernels/test_layout.py \
    tests/kernels/test_convert_yuv.py tests/kernels/test_signatures.py tests/codec/test_index.py \
    tests/codec/test_jpeg_headers.py tests/properties "$@"
