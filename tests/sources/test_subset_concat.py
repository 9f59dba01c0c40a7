"""torch's Subset, random_split and ConcatDataset of sources: samples, optional members, fingerprints."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, random_split

from cuaug import DecodeError, Loader, LoaderError, cache, sources
from cuaug.sources import FromDataset, open_source
from tests.support.loader.further_pictures import png
from tests.support.sources.loading import load, load_numbers
from tests.support.sources.writers import KINDS, ImageDataset, Kind, samples, write_files, write_shards


@pytest.fixture
def files(tmp_path) -> sources.Files:
    write_files(tmp_path, samples())
    return KINDS["files"].open(tmp_path)


class Minimal:
    """A source without optional members."""

    def __len__(self) -> int:
        return 4

    def read(self, index: int):
        return png(index), index * 10


@pytest.mark.parametrize("name", ["class folders", "tar", "tfrecord", "hdf5", "dataset pillow", "http"])
def test_a_random_split_of_a_loaders_source(tmp_path, name):
    kind: Kind = KINDS[name]
    kind.write(tmp_path, samples())
    source = Loader(kind.open(tmp_path)).source
    halves = random_split(source, [8, 4], torch.Generator().manual_seed(1))
    numbers = []
    for half in halves:
        half_numbers, labels = load_numbers(half)
        assert labels == [kind.label(samples()[i]) for i in half_numbers]
        numbers += half_numbers
    assert sorted(numbers) == list(range(12)) != numbers


def test_nested_subsets_and_concatenations(files):
    assert load_numbers(Subset(files, [5, 2, 7])) == ([5, 2, 7], [files.labels[i] for i in (5, 2, 7)])
    for indices in (np.array([5, 2]), torch.tensor([5, 2]), (5, np.int64(2))):
        assert load_numbers(Subset(files, indices))[0] == [5, 2]
    assert load_numbers(Subset(files, range(3, 5)))[0] == [3, 4]
    nested = Subset(Subset(files, [5, 2, 7]), [2, 0])
    assert load_numbers(nested)[0] == [7, 5]
    both = ConcatDataset([nested, Minimal(), ConcatDataset([Subset(files, [1])])])
    labels = [files.labels[7], files.labels[5], 0, 10, 20, 30, files.labels[1]]
    assert load_numbers(both) == ([7, 5, 0, 1, 2, 3, 1], labels)
    assert load_numbers(Subset(both, [6, 2, 0]))[0] == [1, 0, 7]
    assert isinstance(open_source(both), sources.Source) and len(open_source(both)) == 7


def test_sources_beside_datasets(files, tmp_path):
    """FromDataset reads the Dataset's items."""
    mixed = ConcatDataset([Subset(files, [3]), ImageDataset(tmp_path, "pillow")])
    assert load_numbers(mixed)[0] == [3, *range(12)]
    assert [open_source(mixed).path(i) for i in (0, 2)] == [files.path(3), "ImageDataset[1]"]


def test_subsets_and_concatenations_of_datasets_are_datasets(tmp_path, files):
    class Own(Subset):
        def __getitem__(self, index):
            return self.dataset.read(self.indices[index])[0], 7

        def __getitems__(self, indices):  # torch refuses a Subset that overrides one of the two
            return [self[index] for index in indices]

    photos = ImageDataset(tmp_path, "path")
    for dataset in (Subset(photos, [5, 2]), ConcatDataset([photos]), Own(files, [5, 2])):
        assert type(open_source(dataset)) is FromDataset
    assert load_numbers(Own(files, [5, 2])) == ([5, 2], [7, 7])


def test_paths_labels_and_classes(tmp_path):
    KINDS["class folders"].write(tmp_path, samples())
    folders = sources.Files.from_directory(tmp_path)
    subset = open_source(Subset(folders, [5, 2]))
    assert subset.classes == folders.classes and subset.path(1) == folders.path(2)
    assert subset.label(1) == folders.label(2)
    assert open_source(ConcatDataset([folders, subset])).classes == folders.classes
    assert open_source(ConcatDataset([folders, Minimal()])).classes is None, "labels have other meanings"
    bare = open_source(Subset(Minimal(), [3]))
    assert bare.path(0) == "Minimal[3]" and bare.label(0) == 30 and bare.classes is None


def test_errors_name_the_file_and_the_index_in_the_subset(files, tmp_path):
    with open(files.path(5), "wb") as file:
        file.write(b"x" * 20)
    with pytest.raises(DecodeError, match=rf"cannot decode '{files.path(5)}' \(sample 1\)"):
        load(Subset(files, [2, 5]))


