"""`Compose` on images in GPU memory: torch tensors and CuPy arrays, on any stream."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
import torch

from cuaug import functional as F
from cuaug import transforms as T
from cuaug.errors import TransformError
from tests.support.transforms.cases import CASES

pytestmark = pytest.mark.cuda

ALL = [
    pytest.param(transform, id=f"{name}-{k}") for name, cases in CASES.items() for k, (transform, _) in enumerate(cases)
]
CHAIN = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1)])
# Output sizes differ between images, so these transforms take one image at a time.
SIZE_CHANGING = (T.D4, T.RandomResize, T.RandomRelativeCrop, T.RandomRot90, T.RandomRotation)
SIZE_CHANGING += (T.RandomShortestSize, T.RandomZoomOut, T.ScaleJitter)
NOISE_TOLERANCE = 1 / 255  # noise may round to the other side of a boundary


def stack(dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (12, 3, 40, 50), dtype=torch.uint8, generator=generator)
    return images if dtype == torch.uint8 else (images.float() / 255).to(dtype)


def assert_same_as_cpu(transform: T.Transform, images: torch.Tensor) -> None:
    results = []
    for batch in (images.cuda(), images):
        torch.manual_seed(3)
        results.append(transform(batch))
    got, want = results
    assert got.device.type == "cuda" and got.dtype == want.dtype and got.stride() == want.stride()
    if "random" in repr(transform):
        error = (got.cpu().double() - want.double()).abs().max().item()
        assert error <= NOISE_TOLERANCE * (255 if want.dtype == torch.uint8 else 1)
    else:
        assert torch.equal(got.cpu(), want)


@pytest.mark.parametrize("transform", ALL)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_every_transform_equals_the_cpu(transform, dtype):
    if dtype != torch.uint8 and isinstance(transform, (T.LUT, T.ConvertColor, T.RandomSolarize)):
        pytest.skip("works on uint8 levels only")
    images = stack(dtype)
    for batch in images if isinstance(transform, SIZE_CHANGING) else [images]:
        assert_same_as_cpu(transform, batch)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_tensors_with_any_strides_and_channels(dtype):
    images = stack(dtype)
    assert_same_as_cpu(CHAIN, images)
    assert_same_as_cpu(CHAIN, images[3])
    assert_same_as_cpu(CHAIN, images.to(memory_format=torch.channels_last))
    assert_same_as_cpu(CHAIN, images[::2, :, 5:, ::3])
    assert_same_as_cpu(CHAIN, images[:, :1])


def test_cupy_arrays():
    import cupy

    array = stack().permute(0, 2, 3, 1).contiguous().numpy()
    for images in (array, array[0], array[0, :, :, 0], array[:, ::-1, ::2], array.astype(np.float32) / 255):
        results = []
        for array_or_copy in (cupy.asarray(images), images):
            torch.manual_seed(5)
            results.append(CHAIN(array_or_copy))
        assert isinstance(results[0], cupy.ndarray) and isinstance(results[1], np.ndarray)
        np.testing.assert_array_equal(cupy.asnumpy(results[0]), results[1])


def test_cupy_streams_are_ordered_with_torchs():
    """CuPy's current stream writes the images late and reads the result; torch's stream runs in between."""
    import cupy

    images = stack().permute(0, 2, 3, 1).contiguous()
    torch.manual_seed(6)
    want = CHAIN(images.numpy())
    stream = cupy.cuda.Stream(non_blocking=True)
    source, late = cupy.asarray(images.numpy()), cupy.zeros(images.shape, cupy.uint8)
    cupy.cuda.Device().synchronize()
    with stream:
        big = cupy.ones((4096, 4096), cupy.float32)
        for _ in range(30):
            big = big * 1.0001
        late[...] = source
        torch.manual_seed(6)
        got = CHAIN(late) + 0
        late[...] = 0
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(got), want)


def test_the_current_torch_stream_is_used():
    """It writes the images late, and overwrites them right after the call."""
    images = stack()
    torch.manual_seed(7)
    want = CHAIN(images)
    source, late = images.cuda(), torch.zeros(images.shape, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late.copy_(source)
        torch.manual_seed(7)
        got = CHAIN(late)
        late.zero_()
    stream.synchronize()
    assert torch.equal(got.cpu(), want)


REFUSED = [CHAIN, T.MixUp(num_classes=5), partial(F.resize, size=8), partial(F.erase, top=1, left=1, height=2, width=2)]


@pytest.mark.parametrize("function", REFUSED, ids=["chain", "mix", "resize", "erase"])
def test_transforms_are_refused_while_a_graph_is_captured(function, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    images, labels = stack(), [torch.arange(12) % 5] * isinstance(function, T.MixUp)
    function(images, *labels)  # on the CPU nobody asks
    with pytest.raises(TransformError, match=r"^image: transforms cannot run .* Batch\.copy_into"):
        function(images.cuda(), *labels)


def test_a_captured_graph_holds_no_transform():
    images = stack().cuda()
    F.horizontal_flip(images)
    torch.cuda.synchronize()
    for function in (CHAIN, F.horizontal_flip):
        with pytest.raises(TransformError, match="CUDA graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            function(images)
    assert F.horizontal_flip(images).equal(images.flip(-1)), "nothing is left of the captures"


def test_several_threads_load_and_launch_the_kernels_at_once():
    """Each thread has its own stream, and all of them use the kernels for the first time."""
    from concurrent.futures import ThreadPoolExecutor

    from cuaug.devices import nvrtc

    images = stack()
    chain = T.Compose([T.CenterCrop(30), T.Resize(20), T.Normalize(0.5, 0.2)])
    want = chain(images)
    torch.cuda.synchronize()  # unloading the kernels must not meet queued launches
    nvrtc._loaded.clear()

    def work(_: int) -> bool:
        with torch.cuda.stream(torch.cuda.Stream()):
            return all(torch.equal(chain(images.cuda()).cpu(), want) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_a_chain_that_draws_from_a_generator_on_the_gpu_is_pickled():
    chain = T.Compose([T.RandomCrop(9)], generator=torch.Generator("cuda").manual_seed(5))
    images = stack().cuda()
    copy = pickle.loads(pickle.dumps(chain))
    assert copy.generator.device.type == "cuda" and torch.equal(copy(images), chain(images))
