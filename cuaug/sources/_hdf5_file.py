"""Opens datasets of an HDF5 file that may come from anybody.

HDF5 follows links, views (virtual datasets) and external storage into any file that the process may read, and waits at
a pipe. Here only views are followed, and only to files below the folder of the file, or of HDF5_VDS_PREFIX.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from cuaug.errors import CuaugError, LoaderError
from cuaug.sources._bytes import open_regular
from cuaug.sources._extras import need
from cuaug.sources._hdf5_rows import Rows, check_storage, filters_of

__all__ = ["open_datasets"]

_LINKS_FOLLOWED = 64
_DEFLATE_RATIO = 1032  # the most bytes that deflate makes of one
_NAMES_SHOWN = 20


def open_datasets(path: str, names: Sequence[str], max_bytes: int) -> list[Rows]:
    """Datasets of one file, in the order of `names`.

    Raises:
        LoaderError: no such file or dataset, one that is damaged, or one that is not read safely.
    """
    try:
        file = _open(path)
        opened = []
        for name in names:
            dataset = _find(path, file, name)
            if dataset is None:
                raise LoaderError(f"{path!r} has no dataset {name!r}; there are {', '.join(map(repr, _names(file)))}")
            if dataset.is_virtual:
                _check_view(path, name, dataset, max_bytes, set())
            opened.append(Rows(f"{name!r} in {path!r}", dataset, max_bytes))
        return opened
    except CuaugError:
        raise
    except Exception as error:  # a damaged file makes h5py raise any
        raise LoaderError(f"{path!r} is damaged: {type(error).__name__}: {error}") from error


def _open(path: str) -> Any:
    h5py = need("h5py", "hdf5")
    try:
        os.close(open_regular(path, os.O_RDONLY))  # HDF5 would wait at a pipe
        return h5py.File(path, "r", driver="sec2")
    except OSError as error:
        raise LoaderError(f"cannot open {path!r}: {error}") from error


def _find(path: str, file: Any, name: str) -> Any:
    """The dataset of a name, by links within the file; None if there is none."""
    h5py = need("h5py", "hdf5")
    here, left = file, _parts(name)
    for _ in range(_LINKS_FOLLOWED):
        if not left:
            return here if isinstance(here, h5py.Dataset) else None
        part = left.pop()
        if not isinstance(here, h5py.Group) or not here.id.links.exists(part):
            return None
        kind = here.id.links.get_info(part).type
        if kind == h5py.h5l.TYPE_HARD:
            here = here[part]
        elif kind == h5py.h5l.TYPE_SOFT:
            target = here.id.links.get_val(part)
            here = file if target.startswith(b"/") else here
            left += _parts(target)
        else:
            raise LoaderError(f"{name!r} in {path!r} is an external or user-defined link: open the file it leads to")
    raise LoaderError(f"{name!r} in {path!r} lies behind more than {_LINKS_FOLLOWED} links and groups")


def _parts(name: str | bytes) -> list[bytes]:
    """The parts of an HDF5 path, the last first."""
    parts = (name.encode() if isinstance(name, str) else name).split(b"/")
    return [part for part in reversed(parts) if part not in (b"", b".")]


def _check_view(path: str, name: str, dataset: Any, max_bytes: int, seen: set[tuple[str, str]]) -> None:
    """Checks all datasets that a virtual dataset is a view of.

    HDF5 reads zeros, a black picture, for a file or dataset that is not there.

    Raises:
        LoaderError: one is not there, lies elsewhere or is not read safely.
    """
    label = f"{name!r} in {path!r}"
    identity = os.path.realpath(path), dataset.name
    if identity in seen:
        raise LoaderError(f"{label} is a view that is seen through itself, or through two other views")
    seen.add(identity)
    for file_name, inner in sorted({(source.file_name, source.dset_name) for source in dataset.virtual_sources()}):
        if "%" in file_name or "%" in inner:
            raise LoaderError(f"{label} is a view of numbered files or datasets, {file_name!r}: name each one")
        place = path if file_name == "." else _place(label, path, file_name)
        file = _open(place)
        source = _find(place, file, inner)
        if source is None:
            raise LoaderError(f"{label} is a view of {inner!r} in {place!r}, which is not there")
        check_storage(f"{inner!r} in {place!r}", source, max_bytes, os.path.getsize(place))
        if source.is_virtual:
            _check_view(place, inner, source, max_bytes, seen)
        elif filters_of(source):
            _check_compressed(f"{inner!r} in {place!r}", source, max_bytes)


def _place(label: str, path: str, name: str) -> str:
    """Where HDF5 finds the file of a view."""
    own = os.path.dirname(path)
    prefixes = os.environ.get("HDF5_VDS_PREFIX", "")
    folders = [folder.replace("${ORIGIN}", own or ".") for folder in prefixes.split(":") if folder]
    for folder in [*folders, own]:
        place, allowed = os.path.join(folder, name), os.path.realpath(folder)
        if os.path.lexists(place):
            if os.path.commonpath([allowed, os.path.realpath(place)]) == allowed:
                return place
            raise LoaderError(
                f"{label} is a view of {name!r}, which lies outside of the file's own folder: put it there, and make "
                "the view with its relative name"
            )
    raise LoaderError(f"{label} is a view of {name!r}, which is not there")


def _check_compressed(label: str, dataset: Any, max_bytes: int) -> None:
    """Refuses stored chunks that may inflate beyond `max_bytes`: behind a view they are not checked one by one."""
    largest = 0

    def note(chunk: Any) -> None:
        nonlocal largest
        largest = max(largest, chunk.size)

    dataset.id.chunk_iter(note)
    if largest * _DEFLATE_RATIO > max_bytes:
        raise LoaderError(
            f"a compressed chunk of {label} has {largest:,} bytes, and could inflate beyond max_bytes={max_bytes:,}: "
            "store a view's sources in smaller chunks, or open their files themselves"
        )


def _names(file: Any) -> list[str]:
    """The names of some datasets."""
    h5py = need("h5py", "hdf5")
    names: list[str] = []

    def note(name: str, item: Any) -> bool | None:
        if isinstance(item, h5py.Dataset):
            names.append(name)
        return True if len(names) == _NAMES_SHOWN else None

    file.visititems(note)
    return names
