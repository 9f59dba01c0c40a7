"""The estimated size of caches."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from cuaug.cache import SizeEstimate, estimate, shrunken_size
from cuaug.errors import LoaderError
from cuaug.sampling.rng import SampleRNG
from cuaug.sources import Files
from cuaug.transforms import Resize

sides = st.integers(1, 5000)


@given(sides, sides, st.integers(1, 600))
@example(256, 256, 256)
@example(511, 1023, 256)
@example(1023, 511, 256)
def test_shrunken_size_is_the_size_of_resize_but_never_larger(height, width, short_side):
    resized = Resize(short_side).make_params(
        SampleRNG(0, 0, np.zeros(1, np.int64)), np.array([height]), np.array([width])
    )  # fmt: skip
    size = int(resized["height"][0]), int(resized["width"][0])
    assert shrunken_size(height, width, short_side) == (size if min(height, width) > short_side else (height, width))
    assert shrunken_size(height, width, None) == (height, width)


class Images:
    """PNGs of these sizes; None is damaged."""

    def __init__(self, *sizes):
        self.data = [b"nothing" if size is None else self.png(*size) for size in sizes]
        self.reads = []

    @staticmethod
    def png(height: int, width: int) -> bytes:
        out = io.BytesIO()
        Image.new("RGB", (width, height)).save(out, "PNG")
        return out.getvalue()

    def __len__(self) -> int:
        return len(self.data)

    def read(self, index: int):
        self.reads.append(index)
        return self.data[index], index


def test_measuring_all_samples_is_exact():
    source = Images((10, 20), (30, 7), (8, 8))
    result = estimate(source)
    assert result == SizeEstimate(3, 3, 0, sum(map(len, source.data)), 3 * (200 + 210 + 64), None)
    assert sorted(source.reads) == [0, 1, 2]
    assert estimate(source, 8).decoded_bytes == 3 * (8 * 16 + 30 * 7 + 64)


def test_random_samples_represent_all():
    source = Images(*[(20, 30), (20, 50)] * 500)
    result = estimate(source, samples=100, seed=1)
    assert len(source.reads) == 100 == len(set(source.reads)) and source.reads == sorted(source.reads)
    assert [index // 10 for index in source.reads] == list(range(100)), "one from each part"
    assert (result.count, result.samples, result.damaged) == (1000, 100, 0)
    assert result.decoded_bytes == pytest.approx(3 * 20 * 40 * 1000, rel=0.1)
    assert result.encoded_bytes == pytest.approx(sum(map(len, source.data)), rel=0.1)
    assert estimate(source, samples=100, seed=1) == result
    first = list(source.reads[:100])
    source.reads.clear()
    estimate(source, samples=100, seed=2)
    assert source.reads != first


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(0, 3))
def test_every_sample_is_read_at_most_once(count, samples, seed):
    class Repeated(Images):
        def __len__(self):
            return count

        def read(self, index):
            self.reads.append(index)
            return self.data[0], 0

    source = Repeated((4, 4))
    result = estimate(source, samples=samples, seed=seed)
    assert result.samples == len(set(source.reads)) == len(source.reads) == min(count, samples)
    assert min(source.reads) >= 0 and max(source.reads) < count
    assert (result.encoded_bytes, result.decoded_bytes) == (count * len(source.data[0]), count * 48)


def test_damaged_samples_are_skipped(tmp_path):
    result = estimate(Images((10, 20), None, (10, 20), None))
    assert (result.samples, result.damaged, result.decoded_bytes) == (2, 2, 4 * 600)
    paths = [tmp_path / "a.png", tmp_path / "missing.png", "null\0.png"]
    paths[0].write_bytes(Images.png(10, 20))
    result = estimate(Files(paths))
    assert (result.samples, result.damaged) == (1, 2) and result.encoded_bytes == 3 * os.stat(paths[0]).st_size
    with pytest.raises(LoaderError, match=r"none of 2 samples could be read \(cannot decode: "):
        estimate(Images(None, None))


def test_it_takes_everything_that_a_loader_takes(tmp_path):
    (tmp_path / "train" / "ant").mkdir(parents=True)
    path = tmp_path / "train" / "ant" / "a.png"
    path.write_bytes(Images.png(10, 20))
    for files in (tmp_path / "train", str(tmp_path / "train"), [path], [(path, 3)]):
        assert estimate(files).decoded_bytes == 600
    with pytest.raises(LoaderError, match="is not a directory"):
        estimate(tmp_path / "none")


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_a_source_may_return_any_buffer(kind):
    source = Images((10, 20))
    size = len(source.data[0])
    source.data[0] = kind(source.data[0])
    result = estimate(source)
    assert (result.encoded_bytes, result.decoded_bytes) == (size, 600)


def test_a_source_of_decoded_arrays():
    source = Images((10, 20), (10, 20), (10, 20))
    source.data[1:] = [np.zeros((30, 40, 3), np.uint8), np.zeros((30, 40), np.uint8)]
    result = estimate(source, 20)
    assert result.encoded_bytes == len(source.data[0])
    assert result.decoded_bytes == 3 * (10 * 20 + 2 * 20 * 26)
    source.data[1] = np.zeros((30, 40, 3), np.float32)
    assert estimate(source).damaged == 1


def test_invalid_arguments_are_refused():
    for arguments in ({"samples": 0}, {"short_side": 0}, {"short_side": "256"}):
        with pytest.raises(LoaderError, match=f"{next(iter(arguments))} must be an integer of at least 1"):
            estimate(Images((4, 4)), **arguments)
    with pytest.raises(LoaderError, match=r"len\(source\) must be an integer of at least 1, not 0"):
        estimate(Images())


def test_text():
    result = SizeEstimate(1_281_167, 256, 0, 139_100_000_000, 251_400_000_000, 256)
    assert str(result) == "1,281,167 samples: 139 GB encoded, 251 GB decoded at short side 256 (from 256 of them)"
    assert "in full size (from 2 of them; 1 more are damaged)" in str(SizeEstimate(3, 2, 1, 5, 7, None))
