"""An HDF5 file with a dataset of images and datasets of labels."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import DecodeError, LoaderError
from cuaug.limits import DEFAULT_MAX_BYTES, DEFAULT_MAX_PIXELS, check_pixels
from cuaug.sources._extras import need
from cuaug.sources._fingerprint import cache_key, fingerprint, once, relative
from cuaug.sources._hdf5_file import open_datasets
from cuaug.sources._hdf5_rows import Rows
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

    HDF5 serves one thread at a time. Values of variable length are read without HDF5, by all threads at once.

    The file may come from anybody. Refused are links to other files, external storage, views (virtual datasets) of
    files outside of the file's own folder or HDF5_VDS_PREFIX, and compressions whose output has no limit: szip, n-bit,
    scale-offset, or two at once. Each stored chunk is checked once, before HDF5 decodes it. Metadata is HDF5's to
    parse, and HDF5 2.0 never returns from some damaged views: keep h5py up to date, and check files from strangers
    with `cuaug check`, which has a time limit.

    Args:
        path: of the file.
        images: the dataset with the images: (N,) of encoded images, variable-length uint8 or opaque; or decoded ones,
            uint8 of shape (N, H, W, 3), (N, H, W, 1) or (N, H, W).
        labels: the dataset with the labels, (N, ...) of numbers or strings; a list of datasets for dict labels, whose
            keys are as given here; None: a sample's label is its index.
        channels_first: the decoded images are (N, 3, H, W) or (N, 1, H, W).
        max_pixels: limit on the height times width of decoded images.
        max_bytes: limit on one encoded image, one label and one chunk, which HDF5 decodes as a whole.

    Raises:
        LoaderError: no such file or dataset, one of another shape or type, one that is damaged, or one that is not read
            safely.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        images: str = "images",
        labels: str | Sequence[str] | None = "labels",
        *,
        channels_first: bool = False,
        max_pixels: int = DEFAULT_MAX_PIXELS,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        self._path = os.fspath(path)
        self.images = images
        self.channels_first = channels_first
        self.fields, self._is_dict = fields_of(labels)
        self._datasets = PerProcess(functools.partial(open_datasets, self._path, (images, *self.fields), max_bytes))
        dataset, *of_labels = self._datasets.get()
        self._is_encoded = self._check_images(dataset, max_pixels)
        self._length = len(dataset)
        for name, column in zip((images, *self.fields), (dataset, *of_labels), strict=True):
            if column.row_bytes > max_bytes and (self._is_encoded or column is not dataset):
                raise LoaderError(
                    f"each row of {name!r} in {self._path!r} has {column.row_bytes:,} bytes, above the limit "
                    f"max_bytes={max_bytes:,}"
                )
        self._kept: dict[int, NDArray[Any]] = {}
        for i, (name, column) in enumerate(zip(self.fields, of_labels, strict=True)):
            if not column.shape or len(column) != self._length:
                raise LoaderError(
                    f"{self._path!r} has {self._length} images in {images!r}, but labels of shape {column.shape} in "
                    f"{name!r}"
                )
            number = len(column.shape) == 1 and column.dtype.kind in "biufc"
            if number and column.dtype.itemsize * self._length <= _MOST_KEPT:
                (kept,) = column.parts(self._length)
                if isinstance(kept, np.ndarray):  # if damaged, it costs the samples that it is of
                    self._kept[i] = kept

    def __len__(self) -> int:
        return self._length

    def read(self, index: int) -> tuple[Any, Any]:
        """(encoded bytes or (H, W[, C]) uint8 array, label).

        Raises:
            DecodeError: the sample is damaged, larger than `max_bytes`, or its label is no text in UTF-8.
        """
        value = self._datasets.get()[0][index]
        if self._is_encoded:
            return bytes(value) if isinstance(value, bytes) else value.tobytes(), self.label(index)
        return np.ascontiguousarray(value.transpose(1, 2, 0)) if self.channels_first else value, self.label(index)

    def encoded_size(self, index: int) -> int:
        """Bytes of the image that `read` would give."""
        return self._datasets.get()[0].value_bytes(index)

    def label(self, index: int) -> Any:
        """The label alone, as `read` gives it."""
        if not self.fields:
            return index
        values = [self._label(i, name, index) for i, name in enumerate(self.fields)]
        return dict(zip(self.fields, values, strict=True)) if self._is_dict else values[0]

    def _label(self, i: int, name: str, index: int) -> Any:
        if i in self._kept:
            return self._kept[i][index]
        value = self._datasets.get()[1 + i][index]
        return decoded(name, value, as_text) if isinstance(value, bytes) else value

    def path(self, index: int) -> str:
        """file/dataset[index]"""
        return f"{self._path}/{self.images.strip('/')}[{index}]"

    @once
    def fingerprint(self) -> str:
        """A digest of the images' number and shape and of all labels; it reads these."""
        dataset, *of_labels = self._datasets.get()
        shape = [self.images, list(dataset.shape), self.fields, self._is_dict]
        labels = (rows for column in of_labels for rows in column.parts(_step(column)))
        return fingerprint("hdf5", relative([self._path]), shape, labels)

    def cache_key(self) -> str:
        """The file's folder, and a digest of when it was written."""
        return cache_key([self._path], self.channels_first)

    def _check_images(self, dataset: Rows, max_pixels: int) -> bool:
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
            height, width = shape[2:] if self.channels_first else shape[1:3]
            try:
                check_pixels(height, width, max_pixels, f"each image of {self.images!r} in {self._path!r} has")
            except DecodeError as error:  # of all samples, not of one
                raise LoaderError(error.cause) from None
            return False
        order = "(N, 3, H, W) or (N, 1, H, W)" if self.channels_first else "(N, H, W, 3), (N, H, W, 1) or (N, H, W)"
        hint = "; see channels_first" if dtype == np.uint8 and (first or last) else ""
        raise LoaderError(
            f"{self.images!r} in {self._path!r} has shape {shape} and type {dtype}: it should be uint8 of shape "
            f"{order}, or (N,) of encoded images, each a uint8 array of its own length{hint}"
        )


def _step(column: Rows) -> int:
    """How many rows of labels are read at a time."""
    return max(1, _CHUNK // (column.dtype.itemsize * math.prod(column.shape[1:]) or 1))
