"""MixUp and CutMix against their formulas, for images and labels. Loaders: tests/loader."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import transforms as T
from cuaug.errors import TransformError
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import mixes
from tests.transforms.test_geometry import params

MIXES = [T.MixUp(0.4, num_classes=10), T.CutMix(num_classes=10)]
CHOICE = T.RandomChoice(MIXES)


def random_images(n, dtype=torch.uint8):
    x = torch.from_numpy(np.random.default_rng(n).integers(0, 256, (n, 3, 20, 31), dtype=np.uint8))
    return x if dtype == torch.uint8 else (x / 255).to(dtype)


def by_formula(step, image, other, soft, other_soft):
    """One image, (C, H, W) float64, and label, by torchvision's formulas."""
    if step["transform"] == "MixUp":
        lam = step["params"]["lam"]
        image = lam * image + (1 - lam) * other
    else:
        (x0, y0, x1, y1), image = step["params"]["box"], image.copy()
        image[:, y0:y1, x0:x1] = other[:, y0:y1, x0:x1]
        lam = 1 - (x1 - x0) * (y1 - y0) / (image.shape[1] * image.shape[2])
    return image, lam * soft + (1 - lam) * other_soft


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("mix", [*MIXES, T.MixUp(p=0.5, num_classes=10), T.CutMix(2.0, 10, 0.5), CHOICE], ids=repr)
def test_images_and_labels_by_the_formula(mix, dtype):
    x, labels = random_images(9, dtype), [3, 1, 4, 1, 5, 9, 2, 6, 5]
    chain = T.Compose([mix])
    (made, mixed), told = chain.trace(x, labels)
    told = json.loads(json.dumps(told))
    floats, soft = x.double().numpy(), np.eye(10)[labels]
    for i in range(9):
        (step,), k = told[i], (i + 1) % 9
        image, label = by_formula(step, floats[i], floats[k], soft[i], soft[k])
        slack = {torch.uint8: 0.501, torch.float16: 5e-4, torch.float32: 1e-6, torch.float64: 1e-12}[dtype]
        assert np.abs(made[i].double().numpy() - image).max() <= slack
        assert mixed[i].dtype == np.float32 and mixed[i].shape == (10,)
        np.testing.assert_allclose(mixed[i], label, atol=1e-7)
    assert made.dtype == dtype and not torch.equal(made, x)
    again, labels_again = chain.replay(told, x, labels)
    assert torch.equal(again, made) and np.array_equal(labels_again, mixed)
    assert labels == [3, 1, 4, 1, 5, 9, 2, 6, 5]


def test_unmixed_samples_are_unchanged():
    x, labels = random_images(64), list(range(10)) * 6 + [0] * 4
    for mix in (T.MixUp(num_classes=10, p=0.25), T.CutMix(num_classes=10, p=0.25)):
        made, mixed = mix(x, labels)
        same = (made == x).flatten(1).all(1).numpy()
        assert 32 < same.sum() < 62
        np.testing.assert_array_equal(np.array(mixed)[same], np.eye(10, dtype=np.float32)[labels][same])
        assert torch.equal(type(mix)(p=0)(x), x)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("at_once", [1, 3])
def test_one_thread_and_several_give_the_same_bits(dtype, last, at_once, monkeypatch):
    """NumPy in chunks and torch; NCHW and channels-last images keep their memory format."""
    monkeypatch.setattr(mixes, "_CHUNK_VALUES", at_once * 3 * 20 * 31)
    images = random_images(9, dtype)
    images = images.contiguous(memory_format=torch.channels_last) if last else images
    rng, size = SampleRNG(1, 2, np.arange(8)), np.full(8, 20)
    shares = rng.uniform(20 * 31).reshape(8, 1, 20, 31)
    made = {}
    for threads in (1, 2):
        monkeypatch.setattr(mixes, "threads_for", lambda size, threads=threads: threads)
        one = [mix.run(images, None, **mix.make_params(rng.of(rng.indices), size, size))[0] for mix in MIXES]
        three = mixes.blend([images[:-1], images[1:], images[:-1].flip(-1)], [shares / 2, 1 - shares, shares / 2])
        made[threads] = [*one, three]
    for one, several in zip(made[1], made[2], strict=True):
        assert torch.equal(one, several) and one.dtype == dtype
        assert one.is_contiguous(memory_format=torch.channels_last) == last


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_infinite_values_are_mixed_without_a_warning(dtype, monkeypatch):
    images = torch.tensor([torch.inf, torch.nan, 1.0], dtype=dtype).expand(3, 3, 2, 3)
    weights = [np.array([0.0, 2.0]), np.array([1.0, 1e5])]
    made = []
    for threads in (1, 2):
        monkeypatch.setattr(mixes, "threads_for", lambda size, threads=threads: threads)
        made.append(mixes.blend([images[:-1], images[1:]], weights))
    torch.testing.assert_close(made[0], made[1], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("height", "width"), [(20, 31), (1, 1), (224, 3)])
