"""Samplers: orders are functions of (seed, epoch) with the documented distributions."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from cuaug import LoaderError, RepeatedSampler, ShardSampler, WeightedSampler
from cuaug.sampling import Epoch, Order, SequentialOrder, ShuffledOrder, Steps, TorchOrder, open_sampler, order_of
from cuaug.sampling.rng import SampleRNG

SAMPLERS = {
    "shuffled": lambda: ShuffledOrder(50),
    "weighted": lambda: WeightedSampler(np.arange(50) % 7, 80),
    "weighted, no replacement": lambda: WeightedSampler(np.arange(50) % 7, 30, replacement=False),
    "repeated": lambda: RepeatedSampler(50, 4),
    "shards": lambda: ShardSampler([20, 0, 17, 13], window=8),
    "torch": lambda: TorchOrder(RandomSampler(range(50))),
    "torch, weighted": lambda: TorchOrder(WeightedRandomSampler(torch.arange(50) % 7 + 0.5, 60)),
    "torch, subset": lambda: TorchOrder(SubsetRandomSampler(range(10, 30))),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_order_is_a_function_of_seed_and_epoch(name):
    sampler = SAMPLERS[name]()
    assert isinstance(sampler, Order)
    orders = {}
    for seed in (0, 1, 2**40):
        for epoch in (0, 1, 5):
            torch.manual_seed(seed + 17 * epoch)
            before = torch.get_rng_state()
            order = sampler.order(seed, epoch)
            assert order.dtype == np.int64 and order.shape == (len(sampler),)
            assert torch.equal(torch.get_rng_state(), before), "torch's generator state is restored"
            torch.manual_seed(0)
            np.testing.assert_array_equal(SAMPLERS[name]().order(seed, epoch), order)
            orders[order.tobytes()] = seed, epoch
    assert len(orders) == 9, "each seed and epoch has its own order"
    assert (len(np.unique(order)) < len(order)) <= sampler.repeats


@given(st.integers(1, 300), st.integers(0, 2**63), st.integers(0, 10))
def test_shuffling_sorts_indices_by_random_numbers(count, seed, epoch):
    want = np.argsort(SampleRNG(seed, epoch, np.arange(count)).uniform(), kind="stable")
    np.testing.assert_array_equal(ShuffledOrder(count).order(seed, epoch), want)


def test_shuffling_across_chunks():
    order = ShuffledOrder(200_001).order(3, 1)
    np.testing.assert_array_equal(np.sort(order), np.arange(200_001))
    np.testing.assert_array_equal(order, np.argsort(SampleRNG(3, 1, np.arange(200_001)).uniform(), kind="stable"))


@pytest.mark.slow
def test_shuffling_takes_8_bytes_per_sample():
    """8 bytes per sample, plus the memory of an in-place sort."""
    script = """
import resource
from cuaug.sampling import ShuffledOrder
ShuffledOrder(10).order(0, 0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
order = ShuffledOrder(8_000_000).order(0, 0)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 8_000_000)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 12


def test_shuffling_refuses_2_to_the_32_samples():
    with pytest.raises(LoaderError, match=r"2\*\*32 samples, not 4294967296"):
        ShuffledOrder(2**32)


# --- weights ---------------------------------------------------------------------------------------------------------


def test_draws_are_proportional_to_weights():
    weights = np.array([0, 1, 2, 0, 5.0])
    drawn = np.bincount(WeightedSampler(weights, 80_000).order(1, 0), minlength=5)
    assert (drawn[weights == 0] == 0).all()
    np.testing.assert_allclose(drawn, weights / weights.sum() * 80_000, atol=5 * np.sqrt(20_000))


def test_draws_without_replacement_follow_the_weights():
    """The first draw follows the weights; no sample comes twice."""
    sampler = WeightedSampler([0, 1, 2, 0, 5.0], 2, replacement=False)
    orders = np.array([sampler.order(seed, 0) for seed in range(8000)])
    assert (orders[:, 0] != orders[:, 1]).all()
    np.testing.assert_allclose(np.bincount(orders[:, 0], minlength=5), [0, 1000, 2000, 0, 5000], atol=180)
    # P(2, then 1) = 2/8 * 1/6
    assert abs(((orders == [2, 1]).all(axis=1)).sum() - 8000 * 2 / 48) < 90


@given(st.lists(st.floats(0, 1.7e308), min_size=1, max_size=20), st.integers(0, 99))
def test_a_weight_of_zero_is_never_drawn(weights, seed):
    weights = np.array(weights)
    weights[np.argmax(weights)] += 1e-3
    assert (weights[WeightedSampler(weights, 200).order(seed, 0)] > 0).all()


