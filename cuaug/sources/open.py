"""`open_source`: picks the source for a path, a list or a Dataset."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from cuaug.errors import ArgumentError, SourceError
from cuaug.remote.urls import is_url
from cuaug.sources.coco import Coco
from cuaug.sources.datasets import FromDataset
from cuaug.sources.files import Files, images_below, is_pattern, split_pairs
from cuaug.sources.pascal_voc import PascalVoc
from cuaug.sources.remote_files import Remote
from cuaug.sources.shards.hdf5 import Hdf5
from cuaug.sources.shards.lmdb_environment import Lmdb
from cuaug.sources.shards.parquet import Parquet
from cuaug.sources.shards.record_files import LitData, Mds, read_index
from cuaug.sources.shards.tar import TarShards
from cuaug.sources.shards.tfrecord import TFRecord
from cuaug.sources.source import Source
from cuaug.sources.subset_concat import ConcatSource, SubsetSource, leaf_datasets, wrapped_datasets
from cuaug.sources.tables import Csv, DataFrame, ListFile, is_data_frame
from cuaug.sources.videos import EXTENSIONS as VIDEO_EXTENSIONS
from cuaug.sources.yolo import Yolo


class Items(Protocol):
    """A map-style dataset: `len(items)` and `items[i]`. It need not be torch's."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


# Accepted by `open_source` and Loader. Type checkers see no __len__ in torch's Dataset.
Loadable: TypeAlias = str | os.PathLike[str] | Iterable[Any] | Source | Dataset[Any] | Items

_SOURCE_BY_EXTENSION = {
    (".txt", ".lst"): ListFile,
    (".csv", ".tsv"): Csv,
    (".tar",): TarShards,
    (".lmdb", ".mdb"): Lmdb,
    (".h5", ".hdf5"): Hdf5,
    (".tfrecord", ".tfrecords"): TFRecord,
    (".parquet",): Parquet,
    (".json",): Coco.from_file,
    (".yaml", ".yml"): Yolo,
}
# Packed files that no source reads, and what to do with them.
_UNPACK = {
    (".tar.gz", ".tgz"): "gunzip it to a .tar: a compressed tar has no samples by index",
    (".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tar.lz4"): "decompress it to a .tar, which has samples by "
    "index",
    (".zip", ".7z", ".rar"): "unpack it, and give the folder; or pack the images into .tar shards",
}


def open_source(files: Loadable) -> Source:
    """Opens a source with its default arguments.

    Args:
        files: one of

            - a directory with one folder per class, local or at an http, https, s3 or gs URL; or a local one with
              images, unlabeled
            - a local directory with the index.json of MDS shards or LitData chunks, with "image" and "label" (`Mds`,
              `LitData`)
            - a local directory with data.yaml (`Yolo`), or with JPEGImages and Annotations (`PascalVoc`): its split
              "train"
            - a pattern, such as "photos/**/*.jpg", unlabeled
            - a file, by its extension: .txt or .lst (`ListFile`), .csv or .tsv (`Csv`), .tar (`TarShards`), .lmdb or a
              directory with data.mdb (`Lmdb`), .h5 or .hdf5 (`Hdf5`), .tfrecord (`TFRecord`), .parquet (`Parquet`, also
              at a URL), .json (`Coco`), .yaml (`Yolo`); a pattern or list of shards works too
            - paths or URLs, (path or URL, label) pairs, or a mapping from paths or URLs to labels
            - a pandas DataFrame with the columns "path" and "label" (`DataFrame` takes others)
            - a torch Dataset, or any object that is no sequence but has len() and items by index (`FromDataset`)
            - a source
            - a torch Subset (also from random_split) or ConcatDataset of sources, read as the sources are

    Raises:
        LoaderError: the file or directory is missing, or `files` is none of these.
    """
    if isinstance(files, (str, os.PathLike)):
        return _open_path(os.fspath(files))
    if isinstance(files, Source):
        return files
    if is_data_frame(files):
        return DataFrame(files)
    if any(isinstance(leaf, Source) and not hasattr(leaf, "__getitem__") for leaf in leaf_datasets(files)):
        return _open_composite(files)
    if isinstance(files, IterableDataset) or _is_dataset(files):  # FromDataset refuses an IterableDataset
        return FromDataset(files)
    if isinstance(files, DataLoader):
        raise ArgumentError("files is a torch DataLoader; cuaug.Loader replaces it: give its .dataset")
    # A set has another order in each process.
    if not isinstance(files, Iterable) or isinstance(files, (bytes, bytearray, memoryview, set, frozenset)):
        raise ArgumentError(
            "files must be a directory, paths, (path, label) pairs, a file or a dataset that cuaug.sources reads, or a "
            f"source with __len__ and read(i), not {files!r:.100}"
        )
    if isinstance(files, Mapping):
        if _is_dataset(next(iter(files.values()), None)):
            name, names = repr(next(iter(files))), ", ".join(map(repr, files))
            raise ArgumentError(
                f"files holds {len(files)} datasets, {names:.100}: give one of them, files[{name:.100}]"
            )
        files = files.items()
    entries = files if isinstance(files, Sequence) else _to_list(files)
    first = next(iter(entries), None)
    if isinstance(first, (str, os.PathLike)):
        _refuse_files(os.fspath(first))
    elif isinstance(first, (tuple, list)) and first and isinstance(first[0], (str, os.PathLike)):
        _refuse_files(os.fspath(first[0]))
    source = _source_by_extension(os.fspath(first)) if isinstance(first, (str, os.PathLike)) else None
    return source(entries) if source in (TarShards, TFRecord, Parquet) else Files(*split_pairs(entries))


