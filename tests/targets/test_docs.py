"""The examples of docs/targets.md run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

CODE = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "targets.md").read_text(), re.DOTALL)


def write_coco(folder: Path) -> None:
    images = folder / "coco" / "train2017"
    images.mkdir(parents=True)
    (folder / "coco" / "annotations").mkdir()
    names = [f"{i}.jpg" for i in range(6)]
    for name in names:
        Image.fromarray(np.full((90, 120, 3), 99, np.uint8)).save(images / name)
    polygon = [[10, 10, 70, 10, 70, 60, 10, 60]]
    content = {
        "images": [{"id": i, "file_name": name, "height": 90, "width": 120} for i, name in enumerate(names)],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 1, "bbox": [10, 10, 60, 50], "segmentation": polygon}
            for i in range(6)
        ],
        "categories": [{"id": 1, "name": "thing"}],
    }
    (folder / "coco" / "annotations" / "instances_train2017.json").write_text(json.dumps(content))


@pytest.mark.parametrize("number", range(len(CODE)))
def test_the_examples_run(number, tmp_path, monkeypatch):
    write_coco(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUAUG_DEVICE", "cpu")
    names: dict = {}
    for code in CODE[:2] if number == 1 else [CODE[number]]:
        exec(code, names)
    if number > 0 and "loader" in names:
        names["loader"].close()
    if number == 1:
        assert len(names["images"]) == len(names["targets"]) == 2
        for image, target in zip(names["images"], names["targets"], strict=True):
            assert image.dtype == torch.float32 and tuple(image.shape[1:]) == tuple(target["masks"].shape[1:])
            assert min(image.shape[1:]) in range(480, 801, 32) and len(target["boxes"]) == 1
    if number == 0:
        names["loader"].close()
        assert tuple(names["images"].shape[1:]) == (3, 320, 320)
        assert all(tuple(target["masks"].shape[1:]) == (320, 320) for target in names["targets"])