def test_weights_whose_sum_overflows():
    drawn = np.bincount(WeightedSampler([1e308, 0, 1e308, 1e308], 9000).order(1, 0), minlength=4)
    np.testing.assert_allclose(drawn, [3000, 0, 3000, 3000], atol=5 * np.sqrt(2000))


def test_tiny_weights_and_vast_differences_without_replacement():
    sampler = WeightedSampler([5e-324, 0, 5e-324], 1, replacement=False)
    assert {int(sampler.order(seed, 0)[0]) for seed in range(40)} == {0, 2}
    sampler = WeightedSampler([0, 1e308, 0, 5e-324], 2, replacement=False)
    assert all(sampler.order(seed, 0).tolist() == [1, 3] for seed in range(40))


@pytest.mark.parametrize("scale", [1, 2.0**990, 2.0**-990])
def test_draws_of_a_seed_never_change(scale):
    """The draws of a seed are promised; scaling the weights changes nothing."""
    weights = np.array([0.1, 0.7, 3.3, 0, 1e-3, 12.9, 5]) * scale
    assert WeightedSampler(weights, 12).order(3, 1).tolist() == [5, 5, 5, 5, 5, 6, 5, 5, 5, 6, 5, 5]
    assert WeightedSampler(weights, 5, replacement=False).order(3, 1).tolist() == [6, 2, 5, 1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, -2.0],), r"not -2.0 \(sample 1\)"),
        (([1.0, float("nan")],), r"not nan \(sample 1\)"),
        (([0.0, 0.0],), "0 weights are above 0"),
        (([],), "nothing to draw"),
        (([1.0], 0), "num_samples is 0"),
        (([1.0], 4.0), "num_samples must be an integer, not 4.0"),
        (([[1.0]],), r"shape \(1, 1\)"),
        (([1.0, "x"],), r"one number per sample, not \[1.0, 'x'\]"),
        (([[1.0], [1.0, 2.0]],), r"one number per sample, not \[\[1.0\], \[1.0, 2.0\]\]"),
    ],
)
def test_invalid_weights_are_refused(arguments, message):
    with pytest.raises(LoaderError, match=message):
        WeightedSampler(*arguments)


def test_too_few_positive_weights_without_replacement_are_refused():
    with pytest.raises(LoaderError, match="num_samples must be at most 2, the number of weights above 0, not 3"):
        WeightedSampler([1, 0, 1], 3, replacement=False)


# --- shards ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 12), min_size=1, max_size=9).filter(any), st.integers(1, 40), st.integers(0, 99))
def test_samples_move_less_than_the_window(sizes, window, seed):
    sampler = ShardSampler(sizes, window)
    order = sampler.order(seed, 0)
    np.testing.assert_array_equal(np.sort(order), np.arange(sum(sizes)))
    alone = ShardSampler(sizes, 1).order(seed, 0)  # a window of 1 shuffles only shards
    shard = np.repeat(np.arange(len(sizes)), sizes)[alone]
    assert (np.diff(shard) != 0).sum() == sum(size > 0 for size in sizes) - 1
    for number in np.unique(shard):
        assert (np.diff(alone[shard == number]) == 1).all()
    place = np.empty(len(order), dtype=np.int64)
    place[alone] = np.arange(len(order))
    assert (np.abs(place[order] - np.arange(len(order))) < window).all()


def test_shards_and_samples_are_shuffled():
    sampler = ShardSampler([100] * 20, window=150)
    orders = [sampler.order(0, epoch) for epoch in range(20)]
    assert len({int(order[0]) // 100 for order in orders}) > 5, "the first shard varies"
    order = orders[0]
    assert (np.diff(order) == 1).mean() < 0.1, "neighbors are separated"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "has the number of samples"),
        (([3, -1],), "shard_sizes\\[1\\] must be an integer of at least 0, not -1"),
        (([0],), "has the number"),
        (([5.5, 5],), "shard_sizes\\[0\\] must be an integer of at least 0, not 5.5"),
        (([5, True],), "shard_sizes\\[1\\] must be .*, not True"),
        ((np.array([5.0]),), r"shard_sizes\[0\] must be .*, not (np.float64\()?5.0"),
        (([[3]],), r"shard_sizes\[0\] must be .*, not \[3\]"),
        ((7,), "not 7"),
        (([3], 0), "window.*not 0"),
        (([3], 1.5), "window must be an integer of at least 1, not 1.5"),
    ],
)
def test_invalid_shard_sizes_are_refused(arguments, message):
    with pytest.raises(LoaderError, match=message):
        ShardSampler(*arguments)


