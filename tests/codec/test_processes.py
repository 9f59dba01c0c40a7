"""Threads, forks, imports, and the GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from cuaug.codec import CpuDecoder, CudaDecoder, _nvimgcodec, codec_version, gpu_decodes, nv, read_header
from tests.support.codec.encoded_images import FORMATS, JPEG, as_pillow, tagged_files


def test_one_decoder_per_thread():
    expected = {name: as_pillow(data) for name, data in FORMATS.items() if "jpeg" in name or "png" in name}
    failures = []

    def work(seed: int) -> None:
        try:
            decoder = CpuDecoder()
            names = np.random.default_rng(seed).permutation(list(expected))
            for name in names:
                if (decoder.decode(read_header(FORMATS[name], lossy=True)) != expected[name]).any():
                    failures.append(name)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_decodes(decoder):
    decoder.decode(read_header(JPEG))
    child = os.fork()
    if child == 0:
        same = (CpuDecoder().decode(read_header(JPEG)) == as_pillow(JPEG)).all()
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


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
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_import_is_on_the_callers_gpu(monkeypatch):
    """The import may create a context, in another thread, where GPU 0 would be current."""
    current, seen, loaded = threading.local(), [], nv()

    class Device:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            current.index = self.index

        def __exit__(self, *exception: object) -> None: ...

    def imported() -> None:
        seen.append(getattr(current, "index", 0))
        _nvimgcodec._nvimgcodec = loaded

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(_nvimgcodec, "_import", imported)
    monkeypatch.setattr(_nvimgcodec, "_nvimgcodec", None)
    assert nv() is loaded and seen == [3]


def test_lines_printed_during_the_import_are_kept_except_advice():
    """Lines from Python, child processes and C code appear; nvImageCodec's advice does not."""
    program = """
import ctypes, os, subprocess, sys
from cuaug.codec import nv

class PrintingFinder:
    def find_spec(self, name, path=None, target=None):
        if name != "nvidia.nvimgcodec":
            return
        libc = ctypes.CDLL(None)
        for line in (b"Failed to load nvtiff library!\\n", b"Note: If using nvImageCodec's\\n", b"from C\\n"):
            libc.fputs(line, ctypes.c_void_p.in_dll(libc, "stderr"))
        print("from Python", file=sys.stderr)
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'Failed to load nv of a child\\\\n')"])

sys.meta_path.insert(0, PrintingFinder())
nv()
libc = ctypes.CDLL(None)
libc.fputs(b"afterwards\\n", ctypes.c_void_p.in_dll(libc, "stderr"))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stderr.splitlines() == ["from Python", "Failed to load nv of a child", "from C", "afterwards"]


def test_version():
    assert codec_version().startswith("0.9.")


def _why_no_gpu() -> str:
    if not gpu_decodes(0)[0]:
        return gpu_decodes(0)[1]
    try:
        import cupy  # noqa: F401
    except ImportError as error:
        return str(error)
    return ""


@pytest.fixture
def cupy():
    reason = _why_no_gpu()
    if reason:
        (pytest.fail if os.environ.get("CUAUG_REQUIRE_CUDA") == "1" else pytest.skip)(reason)
    import cupy

    return cupy


def test_gpu_decodes_gives_a_reason():
    decodes, text = gpu_decodes(0)
    assert isinstance(decodes, bool) and text and "\n" not in text


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_device_that_decodes_is_tried_once_per_process(monkeypatch):
    monkeypatch.setitem(_nvimgcodec._decodes, 99, "decodes")
    assert gpu_decodes(99) == (True, "decodes")
    child = os.fork()
    if child == 0:
        os._exit(int(gpu_decodes(99)[0]))
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.cuda
def test_a_cuda_batch_of_every_format(cupy):
    """Every format in one batch, a bad file among them. JPEG decoders may differ by rounding."""
    files = dict(FORMATS) | {f"{name} {v}": data for v in (3, 6) for name, data in tagged_files(v).items()}
    bad = JPEG[: len(JPEG) // 2]
    headers = [read_header(data, lossy=True) for data in [*files.values(), bad]]
    stream = cupy.cuda.Stream(non_blocking=True)
    memory = [cupy.full((1, 4096, 3), 77, cupy.uint8) for _ in headers]
    cupy.cuda.Device().synchronize()
    cuda = CudaDecoder(cupy.cuda.Device().id)
    slots = [cuda.wrap(array, stream.ptr) for array in memory]
    outcomes = cuda.decode_batch(headers, slots, stream.ptr)
    stream.synchronize()
    assert "truncated" in str(outcomes.pop())
    for (name, data), header, array, outcome in zip(files.items(), headers, memory, outcomes, strict=False):
        pixels = array.get().reshape(-1)[: header.height * header.width * 3] if outcome is None else outcome
        off = np.abs(pixels.reshape(header.height, header.width, 3).astype(int) - as_pillow(data))
        assert off.max() <= (6 if "jpeg" in name or "webp" in name or "mpo" in name else 1), name
