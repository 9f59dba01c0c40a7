"""JPEG crops on the CUDA pipeline, by restart markers and by an index: fewer decoded pixels, the same images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuaug import DecodedCache, DecodeOptions
from cuaug import transforms as T
from tests.dry_run import CHAIN
from tests.support.codec.jpeg_crops import MCU, jpeg
from tests.support.fake_cuda import FakeDecoder
from tests.support.loader.further_pictures import Bytes, noisy_jpeg
from tests.support.same_batches import assert_same_batches

FIVE = [T.CenterCrop(50), T.FiveCrop(24), T.Normalize(0.5, 0.2)]
VIEWS = [T.CenterCrop(50), T.MultiView([T.Compose([T.RandomResizedCrop(24), T.ColorJitter(0.3)])] * 3)]
CHAINS = pytest.mark.parametrize("chain", [CHAIN, FIVE, VIEWS], ids=["crop", "five crops", "views"])


def test_a_gpu_has_an_index_by_default(loader_on):
    source = Bytes(*[noisy_jpeg(200, 300 + i) for i in range(4)])
    for options, has_index in (({}, True), ({"index_bytes": 0}, False), ({"index_bytes": 1 << 20}, True)):
        loader = loader_on(True, source, T.CenterCrop(32), batch_size=4, decode=DecodeOptions(**options))
        list(loader)
        assert (loader._pipeline.index is not None) == has_index and loader.stats().parts == 4
        loader.close()
        assert loader._pipeline.index is None


@CHAINS
@pytest.mark.parametrize("interval", [0, 2])
def test_our_kernels_give_the_same_batches(equal_loaders, fake, interval, chain):
    """By restart markers, or by an index; one launch of each kernel a batch."""
    kinds = [kind for kind in [*MCU] * 2 for _ in range(2)]
    files = [
        jpeg(150 + 3 * i, 200 - 2 * i, kind, 90, interval=interval, orientation=i % 8 + 1)
        for i, kind in enumerate(kinds)
    ]
    options = {"batch_size": 5, "shuffle": True, "seed": 2}
    gpu = equal_loaders(Bytes(*files), chain, epochs=2, **options)
    batches = 2 * -(-len(files) // 5)
    assert set(gpu.stats().decoded_by) == {"kernels"} and gpu.stats().parts > 0
    kernels = dict.fromkeys(("build_lookups", "decode_jpeg", "color_jpeg"), batches)
    assert fake.jpegs.launches == kernels | ({"scan_jpeg": batches // 2} if not interval else {}), "one epoch scans"
    assert not FakeDecoder.created, "nvImageCodec's decoder takes device memory"


@pytest.mark.parametrize("short_side", [None, 0, 60], ids=["no cache", "cache", "shrinking cache"])
def test_what_the_kernels_find_damaged_is_decoded_on_the_cpu(loader_on, caplog, short_side):
    """A restart interval that does not end at its marker. The CPU's decoder has the last word: pixels or an error.

    An array is among the JPEGs. A cache takes the images whole, and scaled down if they are larger than its short side.
    """
    files = [jpeg(120, 160, interval=3) for _ in range(6)]
    for i in (1, 4):
        middle = len(files[i]) // 2 + 3 * i
        files[i] = files[i][:middle] + bytes(8) + files[i][middle + 8 :]
    array = np.random.default_rng(0).integers(0, 256, (90, 110, 3), dtype=np.uint8)
    source = Bytes(*files, array)  # type: ignore[arg-type]

    def load(device: bool) -> Any:
        cache = None if short_side is None else DecodedCache(short_side or None)
        return loader_on(device, source, CHAIN, batch_size=4, on_error="skip", cache=cache)

    gpu, cpu = load(True), load(False)
    for _ in range(2):
        assert_same_batches(gpu, cpu)
    times = 2 if short_side is None else 1
    assert gpu.stats().decoded_by["cpu_fallback"] == 2 * times and gpu.stats().decoded_by["kernels"] == 4 * times
    assert sum("the GPU did not decode this JPEG, and the CPU did" in text for text in caplog.messages) == 1
