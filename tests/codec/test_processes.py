"""Threads, imports, and the GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cuaug.codec import CpuDecoder, gpu_decodes, read_header
from tests.support.codec.encoded_images import FORMATS, as_pillow


def test_one_decoder_per_thread():
    expected = {name: as_pillow(data) for name, data in FORMATS.items() if "jpeg" in name or "png" in name}

    def work(seed: int) -> None:
        decoder = CpuDecoder()
        for name in np.random.default_rng(seed).permutation(list(expected)):
            pixels = decoder.decode(read_header(FORMATS[name], lossy=True))
            np.testing.assert_array_equal(pixels, expected[name], name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_import_and_failures_print_nothing():
    program = """
import io, os, sys
import cuaug.codec
assert "nvidia.nvimgcodec" not in sys.modules
from PIL import Image
from cuaug.codec import CpuDecoder, read_header
from cuaug.errors import DecodeError
decoder = CpuDecoder()
assert "OPENCV_LOG_LEVEL" not in os.environ
for form in ("JPEG", "WEBP", "JPEG2000", "BMP"):
    out = io.BytesIO()
    Image.radial_gradient("L").convert("RGB").save(out, form)
    try:
        decoder.decode(read_header(out.getvalue()[:len(out.getvalue()) // 2]))
    except DecodeError:
        continue
    raise AssertionError(form)
"""
    environment = {k: v for k, v in os.environ.items() if k != "OPENCV_LOG_LEVEL"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_gpu_decodes_gives_a_reason():
    decodes, text = gpu_decodes(0)
    assert isinstance(decodes, bool) and text and "\n" not in text
