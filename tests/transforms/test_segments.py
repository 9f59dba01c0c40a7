"""Chains with batch transforms, and transforms with several output images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import functional as F
from cuaug import transforms as T
from cuaug.errors import TransformError
from cuaug.sources import FromDataset

KINDS = {
    "batch of tensors": lambda x: torch.from_numpy(x).permute(0, 3, 1, 2),
    "channels last": lambda x: torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last),
    "tensor": lambda x: torch.from_numpy(x[0]).permute(2, 0, 1),
    "batch of arrays": lambda x: x,
    "array": lambda x: x[0],
    "PIL": lambda x: Image.fromarray(x[0]),
}


def noise(seed, height):
    return np.random.default_rng(seed).integers(0, 256, (height, 50, 3), dtype=np.uint8)


@pytest.fixture
def images():
    return np.stack([noise(i, 40) for i in range(4)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_lambda_anywhere_in_a_chain_with_any_image_type(kind, place, images):
    """A self-inverse function applied twice changes nothing, and always gets (N, C, H, W)."""
    shapes = []

    def negative(batch):
        shapes.append(tuple(batch.shape))
        return 255 - batch

    x = KINDS[kind](images)
    plain = [T.Pad(3, fill=7), T.CenterCrop(30)]
    chain = plain[:place] + [T.Lambda(negative), T.Lambda(negative)] + plain[place:]
    got, expected = T.Compose(chain)(x), T.Compose(plain)(x)
    assert type(got) is type(expected)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))
    height, width = ((40, 50), (46, 56), (30, 30))[place]
    n = 4 if "batch" in kind or "last" in kind else 1
    assert shapes == [(n, 3, height, width)] * 2
    if kind == "channels last":
        assert got.is_contiguous(memory_format=torch.channels_last)


def test_lambda_may_end_a_chain_with_any_tensor(images):
    x = KINDS["batch of tensors"](images)
    means = T.Compose([T.ToDtype(torch.float32, scale=True), T.Lambda(lambda batch: batch.mean(dim=(2, 3)))])
    torch.testing.assert_close(means(x), x.float().mean(dim=(2, 3)) / 255, atol=1e-5, rtol=0)
    assert means(x[0]).shape == (3,)


def test_errors_of_lambda_and_of_chains(images):
    x = KINDS["batch of tensors"](images)
    with pytest.raises(TransformError, match=r"must return a tensor of 4 images .*not a tensor of shape"):
        T.Lambda(lambda batch: batch[:2])(x)
    with pytest.raises(TransformError, match=r"must return a tensor of 4 images .*not ndarray"):
        T.Lambda(lambda batch: batch.numpy())(x)
    with pytest.raises(TransformError, match=r"function must be a function .*not 3"):
        T.Lambda(3)
    with pytest.raises(TransformError, match=r"Lambda.* acts on whole batches"):
        T.RandomApply([T.Lambda(abs)])(x)
    with pytest.raises(TransformError, match=r"transforms must hold cuaug transforms, nn.Modules or functions .*not 3"):
        T.Compose([3])
    with pytest.raises(TransformError, match=r"not the class RandomErasing: write RandomErasing\(\.\.\.\)$"):
        T.Compose([T.RandomErasing])
    with pytest.raises(
        TransformError, match=r"transforms must hold transforms, not a list: unpack it, or wrap it in Compose"
    ):
        T.Compose([[T.RandomHorizontalFlip()]])


@pytest.fixture
def files(tmp_path, images):
    paths = []
    for i in range(11):
        Image.fromarray(noise(i, 40 + i)).save(path := tmp_path / f"{i}.png")
        paths.append(str(path))
    return paths


class Next(T.BatchTransform):
    """Replaces each sample by the next one."""

    partners = 1

    def make_params(self, rng, heights, widths):
        return {"unit": rng.uniform()}

    def run(self, images, targets, **params):
        return images[1:], targets and targets[1:]


def test_partners_are_the_next_samples_in_epoch_order(files):
    """At any batch size; the partner of the last sample is the first."""
    chain = [T.Resize((8, 8)), T.RandomHorizontalFlip(), Next(), T.RandomVerticalFlip()]
    results = []
    for batch_size in (1, 4, 11):
        with cuaug.Loader(files, chain, batch_size=batch_size, shuffle=True, seed=5) as loader:
            batches = list(loader)
        order = torch.cat([batch.indices for batch in batches])
        assert torch.equal(torch.cat([batch.labels for batch in batches]), order.roll(-1))
        results.append(torch.cat([batch.images for batch in batches]))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    with cuaug.Loader(files, chain[:2], batch_size=11, shuffle=True, seed=5) as loader:
        plain = next(iter(loader)).images
    partner = plain.roll(-1, 0)
    same = (results[2] == partner).flatten(1).all(1) | (results[2] == partner.flip(2)).flatten(1).all(1)
    assert same.all()


def test_partners_wrap_around_in_a_single_batch(images):
    x = KINDS["batch of tensors"](images)
    assert torch.equal(Next()(x), x.roll(-1, 0)) and torch.equal(Next()(x[:1]), x[:1])


@pytest.mark.parametrize("vertical", [False, True])
def test_crops_equal_the_functional_ones(images, vertical):
    x = KINDS["batch of tensors"](images)
    got = T.FiveCrop((17, 23))(x)
    assert got.shape == (4, 5, 3, 17, 23)
    assert torch.equal(got, torch.stack(F.five_crop(x, (17, 23)), 1))
    ten = T.TenCrop((17, 23), vertical_flip=vertical)(x)
    assert torch.equal(ten, torch.stack(F.ten_crop(x, (17, 23), vertical), 1))
    assert torch.equal(T.FiveCrop(9)(x[0]), T.FiveCrop(9)(x)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_crops_of_any_image_type(kind, images):
    got = T.FiveCrop(9)(KINDS[kind](images))
    if kind == "PIL":
        assert len(got) == 5 and all(view.size == (9, 9) for view in got)
        got = np.stack([np.asarray(view) for view in got])
    elif "array" not in kind:
        got = np.moveaxis(got.numpy(), -3, -1)
    expected = T.FiveCrop(9)(images)
    np.testing.assert_array_equal(got, expected if "batch" in kind or "last" in kind else expected[0])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_views_from_a_loader(files, layout):
    chain = [T.Resize((30, 30)), T.TenCrop(20)]
    with cuaug.Loader(files, chain, batch_size=4, layout=layout) as loader:
        got = torch.cat([images for images, _ in loader])
    assert got.shape == (11, 10, 3, 20, 20)
    for file, views in zip(files, got, strict=True):
        x = torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1)
        assert torch.equal(views, T.Compose(chain)(x))


def test_a_crop_that_does_not_fit_is_refused(images):
    with pytest.raises(TransformError, match=r"crop of 41 x 41 .* does not fit"):
        T.FiveCrop(41)(images)


def labeled(images):
    return FromDataset([(image, i % 3) for i, image in enumerate(images)])


MIX = T.MixUp(num_classes=3)
MIXES = [[MIX], [T.CutMix(num_classes=3)], [T.RandomChoice([MIX, T.CutMix(num_classes=3)])], [MIX, T.Pad(1), MIX]]
BYTES = T.ToDtype(torch.uint8, scale=True)


@pytest.mark.parametrize("mixes", MIXES, ids=str)
@pytest.mark.parametrize("last", [BYTES, T.JPEG(50)], ids=str)
def test_normalized_images_stay_normalized_after_a_mix(mixes, last, images):
    """A bug: they saturated, mostly to black, unlike in a single plan."""
    labels = torch.tensor([0, 1, 2, 0])
    for batch in (KINDS["batch of tensors"](images), images.astype(np.float32) / 255):
        with pytest.raises(TransformError, match="normalized images are not in"):
            T.Compose([T.Normalize(0.5, 0.25), *mixes, last])(batch, labels)
        levels = T.ToDtype(torch.float32)  # uint8 becomes 0 ... 255; floats are unchanged
        if batch.dtype == torch.uint8:
            with pytest.raises(TransformError, match="normalized images are not in"):
                T.Compose([levels, *mixes, last])(batch, labels)
        else:
            T.Compose([levels, *mixes, last])(batch, labels)
        T.Compose([T.ToDtype(torch.float32, scale=True), *mixes, last])(batch, labels)
    with (
        cuaug.Loader(labeled(images), [T.Normalize(0.5, 0.25), *mixes, last], batch_size=4, device="cpu") as loader,
        pytest.raises(TransformError, match="normalized images are not in"),
    ):
        next(iter(loader))


class Restored(T.BatchTransform):
    def run(self, images, targets, **params):
        return images * 0.25 + 0.5, targets


@pytest.mark.parametrize("restored", [Restored(), T.Lambda(lambda x: x * 0.25 + 0.5), T.RandomChoice([Restored()])])
def test_a_function_may_undo_normalization(restored, images):
    x = KINDS["batch of tensors"](images)
    assert torch.equal(T.Compose([T.Normalize(0.5, 0.25), restored, BYTES])(x), x)
    with cuaug.Loader(labeled(images), [T.Normalize(0.5, 0.25), restored, BYTES], batch_size=4) as loader:
        assert torch.equal(next(iter(loader)).images, x)