# --- repetitions -----------------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
def test_repetitions_are_shared_as_by_rasampler(count, num_repeats, batch_size, world_size, epoch):
    """DeiT's sampler repeats each index, pads to a multiple of the ranks, and gives rank r every world_size-th one."""
    order = RepeatedSampler(count, num_repeats).order(3, epoch)
    shuffled = [int(index) for index in ShuffledOrder(count).order(3, epoch)]
    repeated = [index for index in shuffled for _ in range(num_repeats)]
    padded = repeated + repeated[: -len(repeated) % world_size]
    for rank in range(world_size):
        theirs = padded[rank::world_size][: count // world_size]
        steps = Steps(count, batch_size, "drop", rank=rank, world_size=world_size, interleaved=True)
        ours = [int(order[position]) for step in steps for position in step.positions[step.valid]]
        assert ours == theirs[: count // (batch_size * world_size) * batch_size]


def test_an_epoch_with_all_repetitions():
    order = RepeatedSampler(range(7), 2, 14).order(0, 0)
    assert (order[::2] == order[1::2]).all() and sorted(order[::2]) == list(range(7))
    assert RepeatedSampler(5, 2, 4, shuffle=False).order(0, 9).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "source must be an integer of at least 1, not 0"),
        (([],), "source must be an integer of at least 1, not 0"),
        ((5, 0), "num_repeats must be an integer of at least 1"),
        ((5, 2.0), "num_repeats must be an integer"),
        ((5, 3, 0), "num_samples must be an integer of at least 1"),
        ((5, 3, 16), "num_samples must be at most 15, 3 times each of 5 samples, not 16"),
    ],
)
def test_invalid_repetitions_are_refused(arguments, message):
    with pytest.raises(LoaderError, match=message):
        RepeatedSampler(*arguments)


# --- the argument `sampler` ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "indices", [[4, 0, 4], (4, 0, 4), np.array([4, 0, 4], np.int32), torch.tensor([4, 0, 4])], ids=type
)
def test_a_sequence_of_indices(indices):
    order = open_sampler(indices, 5, shuffle=False)
    assert order.order(0, 0).tolist() == order.order(3, 9).tolist() == [4, 0, 4] and order.repeats


class DividingSampler:
    """As in accelerate and timm: like torch's DistributedSampler."""

    num_replicas, rank = 2, 0

    def __len__(self) -> int:
        return 3

    def __iter__(self):
        return iter([0, 2, 4])


class RASampler(DividingSampler):
    """By its name that of DeiT."""


class CustomOrder:
    """A user's `Order`."""

    repeats = True

    def __init__(self, indices) -> None:
        self.indices = indices

    def __len__(self) -> int:
        return 0 if self.indices is None else len(self.indices)

    def order(self, seed: int, epoch: int):
        return self.indices


@pytest.mark.parametrize("kind", [list, np.int32, np.uint8, torch.tensor])
def test_a_custom_order_may_have_any_integer_type(kind):
    indices = [3, 3, 3, 1]
    order = order_of(open_sampler(CustomOrder(kind(indices)), 5, shuffle=False), 0, 0, 5)
    assert order.dtype == np.int64 and order.tolist() == indices
    keys = Epoch(0, 0, order, repeats=True).keys(np.arange(4))
    assert keys.tolist() == [3, 3 + 2**40, 3 + 2**41, 1]


class EpochSampler(torch.utils.data.Sampler):
    """A user's sampler with `set_epoch`."""

    epoch = 0

    def __init__(self, length: int = 3) -> None:
        self.length = length

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self):
        return iter([self.epoch, 1, 2])


def test_a_samplers_set_epoch_is_called():
    order = open_sampler(EpochSampler(), 10, shuffle=False)
    assert order.order(0, 7).tolist() == [7, 1, 2]


