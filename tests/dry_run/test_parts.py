"""Parts of JPEGs with restart markers: cut out on the worker threads, decoded alone, and the same pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cuaug import DecodeOptions
from cuaug import transforms as T
from tests.codec.pictures import app1, encode, photo, tiff_block
from tests.dry_run import CHAIN
from tests.loader.pictures import Bytes, noisy_jpeg
from tests.support.fake_cuda import FakeDecoder
from tests.support.run_plans import assert_same

FIVE = [T.CenterCrop(50), T.FiveCrop(24), T.Normalize(0.5, 0.2)]
VIEWS = [T.CenterCrop(50), T.MultiView([T.Compose([T.RandomResizedCrop(24), T.ColorJitter(0.3)])] * 3)]
CHAINS = pytest.mark.parametrize("chain", [CHAIN, FIVE, VIEWS], ids=["a crop", "five", "views"])


@pytest.fixture
def jpegs(tmp_path):
    """Turned by EXIF or not, with markers everywhere, in rows, or not at all; a PNG, and a BMP, which is Pillow's."""
    paths = []
    for i in range(24):
        image = Image.fromarray(photo(60 + 7 * i, 200 - 5 * i, seed=i))
        options = ({"restart_marker_blocks": 1}, {"restart_marker_rows": 1}, {})[i % 3]
        data = encode(image, "JPEG", subsampling=i % 2 * 2, **options)
        data = data[:2] + app1(tiff_block(i % 8 + 1)) + data[2:]
        data = {5: encode(image, "PNG"), 7: encode(image, "BMP")}.get(i, data)
        paths.append(str(tmp_path / f"{i}.picture"))
        (tmp_path / f"{i}.picture").write_bytes(data)
    return paths


@CHAINS
def test_the_same_batches(loader_on, jpegs, monkeypatch, chain):
    decoded, decode = [], FakeDecoder.decode

    def noted(self: FakeDecoder, headers: Any, slots: Any, stream: int) -> Any:
        decoded.extend(header.height * header.width for header in headers)
        return decode(self, headers, slots, stream)

    monkeypatch.setattr(FakeDecoder, "decode", noted)
    gpu, cpu = (loader_on(device, jpegs, chain, batch_size=5, shuffle=True, seed=2) for device in (True, False))
    for _ in range(3):
        for (got, got_labels), (want, labels) in zip(gpu, cpu, strict=True):
            assert got_labels.tolist() == labels.tolist()
            assert_same(got, want)
    whole = 3 * sum(width * height for width, height in (Image.open(path).size for path in jpegs))
    assert sum(decoded) < 0.8 * whole
    assert gpu.stats().parts == cpu.stats().parts > 0
    assert f"; {gpu.stats().parts} from a part of the file" in str(gpu.stats())


@CHAINS
def test_damaged_parts_are_replaced(loader_on, jpegs, chain):
    """A file that is cut short has not all of its markers, and is left to the decoder as it is."""
    for i in (0, 9, 13):
        file = Path(jpegs[i])
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    options = {"batch_size": 8, "on_error": "replace", "shuffle": True, "seed": 1}
    gpu, cpu = (loader_on(device, jpegs, chain, **options) for device in (True, False))
    for got, want in zip(gpu, cpu, strict=True):
        assert got.indices.tolist() == want.indices.tolist()
        np.testing.assert_array_equal(got.images.numpy(), want.images.numpy())


def test_files_without_markers_are_not_indexed_on_a_gpu(loader_on):
    source = Bytes(*[noisy_jpeg(200, 300 + i) for i in range(4)])
    gpu, cpu = (
        loader_on(device, source, T.CenterCrop(32), batch_size=4, decode=DecodeOptions(index_bytes=1 << 20))
        for device in (True, False)
    )
    for _ in range(3):
        for got, want in zip(gpu, cpu, strict=True):
            assert_same(got.images, want.images)
    assert (gpu.stats().parts, cpu.stats().parts) == (0, 12)


def test_a_decoded_cache_has_whole_pictures(loader_on, jpegs):
    gpu, cpu = (loader_on(device, jpegs, CHAIN, batch_size=8, cache="decoded") for device in (True, False))
    for _ in range(2):
        for got, want in zip(gpu, cpu, strict=True):
            assert_same(got.images, want.images)
