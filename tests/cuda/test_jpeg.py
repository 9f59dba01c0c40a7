"""Our JPEG kernels: the CPU's bits from file to tensor, and damage that costs one sample at most."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from cuaug import DecodeOptions
from cuaug import transforms as T
from cuaug.codec import JpegIndex
from tests.cuda import equal_epochs
from tests.support.codec.encoded_images import as_pillow
from tests.support.codec.jpeg_crops import MCU, jpeg, slice_region
from tests.support.cuda_jpegs import CudaJpegs, damage_data, draw_jpeg, random_region
from tests.support.loader.further_pictures import Bytes

pytestmark = pytest.mark.cuda

GEOMETRY = [T.RandomResizedCrop(64), T.RandomHorizontalFlip()]
CHAINS = {torch.uint8: GEOMETRY, torch.float16: [*GEOMETRY, T.Normalize(0.5, 0.2)]}
CHAINS[torch.float32] = [*GEOMETRY, T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.Normalize(0.5, 0.2)]


@pytest.mark.parametrize("files", [1, 1 << 40, None], ids=["16 pixels", "64 pixels", "first visit"])
def test_the_kernels_give_pillows_bits(files):
    """Of whole images and of regions, at the smallest and largest distance of entry points, and without an index."""
    drawn = [draw_jpeg(seed) for seed in range(64)]
    want = [as_pillow(data) for data in drawn]
    regions = [random_region(seed, *pixels.shape[:2]) for seed, pixels in enumerate(want)]
    for chosen in (None, regions):
        batch = CudaJpegs(drawn, chosen, index=None if files is None else JpegIndex(1 << 40, files))
        got, statuses = batch.decode()
        assert batch.is_added.all() and not statuses.any()
        for pixels, whole, region in zip(got, want, batch.regions, strict=True):
            np.testing.assert_array_equal(pixels, slice_region(whole, region))


@pytest.mark.parametrize("index", [JpegIndex(1 << 40), None], ids=["stale index", "first visit"])
def test_damaged_data_sets_the_status_and_touches_no_neighbor(index):
    files = [draw_jpeg(seed) for seed in range(64)]
    batch = CudaJpegs(files, index=index)
    want, _ = batch.decode()
    damaged = range(1, 64, 4)
    damage_data(batch, damaged, seed=0)
    got, statuses = batch.decode()
    assert set(np.flatnonzero(statuses)) <= set(damaged) and np.count_nonzero(statuses) >= 8
    for i in set(range(64)) - set(damaged):
        np.testing.assert_array_equal(got[i], want[i])


@pytest.mark.parametrize("fancy_upsampling", [True, False])
@pytest.mark.parametrize("dtype", CHAINS, ids=str)
def test_batches_have_the_cpus_bits(dtype, fancy_upsampling):
    """In the first epoch, which makes the index, and in later ones."""
    options = {"batch_size": 16, "shuffle": True, "seed": 5, "dtype": dtype, "threads": 4}
    options["decode"] = DecodeOptions(fancy_upsampling=fancy_upsampling)
    source = Bytes(*map(draw_jpeg, range(70)))
    assert set(equal_epochs(source, CHAINS[dtype], 3, **options).decoded_by) == {"kernels"}


@pytest.mark.parametrize("interval", [0, 5], ids=["index", "restart markers"])
def test_orientations_and_subsamplings_have_the_cpus_bits(interval):
    kinds = itertools.product(MCU, range(1, 9))
    source = Bytes(*(jpeg(90 + 7 * o, 150 - 5 * o, kind, interval=interval, orientation=o) for kind, o in kinds))
    for chain in ([], [T.CenterCrop(40)]):
        assert set(equal_epochs(source, chain, 1, seed=0).decoded_by) == {"kernels"}


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_damaged_files_have_the_cpus_outcome(on_error):
    """The kernels find an interval that does not end at its marker; the CPU decides."""
    files = [jpeg(120, 160, interval=3, noise=i) for i in range(24)]
    for i in range(0, 24, 3):
        middle = len(files[i]) // 2 + i
        files[i] = files[i][:middle] + bytes(8) + files[i][middle + 8 :]
    files[1] = files[1][: len(files[1]) // 2]
    options = {"batch_size": 8, "seed": 3, "on_error": on_error}
    assert equal_epochs(Bytes(*files), T.Resize((64, 64)), 2, **options).decoded_by["cpu_fallback"] >= 8
