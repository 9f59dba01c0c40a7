"""A sample's fault costs only that sample with on_error="skip" and "replace", in every stage."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset

from cuaug import DecodeError, DecodeOptions, Loader, LoaderError, TransformError
from cuaug import transforms as T
from cuaug.sources import Files, TarShards, open_source
from cuaug.sources.file_bytes import read_bytes
from tests.support.loader.further_pictures import assert_epoch_raises, epoch_of, png
from tests.support.sources.writers import write_tar


class Pictures:
    """Given samples; an exception among them is raised."""

    def __init__(self, *samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int) -> tuple[Any, Any]:
        sample = self.samples[index]
        if isinstance(sample, Exception):
            raise sample
        return sample if isinstance(sample, tuple) else (sample, index)

    def path(self, index: int) -> str:
        return f"picture {index}"


GOOD = png(0, 40, 50)


@pytest.fixture
def paths(tmp_path) -> list[str]:
    for i in range(6):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    return [str(tmp_path / f"{i}.png") for i in range(6)]


def skipped(source: Any, chain: list[Any], **options: Any) -> tuple[list[int], dict[int, str]]:
    """(indices of yielded samples, {index: cause} of failed samples)."""
    failed: dict[int, str] = {}

    def note(error: DecodeError) -> None:
        assert error.path == f"picture {error.index}" or not isinstance(source, Pictures)
        failed[error.index] = error.cause

    with Loader(source, chain, batch_size=4, on_error="skip", error_callback=note, device="cpu", **options) as loader:
        came = [index for batch in loader for index in batch.indices.tolist()]
    return came, failed


@pytest.mark.parametrize(
    ("chain", "size", "cause"),
    [
        ([T.Resize(256), T.GaussianBlur(5), T.CenterCrop(32)], (1, 400_000), "make an image of 256 x 102400000 pixels"),
        ([T.Resize(64), T.GaussianBlur(3)], (400_000, 1), "make an image of 25600000 x 64 pixels"),
        ([T.RandomRotation(30, expand=True), T.Resize((32, 32))], (1, 400_000), "make an image of "),
        ([T.Pad(2000), T.GaussianBlur(3), T.Resize((32, 32))], (1, 400_000), "make an image of "),
        ([T.ElasticTransform(), T.Resize((32, 32))], (1, 400_000), "displacements of a batch would take"),
        ([T.RandomCrop(32)], (20, 600), "does not fit"),
    ],
    ids=lambda value: None if isinstance(value, list) else str(value),
)
@pytest.mark.parametrize("on_error", ["skip", "raise"])
def test_a_chain_fails_on_an_extreme_image(chain, size, cause, on_error):
    source = Pictures(GOOD, GOOD, png(0, *size), GOOD)
    chain = [*chain, T.Resize((32, 32))]
    if on_error == "raise":
        message = rf"'picture 2' \(sample 2\): .*{cause}"
        assert_epoch_raises(TransformError, message, source, chain, batch_size=4, device="cpu")
        return
    came, failed = skipped(source, chain)
    assert came == [0, 1, 3] and list(failed) == [2] and cause in failed[2]


def test_an_image_that_makes_its_batch_too_large():
    """Each could be planned alone; together they are padded to the largest."""
    pictures = [png(0, 2000, 3), png(0, 3, 2000), *[png(0, 20 + i, 20) for i in range(30)]]
    chain = [T.ElasticTransform(sigma=1.0), T.Resize((8, 8))]
    (batch,) = epoch_of(Pictures(*pictures), chain, batch_size=32, on_error="skip")
    assert 30 <= len(batch.indices) < 32 and batch.indices.tolist()[-30:] == list(range(2, 32))


def test_a_failing_replacement_is_replaced():
    source = Pictures(*[png(0, 20, 20)] * 6, *[png(0, 40, 40)] * 2)
    (batch,) = epoch_of(source, [T.RandomCrop(32)], batch_size=8, on_error="replace", device="cpu")
    assert batch.valid.tolist() == [False] * 6 + [True] * 2 and set(batch.indices.tolist()) == {6, 7}


def test_a_chain_that_fits_no_image_reports_the_cause():
    message = "100 replacements in a row .*crop of 99 x 99 .* does not fit"
    assert_epoch_raises(LoaderError, message, Pictures(GOOD), [T.RandomCrop(99)], on_error="skip")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError("bad tile", 17), "[Errno bad tile] 17"),
        (OSError(5, None), "[Errno 5] None"),
        (OSError(5, ""), "[Errno 5] "),
        (OSError(5, "Input/output error"), "Input/output error"),
        (OSError("bad tile"), "bad tile"),
        (OSError(), "OSError"),
        (MemoryError("2 TB"), "not enough memory: 2 TB"),
        (BlockingIOError(errno.EAGAIN, "try again"), "try again"),
    ],
    ids=repr,
)
def test_errors_of_a_read_cost_their_sample(error, cause):
    """A source's own OSError may hold any values."""
    assert skipped(Pictures(GOOD, error, GOOD), [T.Resize((32, 32))]) == ([0, 2], {1: cause})


def test_a_blocking_read_costs_its_sample(tmp_path, monkeypatch):
    """Some network file systems return EAGAIN after a part of the file."""
    (tmp_path / "a").write_bytes(bytes(100))
    answers = iter([b"1234", BlockingIOError(errno.EAGAIN, "try again")])

    def read(file: int, size: int) -> bytes:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(os, "read", read)
    with pytest.raises(BlockingIOError):
        read_bytes(tmp_path / "a")


