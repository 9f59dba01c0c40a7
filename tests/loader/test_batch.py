"""A batch keeps what it knows through `_replace`, torch's pytree and `default_collate`; its digest and its paths."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils import _pytree as pytree
from torch.utils.data import default_collate

from cuaug import ArgumentError, Batch, Loader, SourceError
from cuaug import transforms as T
from tests.support.loader.further_pictures import Bytes, Labeled, Memory, assert_epoch_raises, png

pytestmark = pytest.mark.cpu_only
CHAIN = [T.RandomHorizontalFlip(), T.ColorJitter(0.4), T.MixUp(num_classes=30)]


def loader(count: int = 20, chain=CHAIN, **options) -> Loader:
    return Loader(Memory(count), chain, **{"batch_size": 4, "shuffle": True, "seed": 5, "threads": 1} | options)


@pytest.fixture
def batch() -> Batch:
    with loader() as loading:
        return next(iter(loading))


def assert_kept(twin: Batch, batch: Batch) -> None:
    assert type(twin) is Batch and twin.epoch == batch.epoch and twin.digest == batch.digest
    assert twin.indices.equal(batch.indices) and twin.valid.equal(batch.valid) and twin.paths == batch.paths


def test_replaced_fields(batch):
    images = batch.images + 1
    twin = batch._replace(images=images)
    assert_kept(twin, batch)
    assert twin.images is images and twin.labels is batch.labels and twin.params() == batch.params()
    assert batch._replace(epoch=7).epoch == 7
    with pytest.raises(ArgumentError, match=r"^image is no field of a Batch: images, labels, indices"):
        batch._replace(image=images)


def test_trees(batch):
    doubled = pytree.tree_map(lambda tensor: tensor * 2, batch)
    assert type(doubled) is Batch and doubled.images.equal(batch.images * 2)
    assert doubled.indices.equal(batch.indices * 2) and doubled.epoch == 0 and doubled.digest == batch.digest
    assert_kept(pytree.tree_map(lambda leaf: leaf, {"a": [batch]})["a"][0], batch)
    both = pytree.tree_map(lambda a, b: a.float() + b, batch, batch)
    assert both.images.equal(batch.images.float() * 2)
    plain = pytree.tree_map(lambda leaf: leaf, Batch(batch.images, {"a": batch.labels}))
    assert plain.labels["a"].equal(batch.labels) and not hasattr(plain, "valid")


def test_default_collate():
    with loader() as loading:
        batches = list(loading)
    merged = default_collate(batches)
    assert type(merged) is Batch and merged.images.shape[:2] == (5, 4)
    assert merged.indices.tolist() == [batch.indices.tolist() for batch in batches]
    assert merged.valid.all() and merged.epoch == 0 and not hasattr(merged, "digest")


@pytest.mark.parametrize(
    "twin", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b)), lambda b: b.to("cpu")]
)
def test_copies(batch, twin):
    made = twin(batch)
    assert_kept(made, batch)
    assert made.images.equal(batch.images) and made.labels.equal(batch.labels)


def test_paths(tmp_path):
    for k in range(5):
        (tmp_path / f"{k}.png").write_bytes(png(k))
    paths = [str(tmp_path / f"{k}.png") for k in range(5)]
    for files in (paths, Bytes(*paths)):  # also a source whose `read` gives paths
        with Loader(files, batch_size=5, shuffle=True) as named:
            (batch,) = named
            assert batch.paths == [paths[i] for i in batch.indices.tolist()]
    with Loader(Memory(3), batch_size=3) as unnamed:
        assert next(iter(unnamed)).paths == [None] * 3


# --- digests ---------------------------------------------------------------------------------------------------------


def digests(**options) -> list[str]:
    with loader(**options) as loading:
        return [batch.digest for batch in loading]


def test_a_digest_tells_what_was_drawn():
    found = digests()
    assert len(set(found)) == 5 and all(len(digest) == 16 and int(digest, 16) >= 0 for digest in found)
    assert digests(threads=3, prefetch=1) == digests(dtype=torch.float32) == found
    for other in ({"seed": 6}, {"chain": CHAIN[:2]}, {"chain": [CHAIN[0], T.ColorJitter(0.5), CHAIN[2]]}):
        assert not set(digests(**other)) & set(found)
    with loader() as loading:
        list(loading)
        assert not {batch.digest for batch in loading} & set(found)


@settings(max_examples=10, deadline=None)
@given(st.sets(st.integers(0, 19), max_size=5), st.sampled_from(["skip", "replace"]))
def test_a_digest_is_replayed(damage, on_error):
    """Also where samples were damaged, and planned apart from the batch."""
    with Loader(Memory(20, damaged=damage), CHAIN, batch_size=4, shuffle=True, seed=1, on_error=on_error) as loading:
        batches = list(loading)
        assert [loading.replay(0, step).digest for step in range(5)] == [batch.digest for batch in batches]


def test_a_digest_is_that_of_any_machine():
    """The recorded value: a function of integers, and of parameters to half precision."""
    assert digests()[0] == "2014669416c05054"


# --- the dtype of labels ---------------------------------------------------------------------------------------------


def dtypes(source, **options) -> list[torch.dtype]:
    with Loader(source, batch_size=1, threads=2, **options) as loading:
        return [batch.labels.dtype for batch in loading]


def test_declared_labels_decide():
    assert dtypes(Labeled(1, 2, 0.5, attribute="labels")) == [torch.float64] * 3
    assert dtypes(Labeled(1, 2, 3, attribute="labels")) == [torch.int64] * 3


def test_mixed_labels_are_floats_whatever_the_source_declares():
    chain = [T.MixUp(num_classes=4)]
    with Loader(Labeled(1, 2, 3, attribute="labels"), chain, batch_size=2, dtype=torch.float32) as loading:
        assert [batch.labels.dtype for batch in loading] == [torch.float32] * 2


def test_the_first_batch_decides():
    assert dtypes(Labeled(0.5, 1, 2)) == [torch.float64] * 3
    assert dtypes(Labeled(0.5, True, np.int32(3))) == [torch.float64] * 3
    message = r"^labels are torch\.int64 so far, but sample 2 has 0\.5, torch\.float64: give"
    assert_epoch_raises(SourceError, message, Labeled(1, 2, 0.5), threads=2)
    message = r"^labels\['age'\] are torch\.int64 so far, but sample 1 has 1\.5"
    assert_epoch_raises(SourceError, message, Labeled({"age": 1}, {"age": 1.5}))


def test_a_function_that_collates_is_left_alone():
    assert dtypes(Labeled(1, 0.5), collate_fn=torch.tensor) == [torch.int64, torch.float32]


def test_dropping_all_batches_warns():
    with pytest.warns(UserWarning, match=r"^last_batch='drop' leaves no batch: 3 samples are fewer than") as caught:
        Loader(Memory(3), batch_size=4, last_batch="drop").close()
    assert caught[0].filename == __file__
