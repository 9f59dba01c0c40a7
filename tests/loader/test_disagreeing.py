"""Ranks that are about to load different data, or that iterate alone: all of them raise, and none hangs."""

from __future__ import annotations

import json

import pytest

from tests.support.loader import disagreeing
from tests.support.loader.launch import Launch

pytestmark = pytest.mark.cpu_only
COUNT = disagreeing.COUNT
DIFFERENCES = [
    "seed is 0 on rank 0, 1 on rank 1",
    "batch_size is 4 on rank 0, 5 on rank 1",
    "the fingerprint of the source is 'files 0' on rank 0, 'files 1' on rank 1",
    f"the number of samples is {COUNT} on rank 0, {COUNT + 1} on rank 1",
    "last_batch is 'drop' on rank 0, 'pad' on rank 1",
    "the checksum of the order is",
]


@pytest.mark.slow
def test_two_ranks(tmp_path):
    with Launch("tests.support.loader.disagreeing", tmp_path / "run", world_size=2) as launch:
        assert launch.wait() == 0, launch.output
    first, second = (json.loads((launch.folder / f"{rank}.json").read_text()) for rank in range(2))
    names = [getattr(case, "__name__", "") for case in disagreeing.CASES]
    cases = dict(zip(names, zip(first, second, strict=True), strict=True))
    for difference, outcomes in zip(DIFFERENCES, zip(first, second, strict=True), strict=False):
        for message in outcomes:
            assert difference in message, message
    for message in cases["peeking_by_next"]:
        assert "loader.peek()" in message, message
    nothing, message = cases["alone"]
    assert nothing == [] and "rank 0 did not begin this iteration" in message
    for name in ("peeking", "slow_checkpoint"):
        zero, one = cases[name]
        assert len(zero) == len(one) == COUNT
        assert sorted(zero[: COUNT // 2] + one[: COUNT // 2]) == [*range(COUNT)], "one exact epoch"
    assert "rank 1 waits for rank 0" in launch.output
    zero, one = cases["breaks"]
    assert len(zero) == len(one) == 8 + COUNT
    assert sorted(cases["one_rank_on_purpose"][0]) == [*range(COUNT)]
    (seed, *zero), (same, *one) = cases["drawn_seed"]
    assert seed == same and sorted(zero + one) == [*range(COUNT)]
    assert launch.output.count(f"the seed is {seed}, from torch's generator") == 2
