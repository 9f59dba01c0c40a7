"""HDF5: encoded and decoded images, labels of any shape, and files or datasets that are refused."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from cuaug import DecodeError, Loader, LoaderError
from cuaug.sources import Hdf5
from tests.support.loader.further_pictures import png
from tests.support.sources.loading import load, read_all
from tests.support.sources.writers import flip_bit, samples, write_hdf5


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data.h5"


def pixels(n: int = 4, h: int = 6, w: int = 5, c: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, h, w, c), dtype=np.uint8)


def test_encoded_images_as_opaque_bytes_in_a_group(path):
    with h5py.File(path, "w") as file:
        file["train/x"] = np.array([np.void(png(i)) for i in range(2)])
        file["train/y"] = [5, 6]
    source = Hdf5(path, "train/x", "/train/y")
    assert read_all(source) == [(png(0), 5), (png(1), 6)]
    assert source.path(0) == f"{path}/train/x[0]"


@pytest.mark.parametrize("shape", [(4, 3, 5, 3), (4, 3, 5, 1), (4, 3, 5)], ids=str)
def test_decoded_images(path, shape):
    array = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=array, chunks=(2, *shape[1:]), compression="gzip")
        file["labels"] = np.arange(4)
    source = Hdf5(path)
    for i in range(4):
        data, label = source.read(i)
        assert data.shape == shape[1:] and data.dtype == np.uint8 and label == i
        np.testing.assert_array_equal(data, array[i])
    images = load(source).images
    expected = array.reshape(4, 3, 5, -1).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(images.numpy(), np.broadcast_to(expected, (4, 3, 3, 5)))


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_first(path, channels):
    array = pixels(c=channels)
    with h5py.File(path, "w") as file:
        file["images"] = array.transpose(0, 3, 1, 2)
    data, label = Hdf5(path, labels=None, channels_first=True).read(2)
    np.testing.assert_array_equal(data, array[2])
    assert data.flags.c_contiguous and label == 2


def test_labels_of_any_shape(path):
    fields = {
        "number": np.arange(4, dtype=np.int16),
        "row": np.arange(16, dtype=np.float32).reshape(4, 4),
        "grid": np.arange(4 * 6).reshape(4, 2, 3),
        "flag": np.array([True, False, True, True]),
    }
    with h5py.File(path, "w") as file:
        file["images"] = pixels()
        file["name"] = ["ä", "b", "c", "d"]
        file["fixed"] = np.array([b"x", b"y", b"z", b"w"])
        for name, values in fields.items():
            file[name] = values
    source = Hdf5(path, labels=["name", "fixed", *fields])
    assert source.label(0)["name"] == "ä" and source.label(0)["fixed"] == "x"
    for i in range(4):
        for name, values in fields.items():
            np.testing.assert_array_equal(source.label(i)[name], values[i])
    labels = load(source).labels
    assert labels["name"] == ["ä", "b", "c", "d"] and labels["grid"].shape == (4, 2, 3)
    assert Hdf5(path, labels="row").read(1)[1].tolist() == [4, 5, 6, 7]
    assert Hdf5(path, labels=None).read(1)[1] == 1


def test_the_fingerprint_reads_all_labels(path, monkeypatch):
    """Also in several chunks, of strings, and of more than one dimension."""
    monkeypatch.setattr("cuaug.sources.shards.hdf5._FINGERPRINT_CHUNK_BYTES", 64)
    fingerprints = set()
    for change in (None, "name", "box", "images"):
        with h5py.File(path, "w") as file:
            file["images"] = pixels(50, w=6 if change == "images" else 5)
            file["name"] = [f"{i}" if (change, i) != ("name", 49) else "x" for i in range(50)]
            box = np.zeros((50, 4))
            box[49, 3] = change == "box"
            file["box"] = box
        fingerprints.add(Hdf5(path, labels=["name", "box"]).fingerprint())
    assert len(fingerprints) == 4
    assert Hdf5(path, labels="name").fingerprint() not in fingerprints


@pytest.mark.parametrize("dtype", ["S5", h5py.string_dtype()], ids=["fixed length", "variable length"])
def test_an_invalid_text_label_damages_one_sample(path, dtype):
    with h5py.File(path, "w") as file:
        file["images"] = pixels(2)
        file.create_dataset("labels", data=[b"ant", b"\xffbee"], dtype=dtype)
    with pytest.raises(DecodeError, match=r"label 'labels' holds .*xffbee'"):
        Hdf5(path).read(1)
    assert load(path, on_error="skip").labels == ["ant"]


@pytest.mark.parametrize(
    ("images", "labels", "arguments", "message"),
    [
        (pixels().astype(np.float32), range(4), {}, r"shape \(4, 6, 5, 3\) and type float32: it must be uint8"),
        (pixels(c=4), range(4), {}, r"shape \(4, 6, 5, 4\)"),
        (pixels().transpose(0, 3, 1, 2), range(4), {}, r"shape \(4, 3, 6, 5\).*see channels_first"),
        (pixels(), range(4), {"channels_first": True}, r"must be uint8 of shape \(N, 3, H, W\) or \(N, 1, H, W\)"),
        (pixels()[..., 0], range(4), {"channels_first": True}, r"shape \(4, 6, 5\)"),
        (np.arange(4), range(4), {}, r"shape \(4,\) and type int64"),
        (np.float64(3), range(4), {}, r"'images' in .* has shape \(\): there is nothing to load"),
        (pixels(0), [], {}, r"nothing to load"),
        (pixels(), range(3), {}, r"has 4 images in 'images', but labels of shape \(3,\) in 'labels'"),
        (pixels(), 5, {}, r"labels of shape \(\)"),
        (pixels(), range(4), {"labels": "y"}, r"has no dataset 'y'; available: 'group/inner', 'images', 'labels'"),
        (pixels(), range(4), {"images": "group"}, r"has no dataset 'group'"),
        (pixels(), range(4), {"labels": 3}, "label must be a field name"),
    ],
)
def test_invalid_datasets_are_refused(path, images, labels, arguments, message):
    with h5py.File(path, "w") as file:
        file["images"], file["labels"], file["group/inner"] = images, labels, 1
    with pytest.raises(LoaderError, match=message):
        Hdf5(path, **arguments)


def test_other_files_are_refused(path):
    with pytest.raises(LoaderError, match=r"cannot open .*data.h5'.*No such file"):
        Hdf5(path)
    path.write_bytes(b"something else" * 100)
    with pytest.raises(LoaderError, match=r"cannot open .*signature"):
        Hdf5(path)
    write_hdf5(path.parent, samples())
    size = os.path.getsize(path)
    for cut in (0, 10, 2000, size - 1):
        os.truncate(path, cut)
        with pytest.raises(LoaderError, match="cannot open"):
            Hdf5(path)
        write_hdf5(path.parent, samples())


def test_a_damaged_chunk_of_labels_damages_its_samples(path):
    """They still have a fingerprint, so that a state can be saved."""
    with h5py.File(path, "w") as file:
        file["images"] = np.zeros((6, 4, 5, 3), dtype=np.uint8)
        labels = file.create_dataset("labels", data=np.arange(6), chunks=(2,), fletcher32=True)
        at = labels.id.get_chunk_info(1).byte_offset
    undamaged = Hdf5(path).fingerprint()
    flip_bit(path, at)
    assert load(Hdf5(path), on_error="skip").labels.tolist() == [0, 1, 4, 5]
    assert Hdf5(path).fingerprint() == Hdf5(path).fingerprint() != undamaged


def test_a_damaged_chunk_of_images_damages_its_samples(path):
    with h5py.File(path, "w") as file:
        shape = (6, 40, 50, 3)
        array = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
        images = file.create_dataset("images", data=array, chunks=(1, 40, 50, 3), fletcher32=True)
        file["labels"] = np.arange(6)
        offset = images.id.get_chunk_info(2).byte_offset
    flip_bit(path, offset + 100)
    source = Hdf5(path)
    with pytest.raises(DecodeError, match="HDF5 cannot read it: OSError"):
        source.read(2)
    assert load(source, on_error="skip").labels.tolist() == [0, 1, 3, 4, 5]
    with Loader(source, batch_size=6) as loader, pytest.raises(DecodeError, match=r"data.h5/images\[2\]' \(sample 2\)"):
        next(iter(loader))
