"""BucketSampler: each sample once, in the nearest bucket, on any ranks and after a restart; buckets in a Loader."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from cuaug import BUCKET, BucketSampler, Loader, LoaderError, SizedBatch, TransformError, make_buckets
from cuaug import transforms as T
from cuaug.sampling import BatchSteps, Progress, RankSlice
from cuaug.sampling.batch_samplers import open_batch_sampler
from tests.support.loader.further_pictures import Arrays, checksums

BUCKETS = make_buckets(64 * 64, multiple=16)
_sides = st.integers(1, 200)
_sizes = st.lists(st.tuples(_sides, _sides) | st.just((0, 0)), min_size=1, max_size=60)
_buckets = st.lists(st.tuples(_sides, _sides), min_size=1, max_size=6, unique=True)


# --- buckets ---------------------------------------------------------------------------------------------------------


@given(st.integers(1, 400), st.integers(1, 40), st.floats(1, 8))
def test_buckets_are_the_largest_of_their_height_or_width(factor, multiple, max_aspect_ratio):
    pixels = factor * multiple**2
    found = make_buckets(pixels, multiple=multiple, max_aspect_ratio=max_aspect_ratio)
    sides = range(multiple, pixels // multiple + 1, multiple)
    fitting = [(h, w) for h in sides for w in sides if h * w <= pixels]
    largest = {(h, w) for h, w in fitting if h * (w + multiple) > pixels or w * (h + multiple) > pixels}
    largest = {(h, w) for h, w in largest if max(h, w) <= max_aspect_ratio * min(h, w)}
    assert {*found} == largest | {max((h, w) for h, w in fitting if h == w)} and len({*found}) == len(found)
    assert [h / w for h, w in found] == sorted(h / w for h, w in found)


def test_the_buckets_of_sdxl():
    """Of its paper's table, those with sides of at least 704: at 1024 x 1024 pixels, and the multiples of 64."""
    found = make_buckets(1024 * 1024)
    assert {(1024, 1024), (1088, 960), (960, 1088), (1152, 896), (1216, 832), (1344, 768), (768, 1344)} <= {*found}


def nearest(size: tuple[int, int], buckets: list[tuple[int, int]], by: str) -> int:
    """By the definition, one size after the other."""
    ratio, area = (abs(np.log(size[0] / size[1]) - np.log([h / w for h, w in buckets])) for _ in range(2))
    area = abs(np.log(float(size[0] * size[1])) - np.log([float(h * w) for h, w in buckets]))
    first, second = (ratio, area) if by == "aspect_ratio" else (area, ratio)
    return min(range(len(buckets)), key=lambda i: (first[i], second[i], i))


@given(_sizes, _buckets, st.sampled_from(["aspect_ratio", "area"]), st.integers(1, 5))
def test_a_sample_is_in_the_nearest_bucket(sizes, buckets, by, batch_size):
    sampler = BucketSampler(sizes, buckets, batch_size, by=by)
    known = [nearest(size, buckets, by) for size in sizes if size != (0, 0)]
    counts = np.bincount(known, minlength=len(buckets))
    most = int(counts.argmax())
    for batch in sampler:
        for index in batch:
            wanted = most if sizes[index] == (0, 0) else nearest(sizes[index], buckets, by)
            assert batch.size == buckets[wanted]
    assert sum(sampler.counts) == len(sizes) and len(list(sampler)) == len(sampler)


@given(_sizes, st.integers(1, 9), st.sampled_from(["partial", "drop", "pad"]), st.booleans())
def test_the_last_batch_of_a_bucket(sizes, batch_size, last_batch, shuffle):
    options: Any = {"last_batch": last_batch, "shuffle": shuffle}
    counts = BucketSampler(sizes, BUCKETS, 1).counts
    if last_batch == "drop" and all(count < batch_size for count in counts):
        with pytest.raises(LoaderError, match="leaves no batch"):
            BucketSampler(sizes, BUCKETS, batch_size, **options)
        return
    sampler = BucketSampler(sizes, BUCKETS, batch_size, **options)
    batches = list(sampler)
    own = [batch[: len(batch) - batch.padding] for batch in batches]
    lengths = {"partial": set(range(1, batch_size + 1)), "drop": {batch_size}, "pad": {batch_size}}
    assert {*map(len, batches)} <= lengths[last_batch] and len(batches) == len(sampler)
    seen = Counter(itertools.chain(*own))
    dropped = sum(count % batch_size for count in counts) if last_batch == "drop" else 0
    assert max(seen.values()) == 1 and len(seen) == len(sizes) - dropped
    for batch in batches:
        members = {
            index for other, part in zip(batches, own, strict=True) if other.size == batch.size for index in part
        }
        assert {*batch} <= members, "padding is of the same bucket"
    if not shuffle:
        assert [part[-1] for part in own] == sorted(part[-1] for part in own)
        assert all(part == sorted(part) for part in own)


