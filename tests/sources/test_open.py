"""`open_source`: the source for each kind of argument, and errors for the others."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from cuaug import Loader, LoaderError, sources
from cuaug.sources import open_source
from tests.support.loader.further_pictures import numbers_of, png
from tests.support.sources import writers
from tests.support.sources.loading import load
from tests.support.sources.writers import KINDS, samples


@pytest.fixture
def folder(tmp_path) -> Path:
    """Everything in one folder."""
    writers.write_files(tmp_path, samples())
    writers.write_shards(tmp_path, samples())
    writers.write_tfrecords(tmp_path, samples())
    writers.write_lmdb(tmp_path, samples())
    writers.write_hdf5(tmp_path, samples())
    writers.write_environment(tmp_path / "caffe", {b"1": png(1)})
    writers.write_pngs(tmp_path, "classes/ant/1.png")
    for copy, name in (("LIST.LST", "list.txt"), ("t.tsv", "table.csv"), ("x.hdf5", "data.h5")):
        text = (tmp_path / name).read_bytes()
        (tmp_path / copy).write_bytes(text.replace(b",", b"\t") if copy == "t.tsv" else text)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        ("classes", sources.Files, 1),
        ("list.txt", sources.ListFile, 12),
        ("LIST.LST", sources.ListFile, 12),
        ("table.csv", sources.Csv, 12),
        ("t.tsv", sources.Csv, 12),
        ("train-0.tar", sources.TarShards, 4),
        ("train-{0..1}.tar", sources.TarShards, 12),
        ("train-*.tar", sources.TarShards, 12),
        ("train-1.tfrecord", sources.TFRecord, 8),
        ("train-[01].tfrecord", sources.TFRecord, 12),
        ("db.lmdb", sources.Lmdb, 12),
        ("caffe", sources.Lmdb, 1),
        ("data.h5", sources.Hdf5, 12),
        ("x.hdf5", sources.Hdf5, 12),
    ],
)
def test_the_name_selects_the_source(folder, name, kind, count):
    for given in (folder / name, str(folder / name)):
        source = open_source(given)
        assert type(source) is kind and len(source) == count
    assert len(numbers_of(load(folder / name).images)) == count


@pytest.mark.parametrize(("ending", "kind"), [("tar", sources.TarShards), ("tfrecord", sources.TFRecord)])
def test_lists_of_shards_and_folders_of_them(folder, ending, kind):
    """A shell expands a pattern to a list; the error for a folder suggests the pattern."""
    names = sorted(folder.glob(f"train-*.{ending}"))
    for given in (names, tuple(map(str, names)), np.array(names), iter(names)):
        source = open_source(given)
        assert type(source) is kind and len(source) == 12
    (folder / "shards").mkdir()
    names[0].rename(folder / "shards" / f"a.{ending}")
    with pytest.raises(LoaderError, match=rf"has no folders and no .* give its shards as '.*/shards/\*\.{ending}'"):
        open_source(folder / "shards")


def test_a_directory_named_like_a_file(tmp_path):
    writers.write_pngs(tmp_path, "my.tar/ant/1.png")
    assert type(open_source(tmp_path / "my.tar")) is sources.Files


def test_urls_in_open_source():
    assert type(open_source(["https://host/ant/1.png"])) is sources.Files
    with pytest.raises(LoaderError, match=r"cannot list 'http://127\.0\.0\.1:9': "):
        open_source("http://127.0.0.1:9")
    # Shards may be remote, see tests/remote; these are refused before anything connects.
    for shards in ("ftp://host/a.tar", ["ftp://host/a.tfrecord"]):
        with pytest.raises(LoaderError, match=r"has the protocol 'ftp', which is not allowed"):
            open_source(shards)
    with pytest.raises(LoaderError, match=r"is remote, but Lmdb reads local files: copy or mount it"):
        open_source("s3://bucket/train.lmdb")


def test_datasets_and_lists():
    class Plain:
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return png(0), 0

    class Columns:  # like a table's column of paths, which NumPy converts to an array
        def __len__(self):
            return 1

        def __getitem__(self, index):
            raise KeyError(index)

        def __iter__(self):
            return iter(["a.png"])

        def __array__(self, *arguments, **options):
            return np.array(["a.png"])

    for given in (Plain(), TensorDataset(torch.zeros(1))):
        assert type(open_source(given)) is sources.FromDataset
    for given in (["a.png"], ("a.png",), np.array(["a.png"]), Columns(), iter(["a.png"]), {"a.png": 3}):
        source = open_source(given)
        assert type(source) is sources.Files and source.paths == ["a.png"]


class Endless(IterableDataset):
    def __iter__(self):
        pytest.fail("it was iterated")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Endless(), "unlike Endless: for an iterable one use cuaug.sources.FromIterable"),
        (DataLoader(Endless()), "files is a torch DataLoader; cuaug.Loader replaces it: give its .dataset"),
        (DataLoader(TensorDataset(torch.zeros(1))), "files is a torch DataLoader"),
    ],
    ids=["iterable", "its DataLoader", "DataLoader"],
)
def test_iterables_are_refused_without_iterating(given, message):
    with pytest.raises(LoaderError, match=message):
        Loader(given)


def test_a_dict_of_datasets_is_refused():
    """Hugging Face's load_dataset returns one without a split, and tutorials use {"train": ..., "val": ...}."""
    datasets = {"train": TensorDataset(torch.zeros(2)), "val": TensorDataset(torch.zeros(1))}
    message = r"files holds 2 datasets, 'train', 'val': give one of them, files\['train'\]"
    with pytest.raises(LoaderError, match=message):
        Loader(datasets)
    for label in (np.zeros(3), torch.zeros(3), "text", [1], {"mask": np.zeros((2, 2))}, b"bytes", 1):
        assert open_source({"a.png": label}).paths == ["a.png"]