def _open_composite(dataset: Any) -> Source:
    """Opens a Subset or ConcatDataset of sources; members with items by index are Datasets."""
    sources = [_open_composite(member) for member in wrapped_datasets(dataset)]
    if not sources:
        return FromDataset(dataset) if hasattr(dataset, "__getitem__") else dataset
    return SubsetSource(sources[0], dataset.indices) if isinstance(dataset, Subset) else ConcatSource(sources)


def _to_list(entries: Iterable[Any]) -> list[Any]:
    """Lists the entries, after checking the first: other iterables may be large or endless."""
    rest = iter(entries)
    first = list(itertools.islice(rest, 1))
    split_pairs(first)
    return [*first, *rest]


def _open_path(path: str) -> Source:
    _refuse_files(path)
    source = _source_by_extension(path)
    if is_url(path) and source not in (Parquet, TarShards, TFRecord):
        if source is not None:
            name = getattr(source, "__self__", source).__name__
            raise SourceError(f"{path!r} is remote, but {name} reads local files: copy or mount it")
        return Remote.from_folder(path)
    if os.path.isfile(os.path.join(path, "data.mdb")):
        return Lmdb(path)
    if os.path.isfile(os.path.join(path, "index.json")) and (packed := _source_of_index(path)) is not None:
        return packed(path)
    if os.path.isfile(os.path.join(path, "data.yaml")):
        return Yolo(path)
    if all(os.path.isdir(os.path.join(path, name)) for name in ("JPEGImages", "Annotations")):
        return PascalVoc(path)
    if source is not None and not (os.path.isdir(path) and source is not Lmdb):
        return source(path)
    if is_pattern(path):
        return Files.from_pattern(path)
    if os.path.isfile(path):
        extensions = ", ".join(extension for group in _SOURCE_BY_EXTENSION for extension in group)
        raise SourceError(
            f"{path!r} is not a directory and has no known extension ({extensions}): give a directory, a list of "
            "paths, or the source that reads it, such as cuaug.sources.TFRecord(...)"
        )
    try:
        return Files.from_directory(path)
    except SourceError as error:
        video = next(iter(images_below(path, extensions=VIDEO_EXTENSIONS)), None) if os.path.isdir(path) else None
        if video is None:
            raise
        raise SourceError(
            f"{error}; it holds videos, such as {video!r}: cuaug.sources.Videos({path!r}, frames=16) loads clips"
        ) from error


def _source_of_index(folder: str) -> type[Mds] | type[LitData] | None:
    """The source whose library wrote index.json; None: another program did, in a folder of images."""
    index = read_index(folder)
    keys = index.keys() if isinstance(index, dict) else set()
    return LitData if {"chunks", "config"} <= keys else Mds if "shards" in keys else None


def _refuse_files(path: str) -> None:
    if path.lower().endswith(VIDEO_EXTENSIONS) and not os.path.isdir(path):
        raise ArgumentError(f"files: {path!r} is a video: cuaug.sources.Videos(paths, frames=16) loads clips of videos")
    for extensions, remedy in _UNPACK.items():
        if path.lower().endswith(extensions) and "::" not in path and not os.path.isdir(path):
            raise ArgumentError(f"files: {path!r} is packed, and no source reads it: {remedy}")


def _source_by_extension(path: str) -> Any:
    groups = _SOURCE_BY_EXTENSION.items()
    return next((source for extensions, source in groups if path.lower().endswith(extensions)), None)


def _is_dataset(files: Any) -> bool:
    """Whether this has items by index and is no list, array or table column of paths."""
    return (
        hasattr(files, "__getitem__")
        and hasattr(files, "__len__")
        and not isinstance(files, (Sequence, Mapping))
        and not hasattr(files, "__array__")
    )
