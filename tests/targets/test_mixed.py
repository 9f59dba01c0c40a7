"""MixUp of detection targets: the instances of both images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import cuaug
from cuaug import transforms as T
from tests.targets.test_merge import painted

seeds = st.integers(0, 2**32 - 1)


def detection(n: int, seed: int) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    images, targets = painted(n, 12, 14, seed)
    return images, [{key: value for key, value in target.items() if key != "mask"} for target in targets]


@given(st.integers(2, 5), seeds, st.sampled_from([0.0, 0.5, 1.0]))
def test_the_instances_of_both_images_are_kept(n, seed, p):
    images, targets = detection(n, seed)
    chain = T.Compose([T.MixUp(32.0, p=p)], generator=torch.Generator().manual_seed(seed))
    (mixed, merged), params = chain.trace(images, targets)
    for i, target in enumerate(merged):
        lam = params[i][0]["params"]["lam"]
        own, next_one = targets[i], targets[(i + 1) % n]
        want = images[i].double() * lam + images[(i + 1) % n].double() * (1 - lam)
        assert (mixed[i].double() - want).abs().max() <= 0.51
        assert target["image_id"] == own["image_id"]
        for key in ("boxes", "masks", "labels", "area", "keypoints"):
            both = torch.cat([own[key], next_one[key]]) if lam < 1 else own[key]
            assert target[key].dtype == own[key].dtype
            torch.testing.assert_close(target[key], both)
        assert target["names"] == own["names"] + (next_one["names"] if lam < 1 else [])


def test_a_loader_mixes_detection_targets():
    images, targets = detection(6, 3)

    class Source:
        def __len__(self) -> int:
            return 6

        def read(self, index: int) -> tuple[np.ndarray, dict[str, Any]]:
            return np.ascontiguousarray(images[index].permute(1, 2, 0).numpy()), targets[index]

    loaded = [
        [
            target["names"]
            for batch in cuaug.Loader(Source(), [T.MixUp(8.0)], batch_size=size, seed=0)
            for target in batch.labels
        ]
        for size in (2, 3)
    ]
    want = [targets[i]["names"] + targets[(i + 1) % 6]["names"] for i in range(6)]
    assert loaded == [want, want]


def test_what_does_not_mix_is_refused():
    images, targets = painted(2, 12, 14)
    with pytest.raises(cuaug.TransformError, match="class masks of two images do not blend into one"):
        T.MixUp()(images, targets)
    with pytest.raises(cuaug.TransformError, match=r"MixUp: labels must be dicts .*target 1 of the batch"):
        T.MixUp(num_classes=3)(images, [targets[0], 1])