@pytest.mark.parametrize("item", [torch.zeros(3), {"image": b"i"}, 7, ("a.png", 1, 2)])
def test_an_iterable_of_no_paths_is_refused_after_its_first_item(item):
    def endless():
        yield item
        pytest.fail("it took a second item")

    with pytest.raises(LoaderError, match=r"files: entry 0 is neither a path nor a \(path, label\) pair: ") as caught:
        open_source(endless())
    assert len(str(caught.value)) < 300
    assert open_source((f"{i}.png", i) for i in range(3)).paths == ["0.png", "1.png", "2.png"]
    with pytest.raises(LoaderError, match="paths is empty: there is nothing to load"):
        open_source(iter([]))


@pytest.mark.parametrize("given", [{"a.png", "b.png"}, frozenset([("a.png", 1)])])
def test_a_set_is_refused_since_its_order_differs_between_processes(given):
    with pytest.raises(LoaderError, match=r"files must be a directory, paths, .* not (\{|frozenset)"):
        open_source(given)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "none' is not a directory: give one with a folder per class"),
        ("none-{0..3}.tar", r"there is no file '.*none-0.tar' \(from '.*none-\{0..3\}.tar'\)"),
        ("0000.png", r"0000.png' is not a directory and has no known extension \(.txt, .lst, .csv"),
    ],
)
def test_missing_and_unknown_files(folder, name, message):
    with pytest.raises(LoaderError, match=message):
        Loader(folder / name)


@pytest.mark.parametrize(
    ("module", "extra", "make"),
    [
        ("lmdb", "lmdb", lambda folder: sources.Lmdb(folder / "db.lmdb")),
        ("h5py", "hdf5", lambda folder: sources.Hdf5(folder / "data.h5")),
        ("google.protobuf", "tfrecord", lambda folder: sources.TFRecord(folder / "train-0.tfrecord")),
        ("pyarrow.parquet", "parquet", lambda folder: sources.Parquet(folder / "train-0.parquet")),
        ("google_crc32c", "tfrecord", lambda folder: sources.TFRecord(folder / "train-0.tfrecord")),
        ("urllib3", "remote", lambda folder: sources.Remote(["https://host/a.png"])),
        ("urllib3", "remote", lambda folder: Loader(["https://host/a.png"])),
        ("obstore", "remote", lambda folder: Loader("s3://bucket/train")),
        ("obstore", "remote", lambda folder: sources.Parquet("gs://bucket/a.parquet")),
    ],
)
def test_a_missing_library_is_named(folder, monkeypatch, module, extra, make):
    monkeypatch.setitem(sys.modules, module, None)  # the import fails as if it were not installed
    with pytest.raises(LoaderError, match=rf"this source needs {module} \(.*\): pip install .*\[{extra}\]"):
        make(folder)


def test_every_source_class_is_tested_by_test_every_source(tmp_path):
    opened = set()
    for i, kind in enumerate(KINDS.values()):
        (tmp_path / str(i)).mkdir()
        kind.write(tmp_path / str(i), samples())
        opened.add(type(kind.open(tmp_path / str(i))))
    classes = {thing for name in sources.__all__ if inspect.isclass(thing := getattr(sources, name))}
    # Their samples have other shapes: tests/sources/test_coco.py, test_pairs.py, tests/video/test_videos.py.
    # FromIterable has no samples by index: test_from_iterable.py.
    elsewhere = {sources.Coco, sources.FromIterable, sources.Pairs, sources.Videos}
    assert classes - opened == {sources.Source, sources.RemoteOptions} | elsewhere
