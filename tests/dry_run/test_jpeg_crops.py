"""JPEG crops on the CUDA pipeline, by restart markers and by an index: fewer decoded pixels, the same images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cuaug import DecodeOptions
from cuaug import transforms as T
from tests.dry_run import CHAIN
from tests.support.codec.encoded_images import app1, encode, photo, tiff_block
from tests.support.codec.jpeg_crops import MCU, jpeg
from tests.support.fake_cuda import FakeDecoder
from tests.support.loader.further_pictures import Bytes, noisy_jpeg
from tests.support.run_plans import assert_same

FIVE = [T.CenterCrop(50), T.FiveCrop(24), T.Normalize(0.5, 0.2)]
VIEWS = [T.CenterCrop(50), T.MultiView([T.Compose([T.RandomResizedCrop(24), T.ColorJitter(0.3)])] * 3)]
CHAINS = pytest.mark.parametrize("chain", [CHAIN, FIVE, VIEWS], ids=["crop", "five crops", "views"])


@pytest.fixture
def jpegs(tmp_path):
    """With and without EXIF orientation; with restart markers everywhere, per row, or none; a PNG and a BMP."""
    paths = []
    for i in range(24):
        image = Image.fromarray(photo(60 + 7 * i, 200 - 5 * i, seed=i))
        options = ({"restart_marker_blocks": 1}, {"restart_marker_rows": 1}, {})[i % 3]
        data = encode(image, "JPEG", subsampling=i % 2 * 2, **options)
        data = data[:2] + app1(tiff_block(i % 8 + 1)) + data[2:]
        data = {5: encode(image, "PNG"), 7: encode(image, "BMP")}.get(i, data)
        paths.append(str(tmp_path / f"{i}.image"))
        (tmp_path / f"{i}.image").write_bytes(data)
    return paths


@CHAINS
def test_crops_give_the_same_batches(loader_on, jpegs, monkeypatch, chain):
    decoded, decode = [], FakeDecoder.decode_batch

    def recorded(self: FakeDecoder, headers: Any, slots: Any, stream: int) -> Any:
        decoded.extend(header.height * header.width for header in headers)
        return decode(self, headers, slots, stream)

    monkeypatch.setattr(FakeDecoder, "decode_batch", recorded)
    options = {
        "batch_size": 5,
        "shuffle": True,
        "seed": 2,
        "decode": DecodeOptions(index_bytes=0, decoder="nvimgcodec"),  # restart markers alone
    }
    gpu, cpu = (loader_on(device, jpegs, chain, **options) for device in (True, False))
    for _ in range(3):
        for (got, got_labels), (want, labels) in zip(gpu, cpu, strict=True):
            assert got_labels.tolist() == labels.tolist()
            assert_same(got, want)
    whole = 3 * sum(width * height for width, height in (Image.open(path).size for path in jpegs))
    assert sum(decoded) < 0.8 * whole
    assert gpu.stats().parts == cpu.stats().parts > 0
    assert f"; {gpu.stats().parts} from a JPEG crop" in str(gpu.stats())


@CHAINS
def test_truncated_jpegs_are_replaced(loader_on, jpegs, chain):
    """A truncated file lacks markers, so the decoder gets all of it."""
    for i in (0, 9, 13):
        file = Path(jpegs[i])
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    options = {"batch_size": 8, "on_error": "replace", "shuffle": True, "seed": 1}
    gpu, cpu = (loader_on(device, jpegs, chain, **options) for device in (True, False))
    for got, want in zip(gpu, cpu, strict=True):
        assert got.indices.tolist() == want.indices.tolist()
        np.testing.assert_array_equal(got.images.numpy(), want.images.numpy())


@CHAINS
def test_an_index_gives_the_same_batches(loader_on, monkeypatch, chain):
    """It crops JPEGs without restart markers from their first visit on: fewer bytes and fewer pixels to decode."""
    decoded, decode = [], FakeDecoder.decode_batch

    def recorded(self: FakeDecoder, headers: Any, slots: Any, stream: int) -> Any:
        decoded.append([(len(header.data), header.height * header.width) for header in headers])
        return decode(self, headers, slots, stream)

    monkeypatch.setattr(FakeDecoder, "decode_batch", recorded)
    files = [jpeg(240, 320, kind, 98, orientation=i % 8 + 1) for i, kind in enumerate([*MCU] * 2)]
    options = {
        "batch_size": 5,
        "shuffle": True,
        "seed": 2,
        "decode": DecodeOptions(index_bytes=1 << 20, decoder="nvimgcodec"),
    }
    gpu, cpu = (loader_on(device, Bytes(*files), chain, **options) for device in (True, False))
    totals = []
    for _ in range(3):
        for got, want in zip(gpu, cpu, strict=True):
            assert got.labels.tolist() == want.labels.tolist()
            assert_same(got.images, want.images)
        totals.append(np.sum([part for batch in decoded for part in batch], axis=0))
        decoded.clear()
    assert gpu.stats().parts == cpu.stats().parts > 0
    whole = sum(map(len, files)), len(files) * 240 * 320
    assert (totals[2] < 0.8 * np.array(whole)).all(), (totals, whole)


def test_a_gpu_has_an_index_by_default(loader_on):
    source = Bytes(*[noisy_jpeg(200, 300 + i) for i in range(4)])
    for options, parts in (({}, 4), ({"index_bytes": 0}, 0), ({"index_bytes": 1 << 20}, 4)):
        decode = DecodeOptions(decoder="nvimgcodec", **options)
        loader = loader_on(True, source, T.CenterCrop(32), batch_size=4, decode=decode)
        list(loader)
        assert loader.stats().parts == parts
        loader.close()
        assert loader._pipeline.index is None


@CHAINS
@pytest.mark.parametrize("interval", [0, 2])
def test_our_kernels_give_the_same_batches(loader_on, fake, interval, chain):
    """By restart markers, or by an index; one launch of each kernel a batch."""
    kinds = [kind for kind in [*MCU] * 2 for _ in range(2)]
    files = [
        jpeg(150 + 3 * i, 200 - 2 * i, kind, 90, interval=interval, orientation=i % 8 + 1)
        for i, kind in enumerate(kinds)
    ]
    options = {"batch_size": 5, "shuffle": True, "seed": 2}
    gpu, cpu = (loader_on(device, Bytes(*files), chain, **options) for device in (True, False))
    for _ in range(2):
        for got, want in zip(gpu, cpu, strict=True):
            assert got.labels.tolist() == want.labels.tolist()
            assert_same(got.images, want.images)
    batches = 2 * -(-len(files) // 5)
    assert set(gpu.stats().decoded_by) == {"kernels"} and gpu.stats().parts > 0
    kernels = dict.fromkeys(("build_lookups", "decode_jpeg", "color_jpeg"), batches)
    assert fake.jpegs.launches == kernels | ({"scan_jpeg": batches // 2} if not interval else {}), "one epoch scans"
    assert not FakeDecoder.created, "nvImageCodec's decoder takes device memory"


@pytest.mark.parametrize("cache", [None, "decoded"])
def test_what_the_kernels_find_damaged_is_decoded_on_the_cpu(loader_on, caplog, cache):
    """A restart interval that does not end at its marker. The CPU's decoder has the last word: pixels or an error."""
    files = [jpeg(120, 160, interval=3) for _ in range(6)]
    for i in (1, 4):
        middle = len(files[i]) // 2 + 3 * i
        files[i] = files[i][:middle] + bytes(8) + files[i][middle + 8 :]
    options = {"batch_size": 3, "on_error": "skip", "cache": cache}
    gpu, cpu = (loader_on(device, Bytes(*files), CHAIN, **options) for device in (True, False))
    for _ in range(2):
        for got, want in zip(gpu, cpu, strict=True):
            assert got.labels.tolist() == want.labels.tolist()
            assert_same(got.images, want.images)
    times = 1 if cache else 2
    assert gpu.stats().decoded_by["cpu_fallback"] == 2 * times and gpu.stats().decoded_by["kernels"] == 4 * times
    assert sum("the GPU did not decode this JPEG, and the CPU did" in text for text in caplog.messages) == 1


def test_a_decoded_cache_keeps_whole_images(loader_on, jpegs):
    gpu, cpu = (loader_on(device, jpegs, CHAIN, batch_size=8, cache="decoded") for device in (True, False))
    for _ in range(2):
        for got, want in zip(gpu, cpu, strict=True):
            assert_same(got.images, want.images)
