"""Damaged files, bad sources and chains: errors name the file or the value."""

from __future__ import annotations

import logging
import pickle
import re
import struct
import sys
import traceback

import pytest
import torch
from PIL import Image

from cuaug import CuaugError, DecodeError, Loader, LoaderError, TransformError, collate
from cuaug import transforms as T
from tests.support.codec.encoded_images import encode, photo
from tests.support.loader.further_pictures import Bytes, Memory, assert_epoch_raises, epoch_of, numbers_of, png


def jpeg(height: int, width: int) -> bytes:
    return encode(Image.fromarray(photo(height, width)), "JPEG")


def bomb() -> bytes:
    data = jpeg(40, 60)
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", 65_500, 65_500) + data[at + 4 :]


BAD_FILES = {
    "missing": (None, "No such file"),
    "empty": (b"", "the file is empty"),
    "text": (b"label,path\n1,a.jpg\n", "not an image: it looks like text"),
    "truncated": (jpeg(4, 5)[:-20], "truncated"),
    "bomb": (bomb(), r"65500 x 65500 = 4290250000 pixels.*above the limit max_pixels"),
}


@pytest.fixture
def files(tmp_path):
    """Eight good files; `put(k, data)` overwrites file k."""
    paths = [tmp_path / f"{k}.jpg" for k in range(8)]
    for k, path in enumerate(paths):
        path.write_bytes(png(k))

    def put(k: int, data: bytes | None) -> list[str]:
        if data is None:
            paths[k].unlink()
        else:
            paths[k].write_bytes(data)
        return [str(path) for path in paths]

    return put


# --- damaged files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BAD_FILES)
def test_raise_names_path_index_and_cause(files, kind):
    data, cause = BAD_FILES[kind]
    paths = files(5, data)
    got = []
    told = pytest.raises(DecodeError, match=f"(?i){cause}")
    with Loader(paths, batch_size=2, threads=2) as loader, told as caught:
        for images, _ in loader:
            got += numbers_of(images)
    error = caught.value
    assert got == [0, 1, 2, 3], "earlier batches come first"
    assert error.path == paths[5] and error.index == 5 and error.cause in str(error) and paths[5] in str(error)
    assert isinstance(error, (CuaugError, ValueError)) and str(pickle.loads(pickle.dumps(error))) == str(error)
    assert loader.stats().samples == 4


@pytest.mark.parametrize(("label", "index"), [(1, 5), ({"mask": [[0]]}, 0)])
def test_errors_name_the_path_that_a_source_returned(files, label, index):
    paths = files(5, b"no picture")
    own = type("Own", (), {"__len__": lambda self: 8, "read": lambda self, i: (paths[i], label)})()
    told = pytest.raises((DecodeError, TransformError), match=re.escape(f"{paths[index]!r} (sample {index})"))
    with Loader(own, batch_size=2) as loader, told:
        list(loader)


@pytest.mark.parametrize("kind", BAD_FILES)
def test_skip_leaves_out_counts_and_logs_a_file_once(files, kind, caplog):
    paths = files(5, BAD_FILES[kind][0])
    with Loader(paths, batch_size=4, on_error="skip", threads=2) as loader:
        for epoch in range(3):
            batches = [(numbers_of(images), labels.tolist()) for images, labels in loader]
            assert batches == [([0, 1, 2, 3], [0, 1, 2, 3]), ([4, 6, 7], [4, 6, 7])]
            assert loader.stats().failed == epoch + 1
    (record,) = caplog.records
    assert record.name == "cuaug" and record.levelno == logging.WARNING and paths[5] in record.getMessage()


def test_a_file_that_comes_twice_is_logged_once(files, caplog):
    path, good, *_ = files(0, b"")
    with Loader([path, path, good, path], batch_size=4, on_error="skip") as loader:
        assert [labels.tolist() for _, labels in loader] == [[2]] and loader.stats().failed == 3
    assert len(caplog.records) == 1


def test_a_batch_in_which_every_sample_fails(caplog):
    """An empty batch keeps the number of batches equal on all ranks."""
    with Loader(Memory(12, damaged=range(4, 8)), batch_size=4, on_error="skip", dtype=torch.float16) as loader:
        batches = list(loader)
        assert [labels.tolist() for _, labels in batches] == [[0, 1, 2, 3], [], [8, 9, 10, 11]]
        assert batches[1].images.shape == (0, 3, 4, 5) and batches[1].images.dtype == torch.float16
        assert batches[1].labels.dtype == torch.int64 and batches[1].indices.shape == batches[1].valid.shape == (0,)
        assert len(loader) == loader.stats().batches == 3 and loader.stats().samples == 8
    assert len({record.getMessage() for record in caplog.records}) == 4


