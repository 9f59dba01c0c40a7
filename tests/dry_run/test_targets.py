"""Targets with the CUDA pipeline: the CPU moves them, by the same plan."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from cuaug import transforms as T

CHAIN = [
    T.RandomIoUCrop(),
    T.RandomHorizontalFlip(),
    T.RandomRotation(20),
    T.Resize((24, 24)),
    T.SanitizeBoundingBoxes(),
]


@pytest.mark.parametrize("bad", [set(), {3, 11}, set(range(8, 16))], ids=["none", "some", "all of a batch"])
def test_targets_equal_the_cpu_loaders(loader_on, tmp_path, bad):
    rng = np.random.default_rng(0)
    files = []
    for i in range(20):
        h, w = (int(side) for side in rng.integers(20, 60, 2))
        path = tmp_path / f"{i}.png"
        Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)).save(path)
        if i in bad:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        first = rng.uniform(0, 9, (i % 4, 2))
        label = {
            "boxes": np.concatenate([first, first + 10], axis=1),
            "masks": rng.integers(0, 2, (i % 4, h, w), dtype=np.uint8),
            "number": i,
        }
        files.append((str(path), label))
    options = {"batch_size": 8, "on_error": "replace", "shuffle": True, "seed": 1}
    gpu, cpu = (loader_on(device, files, CHAIN, **options) for device in (True, False))
    seen = 0
    for got, want in zip(gpu, cpu, strict=True):
        assert got.images.equal(want.images) and got.indices.equal(want.indices)
        for got_label, label, index in zip(got.labels, want.labels, want.indices.tolist(), strict=True):
            assert got_label["number"] == label["number"] == index and index not in bad
            assert got_label["boxes"].device.type == "cpu"
            assert got_label["boxes"].equal(label["boxes"]) and got_label["masks"].equal(label["masks"])
            seen += len(label["boxes"])
    assert seen > 10


def test_mask_files_and_further_pictures_equal_the_cpu_loaders(loader_on, tmp_path):
    rng = np.random.default_rng(0)
    files = []
    for i in range(12):
        left, right, mask = (str(tmp_path / f"{name}{i}.png") for name in ("left", "right", "mask"))
        for path in (left, right):
            Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(path)
        Image.fromarray(rng.integers(0, 9, (30, 40), dtype=np.uint8)).save(mask)
        files.append((left, {"mask": mask, "images": {"right": right if i != 5 else "missing.png"}}))
    chain = [T.RandomResizedCrop((24, 24)), T.RandomHorizontalFlip(), T.ColorJitter(0.3), T.Normalize(0.5, 0.5)]
    options = {"batch_size": 4, "on_error": "skip", "shuffle": True, "seed": 1}
    gpu, cpu = (loader_on(device, files, chain, **options) for device in (True, False))
    count = 0
    for got, want in zip(gpu, cpu, strict=True):
        count += len(want.images)
        assert got.images.equal(want.images)
        assert got.labels["mask"].equal(want.labels["mask"])
        right = got.labels["images"]["right"]
        assert right.device.type == "cpu" and right.equal(want.labels["images"]["right"])
        assert right.shape == want.images.shape
    assert count == 11