@pytest.mark.parametrize(
    ("sampler", "shuffle", "message"),
    [
        ([1, 5], False, r"index 5; the source has 0 \.\.\. 4"),
        ([-1], False, "index -1"),
        ([], False, "no index"),
        ([0.5], False, "one index at a time, not 0.5"),
        ([[0, 1]], False, r"one index at a time, not \[0, 1\]"),
        ([1], True, "exclude each other"),
        ("01", False, "sampler is a torch Sampler"),
        (iter([1]), False, "sampler is a torch Sampler"),
        (3, False, "sampler is a torch Sampler.*not 3"),
        (DistributedSampler(range(5), 2, 0), False, "a DistributedSampler, which divides the samples among ranks"),
        (DividingSampler(), False, "a DividingSampler, which divides the samples among ranks"),
        (WeightedSampler(np.ones(3)), False, "one number per sample: 3 weights, 5 samples"),
        (WeightedSampler(np.ones(9)), False, "one number per sample: 9 weights, 5 samples"),
        (RepeatedSampler(6), False, "RepeatedSampler is for 6 samples, but the source has 5"),
        (RASampler(), False, "sampler is a RASampler, which divides .* itself: use cuaug.RepeatedSampler"),
        (ShardSampler([1, 2]), False, "shard_sizes adds up to 3 samples, but the source has 5"),
        (ShardSampler([3, 3]), False, "shard_sizes adds up to 6 samples, but the source has 5"),
        ([[0, 1], [2]], False, r"one index at a time, not \[0, 1\]"),
    ],
)
def test_unsuitable_samplers_are_refused(sampler, shuffle, message):
    with pytest.raises(LoaderError, match=message):
        open_sampler(sampler, 5, shuffle=shuffle)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (EpochSampler(4), "EpochSampler has len\\(\\) 4 but yields 3 indices"),
        (RandomSampler(range(9)), r"index \d; the source has 0 ... 4"),
        (BatchSampler(range(4), 2, False), r"BatchSampler yields one index at a time, not \[0, 1\].*batch_sampler="),
        (BatchSampler(range(5), 2, False), r"BatchSampler yields one index at a time, not \[0, 1\].*batch_sampler="),
        (EpochSampler(2), "EpochSampler has len\\(\\) 2 but yields more indices"),
        (CustomOrder([0.5]), "the sampler CustomOrder yields one index at a time, not 0.5"),
        (CustomOrder(None), "the sampler CustomOrder yields one index at a time, not None"),
        (CustomOrder({0, 1}), r"the sampler CustomOrder yields one index at a time, not \{0, 1\}"),
    ],
)
def test_samplers_that_yield_other_values_are_refused(sampler, message):
    with pytest.raises(LoaderError, match=message):
        order_of(open_sampler(sampler, 5, shuffle=False), 0, 0, 5)


def test_repeated_indices_need_repeats_to_be_true():
    """Else all copies of a sample would be augmented equally."""
    sampler = CustomOrder([0, 3, 3, 1])
    sampler.repeats = False
    with pytest.raises(LoaderError, match="CustomOrder has repeats = False but yields index 3 twice"):
        order_of(open_sampler(sampler, 5, shuffle=False), 0, 0, 5)
    sampler.repeats = True
    assert order_of(open_sampler(sampler, 5, shuffle=False), 0, 0, 5).tolist() == [0, 3, 3, 1]


class Endless(EpochSampler):
    def __iter__(self):
        return iter(lambda: 1, None)


def test_an_endless_sampler_is_read_up_to_its_length():
    with pytest.raises(LoaderError, match="Endless has len\\(\\) 4 but yields more indices"):
        order_of(open_sampler(Endless(4), 5, shuffle=False), 0, 0, 5)
    for length in (2**32, sys.maxsize):
        with pytest.raises(LoaderError, match=rf"len\(\) {length}: an epoch has fewer than 2\*\*32 samples"):
            open_sampler(Endless(length), 5, shuffle=False)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_given_indices_are_copied(kind):
    """Later changes of the array do not change the order."""
    indices = kind([4, 0, 2])
    order = open_sampler(indices, 5, shuffle=False)
    indices[:] = 1
    assert order.order(0, 0).tolist() == [4, 0, 2]


# --- RNG keys and replacements ----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_repetitions_have_keys_of_their_own(order):
    epoch = Epoch(2, 7, np.array(order), repeats=True)
    keys = epoch.keys(np.arange(len(order)))
    assert len(set(keys.tolist())) == len(order)
    for place, index in enumerate(order):
        assert keys[place] == index + order[:place].count(index) * 2**40


@given(st.integers(1, 30), st.integers(0, 40), st.integers(0, 3))
def test_replacements_depend_on_the_sample_alone(count, attempt, seed):
    epoch = Epoch(1, seed, ShuffledOrder(count).order(seed, 1))
    positions = np.arange(count)
    together = epoch.replacements(positions, attempt)
    assert ((together >= 0) & (together < count)).all()
    single = np.concatenate([epoch.replacements(positions[k : k + 1], attempt) for k in positions])
    np.testing.assert_array_equal(together, single)


def test_replacements_differ_between_samples_attempts_and_epochs():
    order = SequentialOrder(1000).order(0, 0)
    drawn = [Epoch(e, 0, order).replacements(np.arange(8), a).tolist() for e in range(3) for a in range(3)]
    assert len({tuple(places) for places in drawn}) == 9 and len(set(np.ravel(drawn).tolist())) > 60
    repeated = Epoch(0, 0, np.full(1000, 7), repeats=True).replacements(np.arange(8), 0)
    assert len(set(repeated.tolist())) > 4, "a repeated sample gets another replacement"
