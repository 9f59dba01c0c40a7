"""The torchvision script of docs/tutorial.md loads what cuaug's Loader loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import cuaug
from cuaug import transforms as T
from cuaug.commands.demo import write_shapes
from tests.support.pages import code_blocks


def test_the_script_to_replace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shapes(tmp_path / "shapes" / "train", 40, seed=0)
    page = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
    (block,) = (block for block in code_blocks(page) if block.reason)
    names: dict[str, Any] = {}
    exec(block.code, names)
    (batch,) = names["loader"]
    chain = [T.RandomResizedCrop(64, scale=(0.7, 1.0)), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.25)]
    loader = cuaug.Loader("shapes/train", chain, batch_size=32, shuffle=True, last_batch="drop")
    images, labels = next(iter(loader))
    assert (images.shape, images.dtype, labels.dtype) == (batch[0].shape, torch.float32, batch[1].dtype)
    assert loader.classes == names["loader"].dataset.classes
    assert abs(images.mean() - batch[0].mean()) < 0.3
