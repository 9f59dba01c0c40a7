"""How large a cache would be."""

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
def test_the_size_that_resize_gives_but_never_larger(height, width, short_side):
    resized = Resize(short_side).make_params(
        SampleRNG(0, 0, np.zeros(1, np.int64)), np.array([height]), np.array([width])
    )  # fmt: skip
    size = int(resized["height"][0]), int(resized["width"][0])
    assert shrunken_size(height, width, short_side) == (size if min(height, width) > short_side else (height, width))
    assert shrunken_size(height, width, None) == (height, width)


class Pictures:
    """PNGs of the sizes given; None is damaged."""

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


def test_all_samples_make_it_exact():
    source = Pictures((10, 20), (30, 7), (8, 8))
    whole = estimate(source)
    assert whole == SizeEstimate(3, 3, 0, sum(map(len, source.data)), 3 * (200 + 210 + 64), None)
    assert sorted(source.reads) == [0, 1, 2]
    assert estimate(source, 8).decoded_bytes == 3 * (8 * 16 + 30 * 7 + 64)


def test_some_samples_stand_for_all():
    source = Pictures(*[(20, 30), (20, 50)] * 500)
    few = estimate(source, samples=100, seed=1)
    assert len(source.reads) == 100 == len(set(source.reads)) and source.reads == sorted(source.reads)
    assert [index // 10 for index in source.reads] == list(range(100)), "one from each part"
    assert (few.count, few.samples, few.damaged) == (1000, 100, 0)
    assert few.decoded_bytes == pytest.approx(3 * 20 * 40 * 1000, rel=0.1)
    assert few.encoded_bytes == pytest.approx(sum(map(len, source.data)), rel=0.1)
    assert estimate(source, samples=100, seed=1) == few
    first = list(source.reads[:100])
    source.reads.clear()
    estimate(source, samples=100, seed=2)
    assert source.reads != first


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(0, 3))
def test_every_sample_is_looked_at_once_at_most(count, samples, seed):
    class Same(Pictures):
        def __len__(self):
            return count

        def read(self, index):
            self.reads.append(index)
            return self.data[0], 0

    source = Same((4, 4))
    guess = estimate(source, samples=samples, seed=seed)
    assert guess.samples == len(set(source.reads)) == len(source.reads) == min(count, samples)
    assert min(source.reads) >= 0 and max(source.reads) < count
    assert (guess.encoded_bytes, guess.decoded_bytes) == (count * len(source.data[0]), count * 48)


def test_damaged_samples_are_left_out(tmp_path):
    guess = estimate(Pictures((10, 20), None, (10, 20), None))
    assert (guess.samples, guess.damaged, guess.decoded_bytes) == (2, 2, 4 * 600)
    paths = [tmp_path / "a.png", tmp_path / "missing.png", "null\0.png"]
    paths[0].write_bytes(Pictures.png(10, 20))
    guess = estimate(Files(paths))
    assert (guess.samples, guess.damaged) == (1, 2) and guess.encoded_bytes == 3 * os.stat(paths[0]).st_size
    with pytest.raises(LoaderError, match=r"of 2 samples none could be read \(cannot decode: "):
        estimate(Pictures(None, None))


def test_of_all_that_a_loader_takes(tmp_path):
    """It said so, and took sources alone."""
    (tmp_path / "train" / "ant").mkdir(parents=True)
    path = tmp_path / "train" / "ant" / "a.png"
    path.write_bytes(Pictures.png(10, 20))
    for files in (tmp_path / "train", str(tmp_path / "train"), [path], [(path, 3)]):
        assert estimate(files).decoded_bytes == 600
    with pytest.raises(LoaderError, match="is not a directory"):
        estimate(tmp_path / "none")


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_a_source_gives_any_kind_of_bytes(kind):
    source = Pictures((10, 20))
    size = len(source.data[0])
    source.data[0] = kind(source.data[0])
    guess = estimate(source)
    assert (guess.encoded_bytes, guess.decoded_bytes) == (size, 600)


def test_a_source_of_decoded_arrays():
    source = Pictures((10, 20), (10, 20), (10, 20))
    source.data[1:] = [np.zeros((30, 40, 3), np.uint8), np.zeros((30, 40), np.uint8)]
    guess = estimate(source, 20)
    assert guess.encoded_bytes == len(source.data[0])
    assert guess.decoded_bytes == 3 * (10 * 20 + 2 * 20 * 26)
    source.data[1] = np.zeros((30, 40, 3), np.float32)
    assert estimate(source).damaged == 1


def test_arguments():
    for arguments in ({"samples": 0}, {"short_side": 0}, {"short_side": "256"}):
        with pytest.raises(LoaderError, match=f"{next(iter(arguments))} is an integer of at least 1"):
            estimate(Pictures((4, 4)), **arguments)
    with pytest.raises(LoaderError, match=r"len\(source\) is an integer of at least 1, not 0"):
        estimate(Pictures())


def test_it_reads_well():
    guess = SizeEstimate(1_281_167, 256, 0, 139_100_000_000, 251_400_000_000, 256)
    assert str(guess) == "1,281,167 images: 139 GB encoded, 251 GB decoded at short side 256 (from 256 samples)"
    assert "in full size (from 2 samples; 1 more are damaged)" in str(SizeEstimate(3, 2, 1, 5, 7, None))