def test_cutmix_boxes_are_torchvisions(height, width):
    """torchvision's code, from the same draws."""
    mix, n = T.CutMix(0.7), 500
    boxes = params(mix, height, width, n)["box"]
    rng = SampleRNG(0, 0, np.arange(n))
    rng.next_transform(mix)
    rng.bernoulli(1.0)
    lam, r_x, r_y = rng.beta(0.7), rng.integers(0, width - 1), rng.integers(0, height - 1)
    for i in range(n):
        r = 0.5 * math.sqrt(1.0 - lam[i])
        r_w_half, r_h_half = int(r * width), int(r * height)
        x1, y1 = max(r_x[i] - r_w_half, 0), max(r_y[i] - r_h_half, 0)
        x2, y2 = min(r_x[i] + r_w_half, width), min(r_y[i] + r_h_half, height)
        assert boxes[i].tolist() == [x1, y1, x2, y2]


@pytest.mark.parametrize("transform", [T.MixUp(num_classes=2), T.CutMix(), T.Mosaic(), T.CopyPaste(), CHOICE], ids=repr)
def test_a_single_image_is_refused(transform):
    """A bug: in a Dataset's transforms, each image was mixed with itself, which changed nothing."""
    x = random_images(1)
    images = [x[0], x[0].permute(1, 2, 0).numpy(), Image.fromarray(x[0].permute(1, 2, 0).numpy()), x[0, 0].numpy()]
    for chain in (transform, T.Compose([T.RandomHorizontalFlip(), T.Compose([transform])])):
        for image in images:
            with pytest.raises(TransformError, match=f"^{re.escape(repr(transform))} mixes the images of a batch"):
                chain(image)
    with pytest.raises(TransformError, match=r"use it in a Loader or call it on \(N, C, H, W\)"):
        T.Compose([transform]).trace(images[0], 1)


def test_a_batch_of_one_is_unchanged():
    """The last batch of an epoch may have one image."""
    x = random_images(1)
    made, (label,) = T.MixUp(num_classes=3)(x, [2])
    assert torch.equal(made, x) and label.tolist() == [0, 0, 1]


def test_random_choice_of_functions():
    x = random_images(40)
    flips = T.RandomChoice([T.Lambda(lambda x: x.flip(-1)), T.RandomChoice([T.Lambda(lambda x: x.flip(-2))])])
    chain = T.Compose([T.RandomHorizontalFlip(0), flips, T.Pad(1)])
    made, told = chain.trace(x)
    made = made[:, :, 1:-1, 1:-1]
    across, down = ((made == x.flip(axis)).flatten(1).all(1) for axis in (-1, -2))
    assert (across ^ down).all() and 8 < int(across.sum()) < 32
    assert torch.equal(chain.replay(told, x)[:, :, 1:-1, 1:-1], made)
    assert "one of" in chain.explain() or "RandomChoice" in chain.explain()
    down, across = T.Lambda(lambda x: x.flip(-2)), T.Lambda(lambda x: x.flip(-1))
    assert torch.equal(T.RandomChoice([across, T.RandomChoice([down, down])], p=[0, 1])(x), x.flip(-2))


