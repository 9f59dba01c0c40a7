"""`Loader.close()` returns memory to the system that the C library has kept."""

from __future__ import annotations

import ctypes
import json

import pytest

from tests.support.loader.programs import run_apart

pytestmark = [
    pytest.mark.cpu_only,
    pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library keeps no memory to trim"),
]

PROGRAM = """
import io, json
import psutil
from PIL import Image
from cuaug.pipeline import pipeline
from tests.support.loader.further_pictures import Bytes

def encoded(height, width, form):
    out = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(out, form)
    return out.getvalue()

def measured_release():
    levels.append(psutil.Process().memory_info().rss >> 20)
    release()
    levels.append(psutil.Process().memory_info().rss >> 20)

levels, release = [], pipeline.release_freed_memory
pipeline.release_freed_memory = measured_release
data = [encoded(2400, 2600 + 100 * i, form) for i, form in enumerate(("GIF", "PPM", "TIFF", "GIF"))]
with Loader(Bytes(*data * 8), T.Resize((64, 64)), batch_size=8, threads=8, device="cpu") as loader:
    for _ in loader:
        pass
print(json.dumps(levels))
"""


def test_resident_memory_is_lower_after_close():
    before, after = json.loads(run_apart(PROGRAM, {}))
    assert after < before - 50, f"{before} MB before, {after} MB after"
