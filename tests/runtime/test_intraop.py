"""A batch in memory uses as many threads as torch, with the bits of one image after the other."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug import Loader
from cuaug import transforms as T
from cuaug._runtime import cpus
from cuaug.devices import CpuExecutor
from cuaug.plan import Layout, Type
from tests.support import run_plans
from tests.support.loader.further_pictures import Bytes, png
from tests.support.strategies import chains, images, write

SIZE = (21, 34)


@given(st.data(), st.sampled_from(list(Type)), st.integers(1, 5), st.integers(1, 7), st.sampled_from([1, 2]))
def test_a_stack_gives_the_bits_of_its_images(data, dtype, count, several, views):
    """With more threads than images and with fewer, for several views; gaps between targets stay unwritten."""
    stack = np.stack([data.draw(images(SIZE)) for _ in range(count)])
    chain = data.draw(chains(SIZE)).steps
    by_row = stack.repeat(views, axis=0)
    expected = run_plans.run(write(run_plans.plan_for(*by_row), chain), by_row, dtype)

    compiled = write(run_plans.plan_for(*by_row), chain).compile(dtype, Layout.HWC)
    (size,) = {image.nbytes for image in expected}
    got = np.full((len(by_row), size + 5), 0xA5, dtype=np.uint8)
    strided = np.zeros((count, SIZE[0] + 1, SIZE[1] + 2, 3), dtype=np.uint8)
    strided[:, :-1, :-2] = stack
    executor = CpuExecutor(compiled)
    targets = np.array([row.ctypes.data for row in got], dtype=np.uint64)
    executor.run_stack(strided[:, :-1, :-2], targets, views=views, threads=several)
    for row, image in zip(got, expected, strict=True):
        np.testing.assert_array_equal(row[:size], image.reshape(-1).view(np.uint8))
        assert (row[size:] == 0xA5).all()


@pytest.fixture(params=[1, 3])
def several(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_threads_follow_torch_and_the_amount_of_work(several):
    assert cpus.threads_for(1 << 30) == several
    assert cpus.threads_for(0) == cpus.threads_for(1 << 20) == 1

    large, small = torch.zeros((8, 3, 256, 512), dtype=torch.uint8), torch.zeros((8, 3, 16, 16), dtype=torch.uint8)
    with mock.patch.object(CpuExecutor, "run_stack", autospec=True) as run_stack:
        T.RandomHorizontalFlip()(large)
        T.RandomHorizontalFlip()(small)
    assert [call.kwargs["threads"] for call in run_stack.call_args_list] == [several, 1]


class _ThreadCounts(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return cpus.threads_for(1 << 30)


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_data_loader_worker_uses_one_thread(context):
    with mock.patch.dict("os.environ", OMP_NUM_THREADS="4"):
        loader = torch.utils.data.DataLoader(_ThreadCounts(), num_workers=2, multiprocessing_context=context)
        assert [int(batch) for batch in loader] == [1, 1]


def run_script(script: str, **limits: int) -> str:
    def limit() -> None:
        for name, value in limits.items():
            kind = getattr(resource, name)
            resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))

    done = subprocess.run([sys.executable, "-c", script], preexec_fn=limit, capture_output=True, text=True, env=ENV)
    assert done.returncode == 0, done.stderr
    return done.stdout


ENV = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "4"}
NO_THREADS = """
import threading
import torch
from cuaug import devices, transforms as T
from cuaug.images import interop
try:
    threading.Thread(target=print).start()
    raise SystemExit("a thread did start")
except RuntimeError:
    pass
devices.threads_for = interop.threads_for = lambda size: 4
batch = torch.arange(8 * 3 * 5 * 7, dtype=torch.uint8).view(8, 3, 5, 7)
assert torch.equal(T.RandomHorizontalFlip(1)(batch), batch.flip(-1))
print("done")
"""
NO_MEMORY = """
import resource
import torch
from cuaug import devices, transforms as T
devices.threads_for = lambda size: 3
chain = T.Compose([T.Resize((9000, 9000)), T.MedianBlur(3, p=1), T.CenterCrop(8)])
batch = torch.zeros((4, 3, 8, 8), dtype=torch.uint8)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), resource.RLIM_INFINITY))
try:
    chain(batch)
except MemoryError as error:
    print(error)
"""


def test_the_calling_thread_does_all_work_if_no_thread_can_start():
    """A stack of 16 TB per thread makes the system refuse every new one."""
    assert run_script(NO_THREADS, RLIMIT_STACK=1 << 44) == "done\n"


def test_running_out_of_memory_in_a_thread_raises_memory_error():
    assert "no memory for the intermediate images of a batch of 4" in run_script(NO_MEMORY)


def test_a_loaders_worker_threads_use_one_thread_each(monkeypatch):
    """The loader's `threads` argument already sets their number."""
    calls = []
    run_stack = CpuExecutor.run_stack

    def record(self, *args, threads, **kwargs):
        calls.append((threading.current_thread() is threading.main_thread(), threads))
        return run_stack(self, *args, threads=threads, **kwargs)

    monkeypatch.setattr(CpuExecutor, "run_stack", record)
    chain = [T.MixUp(num_classes=9), T.RandomRotation(10)]
    with Loader(Bytes(*[png(k, 400, 500) for k in range(8)]), chain, batch_size=8, threads=1, device="cpu") as loader:
        list(loader)
    assert calls == [(False, 1)]