def test_invalid_choices_are_refused():
    with pytest.raises(TransformError, match="transforms of RandomChoice must all act on whole batches, or none"):
        T.RandomChoice([T.MixUp(), T.RandomHorizontalFlip()])
    with pytest.raises(TransformError, match=r"must make images of one shape, not \(4, 3, 20, 31\) and \(4, 3, 5, 5\)"):
        T.RandomChoice([T.MixUp(), T.Lambda(lambda x: x[..., :5, :5])])(random_images(4))


@pytest.mark.parametrize("choice", [T.RandomApply, T.RandomOrder, T.SomeOf, T.RandomChoice])
def test_containers_refuse_batch_transforms_at_construction(choice):
    held, whole = (
        r"CutMix\(\) acts on whole batches, but {} decides per sample",
        "must all act on whole batches, or none",
    )
    held = held.format(choice.__name__)
    for member, message in (
        (T.CutMix(), whole if choice is T.RandomChoice else held),
        (T.RandomChoice([T.CutMix()]), whole if choice is T.RandomChoice else held),
        (T.Compose([T.Pad(1), T.RandomApply([]), T.CutMix()]), held),
    ):
        with pytest.raises(TransformError, match=message):
            choice([T.RandomHorizontalFlip(), member])
    chain = T.Compose([T.Pad(1)])
    chosen = T.RandomApply([chain], p=1)
    chain.transforms.append(T.CutMix())  # after the check
    with pytest.raises(TransformError, match="CutMix acts on whole batches, so another transform cannot hold it"):
        chosen(random_images(2))


@pytest.mark.parametrize(
    "labels",
    [
        [0, 2, 1],
        [np.int64(0), np.int64(2), np.int64(1)],
        [torch.tensor(0), torch.tensor(2), torch.tensor(1)],
        [np.array(row, np.float32) for row in np.eye(3)[[0, 2, 1]]],
        [*torch.eye(3, dtype=torch.bfloat16)[[0, 2, 1]]],
        np.eye(3)[[0, 2, 1]].tolist(),
    ],
    ids=lambda labels: f"{type(labels[0]).__name__}",
)
def test_types_of_labels(labels):
    _, mixed = T.MixUp(num_classes=3)(random_images(3), labels)
    assert all(
        isinstance(label, torch.Tensor if isinstance(labels[0], torch.Tensor) else np.ndarray) for label in mixed
    )
    mixed = np.array([np.asarray(label) for label in mixed])
    assert mixed.dtype == np.float32 and np.allclose(mixed.sum(axis=1), 1)
    assert ((mixed > 0) == (np.eye(3) + np.eye(3)[[1, 2, 0]])[:, [0, 2, 1]].astype(bool)).all()


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([0, 2, 1]),
        torch.tensor([0, 2, 1], dtype=torch.uint8),
        torch.eye(3)[[0, 2, 1]],
        torch.eye(3, dtype=torch.bfloat16)[[0, 2, 1]],
        np.array([0, 2, 1]),
        np.eye(3)[[0, 2, 1]],
    ],
    ids=lambda labels: f"{type(labels).__name__} {labels.dtype} {labels.ndim}",
)
@pytest.mark.parametrize("mix", [T.MixUp(num_classes=3), T.RandomChoice([T.CutMix(num_classes=3)])], ids=repr)
def test_labels_in_one_tensor(mix, labels):
    """The labels of torchvision's mixes and of DataLoader batches."""
    chain = T.Compose([mix], generator=torch.Generator().manual_seed(0))
    _, mixed = chain(random_images(3), labels)
    chain.generator.manual_seed(0)
    _, of_list = chain(random_images(3), list(labels))
    assert type(mixed) is type(labels) and mixed.shape == (3, 3)
    assert mixed.dtype == (torch.float32 if isinstance(labels, torch.Tensor) else np.float32)
    assert np.array_equal(mixed, np.stack([np.asarray(label) for label in of_list]))
    chain.generator.manual_seed(0)
    with torch.device("meta"):  # torch.set_default_device does not decide where labels go
        assert np.array_equal(chain(random_images(3), labels)[1], mixed)


