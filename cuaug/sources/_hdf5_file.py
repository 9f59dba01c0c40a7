"""Opens datasets of an untrusted HDF5 file, without reaching other files.

HDF5 follows links, views (virtual datasets) and external storage into any file that the process may read, and waits at
a pipe. Here only views are followed, and only to files below the file's folder or HDF5_VDS_PREFIX.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from cuaug._runtime.extras import require_module
from cuaug.errors import CuaugError, SourceError
from cuaug.sources._bytes import open_regular
from cuaug.sources._hdf5_rows import Rows, check_storage, filter_codes

__all__ = ["open_datasets"]

_MAX_LINKS = 64
_MAX_DEFLATE_RATIO = 1032  # deflate expands one byte to at most this many
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
                _check_view(path, name, dataset, max_bytes, set())
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


def _check_view(path: str, name: str, dataset: Any, max_bytes: int, seen: set[tuple[str, str]]) -> None:
    """Checks all source datasets of a virtual dataset. HDF5 would read a missing one as zeros, a black image.

    Raises:
        LoaderError: a source is missing, lies in another folder, or cannot be read safely.
    """
    label = f"{name!r} in {path!r}"
    identity = os.path.realpath(path), dataset.name
    if identity in seen:
        raise SourceError(f"{label} is a view of itself, or two views share it")
    seen.add(identity)
    sources = {(source.file_name, source.dset_name) for source in dataset.virtual_sources()}
    for file_name, source_name in sorted(sources):
        if "%" in file_name or "%" in source_name:
            raise SourceError(f"{label} is a view of numbered files or datasets, {file_name!r}: name each one")
        source_path = path if file_name == "." else _view_path(label, path, file_name)
        source = _find_dataset(source_path, _open_file(source_path), source_name)
        source_label = f"{source_name!r} in {source_path!r}"
        if source is None:
            raise SourceError(f"{label} is a view of {source_label}, which does not exist")
        check_storage(source_label, source, max_bytes, os.path.getsize(source_path))
        if source.is_virtual:
            _check_view(source_path, source_name, source, max_bytes, seen)
        elif filter_codes(source):
            _check_inflated_size(source_label, source, max_bytes)


def _view_path(label: str, path: str, name: str) -> str:
    """The path at which HDF5 finds a view's file."""
    own_folder = os.path.dirname(path)
    prefixes = os.environ.get("HDF5_VDS_PREFIX", "")
    folders = [folder.replace("${ORIGIN}", own_folder or ".") for folder in prefixes.split(":") if folder]
    for folder in [*folders, own_folder]:
        candidate, allowed = os.path.join(folder, name), os.path.realpath(folder)
        if os.path.lexists(candidate):
            if os.path.commonpath([allowed, os.path.realpath(candidate)]) == allowed:
                return candidate
            raise SourceError(
                f"{label} is a view of {name!r}, which lies outside of the file's own folder: move it there, and make "
                "the view with a relative name"
            )
    raise SourceError(f"{label} is a view of {name!r}, which does not exist")


def _check_inflated_size(label: str, dataset: Any, max_bytes: int) -> None:
    """Refuses stored chunks that may inflate beyond `max_bytes`: behind a view, chunks are not checked one by one."""
    sizes = {0}
    dataset.id.chunk_iter(lambda chunk: sizes.add(chunk.size))
    if max(sizes) * _MAX_DEFLATE_RATIO > max_bytes:
        raise SourceError(
            f"a compressed chunk of {label} has {max(sizes):,} bytes and could inflate beyond max_bytes={max_bytes:,}: "
            "store a view's sources in smaller chunks, or open their files directly"
        )


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