def test_image_sizes_are_checked_if_a_source_knows_them(files):
    class Sized(Minimal):
        def picture_size(self, index):
            return (4, 5) if index else (9, 9)

    assert not hasattr(open_source(Subset(files, [1])), "picture_size"), "the loader is faster without"
    both = open_source(ConcatDataset([files, Subset(Sized(), [1, 0])]))
    assert [both.picture_size(i) for i in (0, 12, 13)] == [(0, 0), (4, 5), (9, 9)]
    assert len(load(both, on_error="skip").images) == 13


def test_shard_sizes_of_concatenations(tmp_path, files):
    write_shards(tmp_path, samples())
    tars = KINDS["tar"].open(tmp_path)
    assert open_source(ConcatDataset([tars, tars])).shard_sizes == [*tars.shard_sizes] * 2
    for dataset in (ConcatDataset([tars, files]), Subset(tars, [1])):
        assert not hasattr(open_source(dataset), "shard_sizes")


def test_fingerprints_and_cache_keys(files, tmp_path):
    subsets = [Subset(files, [5, 2]), Subset(files, [2, 5]), Subset(Subset(files, [5, 2, 3]), [0, 1])]
    whole = [files, ConcatDataset([files, files]), ConcatDataset([files, subsets[0]])]
    fingerprints = [open_source(dataset).fingerprint() for dataset in subsets + whole]
    assert len(set(fingerprints)) == 6 and None not in fingerprints
    assert open_source(Subset(files, torch.tensor([5, 2]))).fingerprint() == fingerprints[0]
    (tmp_path / "other").mkdir()
    write_files(tmp_path / "other", samples())
    other = KINDS["files"].open(tmp_path / "other")
    for make in (lambda source: Subset(source, [5, 2]), lambda source: ConcatDataset([files, source])):
        here, there = open_source(make(files)), open_source(make(other))
        assert here.fingerprint() == there.fingerprint() and here.cache_key() != there.cache_key()
    assert Subset(files, [1]).dataset.cache_key() == open_source(Subset(files, [1])).cache_key()


def test_sources_without_fingerprint_or_cache_key(files):
    for dataset in (Subset(Minimal(), [1]), ConcatDataset([files, Minimal()])):
        assert open_source(dataset).fingerprint() is None

    class Known(Minimal):  # its fingerprint alone identifies it
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

    def make_cache():
        return cache.DecodedCache(8, limit_bytes=1 << 20, directory=tmp_path / "cache")

    first = load_numbers(one, cache=make_cache())
    assert load_numbers(one, cache=make_cache()) == first, "a Subset of the same indices has the same images"
    with pytest.raises(LoaderError, match="fingerprint"):
        Loader(two, cache=make_cache())
    with Loader(one) as loader, pytest.raises(LoaderError, match="source"):
        state = loader.state_dict()
        Loader(two).load_state_dict(state)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([], "files is a Subset of Files without indices"),
        (
            [0, 12],
            r"indices of a Subset must be integers from 0 to 11, since its Files has 12 samples; indices\[1\] is 12",
        ),
        ([3, 0, -1], r"indices\[2\] is -1"),
        ([True, False], r"indices of a Subset must be integers from 0 to 11"),
        ([0.5], r"indices of a Subset must be integers from 0 to 11"),
        ([[1, 2]], r"indices of a Subset must be integers from 0 to 11"),
    ],
)
def test_invalid_indices_are_refused(files, indices, message):
    with pytest.raises(LoaderError, match=message):
        Loader(Subset(files, indices))


class Both(Minimal, Dataset):
    """A source that also has items, which torch takes."""

    def __getitem__(self, index):
        return png(index), 5


def test_from_dataset_refuses_sources(files):
    message = "ConcatDataset holds a Files, which has no items by index; give .* to a Loader directly"
    with pytest.raises(LoaderError, match=message):
        FromDataset(ConcatDataset([Both(), Subset(files, [1])]), label=None)


def test_items_take_precedence_in_subsets_of_sources(files):
    assert load_numbers(Both())[1] == [0, 10, 20, 30] and load_numbers(Subset(Both(), [1])) == ([1], [5])
    assert type(open_source(Subset(Both(), [1]))) is FromDataset
    assert load_numbers(ConcatDataset([Subset(files, [3]), Both()]))[1] == [files.labels[3], 5, 5, 5, 5]


def test_attributes_with_another_meaning_are_ignored():
    class Numbered:
        classes, shard_sizes = 10, 16

        def __len__(self):
            return 4

        def read(self, index):
            return b"", index

    assert open_source(Subset(Numbered(), [1, 2])).read(1)[1] == 2
    assert open_source(ConcatDataset([Numbered(), Numbered()])).read(5)[1] == 1
