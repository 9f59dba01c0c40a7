"""`trace` and `replay`: recorded parameters as plain data, and their replay."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.errors import TransformError
from tests.support.transforms.cases import CASES
from tests.transforms.test_segments import noise

FLOATS = T.ToDtype(torch.float32, scale=True)


def stack(n: int) -> torch.Tensor:
    arrays = [noise(i, 40) for i in range(n)]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()


def assert_replays_exactly(chain: T.Compose) -> None:
    """Through JSON, as a batch and each image alone."""
    x = stack(6)
    result, params = chain.trace(x)
    params = json.loads(json.dumps(params))
    assert torch.equal(chain.replay(params, x), result)
    for i in range(6):
        assert torch.equal(chain.replay(params[i], x[i]), result[i])


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_transform_replays_exactly(name):
    for transform, _ in CASES[name]:
        # Some transforms give each image its own size.
        assert_replays_exactly(T.Compose([transform, T.Resize((24, 24))]))


@pytest.mark.parametrize("p", [0.5, 1.0])
def test_a_transform_that_may_skip_images_replays_exactly(p):
    """Normalize takes other operations when some samples only become floats."""
    assert_replays_exactly(T.Compose([T.RandomApply([T.Normalize([0.4, 0.5, 0.6], [0.2])], p)]))


def test_trace_records_the_transforms_that_acted():
    x = stack(64)
    chain = T.Compose([T.RandomCrop(20), T.RandomApply([T.RandomRotation(30), T.RandomHorizontalFlip(0.5)]), FLOATS])
    result, params = chain.trace(x)
    assert len(params) == 64 and {step["transform"] for step in params[0]} >= {"RandomCrop", "ToDtype"}
    names = [[step["transform"] for step in steps] for steps in params]
    assert all(steps[0] == "RandomCrop" and steps[-1] == "ToDtype" for steps in names)
    assert 16 < sum("RandomRotation" in steps for steps in names) < 48
    assert 6 < sum("RandomHorizontalFlip" in steps for steps in names) < 30
    plain = next(i for i, steps in enumerate(names) if len(steps) == 2)
    crop = params[plain][0]["params"]
    top, left = crop["top"], crop["left"]
    torch.testing.assert_close(result[plain], x[plain, :, top : top + 20, left : left + 20] / 255)
    assert all(
        -30 <= step["params"]["angle"] <= 30 for steps in params for step in steps if "Rotation" in step["transform"]
    )


def test_replay_uses_edited_parameters():
    x = stack(1)[0]
    chain = T.Compose([T.RandomCrop(20)])
    _, params = chain.trace(x)
    params[0]["params"].update(top=3, left=7)
    assert torch.equal(chain.replay(params, x), x[:, 3:23, 7:27])


def test_trace_records_batch_transforms():
    x = stack(5)
    chain = T.Compose(
        [T.RandomErasing(p=1), T.Lambda(lambda batch: batch.flip(-1)), T.RandomRotation(40), T.TenCrop(9)]
    )
    result, params = chain.trace(x)
    assert [step["transform"] for step in params[2]] == ["RandomErasing", "Lambda", "RandomRotation", "TenCrop"]
    assert [step["step"] for step in params[2]] == [0, 1, 2, 3]
    assert torch.equal(chain.replay(params, x), result)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_batch_params_of_a_loader_reproduce_its_images(tmp_path, on_error):
    """A batch's parameters reproduce its images from the files, replacements included."""
    paths = []
    for i in range(7):
        Image.fromarray(noise(i, 60 + i)).save(path := tmp_path / f"{i}.png")
        paths.append(str(path))
    for i in (2, 5):
        path = tmp_path / f"{i}.png"
        path.write_bytes(path.read_bytes()[:400])
    chain = T.Compose([T.RandomResizedCrop(16), T.ColorJitter(0.4, 0.4, 0.4, 0.1), FLOATS])
    with cuaug.Loader(paths, chain, batch_size=4, shuffle=True, on_error=on_error) as loader:
        for batch in loader:
            for image, index, params in zip(batch.images, batch.indices.tolist(), batch.params(), strict=True):
                original = torch.from_numpy(np.array(Image.open(paths[index]))).permute(2, 0, 1)
                assert torch.equal(chain.replay(json.loads(json.dumps(params)), original), image)


def test_invalid_parameters_are_refused():
    x = stack(3)
    chain = T.Compose([T.RandomCrop(20), T.RandomRotation(9)])
    _, params = chain.trace(x)
    with pytest.raises(TransformError, match="params are for 2 images, but the batch has 3"):
        chain.replay(params[:2], x)
    second = "params must be the second result of trace: a list of steps for an image, a list of such lists for a batch"
    for wrong_params, images in (
        (params[0], x),
        (params, x[0]),
        (chain.trace(x), x),
        (chain.trace(x[0]), x[0]),
        ("ab", x[0]),
    ):
        with pytest.raises(TransformError, match=second):
            chain.replay(wrong_params, images)
    for key, value in (("step", "0"), ("params", 5), ("transform", None), ("view", "0")):
        step = {**params[0][0], key: value}
        with pytest.raises(TransformError, match=second):
            chain.replay([{k: v for k, v in step.items() if v is not None}], x[0])
    with pytest.raises(TransformError, match=r"step 1 of image 0 was a RandomRotation .* but is a RandomErasing"):
        T.Compose([T.RandomCrop(20), T.RandomErasing()]).replay(params, x)
    with pytest.raises(TransformError, match="have a step 1, but the chain only 1 steps"):
        T.Compose([T.RandomCrop(20)]).replay(params, x)
    wrong = [("top", value) for value in ("x", None, [1, 2], 10**30)]
    for name, value in [*wrong, ("sides", 3), ("sides", [1, [2, 3]])]:
        changed = [{**params[0][0], "params": {**params[0][0]["params"], name: value}}, params[0][1]]
        like = r"\d+" if name == "top" else r"\[0, 0, 0, 0\]"
        message = rf"step 0: {name} of RandomCrop is like {like}, not {re.escape(repr(value))}"
        with pytest.raises(TransformError, match=message):
            chain.replay(changed, x[0])
