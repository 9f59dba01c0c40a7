"""From what a user gives to a source."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from cuaug.errors import LoaderError
from cuaug.sources._subset_concat import ConcatSource, SubsetSource, inner, leaves
from cuaug.sources._urls import is_url
from cuaug.sources.csv_file import Csv
from cuaug.sources.files import Files, split_pairs
from cuaug.sources.from_dataset import FromDataset
from cuaug.sources.hdf5 import Hdf5
from cuaug.sources.list_file import ListFile
from cuaug.sources.lmdb_environment import Lmdb
from cuaug.sources.remote import Remote
from cuaug.sources.source import Source
from cuaug.sources.tar_shards import TarShards
from cuaug.sources.tfrecord import TFRecord

__all__ = ["Items", "Loadable", "open_source"]


class Items(Protocol):
    """`len(items)` and `items[i]`: all that a data set needs; it need not be torch's."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


# What `open_source` takes, and so a Loader. A Dataset of torch has no __len__ that a type checker could see.
Loadable: TypeAlias = str | os.PathLike[str] | Iterable[Any] | Source | Dataset[Any] | Items

_BY_ENDING = {
    (".txt", ".lst"): ListFile,
    (".csv", ".tsv"): Csv,
    (".tar",): TarShards,
    (".lmdb", ".mdb"): Lmdb,
    (".h5", ".hdf5"): Hdf5,
    (".tfrecord", ".tfrecords"): TFRecord,
}


def open_source(files: Loadable) -> Source:
    """A source from what there is, each with its default arguments.

    - a directory with a folder per class; a remote one by its http, https, s3 or gs url
    - a file, by its ending: .txt or .lst (`ListFile`), .csv or .tsv (`Csv`), .tar (`TarShards`), .lmdb or a directory
      with data.mdb (`Lmdb`), .h5 or .hdf5 (`Hdf5`), .tfrecord (`TFRecord`); a pattern or a list of shards likewise
    - paths or urls, (path or url, label) pairs, or a mapping from paths or urls to labels
    - a torch Dataset, or anything else with len() and items by number that is no sequence (`FromDataset`)
    - a source
    - a torch Subset of sources, as random_split gives, or a ConcatDataset: its samples are read as the sources' are

    Raises:
        LoaderError: nothing there, or not one of these.
    """
    if isinstance(files, (str, os.PathLike)):
        return _open_path(os.fspath(files))
    if isinstance(files, Source):
        return files
    if any(isinstance(leaf, Source) and not hasattr(leaf, "__getitem__") for leaf in leaves(files)):
        return _of_sources(files)
    if isinstance(files, IterableDataset) or _is_dataset(files):  # the first are refused, before they iterate
        return FromDataset(files)
    if isinstance(files, DataLoader):
        raise LoaderError(
            "files is a torch DataLoader, whose place a Loader takes: give what it loads from, its .dataset"
        )
    # A set is in another order in each process.
    if not isinstance(files, Iterable) or isinstance(files, (bytes, bytearray, memoryview, set, frozenset)):
        raise LoaderError(
            "files is a directory, paths, (path, label) pairs, a file or a data set that cuaug.sources reads, or a "
            f"source with __len__ and read(i), not {files!r:.100}"
        )
    if isinstance(files, Mapping):
        if _is_dataset(next(iter(files.values()), None)):
            name, names = repr(next(iter(files))), ", ".join(map(repr, files))
            raise LoaderError(f"files is {len(files)} data sets, {names:.100}: give one of them, files[{name:.100}]")
        files = files.items()
    entries = files if isinstance(files, Sequence) else _listed(files)
    first = next(iter(entries), None)
    shards = _by_ending(os.fspath(first)) if isinstance(first, (str, os.PathLike)) else None
    return shards(entries) if shards in (TarShards, TFRecord) else Files.from_entries(entries)


def _of_sources(dataset: Any) -> Source:
    """The source that a Subset or ConcatDataset of sources stands for; a part with items by number is a Dataset."""
    parts = [_of_sources(part) for part in inner(dataset)]
    if not parts:
        return FromDataset(dataset) if hasattr(dataset, "__getitem__") else dataset
    return SubsetSource(parts[0], dataset.indices) if isinstance(dataset, Subset) else ConcatSource(parts)


def _listed(entries: Iterable[Any]) -> list[Any]:
    """All of them, but only if the first is one of a list of files: others may be large, or have no end."""
    rest = iter(entries)
    first = list(itertools.islice(rest, 1))
    split_pairs(first)
    return [*first, *rest]


def _open_path(path: str) -> Source:
    ending = _by_ending(path)
    if is_url(path):
        if ending is not None:
            raise LoaderError(f"{path!r} is remote; {ending.__name__} reads what lies on a disk: copy or mount it")
        return Remote.from_folder(path)
    if os.path.isfile(os.path.join(path, "data.mdb")):
        return Lmdb(path)
    if ending is not None and not (os.path.isdir(path) and ending is not Lmdb):
        return ending(path)
    if os.path.isfile(path):
        endings = ", ".join(ending for endings in _BY_ENDING for ending in endings)
        raise LoaderError(
            f"{path!r} is not a directory, and of no kind that its name tells ({endings}): give a directory, a list of "
            "paths, or the source that reads it, such as cuaug.sources.TFRecord(...)"
        )
    return Files.from_directory(path)


def _by_ending(path: str) -> Any:
    return next((kind for endings, kind in _BY_ENDING.items() if path.lower().endswith(endings)), None)


def _is_dataset(files: Any) -> bool:
    """Items by number, and not a list, an array or a table's column of paths."""
    return (
        hasattr(files, "__getitem__")
        and hasattr(files, "__len__")
        and not isinstance(files, (Sequence, Mapping))
        and not hasattr(files, "__array__")
    )