def test_a_sample_loaded_for_its_shape_is_not_reported():
    """In batches without good samples, each sample is reported once, and no other."""
    told = []
    data = Memory(12, damaged=range(8))
    with Loader(data, batch_size=2, on_error="skip", error_callback=lambda error: told.append(error.index)) as loader:
        list(loader)
        assert told == list(range(8)) and loader.stats().failed == 8


def test_skipped_samples_are_reported_before_an_error():
    told = []
    message = "replacements in a row for the shape of an empty batch are damaged"
    options = {"batch_size": 2, "on_error": "skip", "error_callback": lambda error: told.append(error.index)}
    assert_epoch_raises(LoaderError, message, Memory(4, range(4)), **options)
    assert told == [0, 1]
    message = "2 samples have failed, more than max_errors=1"
    assert_epoch_raises(LoaderError, message, Memory(4, range(4)), batch_size=2, on_error="skip", max_errors=1)


def test_the_first_of_several_bad_files_is_raised():
    for _ in range(5):
        with Loader(Memory(64, damaged=[60, 41, 33, 52]), batch_size=32, threads=4) as loader:
            batches = iter(loader)
            next(batches)
            with pytest.raises(DecodeError) as caught:
                next(batches)
            assert caught.value.index == 33 and caught.value.path is None
            assert list(batches) == [], "the iteration has ended"


@pytest.mark.parametrize("name", ["a\0.jpg", "a\ud800.jpg"])
def test_impossible_file_names(name):
    class Named(Memory):
        def read(self, index):
            return (name, 1) if index == 1 else super().read(index)

    assert [labels.tolist() for _, labels in epoch_of(Named(3), batch_size=3, on_error="skip")] == [[0, 2]]
    assert_epoch_raises(DecodeError, r"sample 1.*(null|surrogates)", Named(3), batch_size=3)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_an_exception_of_a_source_has_a_note_with_the_sample():
    class Broken(Memory):
        def read(self, index):
            return {}["k1"] if index == 5 else super().read(index)

    error = assert_epoch_raises(KeyError, "k1", Broken(8), batch_size=4)
    assert error.__notes__ == ["while reading sample 5"]


def test_attributes_that_are_not_methods_are_ignored():
    source = Memory(4, damaged=[2])
    source.path, source.label = "/data/x", 7
    source.cache_key, source.fingerprint, source.picture_size = "web", "sha", (10, 10)
    with Loader(source, batch_size=4, on_error="skip", cache="decoded") as loader:
        for _ in range(2):
            assert [labels.tolist() for _, labels in loader] == [[0, 1, 3]]


# --- sources ---------------------------------------------------------------------------------------------------------


def test_folders_without_images_are_refused(tmp_path):
    def refused(message: str) -> None:
        with pytest.raises(LoaderError, match=message) as caught:
            Loader(tmp_path / "d")
        assert str(tmp_path / "d") in str(caught.value)

    refused("is not a directory")
    (tmp_path / "d").mkdir()
    refused("has no folders and no .jpg, .* file: it should hold one folder of images per class, or images$")
    (tmp_path / "d" / "cat").mkdir()
    (tmp_path / "d" / "dog").mkdir()
    (tmp_path / "d" / "cat" / "1.png").write_bytes(png(0))
    (tmp_path / "d" / "dog" / "notes.txt").write_text("woof")
    refused(r"class folder .*dog' holds no .jpg")
    (tmp_path / "d" / "dog" / "2.jpg").write_bytes(png(1))
    assert len(Loader(tmp_path / "d")) == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "paths is empty"),
        (["a.jpg", ("b.jpg", 1)], r"mixes paths and \(path, label\) pairs: entry 1 is \('b.jpg', 1\)"),
        ([("a.jpg", 0), "b.jpg"], "mixes .*: entry 1 is 'b.jpg'"),
        ([("a.jpg", 0, 1)], "files: entry 0 is neither"),
        ([("a.jpg", 0), (1, "b.jpg")], r"entry 1 .* \(1, 'b.jpg'\)"),
        ([b"a.jpg"], "files: entry 0 is neither"),
        ([1, 2], "files: entry 0 is neither"),
        (3, "files must be a directory, paths.*not 3"),
        (None, "not None"),
        (b"photos", "files must be a directory, paths.*not b'photos'"),
    ],
)
def test_invalid_files_are_refused(files, message):
    with pytest.raises(LoaderError, match=message):
        Loader(files)


