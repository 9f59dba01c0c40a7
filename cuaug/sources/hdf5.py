"""An HDF5 file with a dataset of images and datasets of labels."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import LoaderError
from cuaug.sources._extras import need
from cuaug.sources._fingerprint import cache_key, fingerprint, once, relative
from cuaug.sources._labels import as_text, decoded, fields_of
from cuaug.sources._per_process import PerProcess
from cuaug.sources._repr import ReprMixin

__all__ = ["Hdf5"]

# Bytes of labels that are read at a time for the fingerprint.
_CHUNK = 1 << 24
# Labels of one number are kept in memory if all take no more bytes: asking HDF5 for one takes as long as for a picture
# of 32 x 32.
_MOST_KEPT = 1 << 24


class Hdf5(ReprMixin):
    """Images and labels in datasets of an HDF5 file. Needs `pip install "cuaug[hdf5]"`.

    HDF5 serves one thread at a time. That suits encoded images, of which reading is the small part.

    Args:
        path: of the file.
        images: the dataset with the images: (N,) of encoded images, variable-length uint8 or opaque; or decoded ones,
            uint8 of shape (N, H, W, 3), (N, H, W, 1) or (N, H, W).
        labels: the dataset with the labels, (N, ...) of numbers or strings; a list of datasets for dict labels, whose
            keys are as given here; None: a sample's label is its index.
        channels_first: the decoded images are (N, 3, H, W) or (N, 1, H, W).

    Raises:
        LoaderError: no such file or dataset, or one of another shape or type.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        images: str = "images",
        labels: str | Sequence[str] | None = "labels",
        *,
        channels_first: bool = False,
    ) -> None:
        self._path = os.fspath(path)
        self.images = images
        self.channels_first = channels_first
        self.fields, self._is_dict = fields_of(labels)
        self._datasets = PerProcess(functools.partial(_open, self._path, images, tuple(self.fields)))
        dataset, *of_labels = self._datasets.get()
        self._is_encoded = self._check_images(dataset)
        self._length = len(dataset)
        self._kept: dict[int, NDArray[Any]] = {}
        for i, (name, column) in enumerate(zip(self.fields, of_labels, strict=True)):
            if not column.shape or len(column) != self._length:
                raise LoaderError(
                    f"{self._path!r} has {self._length} images in {images!r}, but labels of shape {column.shape} in "
                    f"{name!r}"
                )
            number = column.ndim == 1 and column.dtype.kind in "biufc"
            if number and column.dtype.itemsize * self._length <= _MOST_KEPT:
                with contextlib.suppress(OSError):  # damaged: then it costs the samples that it is of
                    self._kept[i] = column[:]

    def __len__(self) -> int:
        return self._length

    def read(self, index: int) -> tuple[Any, Any]:
        """(encoded bytes or (H, W[, C]) uint8 array, label).

        Raises:
            DecodeError: a label is no text in UTF-8.
            OSError: the file is damaged where the sample lies.
        """
        value = self._datasets.get()[0][index]
        if self._is_encoded:
            return bytes(value) if isinstance(value, bytes) else value.tobytes(), self.label(index)
        return np.ascontiguousarray(value.transpose(1, 2, 0)) if self.channels_first else value, self.label(index)

    def label(self, index: int) -> Any:
        """The label alone, as `read` gives it."""
        if not self.fields:
            return index
        found = [
            self._kept[i][index] if i in self._kept else self._datasets.get()[1 + i][index]
            for i in range(len(self.fields))
        ]
        named = zip(self.fields, found, strict=True)
        values = [decoded(name, value, as_text) if isinstance(value, bytes) else value for name, value in named]
        return dict(zip(self.fields, values, strict=True)) if self._is_dict else values[0]

    def path(self, index: int) -> str:
        """file/dataset[index]"""
        return f"{self._path}/{self.images.strip('/')}[{index}]"

    @once
    def fingerprint(self) -> str:
        """A digest of the images' number and shape and of all labels; it reads these."""
        dataset, *of_labels = self._datasets.get()
        shape = [self.images, list(dataset.shape), self.fields, self._is_dict]
        labels = (rows for column in of_labels for rows in _in_parts(column))
        return fingerprint("hdf5", relative([self._path]), shape, labels)

    def cache_key(self) -> str:
        """The file's folder, and a digest of when it was written."""
        return cache_key([self._path], self.channels_first)

    def _check_images(self, dataset: Any) -> bool:
        """Whether the images are encoded."""
        shape, dtype = dataset.shape, dataset.dtype
        if not shape or not shape[0]:
            raise LoaderError(f"there is nothing to load: {self.images!r} in {self._path!r} has shape {shape}")
        h5py = need("h5py", "hdf5")
        is_bytes = h5py.check_vlen_dtype(dtype) == np.uint8 or dtype.kind in "SV" or h5py.check_string_dtype(dtype)
        if len(shape) == 1 and is_bytes:
            return True
        first, last = (len(shape) == 4 and shape[axis] in (1, 3) for axis in (1, -1))
        if dtype == np.uint8 and (first if self.channels_first else last or len(shape) == 3):
            return False
        order = "(N, 3, H, W) or (N, 1, H, W)" if self.channels_first else "(N, H, W, 3), (N, H, W, 1) or (N, H, W)"
        hint = "; see channels_first" if dtype == np.uint8 and (first or last) else ""
        raise LoaderError(
            f"{self.images!r} in {self._path!r} has shape {shape} and type {dtype}: it should be uint8 of shape "
            f"{order}, or (N,) of encoded images, each a uint8 array of its own length{hint}"
        )


def _in_parts(column: Any) -> Iterator[Any]:
    step = max(1, _CHUNK // (column.dtype.itemsize * math.prod(column.shape[1:]) or 1))
    for start in range(0, len(column), step):
        yield column[start : start + step]


def _open(path: str, images: str, fields: Sequence[str]) -> list[Any]:
    """The datasets of one process.

    Raises:
        LoaderError: there is no such file or dataset, or it is a view of a file that is not there.
    """
    h5py = need("h5py", "hdf5")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise LoaderError(f"cannot open {path!r}: {error}") from error
    datasets = []
    for name in (images, *fields):
        dataset = file.get(name)
        if not isinstance(dataset, h5py.Dataset):
            raise LoaderError(f"{path!r} has no dataset {name!r}; there are {', '.join(map(repr, _names(file, h5py)))}")
        _check_view(path, name, dataset)
        datasets.append(dataset)
    return datasets


def _check_view(path: str, name: str, dataset: Any) -> None:
    """Refuses a virtual dataset whose files are not all there: HDF5 gives zeros, a black picture, and no error."""
    if not dataset.is_virtual or "HDF5_VDS_PREFIX" in os.environ:  # which says in its own language where they are
        return
    for file in sorted({source.file_name for source in dataset.virtual_sources()} - {"."}):
        places = (os.path.join(os.path.dirname(path), file), file)
        if "%" not in file and not any(map(os.path.exists, places)):  # else numbered: as many as there are
            raise LoaderError(f"{name!r} in {path!r} is a view of {file!r}, which is not there")


def _names(file: Any, h5py: Any) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names[:20]
