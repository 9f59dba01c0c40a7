"""A batch in hand is shared among as many threads as torch takes, with the bits of one image after the other."""

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

from cuaug import Loader, devices, interop
from cuaug import transforms as T
from cuaug._runtime import intraop
from cuaug.devices import CpuExecutor
from cuaug.plan import Layout, Type
from tests.loader.pictures import Bytes, png
from tests.support import run_plans
from tests.support.strategies import chains, images, write

SIZE = (21, 34)


@given(st.data(), st.sampled_from(list(Type)), st.integers(1, 5), st.integers(1, 7), st.sampled_from([1, 2]))
def test_a_stack_is_as_its_images(data, dtype, count, several, views):
    """With more threads than images and with fewer; each image is that of some rows; nothing between is written."""
    stack = np.stack([data.draw(images(SIZE)) for _ in range(count)])
    chain = data.draw(chains(SIZE)).steps
    of_rows = stack.repeat(views, axis=0)
    wanted = run_plans.run(write(run_plans.plan_for(*of_rows), chain), of_rows, dtype)

    tables = write(run_plans.plan_for(*of_rows), chain).compile(dtype, Layout.HWC)
    (size,) = {one.nbytes for one in wanted}
    got = np.full((len(of_rows), size + 5), 0xA5, dtype=np.uint8)
    apart = np.zeros((count, SIZE[0] + 1, SIZE[1] + 2, 3), dtype=np.uint8)
    apart[:, :-1, :-2] = stack
    program = CpuExecutor(tables)
    targets = np.array([row.ctypes.data for row in got], dtype=np.uint64)
    program.run_stack(apart[:, :-1, :-2], targets, views=views, threads=several)
    for row, one in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(row[:size], one.reshape(-1).view(np.uint8))
        assert (row[size:] == 0xA5).all()


@pytest.mark.parametrize(
    "chain",
    [
        [T.RandomResizedCrop(32), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.Normalize((0.5,) * 3, (0.2,) * 3)],
        [T.RandAugment(), T.RandomEqualize(), T.GaussianNoise()],
        [T.FiveCrop(20), T.MedianBlur(5)],
        [T.MixUp(), T.ElasticTransform()],
    ],
    ids=["colours", "policies", "views", "stages"],
)
def test_batches_are_the_same_with_any_number_of_threads(chain, monkeypatch):
    batch = torch.randint(0, 256, (9, 3, 40, 60), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    results = []
    for several in (1, 2, 5):
        for module in (devices, interop):
            monkeypatch.setattr(module, "threads_for", lambda size, several=several: several)
        results.append(T.Compose(chain, generator=torch.Generator().manual_seed(1))(batch))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.fixture(params=[1, 3])
def several(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_as_many_threads_as_torch_takes(several):
    assert intraop.threads_for(1 << 30) == several
    assert intraop.threads_for(0) == intraop.threads_for(1 << 20) == 1

    large, small = torch.zeros((8, 3, 256, 512), dtype=torch.uint8), torch.zeros((8, 3, 16, 16), dtype=torch.uint8)
    with mock.patch.object(CpuExecutor, "run_stack", autospec=True) as run_stack:
        T.RandomHorizontalFlip()(large)
        T.RandomHorizontalFlip()(small)
    assert [call.kwargs["threads"] for call in run_stack.call_args_list] == [several, 1]


class _Counting(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return intraop.threads_for(1 << 30)


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_worker_of_a_data_loader_takes_one(context):
    with mock.patch.dict("os.environ", OMP_NUM_THREADS="4"):
        loader = torch.utils.data.DataLoader(_Counting(), num_workers=2, multiprocessing_context=context)
        assert [int(batch) for batch in loader] == [1, 1]


def in_a_process(script: str, **limits: int) -> str:
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
from cuaug import devices, interop, transforms as T
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


def test_without_more_threads_the_callers_own_does_all():
    """Every new thread is to have a stack of 16 terabytes, which the system refuses."""
    assert in_a_process(NO_THREADS, RLIMIT_STACK=1 << 44) == "done\n"


def test_memory_that_runs_out_in_a_thread_is_told():
    assert "no memory for the intermediate images of a batch of 4" in in_a_process(NO_MEMORY)


def test_a_loaders_workers_take_one_each(monkeypatch):
    """They are as many as `threads` says already."""
    taken = []
    run_stack = CpuExecutor.run_stack

    def noted(self, *arguments, threads, **more):
        taken.append((threading.current_thread() is threading.main_thread(), threads))
        return run_stack(self, *arguments, threads=threads, **more)

    monkeypatch.setattr(CpuExecutor, "run_stack", noted)
    chain = [T.MixUp(num_classes=9), T.RandomRotation(10)]
    with Loader(Bytes(*[png(k, 400, 500) for k in range(8)]), chain, batch_size=8, threads=1, device="cpu") as loader:
        list(loader)
    assert taken == [(False, 1)]
