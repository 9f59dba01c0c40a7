"""HDF5 files with a dataset of images and datasets of labels.

An untrusted file must not reach other files. HDF5 follows links, views (virtual datasets) and external storage into any
file that the process may read, and waits at a pipe. Here none of them is followed.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.extras import require_module
from cuaug._runtime.fork import PerProcess
from cuaug._runtime.limits import DEFAULT_MAX_BYTES, DEFAULT_MAX_PIXELS, check_pixels
from cuaug.errors import CuaugError, DecodeError, SourceError
from cuaug.sources.file_bytes import open_regular
from cuaug.sources.labels import decode_field, decode_text, parse_label_fields
from cuaug.sources.shards.hdf5_rows import Rows
from cuaug.sources.source import ReprMixin, cache_key, cached_method, fingerprint, relative_paths

_MAX_LINKS = 64
_NAMES_SHOWN = 20


def open_datasets(path: str, names: Sequence[str], max_bytes: int) -> list[Rows]:
    """Opens datasets of one file, in the order of `names`.

    Raises:
        LoaderError: the file or a dataset is missing, damaged, or cannot be read safely.
    """
    try:
        file = _open_file(path)
        opened = []
        for name in names:
            dataset = _find_dataset(path, file, name)
            if dataset is None:
                available = ", ".join(map(repr, _dataset_names(file)))
                raise SourceError(f"{path!r} has no dataset {name!r}; available: {available}")
            if dataset.is_virtual:
                raise SourceError(
                    f"{name!r} in {path!r} is a view (virtual dataset) of other datasets: make a source for each of "
                    "them, and join these by torch.utils.data.ConcatDataset"
                )
            opened.append(Rows(f"{name!r} in {path!r}", dataset, max_bytes))
        return opened
    except CuaugError:
        raise
    except Exception as error:  # a damaged file makes h5py raise any exception
        raise SourceError(f"{path!r} is damaged: {type(error).__name__}: {error}") from error


def _open_file(path: str) -> Any:
    h5py = require_module("h5py", "hdf5")
    try:
        os.close(open_regular(path, os.O_RDONLY))  # HDF5 would wait at a pipe
        return h5py.File(path, "r", driver="sec2")
    except OSError as error:
        raise SourceError(f"cannot open {path!r}: {error}") from error


def _find_dataset(path: str, file: Any, name: str) -> Any:
    """Finds a dataset through groups and links within the file; None if there is none."""
    h5py = require_module("h5py", "hdf5")
    here, pending = file, _reversed_parts(name)
    for _ in range(_MAX_LINKS):
        if not pending:
            return here if isinstance(here, h5py.Dataset) else None
        part = pending.pop()
        if not isinstance(here, h5py.Group) or not here.id.links.exists(part):
            return None
        link_type = here.id.links.get_info(part).type
        if link_type == h5py.h5l.TYPE_HARD:
            here = here[part]
        elif link_type == h5py.h5l.TYPE_SOFT:
            target = here.id.links.get_val(part)
            here = file if target.startswith(b"/") else here
            pending += _reversed_parts(target)
        else:
            raise SourceError(f"{name!r} in {path!r} is an external or user-defined link: open the file it leads to")
    raise SourceError(f"{name!r} in {path!r} lies behind more than {_MAX_LINKS} links and groups")


def _reversed_parts(name: str | bytes) -> list[bytes]:
    parts = (name.encode() if isinstance(name, str) else name).split(b"/")
    return [part for part in reversed(parts) if part not in (b"", b".")]


def _dataset_names(file: Any) -> list[str]:
    """The first few dataset names."""
    h5py = require_module("h5py", "hdf5")
    names: list[str] = []

    def collect(name: str, item: Any) -> bool | None:
        if isinstance(item, h5py.Dataset):
            names.append(name)
        return True if len(names) == _NAMES_SHOWN else None  # True stops the visit

    file.visititems(collect)
    return names


# Bytes of labels that the fingerprint reads at a time.
_FINGERPRINT_CHUNK_BYTES = 1 << 24
# Scalar labels are kept in memory up to this size: HDF5 takes as long to read one as to read a 32 x 32 image.
_MAX_LABEL_BYTES = 1 << 24


class Hdf5(ReprMixin):
    """Images and labels in datasets of an HDF5 file. Needs `pip install ".[hdf5]"`.

    HDF5 serves one thread at a time. Variable-length values are read without HDF5, by all threads at once.

    The file may be untrusted. cuaug refuses links to other files, external storage, views (virtual datasets), and
    compression with unbounded output: szip, n-bit, scale-offset, or two compressors at once. Each
    stored chunk is checked once, before HDF5 decodes it. HDF5 itself parses the metadata, and HDF5 2.0 never returns
    from some damaged ones: keep h5py up to date, and check untrusted files with `cuaug check`, which has a time limit.

    Args:
        path: the file.
        images: dataset with the images. Encoded images: (N,), variable-length uint8 or opaque. Decoded images: uint8 of
            shape (N, H, W, 3), (N, H, W, 1) or (N, H, W).
        labels: dataset with the labels, (N, ...) numbers or strings; a list of datasets for dict labels with these
            keys; None: a sample's label is its index.
        channels_first: decoded images are (N, 3, H, W) or (N, 1, H, W).
        max_pixels: limit on height times width of decoded images.
        max_bytes: limit on one encoded image, one label and one chunk (HDF5 decodes whole chunks).

    Raises:
        LoaderError: the file or a dataset is missing, damaged, of another shape or type, or cannot be read safely.
    """

    #: Labels come from the data, so the Loader opens no path in them.
    label_path_names: frozenset[str] = frozenset()

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
        self.fields, self._is_dict = parse_label_fields(labels)
        self._datasets = PerProcess(functools.partial(open_datasets, self._path, (images, *self.fields), max_bytes))
        image_rows, *label_rows = self._datasets.get()
        self._is_encoded = self._check_images(image_rows, max_pixels)
        self._length = len(image_rows)
        for name, rows in zip((images, *self.fields), (image_rows, *label_rows), strict=True):
            if rows.row_bytes > max_bytes and (self._is_encoded or rows is not image_rows):
                raise SourceError(
                    f"each row of {name!r} in {self._path!r} has {rows.row_bytes:,} bytes, above the limit "
                    f"max_bytes={max_bytes:,}"
                )
        self._labels_in_memory: dict[int, NDArray[Any]] = {}
        for i, (name, rows) in enumerate(zip(self.fields, label_rows, strict=True)):
            if not rows.shape or len(rows) != self._length:
                raise SourceError(
                    f"{self._path!r} has {self._length} images in {images!r}, but labels of shape {rows.shape} in "
                    f"{name!r}"
                )
            is_scalar = len(rows.shape) == 1 and rows.dtype.kind in "biufc"
            if is_scalar and rows.dtype.itemsize * self._length <= _MAX_LABEL_BYTES:
                (values,) = rows.slices(self._length)
                if isinstance(values, np.ndarray):  # if damaged, `label` raises for the affected samples
                    self._labels_in_memory[i] = values

    def __len__(self) -> int:
        return self._length

    def read(self, index: int) -> tuple[Any, Any]:
        """Returns (encoded bytes or uint8 array (H, W[, C]), label).

        Raises:
            DecodeError: the sample is damaged, larger than `max_bytes`, or its label is no UTF-8 text.
        """
        value = self._datasets.get()[0][index]
        if self._is_encoded:
            return bytes(value) if isinstance(value, bytes) else value.tobytes(), self.label(index)
        return np.ascontiguousarray(value.transpose(1, 2, 0)) if self.channels_first else value, self.label(index)

    def encoded_size(self, index: int) -> int:
        """Bytes of the image that `read` returns."""
        return self._datasets.get()[0].value_bytes(index)

    def label(self, index: int) -> Any:
        """The label alone, as `read` returns it."""
        if not self.fields:
            return index
        values = [self._label(i, name, index) for i, name in enumerate(self.fields)]
        return dict(zip(self.fields, values, strict=True)) if self._is_dict else values[0]

    def _label(self, i: int, name: str, index: int) -> Any:
        if i in self._labels_in_memory:
            return self._labels_in_memory[i][index]
        value = self._datasets.get()[1 + i][index]
        return decode_field(name, value, decode_text) if isinstance(value, bytes) else value

    def path(self, index: int) -> str:
        """file/dataset[index]"""
        return f"{self._path}/{self.images.strip('/')}[{index}]"

    @cached_method
    def fingerprint(self) -> str:
        """Digest of the images' number and shape and of all labels, which it reads."""
        image_rows, *label_rows = self._datasets.get()
        shape = [self.images, list(image_rows.shape), self.fields, self._is_dict]
        labels = (values for rows in label_rows for values in rows.slices(_rows_per_chunk(rows)))
        return fingerprint("hdf5", relative_paths([self._path]), shape, labels)

    def cache_key(self) -> str:
        """The file's folder, and a digest of its modification time."""
        return cache_key([self._path], self.channels_first)

    def _check_images(self, rows: Rows, max_pixels: int) -> bool:
        """Checks shape and dtype of the images; returns whether they are encoded."""
        shape, dtype = rows.shape, rows.dtype
        if not shape or not shape[0]:
            raise SourceError(f"{self.images!r} in {self._path!r} has shape {shape}: there is nothing to load")
        h5py = require_module("h5py", "hdf5")
        is_bytes = h5py.check_vlen_dtype(dtype) == np.uint8 or dtype.kind in "SV" or h5py.check_string_dtype(dtype)
        if len(shape) == 1 and is_bytes:
            return True
        fits_first, fits_last = (len(shape) == 4 and shape[axis] in (1, 3) for axis in (1, -1))
        if dtype == np.uint8 and (fits_first if self.channels_first else fits_last or len(shape) == 3):
            height, width = shape[2:] if self.channels_first else shape[1:3]
            try:
                check_pixels(height, width, max_pixels, f"each image of {self.images!r} in {self._path!r} has")
            except DecodeError as error:  # it affects all samples, not one
                raise SourceError(error.cause) from None
            return False
        order = "(N, 3, H, W) or (N, 1, H, W)" if self.channels_first else "(N, H, W, 3), (N, H, W, 1) or (N, H, W)"
        hint = "; see channels_first" if dtype == np.uint8 and (fits_first or fits_last) else ""
        raise SourceError(
            f"{self.images!r} in {self._path!r} has shape {shape} and type {dtype}: it must be uint8 of shape "
            f"{order}, or (N,) encoded images as variable-length uint8{hint}"
        )


def _rows_per_chunk(rows: Rows) -> int:
    """Rows of labels that the fingerprint reads at a time."""
    return max(1, _FINGERPRINT_CHUNK_BYTES // (rows.dtype.itemsize * math.prod(rows.shape[1:]) or 1))