@given(_sizes, st.integers(1, 4))
def test_a_budget_of_pixels(sizes, factor):
    budget = factor * max(math.prod(bucket) for bucket in BUCKETS) + 7
    sampler = BucketSampler(sizes, BUCKETS, pixels_per_batch=budget)
    for size, (height, width) in zip(sampler.batch_sizes, BUCKETS, strict=True):
        assert size * height * width <= budget < (size + 1) * height * width
    assert all(len(batch) * math.prod(batch.size) <= budget for batch in sampler)


def test_shuffling_mixes_buckets_and_samples():
    sizes = [(30, 60), (60, 30)] * 200
    torch.manual_seed(0)
    first, second = ([(batch.size, [*batch]) for batch in BucketSampler(sizes, [(1, 2), (2, 1)], 4)] for _ in range(2))
    assert first != second and sorted(i for _, batch in first for i in batch) == list(range(400))
    switches = sum(a != b for (a, _), (b, _) in itertools.pairwise(first))
    assert 30 < switches < 70, "of 99, half"
    assert first[0][1] != sorted(first[0][1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([(1, 2, 3)], BUCKETS, 1), r"sizes must be integers of shape \(N, 2\)"),
        (([], BUCKETS, 1), r"sizes must be integers of shape \(N, 2\)"),
        (([(1.5, 2.0)], BUCKETS, 1), r"sizes must be integers of shape \(N, 2\)"),
        (([(3, 4), (0, 2)], BUCKETS, 1), r"not \(0, 2\) \(sample 1\)"),
        (([(3, 4)], [], 1), "buckets must have at least one"),
        (([(3, 4)], [64], 1), "buckets must be"),
        (([(3, 4)], [(0, 64)], 1), "buckets must be an integer of at least 1"),
        (([(3, 4)], BUCKETS), "batch_size or pixels_per_batch"),
        (([(3, 4)], BUCKETS, 0), "batch_size must be"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(LoaderError, match=message):
        BucketSampler(*arguments)


def test_other_arguments_are_checked():
    with pytest.raises(LoaderError, match="at least 4096, one image of the bucket 64 x 64"):
        BucketSampler([(3, 4)], [(64, 64)], pixels_per_batch=4095)
    with pytest.raises(LoaderError, match="at least 4096, 64 x 64, not 4032"):
        make_buckets(63 * 64)
    with pytest.raises(LoaderError, match="max_aspect_ratio"):
        make_buckets(64 * 64, max_aspect_ratio=0.5)
    with pytest.raises(LoaderError, match="padding must be below 2"):
        SizedBatch([0, 1], (3, 4), 2)


# --- ranks and restarts ----------------------------------------------------------------------------------------------


def steps_of(sampler: BucketSampler, count: int, state: str | None, ranks: int, stop: int | None) -> tuple[Any, str]:
    """The (indices, valid, size) of each step on each rank, and the state after step `stop`."""
    ranks_steps, states = [], set()
    for rank in range(ranks):
        order, _ = open_batch_sampler(sampler, count, 1, excluded=False)
        progress = Progress(order, count, 7, None)
        if state is not None:
            progress.load_state_dict(json.loads(state))
        epoch, start = progress.begin()
        steps = BatchSteps(epoch.ends, "pad", rank=rank, world_size=ranks, start=start, buckets=epoch.buckets)
        done: list[RankSlice] = list(itertools.islice(steps, stop))
        for rank_slice in done:
            progress.advance(epoch, rank_slice.end)
        states.add(json.dumps(progress.state_dict()))
        ranks_steps.append([(epoch.indices[s.positions].tolist(), s.valid.tolist(), s.size) for s in done])
    assert len({*map(len, ranks_steps)}) == 1, "all ranks make equal steps"
    assert len(states) == 1, "and save the same state"
    return ranks_steps, states.pop()


@given(
    _sizes,
    st.integers(1, 7),
    st.sampled_from(["partial", "pad"]),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([1, 2, 3, 8]),
    st.integers(0, 8),
)
def test_each_sample_comes_once_on_any_ranks_and_after_a_restart(sizes, size, last_batch, ranks, later_ranks, stop):
    sampler = BucketSampler(sizes, BUCKETS, size, last_batch=last_batch)
    whole, _ = steps_of(sampler, len(sizes), None, ranks, None)
    first, state = steps_of(sampler, len(sizes), None, ranks, stop)
    # A new process has another sampler, and another state of torch's generator.
    torch.manual_seed(stop)
    again = BucketSampler(sizes, BUCKETS, size, last_batch=last_batch)
    rest, _ = steps_of(again, len(sizes), state, ranks, None)
    if stop < len(whole[0]):  # after the last step, the padding of the ranks is another
        assert [a + b for a, b in zip(first, rest, strict=True)] == whole
    later, _ = steps_of(again, len(sizes), state, later_ranks, None)
    for steps in (whole, first + later):
        seen = Counter(
            index
            for rank in steps
            for indices, valid, _ in rank
            for index, is_valid in zip(indices, valid, strict=True)
            if is_valid
        )
        assert seen == Counter(range(len(sizes)))
    of_bucket = {index: batch.size for batch in again for index in batch}
    assert all(of_bucket[index] == size for rank in whole for indices, _, size in rank for index in indices)


def test_a_dataloader_takes_its_batches():
    """As those of any batch sampler of torch; its workers get lists."""
    sizes = [(30, 60), (60, 30), (30, 30)] * 5
    sampler = BucketSampler(sizes, [(1, 2), (2, 1), (1, 1)], 4, shuffle=False)
    got = [batch for batch in DataLoader(range(15), batch_sampler=sampler, collate_fn=list, num_workers=1)]
    assert got == [[*batch] for batch in sampler]
    batch = next(iter(sampler))
    copied = pickle.loads(pickle.dumps(batch))
    assert copied == batch and copied.size == batch.size


# --- in a Loader -----------------------------------------------------------------------------------------------------

SIZES = [(20, 40), (41, 20), (30, 29), (100, 210), (64, 64)] * 5


def pictures() -> Arrays:
    """One color each: the label."""
    return Arrays(*(np.full((*size, 3), label, np.uint8) for label, size in enumerate(SIZES)))


CHAINS = {
    "cover and crop": [T.ResizeToCover(BUCKET), T.RandomCrop(BUCKET), T.RandomHorizontalFlip()],
    "in containers": [T.RandomChoice([T.Resize(BUCKET), T.Compose([T.RandomResizedCrop(BUCKET)])])],
    "beside a batch transform": [
        T.ResizeToCover(BUCKET),
        T.CenterCrop(BUCKET),
        T.Lambda(torch.clone),
        T.Resize(BUCKET),
    ],
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_loader_fills_the_buckets(chain):
    sampler = BucketSampler(SIZES, BUCKETS, pixels_per_batch=4 * 64 * 64, last_batch="pad")
    transforms = T.Compose(CHAINS[chain])
    with Loader(pictures(), transforms, batch_sampler=sampler, device="cpu", seed=3, threads=2) as loader:
        seen, shapes = Counter(), set()
        for step, (batch, again) in enumerate(
            zip(loader, [loader.replay(0, k) for k in range(len(loader))], strict=True)
        ):
            images, labels = batch
            assert (images == torch.as_tensor(labels)[:, None, None, None]).all(), "labels go with their images"
            size = tuple(images.shape[-2:])
            assert len(images) == 4 * 64 * 64 // math.prod(size)
            assert {nearest(SIZES[index], BUCKETS, "aspect_ratio") for index in labels.tolist()} == {
                BUCKETS.index(size)
            }
            assert checksums(again.images) == checksums(images) and again.digest == batch.digest, step
            seen.update(labels[batch.valid].tolist())
            shapes.add(size)
        assert seen == Counter(range(len(SIZES))) and len(shapes) == 3
    assert "BUCKET" in repr(transforms), "the chain itself keeps the placeholder"


def test_replacements_of_damaged_samples_have_the_size_of_the_batch():
    source = pictures()
    source.read = lambda index: (b"damaged" if index % 4 == 0 else source.data[index], index)  # type: ignore[method-assign]
    sampler = BucketSampler(SIZES, BUCKETS, 4)
    sizes = [batch.size for batch in BucketSampler(SIZES, BUCKETS, 4, shuffle=False)]
    options: Any = {"batch_sampler": sampler, "device": "cpu", "on_error": "replace", "seed": 0}
    with Loader(source, [T.RandomResizedCrop(BUCKET)], **options) as loader:
        got = [tuple(batch.images.shape[-2:]) for batch in loader]
    assert Counter(got) == Counter(sizes)


def test_samplers_of_others_may_yield_sized_batches():
    batches = [SizedBatch([0, 1], (8, 12)), [2, 3], SizedBatch([4, 5, 6], (6, 6), 1)]
    with Loader(pictures(), [T.Resize(9)], batch_sampler=batches, device="cpu", stack=False) as loader:
        assert [batch.valid.tolist() for batch in loader] == [[True] * 2, [True] * 2, [True, True, False]]
    with Loader(pictures(), [T.Resize(BUCKET)], batch_sampler=batches[::2], device="cpu") as loader:
        assert [tuple(batch.images.shape) for batch in loader] == [(2, 3, 8, 12), (3, 3, 6, 6)]


def test_a_bucket_needs_a_sampler_that_knows_it():
    message = "only a Loader with batch_sampler=cuaug.BucketSampler"
    chain = T.Compose([T.RandomApply([T.Resize(BUCKET)], 1.0)])
    with pytest.raises(TransformError, match=message):
        chain(np.zeros((9, 9, 3), np.uint8))
    for options in ({"batch_size": 2}, {"batch_sampler": [[0, 1], [2]]}):
        loader = Loader(pictures(), chain, device="cpu", on_error="skip", **options)  # type: ignore[arg-type]
        with loader, pytest.raises(TransformError, match=message):
            next(iter(loader))
    with pytest.raises(TransformError, match="max_size"):
        T.Resize(BUCKET, max_size=9)
    assert pickle.loads(pickle.dumps(BUCKET)) is BUCKET and copy.deepcopy(BUCKET) is BUCKET