@pytest.mark.parametrize(
    "labels", [[[1], [1, 2]], [1, {}], [1, "cat"], [{"a": 1}, {"b": 1}], [(1, 2), (1,)], ["cat", 1], [None, 1]], ids=str
)
def test_labels_that_cannot_be_merged(labels, tmp_path):
    (tmp_path / "a.png").write_bytes(png(0))
    files = [(tmp_path / "a.png", label) for label in labels]
    error = assert_epoch_raises(LoaderError, "do not make a tensor", files, batch_size=2)
    assert repr(labels[0]) in str(error) and repr(labels[1]) in str(error)
    assert epoch_of(files, batch_size=2, collate_fn=list)[0].labels == labels


@pytest.mark.parametrize("odd", [None, "", b"cat", object], ids=repr)
def test_the_odd_label_is_named(odd, tmp_path):
    (tmp_path / "a.png").write_bytes(png(0))
    files = [(tmp_path / "a.png", label) for label in (6, 7.5, odd, 8)]
    assert_epoch_raises(LoaderError, f"do not make a tensor: 6 and {re.escape(repr(odd))};", files, batch_size=4)


@pytest.mark.parametrize(
    "one", [torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.bfloat16), torch.ones(2, device="meta")]
)
def test_tensors_that_numpy_rejects_are_named(one):
    """NumPy's own error named no label."""
    for first, odd in ((one, torch.ones(3)), (torch.ones(3), one), ({"a": one}, {"a": 5})):
        with pytest.raises(LoaderError, match=r"do not make a tensor: .* and .*; return one shape"):
            collate([first, odd, odd])


class Returns(Memory):
    """A source whose `read` returns or raises a given value."""

    def __init__(self, act) -> None:
        super().__init__(4)
        self.act = act

    def read(self, index):
        return self.act()


def raiser(error: BaseException):
    def read_the_database():
        raise error

    return read_the_database


@pytest.mark.parametrize(
    "given", [None, 5, (5, 0), (None, 1), b"ab", (b"x", 0, 1), "ab"], ids=lambda given: repr(given)[:20]
)
def test_a_source_that_returns_no_pair(given):
    error = assert_epoch_raises(LoaderError, r"read\(0\) gave", Returns(lambda: given))
    assert repr(given) in str(error)


@pytest.mark.parametrize(
    "error", [KeyError("row 7"), RuntimeError("gone"), SystemExit(3), KeyboardInterrupt()], ids=repr
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_source_that_raises(error, on_error):
    """Only unreadable files are skipped; bugs of a source are raised with their traceback."""
    with Loader(Returns(raiser(error)), on_error=on_error, threads=2) as loader, pytest.raises(type(error)) as caught:
        next(iter(loader))
    assert caught.value is error
    assert "read_the_database" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_a_source_that_cannot_read(tmp_path):
    """An OSError counts as damage and keeps its cause."""
    error = ConnectionError("the bucket is gone")
    raised = assert_epoch_raises(DecodeError, "the bucket is gone", Returns(raiser(error)))
    assert raised.index == 0 and raised.__cause__ is error
    assert_epoch_raises(DecodeError, "TimeoutError", Returns(raiser(TimeoutError())))
    assert_epoch_raises(LoaderError, "in a row", Returns(raiser(error)), on_error="skip")
    missing = tmp_path / "missing.bin"
    assert_epoch_raises(DecodeError, r"sample 0.*No such file.*missing\.bin", Returns(missing.read_bytes))


# --- transforms ------------------------------------------------------------------------------------------------------


def test_transforms_that_leave_different_sizes():
    data = [jpeg(40, 60), jpeg(40, 61)]
    message = "different sizes.*sample 0 is 40 x 60, sample 1 is 40 x 61.*CenterCrop"
    assert_epoch_raises(TransformError, message, Bytes(*data), T.RandomHorizontalFlip(), batch_size=2)
    assert [tuple(images.shape[2:]) for images, _ in epoch_of(Bytes(*data), batch_size=1)] == [(40, 60), (40, 61)]


def test_conversion_between_floats_does_not_normalize():
    chain = [T.ToDtype(torch.float16, scale=True), T.ToDtype(torch.float32), T.MixUp(num_classes=9)]
    assert epoch_of(Memory(4), chain, dtype=torch.uint8)[0].images.max() > 1
