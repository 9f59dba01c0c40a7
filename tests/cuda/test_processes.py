"""Tests in processes of their own: exits, forks, a cold cache, several GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.cuda

ROOT = Path(__file__).parents[2]
PREAMBLE = """
import ctypes, os
import torch
from cuaug import DeviceError, Loader, transforms as T
from tests.support.loader.further_pictures import Memory, numbers_of
"""


class Script:
    """A Python program in a process of its own."""

    def __init__(self, body: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + body],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self, seconds: float = 120.0) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        try:
            out, error = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, error = self.process.communicate()
            pytest.fail(f"still running after {seconds:.0f} s\n{out}\n{error}")
        return self.process.returncode, out, error


LOADER = """
loader = Loader(Memory(100_000), [T.CenterCrop(4)], batch_size=64, device="cuda")
"""


def test_a_fork_after_cuda_was_used():
    """The child gets one clear error for its own GPU loader and for the parent's; a CPU loader works."""
    body = f"""
{LOADER}
next(iter(loader))
if os.fork() == 0:
    for attempt in (lambda: Loader(Memory(8), device="cuda"), lambda: next(iter(loader))):
        try:
            attempt()
        except DeviceError as error:
            print("child:", error, flush=True)
    with Loader(Memory(8), [T.CenterCrop(4)], batch_size=8, device="cpu") as mine:
        print("child:", [numbers_of(images) for images, _ in mine], flush=True)
    os._exit(0)
print("status", os.wait()[1])
loader.close()
"""
    status, out, error = Script(body).wait()
    assert status == 0, error
    lines = out.splitlines()
    assert len(lines) == 4 and lines[2] == f"child: [{list(range(8))}]" and lines[3] == "status 0", out
    assert all("forked" in line and "spawn" in line for line in lines[:2])


def test_cold_processes_share_one_kernel_cache(tmp_path):
    body = """
x = torch.arange(3 * 64 * 64, device="cuda").remainder(251).to(torch.uint8).reshape(3, 64, 64)
print(T.Compose([T.CenterCrop(50), T.Resize(30)])(x).long().sum().item())
"""
    scripts = [Script(body, CUAUG_CACHE_DIR=str(tmp_path)) for _ in range(16)]
    results = [script.wait(600) for script in scripts]
    assert {status for status, _, _ in results} == {0}, results
    assert len({out for _, out, _ in results}) == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".cubin"]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    body = "print(T.CenterCrop(5)(torch.ones(3, 9, 9, device='cuda')).sum().item())"
    (tmp_path / "file").write_text("")
    assert Script(body, CUAUG_CACHE_DIR=str(tmp_path / "file" / "below")).wait()[:2] == (0, "75.0\n")


def test_rank_1_makes_no_context_on_gpu_0():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs 2 GPUs")
    body = """
driver = ctypes.CDLL("libcuda.so.1")
def active(device):
    flags, state = ctypes.c_uint(), ctypes.c_int()
    assert driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(state)) == 0
    return state.value
{choose}
with Loader(Memory(64), [T.CenterCrop(4)], batch_size=8, device={device!r}) as loader:
    for images, labels in loader:
        assert images.device.index == 1 and numbers_of(images.cpu()) == labels.tolist()
print(active(0), active(1))
"""
    for choose, device in (
        ("torch.cuda.set_device(1)", "cuda"),
        ("", "cuda:1"),
        ("os.environ['LOCAL_RANK'] = '1'", "cuda"),
        ("os.environ['LOCAL_RANK'] = '1'", None),
    ):
        status, out, error = Script(body.format(choose=choose, device=device), CUAUG_DEVICE="").wait()
        assert (status, out) == (0, "0 1\n"), error
