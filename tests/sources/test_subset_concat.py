"""What torch's Subset, random_split and ConcatDataset make of sources: samples, names, what tells them apart."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, random_split

from cuaug import DecodeError, Loader, LoaderError, cache, sources
from cuaug.sources import FromDataset, open_source
from tests.loader.pictures import numbers_of, png
from tests.sources.writers import KINDS, Kind, Pictures, samples, write_files, write_shards


@pytest.fixture
def files(tmp_path) -> sources.Files:
    write_files(tmp_path, samples())
    return KINDS["files"].open(tmp_path)


def loaded(given, **options) -> tuple[list[int], list]:
    """(pictures' numbers, labels)"""
    with Loader(given, batch_size=100, **options) as loader:
        ((images, labels),) = loader
    return numbers_of(images), labels.tolist()


class Minimal:
    """A source with nothing but what one must have."""

    def __len__(self) -> int:
        return 4

    def read(self, index: int):
        return png(index), index * 10


# --- samples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["class folders", "tar", "tfrecord", "hdf5", "dataset pillow", "http"])
def test_a_random_split_of_a_loaders_source(tmp_path, name):
    kind: Kind = KINDS[name]
    kind.write(tmp_path, samples())
    source = Loader(kind.open(tmp_path)).source
    halves = random_split(source, [8, 4], torch.Generator().manual_seed(1))
    numbers = []
    for half in halves:
        got, labels = loaded(half)
        assert labels == [kind.label(samples()[i]) for i in got]
        numbers += got
    assert sorted(numbers) == list(range(12)) != numbers


def test_parts_of_parts(files):
    assert loaded(Subset(files, [5, 2, 7])) == ([5, 2, 7], [files.labels[i] for i in (5, 2, 7)])
    for indices in (np.array([5, 2]), torch.tensor([5, 2]), (5, np.int64(2))):
        assert loaded(Subset(files, indices))[0] == [5, 2]
    assert loaded(Subset(files, range(3, 5)))[0] == [3, 4]
    nested = Subset(Subset(files, [5, 2, 7]), [2, 0])
    assert loaded(nested)[0] == [7, 5]
    both = ConcatDataset([nested, Minimal(), ConcatDataset([Subset(files, [1])])])
    assert loaded(both) == ([7, 5, 0, 1, 2, 3, 1], [files.labels[7], files.labels[5], 0, 10, 20, 30, files.labels[1]])
    assert loaded(Subset(both, [6, 2, 0]))[0] == [1, 0, 7]
    assert isinstance(open_source(both), sources.Source) and len(open_source(both)) == 7


def test_sources_beside_datasets(files, tmp_path):
    """What torch can join is joined; items of the Dataset are as FromDataset has them."""
    mixed = ConcatDataset([Subset(files, [3]), Pictures(tmp_path, "pillow")])
    assert loaded(mixed)[0] == [3, *range(12)]
    assert [open_source(mixed).path(i) for i in (0, 2)] == [files.path(3), "Pictures[1]"]


def test_datasets_alone_are_from_datasets_as_they_were(tmp_path, files):
    class Own(Subset):
        def __getitem__(self, index):
            return self.dataset.read(self.indices[index])[0], 7

        def __getitems__(self, indices):  # torch refuses a Subset that overrides one of the two
            return [self[index] for index in indices]

    pictures = Pictures(tmp_path, "path")
    for dataset in (Subset(pictures, [5, 2]), ConcatDataset([pictures]), Own(files, [5, 2])):
        assert type(open_source(dataset)) is FromDataset
    assert loaded(Own(files, [5, 2])) == ([5, 2], [7, 7])


def test_through_pickle_and_checks(files):
    part = pickle.loads(pickle.dumps(open_source(ConcatDataset([Subset(files, [5, 2]), files]))))
    assert part.read(1) == files.read(2) and part.read(2) == files.read(0)
    checked = sources.ChecksumSource(part, sources.ChecksumSource.compute(part))
    assert loaded(checked)[0] == [5, 2, *range(12)]


# --- what else a source has -------------------------------------------------------------------------------------------


def test_names_labels_and_classes(tmp_path):
    KINDS["class folders"].write(tmp_path, samples())
    folders = sources.Files.from_directory(tmp_path)
    part = open_source(Subset(folders, [5, 2]))
    assert part.classes == folders.classes and part.path(1) == folders.path(2) and part.label(1) == folders.label(2)
    assert open_source(ConcatDataset([folders, part])).classes == folders.classes
    assert open_source(ConcatDataset([folders, Minimal()])).classes is None, "their labels mean other things"
    bare = open_source(Subset(Minimal(), [3]))
    assert bare.path(0) == "Minimal[3]" and bare.label(0) == 30 and bare.classes is None


def test_errors_name_the_file_and_the_place_in_the_part(files, tmp_path):
    with open(files.path(5), "wb") as file:
        file.write(b"x" * 20)
    with (
        Loader(Subset(files, [2, 5]), batch_size=2) as loader,
        pytest.raises(DecodeError, match=rf"cannot decode '{files.path(5)}' \(sample 1\)"),
    ):
        next(iter(loader))
    checked = sources.ChecksumSource(files, sources.ChecksumSource.compute(files))
    with open(files.path(5), "wb") as file:
        file.write(b"y" * 20)
    with (
        Loader(ConcatDataset([Subset(checked, [2, 5])]), batch_size=2) as loader,
        pytest.raises(DecodeError, match=rf"cannot decode '{files.path(5)}' \(sample 1\).*checksum"),
    ):
        next(iter(loader))


def test_pictures_sizes_are_checked_where_one_tells_them(files):
    class Sized(Minimal):
        def picture_size(self, index):
            return (4, 5) if index else (9, 9)

    assert not hasattr(open_source(Subset(files, [1])), "picture_size"), "the loader is quicker without"
    both = open_source(ConcatDataset([files, Subset(Sized(), [1, 0])]))
    assert [both.picture_size(i) for i in (0, 12, 13)] == [(0, 0), (4, 5), (9, 9)]
    with Loader(both, batch_size=14, on_error="skip") as loader:
        ((images, _),) = loader
        assert len(images) == 13 and loader.stats().failed == 1


def test_shards_of_what_is_joined(tmp_path, files):
    write_shards(tmp_path, samples())
    tars = KINDS["tar"].open(tmp_path)
    assert open_source(ConcatDataset([tars, tars])).shard_sizes == [*tars.shard_sizes] * 2
    for dataset in (ConcatDataset([tars, files]), Subset(tars, [1])):
        assert not hasattr(open_source(dataset), "shard_sizes")


# --- what tells them apart --------------------------------------------------------------------------------------------


def test_fingerprints_and_origins(files, tmp_path):
    part = [Subset(files, [5, 2]), Subset(files, [2, 5]), Subset(Subset(files, [5, 2, 3]), [0, 1])]
    whole = [files, ConcatDataset([files, files]), ConcatDataset([files, part[0]])]
    opened = [open_source(each) for each in part + whole]
    assert len({each.fingerprint() for each in opened}) == 6 and None not in [each.fingerprint() for each in opened]
    assert open_source(Subset(files, torch.tensor([5, 2]))).fingerprint() == opened[0].fingerprint()
    (tmp_path / "other").mkdir()
    write_files(tmp_path / "other", samples())
    other = KINDS["files"].open(tmp_path / "other")
    for make in (lambda source: Subset(source, [5, 2]), lambda source: ConcatDataset([files, source])):
        here, there = open_source(make(files)), open_source(make(other))
        assert here.fingerprint() == there.fingerprint() and here.cache_key() != there.cache_key()
    assert Subset(files, [1]).dataset.cache_key() == open_source(Subset(files, [1])).cache_key()


def test_what_cannot_be_told_apart(files):
    for dataset in (Subset(Minimal(), [1]), ConcatDataset([files, Minimal()])):
        assert open_source(dataset).fingerprint() is None

    class Known(Minimal):  # as a source that says it is told by its fingerprint alone
        def fingerprint(self):
            return "abc"

    class Elsewhere(Known):
        def cache_key(self):
            return None

    for dataset in (Subset(Known(), [1]), ConcatDataset([files, Known()])):
        assert None not in (open_source(dataset).fingerprint(), open_source(dataset).cache_key())
    for dataset in (Subset(Elsewhere(), [1]), ConcatDataset([files, Elsewhere()])):
        assert open_source(dataset).cache_key() is None


def test_a_cache_of_one_half_is_refused_by_the_other(files, tmp_path):
    one, two = random_split(files, [6, 6], torch.Generator().manual_seed(1))

    def kept():
        return cache.DecodedCache(8, limit_bytes=1 << 20, directory=tmp_path / "cache")

    first = loaded(one, cache=kept())
    assert loaded(one, cache=kept()) == first, "a Subset of the same indices has the same pictures"
    with pytest.raises(LoaderError, match="fingerprint"):
        Loader(two, cache=kept())
    with Loader(one) as loader, pytest.raises(LoaderError, match="source"):
        state = loader.state_dict()
        Loader(two).load_state_dict(state)


# --- what does not do -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([], "there is nothing to load: a Subset of Files has no indices"),
        ([0, 12], r"a Subset's indices are integers from 0 to 11, for so many samples has its Files: .*place 1 is 12"),
        ([3, 0, -1], "place 2 is -1"),
        ([True, False], r"a Subset's indices are integers from 0 to 11"),
        ([0.5], r"a Subset's indices are integers from 0 to 11"),
        ([[1, 2]], r"a Subset's indices are integers from 0 to 11"),
    ],
)
def test_indices_that_do_not_do(files, indices, message):
    with pytest.raises(LoaderError, match=message):
        Loader(Subset(files, indices))


class Both(Minimal, Dataset):
    """A source that has items too: torch takes these."""

    def __getitem__(self, index):
        return png(index), 5


def test_from_dataset_reads_no_sources(files):
    with pytest.raises(
        LoaderError, match=r"ConcatDataset holds a Files, which has no items by number; .* a Loader takes as it is"
    ):
        FromDataset(ConcatDataset([Both(), Subset(files, [1])]), label=None)


def test_of_what_has_items_too_the_items_are_taken(files):
    assert loaded(Both())[1] == [0, 10, 20, 30] and loaded(Subset(Both(), [1])) == ([1], [5])
    assert type(open_source(Subset(Both(), [1]))) is FromDataset
    assert loaded(ConcatDataset([Subset(files, [3]), Both()]))[1] == [files.labels[3], 5, 5, 5, 5]


def test_attributes_of_a_source_that_mean_something_else_do_no_harm():
    class Numbered:
        classes, shard_sizes = 10, 16

        def __len__(self):
            return 4

        def read(self, index):
            return b"", index

    assert open_source(Subset(Numbered(), [1, 2])).read(1)[1] == 2
    assert open_source(ConcatDataset([Numbered(), Numbered()])).read(5)[1] == 1
