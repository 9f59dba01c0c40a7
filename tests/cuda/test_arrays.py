"""`Compose` on images that are on the GPU already: torch tensors and CuPy arrays, on whatever stream."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from cuaug import transforms as T
from tests.transforms.cases import CASES

pytestmark = pytest.mark.cuda

ALL = [
    pytest.param(transform, id=f"{name}-{k}") for name, cases in CASES.items() for k, (transform, _) in enumerate(cases)
]
CHAIN = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1)])
# Each image comes out with a size of its own: no batch of several.
OF_MANY_SIZES = (
    T.D4,
    T.RandomResize,
    T.RandomRot90,
    T.RandomRotation,
    T.RandomShortestSize,
    T.RandomZoomOut,
    T.ScaleJitter,
)
NOISE_LEVELS = 1 / 255  # noise may fall to the other side of a rounding boundary


def stack(dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (12, 3, 40, 50), dtype=torch.uint8, generator=generator)
    return images if dtype == torch.uint8 else (images.float() / 255).to(dtype)


def same(transform: T.Transform, images: torch.Tensor) -> None:
    results = []
    for given in (images.cuda(), images):
        torch.manual_seed(3)
        results.append(transform(given))
    got, want = results
    assert got.device.type == "cuda" and got.dtype == want.dtype and got.stride() == want.stride()
    if "random" in repr(transform):
        off = (got.cpu().double() - want.double()).abs().max().item()
        assert off <= NOISE_LEVELS * (255 if want.dtype == torch.uint8 else 1)
    else:
        assert torch.equal(got.cpu(), want)


@pytest.mark.parametrize("transform", ALL)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_every_transform_equals_the_cpu(transform, dtype):
    if dtype != torch.uint8 and isinstance(transform, (T.LUT, T.ConvertColor, T.RandomSolarize)):
        pytest.skip("uint8 tables, or levels of uint8")
    images = stack(dtype)
    for some in images if isinstance(transform, OF_MANY_SIZES) else [images]:
        same(transform, some)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_tensors_as_users_have_them(dtype):
    images = stack(dtype)
    same(CHAIN, images)
    same(CHAIN, images[3])
    same(CHAIN, images.to(memory_format=torch.channels_last))
    same(CHAIN, images[::2, :, 5:, ::3])
    same(CHAIN, images[:, :1])


def test_cupy_arrays():
    import cupy

    array = stack().permute(0, 2, 3, 1).contiguous().numpy()
    for images in (array, array[0], array[0, :, :, 0], array[:, ::-1, ::2], array.astype(np.float32) / 255):
        results = []
        for given in (cupy.asarray(images), images):
            torch.manual_seed(5)
            results.append(CHAIN(given))
        assert isinstance(results[0], cupy.ndarray) and isinstance(results[1], np.ndarray)
        np.testing.assert_array_equal(cupy.asnumpy(results[0]), results[1])


def test_cupys_own_stream():
    """CuPy's current stream writes the images late and reads the result; torch's stream is in between."""
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


def test_torchs_side_stream():
    """The images are written late on the stream that is current, and overwritten right after the call."""
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


def test_threads_at_once():
    """Each thread with a stream of its own, and a first use of the kernel from all of them."""
    from concurrent.futures import ThreadPoolExecutor

    from cuaug.devices import cuda

    images = stack()
    chain = T.Compose([T.CenterCrop(30), T.Resize(20), T.Normalize(0.5, 0.2)])
    want = chain(images)
    torch.cuda.synchronize()  # nothing of the one that goes may be queued
    cuda._kernels.clear()

    def work(_: int) -> bool:
        with torch.cuda.stream(torch.cuda.Stream()):
            return all(torch.equal(chain(images.cuda()).cpu(), want) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_a_chain_that_draws_from_a_generator_on_the_gpu_is_pickled():
    chain = T.Compose([T.RandomCrop(9)], generator=torch.Generator("cuda").manual_seed(5))
    images = stack().cuda()
    again = pickle.loads(pickle.dumps(chain))
    assert again.generator.device.type == "cuda" and torch.equal(again(images), chain(images))