# --- limits ----------------------------------------------------------------------------------------------------------


def test_a_sparse_file_is_not_read(paths):
    os.truncate(paths[1], 5 << 30)
    came, failed = skipped(Files(paths[:3]), [])
    assert came == [0, 2] and failed == {1: "the file has 5,368,709,120 bytes, above the limit max_bytes=1,073,741,824"}


@pytest.fixture
def tar(tmp_path) -> TarShards:
    """Three samples; the second has 5000 bytes more."""
    data = [png(i) + bytes(5000 if i == 1 else 0) for i in range(3)]
    write_tar(tmp_path / "a.tar", [(f"{i}.png", each) for i, each in enumerate(data)])
    return TarShards(tmp_path / "a.tar", "png", None)


def test_a_tar_member_above_the_limit_is_not_read(tar):
    assert tar.encoded_size(1) == len(png(1)) + 5000
    read: list[int] = []
    tar.read = lambda index: (read.append(index), TarShards.read(tar, index))[1]  # type: ignore[method-assign]
    came, failed = skipped(tar, [], decode=DecodeOptions(max_bytes=4000))
    assert came == [0, 2] == sorted(read) and "bytes, above the limit max_bytes=4,000" in failed[1]
    assert skipped(tar, [], decode=DecodeOptions(max_bytes=9000)) == ([0, 1, 2], {})


def test_the_limit_holds_in_subsets_and_concatenations(tar):
    joined = open_source(ConcatDataset([Subset(tar, [1, 0]), tar]))
    assert [joined.encoded_size(i) for i in range(5)] == [tar.encoded_size(i) for i in (1, 0, 0, 1, 2)]
    assert skipped(joined, [], decode=DecodeOptions(max_bytes=4000))[0] == [1, 2, 4]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_bytes_of_a_source_are_limited_too(kind):
    source = Pictures(kind(png(0)), kind(png(1) + bytes(5000)))
    came, failed = skipped(source, [], decode=DecodeOptions(max_bytes=4000))
    assert came == [0] and "above the limit max_bytes=4,000" in failed[1]


def test_a_file_one_byte_above_the_limit_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", 5) == b"12345"
    with pytest.raises(DecodeError, match="the file has 5 bytes, above the limit max_bytes=4"):
        read_bytes(tmp_path / "a", 4)


def test_a_file_without_a_size_is_limited(tmp_path):
    """Files in /proc report no size."""
    assert len(read_bytes("/proc/self/status", 1 << 20)) > 100
    with pytest.raises(DecodeError, match="above the limit max_bytes=100"):
        read_bytes("/proc/self/status", 100)


def test_images_between_two_passes_count_against_max_pixels():
    chain = [T.Resize((300, 300)), T.GaussianBlur(5), T.Resize((32, 32))]
    assert skipped(Pictures(GOOD), chain, decode=DecodeOptions(max_pixels=90_000)) == ([0], {})
    message = "make an image of 300 x 300 pixels .* above the limit max_pixels=89999"
    assert_epoch_raises(TransformError, message, Pictures(GOOD), chain, decode=DecodeOptions(max_pixels=89_999))


# --- files whose paths and labels the source gives for a whole batch --------------------------------------------------


@pytest.mark.parametrize("label", [2**63, torch.zeros(2).to_sparse(), {"id": [0, -(2**63) - 1]}])
def test_a_label_that_no_batch_holds_costs_its_sample(paths, label):
    source = Files(paths, [0, 1, label, 3, 4, 5])
    with Loader(source, batch_size=3, on_error="skip", device="cpu") as loader:
        for _ in range(2):
            assert [index for batch in loader for index in batch.indices.tolist()] == [0, 1, 3, 4, 5]
        assert loader.stats().failed == 2
    error = assert_epoch_raises(DecodeError, r"2\.png.*the label holds", source, batch_size=3, device="cpu")
    assert error.index == 2 and error.path == paths[2]
    assert sum(len(batch.labels) for batch in epoch_of(source, batch_size=3, device="cpu", collate_fn=list)) == 6


def test_labels_whose_code_fails_name_the_sample(paths):
    class Labels(list):
        def __getitem__(self, index: Any) -> Any:
            if index == 4:
                raise ZeroDivisionError
            if index == 1:
                raise DecodeError("no label")
            return index

    with Loader(Files(paths, Labels(range(6))), batch_size=2, on_error="skip", device="cpu") as loader:
        batches = iter(loader)
        assert next(batches).indices.tolist() == [0]
        with pytest.raises(ZeroDivisionError) as caught:
            list(batches)
        assert sys.version_info < (3, 11) or caught.value.__notes__ == ["while reading sample 4"]


def test_paths_that_became_other_objects_are_read(paths):
    source = Files(list(map(np.str_, paths)))
    assert set(map(type, source.paths)) == {str}
    source.paths[1], source.paths[4] = Path(paths[1]), np.str_(paths[4])
    with Loader(source, batch_size=3, device="cpu") as loader:
        assert [label for batch in loader for label in batch.labels.tolist()] == list(range(6))


def test_a_source_that_became_shorter_names_the_sample(paths):
    source = Files(paths)
    with Loader(source, batch_size=2, device="cpu") as loader:
        del source.paths[5:]
        with pytest.raises(IndexError) as caught:
            list(loader)
        assert sys.version_info < (3, 11) or caught.value.__notes__ == ["while reading sample 5"]
