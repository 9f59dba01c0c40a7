"""The fakes refuse code that goes wrong on a GPU without an error, or only with two GPUs: each mistake is planted here.

A mistake is an edit of one function's source. Without it, the same loader works.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from typing import Any

import pytest
import torch
from PIL import Image

from cuaug import transforms as T
from cuaug.devices import cuda, nvrtc
from cuaug.devices.workspace import Workspace
from cuaug.pipeline.cuda.batch_decoding import BatchDecoding
from cuaug.pipeline.cuda.cuda_pipeline import CudaBatch, CudaPipeline
from cuaug.pipeline.cuda.producer import CudaProducer
from cuaug.plan import Layout, Type
from tests.kernels.test_cuda_executor import run
from tests.support.fake_cuda import DEFAULT_SHARED_BYTES
from tests.support.run_plans import plan_for

#: The second image's width takes 60 KB of shared memory.
CHAIN = [T.Resize((8, 24)), T.Normalize(0.5, 0.2)]
SIZES = [(90, 60), (9000, 2), (70, 50), (40, 80)]

OTHER = "with torch.cuda.stream(torch.cuda.Stream()):"
#: (function, [(right, wrong)], the fakes' reason) by mistake.
MISTAKES: dict[str, tuple[tuple[Any, str], list[tuple[str, str]], str]] = {
    # --- events -------------------------------------------------------------------------------------------------------
    "the ready event is recorded on the default stream": (
        (CudaBatch, "__init__"),
        [
            ("super().__init__(batch)", "self.batch = batch"),
            ("self._ready.record()", "self._ready.record(torch.cuda.default_stream())"),
        ],
        r"a consumer on stream 0 does not wait for the (launch|copy) on stream \d",
    ),
    "the ready event comes before the labels": (
        (CudaPipeline, "finish"),
        [
            (
                "labels, label_memory = batch",
                "made = CudaBatch(batch, None, self.producer.device)\n    labels, label_memory = batch",
            ),
            ("return CudaBatch(batch", "made.batch, made._label_memory, _ = (batch"),
            ("label_memory, self.producer.device)", "label_memory, 0)\n    return made"),
        ],
        r"a consumer on stream 0 does not wait for the copy on stream \d",
    ),
    "the consumer does not wait": (
        (CudaBatch, "take"),
        [("current.wait_event(self._ready)", "pass")],
        r"a consumer on stream 0 does not wait for the (launch|copy) on stream \d",
    ),
    # --- streams ------------------------------------------------------------------------------------------------------
    "the launches are on the default stream": (
        (cuda.CudaExecutor, "run"),
        [("torch.cuda.current_stream(device).cuda_stream", "0")],
        "a launch is not on torch's current stream",
    ),
    "the tables are uploaded on another stream": (
        (Workspace, "_copy_to_device"),
        [("    return", f"    {OTHER}\n        return")],
        r"a launch on stream \d does not wait for the copy on stream \d",
    ),
    "the decoder is given stream 0": (
        (BatchDecoding, "_decode_encoded"),
        [("arena.stream.cuda_stream", "0")],
        "decoding: stream 0 is the default stream",
    ),
    # --- memory -------------------------------------------------------------------------------------------------------
    "the arena is reused without waiting": (
        (CudaProducer, "_begin_batch"),
        [("arena.free.synchronize()", "pass")],
        r"decoding into a slot: the CPU has not waited for the launch on stream \d",
    ),
    "shared memory is not asked for": (
        (nvrtc, "load_functions"),
        [("function.max_dynamic_shared_size_bytes =", "_ =")],
        f"bytes of shared memory, but {DEFAULT_SHARED_BYTES} are granted",
    ),
    # --- devices ------------------------------------------------------------------------------------------------------
    "a module is loaded with another device current": (
        (nvrtc, "load_functions"),
        [(", torch.cuda.device(device_index):", ":")],
        "loading a module: GPU 0 is current",
    ),
}


@pytest.fixture
def files(tmp_path):
    """The images of five batches of four: the arenas of the first two grow, and growing waits for the stream."""
    paths = [str(tmp_path / f"{i}.png") for i in range(20)]
    for i, path in enumerate(paths):
        Image.new("RGB", SIZES[i % 4], (i, 2 * i, 3 * i)).save(path)
    return paths


def edit(monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str], edits: list[tuple[str, str]]) -> None:
    """Replaces a function by one with edited source."""
    owner, name = place
    function = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    for right, wrong in edits:
        assert source.count(right) == 1, f"{right!r} comes {source.count(right)} times in {name}"
        source = source.replace(right, wrong)
    made: dict[str, Any] = {}
    code = compile(f"from __future__ import annotations\n{source}", f"<{name} with a mistake>", "exec")
    exec(code, vars(sys.modules[function.__module__]), made)
    monkeypatch.setattr(owner, name, made[name])


def test_without_a_mistake_the_loader_works(loader_on, files, fake):
    assert [len(batch.images) for batch in loader_on(True, files, CHAIN, batch_size=4)] == [4] * 5
    producer = next(stream for stream in fake.torch.driver.streams.values())
    assert producer.work == ["decode", *["decode", "copy", "launch", "launch", "copy"] * 5]
    assert not fake.torch.consumer.work


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_fakes_refuse(loader_on, files, monkeypatch, mistake):
    place, edits, reason = MISTAKES[mistake]
    edit(monkeypatch, place, edits)
    with pytest.raises(AssertionError, match=reason):
        list(loader_on(True, files, CHAIN, batch_size=4))


def test_a_consumer_on_a_side_stream(loader_on, files, fake):
    """That stream waits for the events, and the allocator learns it. The default stream stays out of it."""
    side = fake.torch.cuda.Stream(1)
    with fake.torch.cuda.stream(side):
        batches = list(loader_on(True, files, CHAIN, batch_size=4))
    assert len(side.waited) == 5 and len(side.recorded) == 10 == 2 * len(batches)
    assert not fake.torch.consumer.waited and not fake.torch.consumer.recorded


def test_a_launch_uses_the_memory_that_it_reads(fake):
    """The lower half of an image is in memory. Another allocation lies where the whole image would begin."""
    image = torch.zeros((10, 6, 3), dtype=torch.uint8)
    other, half = image[:5], image[5:]
    for allocation in (other, half):
        fake.torch.driver.allocate(allocation)
    plan = plan_for(image.numpy())
    plan.crop(5, 0, 5, 6)
    run(plan.compile(Type.UINT8, Layout.HWC), [image.numpy()], 3)
    assert fake.torch.driver.last_use(other.data_ptr()) is None
    assert fake.torch.driver.last_use(half.data_ptr()).work == "launch"
