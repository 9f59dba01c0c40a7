"""Untrusted HDF5 files: links and views to other files, excessive sizes, and damage."""

from __future__ import annotations

import os
import resource
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from cuaug import DecodeError, LoaderError
from cuaug.sources import Hdf5
from tests.sources.test_hdf5 import pixels
from tests.support.sources.loading import load
from tests.support.sources.writers import overwrite, samples, write_hdf5

pytestmark = pytest.mark.timeout(60)

SHAPE = (4, 6, 5, 3)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data.h5"


def write(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["images"], file["labels"] = pixels(), np.arange(4)


def assert_refused(path: Path, message: str, **arguments) -> None:
    with pytest.raises(LoaderError, match=message) as caught:
        Hdf5(path, **{"labels": None, **arguments})
    assert "data.h5" in str(caught.value)


@pytest.mark.parametrize("name", ["link", "group/link", "soft", "/softer", "inner"])
def test_links_to_other_files_are_refused(path, name):
    """HDF5 would open the file and wait at the pipe."""
    os.mkfifo(path.parent / "other.h5")
    with h5py.File(path, "w") as file:
        file["link"] = file["group/link"] = h5py.ExternalLink("other.h5", "/images")
        file["soft"], file["softer"] = h5py.SoftLink("/link"), h5py.SoftLink("soft")
        file["deep"] = h5py.ExternalLink("other.h5", "/")
        file["inner"] = h5py.SoftLink("/deep/images")
    assert_refused(path, "is an external or user-defined link", images=name)


def test_soft_links_within_the_file_are_followed(path):
    with h5py.File(path, "w") as file:
        file["group/images"] = pixels()
        file["group/near"], file["far"] = h5py.SoftLink("./images"), h5py.SoftLink("/group/near")
        file["loop"], file["nowhere"] = h5py.SoftLink("loop"), h5py.SoftLink("/group/none")
    for name in ("far", "group/near", "/group/images"):
        np.testing.assert_array_equal(Hdf5(path, name, None).read(1)[0], pixels()[1])
    assert_refused(path, "more than 64 links", images="loop")
    assert_refused(path, "has no dataset 'nowhere'", images="nowhere")


def test_external_storage_is_refused(path):
    (path.parent / "secret.bin").write_bytes(bytes(1000))
    with h5py.File(path, "w") as file:
        file.create_dataset("images", SHAPE, np.uint8, external=[("secret.bin", 0, 1000)])
    assert_refused(path, "external storage")


def test_views_are_refused(path):
    """HDF5 would open other files, and read missing ones as black images."""
    view = h5py.VirtualLayout(SHAPE, np.uint8)
    view[:] = h5py.VirtualSource(".", "source", SHAPE)
    with h5py.File(path, "w") as file:
        file["source"] = pixels()
        file.create_virtual_dataset("images", view)
    assert_refused(path, r"'images' in .* is a view \(virtual dataset\) of other datasets: .*ConcatDataset")
    assert len(Hdf5(path, "source", None)) == 4


def test_images_above_the_default_pixel_limit(path):
    with h5py.File(path, "w") as file:
        images = file.create_dataset("images", (1, 60_000, 60_000, 3), np.uint8, chunks=(1, 1000, 1000, 3))
        images.id.write_direct_chunk((0, 0, 0, 0), bytes(3_000_000))
    assert_refused(path, r"each image of 'images' .* has 60000 x 60000 = 3600000000 pixels .* max_pixels=178956970")


def test_max_pixels(path):
    write(path)
    assert_refused(path, "max_pixels=29", max_pixels=29)
    assert len(Hdf5(path, max_pixels=30)) == 4


def test_max_bytes_of_rows_and_chunks(path):
    with h5py.File(path, "w") as file:
        file["images"] = pixels()
        chunk = file.create_dataset("chunk", (2**32, 6, 5, 3), np.uint8, chunks=(2**24, 6, 5, 3), compression="gzip")
        chunk.id.write_direct_chunk((0, 0, 0, 0), zlib.compress(bytes(100)))
        label = file.create_dataset("label", (4, 2**31), np.uint8, chunks=(1, 2**30), compression="gzip")
        label.id.write_direct_chunk((0, 0), zlib.compress(bytes(100)))
        file["opaque"] = np.array([np.void(bytes(2000)) for _ in range(4)])
    assert_refused(path, "one chunk of 'chunk' .* has 1,509,949,440 bytes, above the limit max_bytes", images="chunk")
    assert_refused(path, "each row of 'label' .* has 2,147,483,648 bytes, above the limit", labels="label")
    assert_refused(path, "each row of 'opaque' .* has 2,000 bytes, above the limit", images="opaque", max_bytes=1999)


@pytest.mark.parametrize("options", [{}, {"chunks": (2,)}, {"chunks": (2,), "compression": "gzip"}], ids=str)
def test_max_bytes_of_variable_length_values(path, options):
    with h5py.File(path, "w") as file:
        images = file.create_dataset("images", (3,), h5py.vlen_dtype(np.uint8), **options)
        for i, size in enumerate([100, 5000, 0]):
            images[i] = np.full(size, i, np.uint8)
        file["names"] = ["a", "b", "c" * 101]
    source = Hdf5(path, labels="names", max_bytes=100)
    assert [source.encoded_size(i) for i in range(3)] == [100, 5000, 0]
    assert source.read(0) == (bytes(100), "a")
    with pytest.raises(DecodeError, match="has 5,000 bytes, above the limit max_bytes=100"):
        source.read(1)
    with pytest.raises(DecodeError, match="has 101 bytes"):
        source.label(2)
    assert Hdf5(path, labels="names").read(2) == (b"", "c" * 101)
    with pytest.raises(IndexError):
        source.read(3)


def test_encoded_size_of_fixed_length_values(path):
    with h5py.File(path, "w") as file:
        file["images"], file["opaque"] = pixels(), np.array([np.void(bytes(20)) for _ in range(4)])
    assert (Hdf5(path, labels=None).encoded_size(0), Hdf5(path, "opaque", None).encoded_size(0)) == (90, 20)


def test_chunks_that_inflate_beyond_their_size(path):
    """HDF5 would allocate all of it: here 3 MB and 128 MB."""
    with h5py.File(path, "w") as file:
        images = file.create_dataset("images", SHAPE, np.uint8, chunks=(1, 6, 5, 3), compression="gzip")
        for i, size in enumerate([90, 3_000_000, 1 << 27, 90]):
            images.id.write_direct_chunk((i, 0, 0, 0), zlib.compress(bytes(size)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    source = Hdf5(path, labels=None)
    with pytest.raises(DecodeError, match="a stored chunk has 95 bytes, its shape needs 90"):
        source.read(1)
    with pytest.raises(DecodeError, match="out buffer is only 4197 bytes, 130466 bytes required"):
        source.read(2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    assert not source.read(0)[0].any() and not source.read(3)[0].any()


def test_double_compression_is_refused(path):
    """2 kB could inflate to 1 GB."""
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((1, 6, 5, 3))
        properties.set_deflate(1)
        properties.set_deflate(1)
        space = h5py.h5s.create_simple(SHAPE)
        images = h5py.h5d.create(file.id, b"images", h5py.h5t.NATIVE_UINT8, space, dcpl=properties)
        images.write_direct_chunk((0, 0, 0, 0), zlib.compress(zlib.compress(bytes(90))))
    assert_refused(path, "is compressed 2 times")


def test_unbounded_compression_is_refused(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=pixels().astype(np.int32), chunks=(1, 6, 5, 3), scaleoffset=0)
    assert_refused(path, "is compressed by scale-offset, which is unsafe")


def test_short_and_unwritten_chunks_damage_their_samples(path):
    """HDF5 would return uninitialized memory, or a black image."""
    with h5py.File(path, "w") as file:
        images = file.create_dataset("images", SHAPE, np.uint8, chunks=(1, 6, 5, 3), compression="gzip")
        images[0] = pixels()[0]
        images.id.write_direct_chunk((1, 0, 0, 0), zlib.compress(bytes(89)))
        images[2] = pixels()[2]
        file["labels"] = np.arange(4)
    source = Hdf5(path)
    with pytest.raises(DecodeError, match="a stored chunk has 89 bytes, its shape needs 90"):
        source.read(1)
    with pytest.raises(DecodeError, match=r"HDF5 cannot read it: .*not allocated"):
        source.read(3)
    images, labels = load(source, on_error="skip")
    assert labels.tolist() == [0, 2]
    np.testing.assert_array_equal(images[1].permute(1, 2, 0), pixels()[2])


@pytest.mark.parametrize("options", [{}, {"chunks": (1, 6, 5, 3)}], ids=["contiguous", "chunked"])
def test_an_unwritten_dataset_is_refused(path, options):
    with h5py.File(path, "w") as file:
        file.create_dataset("images", SHAPE, np.uint8, **options)
    assert_refused(path, r"'images' in .* has shape \(4, 6, 5, 3\), but was never written")


def test_more_chunks_than_bytes_are_refused(path):
    """A loader would allocate the order of so many samples."""
    with h5py.File(path, "w") as file:
        images = file.create_dataset("images", (2**50, 6, 5, 3), np.uint8, chunks=(1, 6, 5, 3))
        images[0] = 1
    assert_refused(path, "but was never written")


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, b"LOCG", "there is no heap at byte"),
        (16, bytes(16), "holds no value 1"),  # an empty object in place of the free space: HDF5 would never return
        (16, b"\xff\x00", "holds no value 1|is damaged at its object 255"),
        (24, b"\xff\xff\xff\xff\xff\xff\xff\x7f", "is damaged at its object 1"),
        (24, b"\x05\x00", "is damaged at its object|holds no value 1 of"),
    ],
)
def test_damaged_heaps(path, offset, value, message):
    write_hdf5(path.parent, samples())
    overwrite(path, path.read_bytes().index(b"GCOL") + offset, value)
    with pytest.raises(DecodeError, match=message):
        Hdf5(path).read(0)


def test_damaged_references(path):
    """A length and an address out of bounds."""
    with h5py.File(path, "w") as file:
        images = file.create_dataset("images", (2,), h5py.vlen_dtype(np.uint8))
        for i in range(2):
            images[i] = np.arange(50 + i, dtype=np.uint8)
        at = images.id.get_offset()
    whole = path.read_bytes()
    for begin, value, message in [
        (at, b"\xff\xff\xff\xff", "has 4,294,967,295 bytes, above the limit"),
        (at, b"\xff\xff\xff\x3f", "holds no value 1 of 1,073,741,823 bytes"),
        (at + 4, b"\xff" * 8, "beyond the end of the file"),
    ]:
        path.write_bytes(whole)
        overwrite(path, begin, value)
        with pytest.raises(DecodeError, match=message):
            Hdf5(path, labels=None).read(0)


def test_large_values_behind_a_user_block(path):
    """Large values have larger heaps; addresses count from the end of the user block."""
    sizes = [9000, 10, 4096, 70_000]
    data = [np.random.default_rng(i).integers(0, 256, size, np.uint8) for i, size in enumerate(sizes)]
    with h5py.File(path, "w", userblock_size=512, libver="latest") as file:
        images = file.create_dataset("images", (4,), h5py.vlen_dtype(np.uint8), chunks=(3,))
        for i in (2, 0, 3, 1):
            images[i] = data[i]
        file.create_dataset("labels", (4,), h5py.vlen_dtype(np.dtype(">i2")))
        for i in range(4):
            file["labels"][i] = range(i)
    source = Hdf5(path)
    assert [source.read(i)[0] for i in range(4)] == [value.tobytes() for value in data]
    assert [source.label(i).tolist() for i in range(4)] == [[], [0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize(
    ("dtype", "shape", "message"),
    [
        (np.dtype([("a", "i4"), ("b", h5py.string_dtype())]), (4,), "must hold numbers, strings or opaque bytes"),
        (h5py.ref_dtype, (4,), "must hold numbers, strings or opaque bytes"),
        (h5py.string_dtype(), (4, 2), "must have one dimension"),
    ],
    ids=["compound", "references", "two dimensions"],
)
def test_labels_of_unsupported_types_are_refused(path, dtype, shape, message):
    write(path)
    with h5py.File(path, "r+") as file:
        others = file.create_dataset("others", shape, dtype)
        others[(0,) * len(shape)] = (1, "x") if dtype.names else "x" if len(shape) == 2 else file.ref
    assert_refused(path, message, labels="others")


def test_errors_of_a_damaged_file_name_it(path):
    """h5py raises a RuntimeError, a KeyError and others."""
    write(path)
    whole, causes = path.read_bytes(), set()
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            Hdf5(path).read(0)
        except LoaderError as error:
            assert "data.h5" in str(error)
            causes.add(str(error).partition("is damaged: ")[2].partition(":")[0])
        except DecodeError:
            pass
    assert {"RuntimeError", "KeyError"} <= causes