@pytest.mark.parametrize("labels", [torch.tensor([0, 2, 1]), torch.zeros(3, 4), np.array(["a", "b", "c"])])
def test_labels_in_one_tensor_pass_unchanged_without_a_mix(labels):
    chain = T.Compose([T.RandomResizedCrop(8), T.Lambda(lambda x: x), T.RandomHorizontalFlip()])
    assert chain(random_images(3), labels)[1] is labels
    (_, same), told = chain.trace(random_images(3), labels)
    assert same is labels and chain.replay(told, random_images(3), labels)[1] is labels


def test_targets_that_are_no_labels_of_a_batch_are_refused():
    for labels in (torch.tensor(1), np.array(1), "abc", (0, 1, 2), b"abc", torch.zeros(3, 20, 31), np.zeros((3, 2, 4))):
        with pytest.raises(TransformError, match=r"target of a batch must be a list .* labels may also be a tensor"):
            T.MixUp(num_classes=3)(random_images(3), labels)
    with pytest.raises(TransformError, match="must be one per image: 3, not 2"):
        T.MixUp(num_classes=3)(random_images(3), torch.tensor([0, 1]))
    partial = T.RandomChoice([T.MixUp(num_classes=3), T.Lambda(lambda x: x)])
    with pytest.raises(TransformError, match="come out of the chain as "):
        partial(random_images(30), torch.zeros(30, dtype=torch.int64))


def test_mixing_soft_labels_again():
    """The second mix combines the labels of three samples."""
    x, labels = random_images(12), list(range(10)) + [0, 1]
    (_, mixed), told = T.Compose([*MIXES]).trace(x, labels)
    lam = np.array([steps[0]["params"]["lam"] for steps in told])
    first = lam[:, None] * np.eye(10)[labels] + (1 - lam[:, None]) * np.roll(np.eye(10)[labels], -1, 0)
    for i in range(9):  # the partners of the last two wrap around
        x0, y0, x1, y1 = told[i][1]["params"]["box"]
        share = 1 - (x1 - x0) * (y1 - y0) / (20 * 31)
        np.testing.assert_allclose(mixed[i], share * first[i] + (1 - share) * first[i + 1], atol=1e-6)


@pytest.mark.parametrize(
    ("mix", "labels", "message"),
    [
        (T.MixUp(), [0, 1], r"num_classes of MixUp must be given: labels are integers \(0\)"),
        (T.CutMix(num_classes=3), [0, 3], r"labels must be 0 ... 2 \(num_classes=3\), not 3"),
        (T.CutMix(num_classes=3), [-1, 0], r"labels must be 0 ... 2 \(num_classes=3\), not -1"),
        (T.CutMix(num_classes=3), [[0.5, 0.5]] * 2, "labels must have num_classes=3 numbers each, not 2"),
        (T.MixUp(), [[0.5, 0.5], [1.0]], r"labels of MixUp must have one shape, not \[\(1,\), \(2,\)\]"),
        *[
            (T.MixUp(num_classes=3), [label] * 2, "labels of MixUp must be integers or vectors of numbers, not")
            for label in (None, "cat", {"class": 1}, 0.5, [[0, 1], [1, 0]], [[1], [1, 2]])
        ],
        *[
            (
                mix,
                [label] * 2,
                rf"labels of {type(mix).__name__} must be integers .* not tuples: the label is a tuple of 2 fields, ",
            )
            for mix in (T.MixUp(), T.CutMix(num_classes=2))
            for label in ((0, "name"), (1, 100), (0.5, 0.5))
        ],
    ],
)
def test_invalid_labels_are_refused(mix, labels, message):
    with pytest.raises(TransformError, match=message):
        mix(random_images(2), labels)


@pytest.mark.parametrize("mix", [T.MixUp, T.CutMix])
def test_invalid_arguments_are_refused(mix):
    for alpha in (0, -1, float("inf"), None):
        with pytest.raises(TransformError, match=f"alpha must be a number above 0, not {alpha}"):
            mix(alpha)
    with pytest.raises(TransformError, match="num_classes must be an integer of at least 1, not 0"):
        mix(num_classes=0)
    with pytest.raises(TransformError, match="p must be a probability"):
        mix(p=2)
    assert repr(mix(0.2, 10)) == f"{mix.__name__}(alpha=0.2, num_classes=10)"
