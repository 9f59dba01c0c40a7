"""The images of batches: dtype, layout, channels and memory."""

from __future__ import annotations

import gc
import logging

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import Loader, TransformError
from cuaug import transforms as T
from tests.support.codec.encoded_images import encode
from tests.support.loader.further_pictures import Bytes, Memory, assert_epoch_raises, epoch_of, numbers_of, photo, png

DTYPES = {torch.uint8: 1, torch.float16: 1 / 255, torch.bfloat16: 1 / 255, torch.float32: 1 / 255}


@pytest.mark.parametrize("dtype", [None, *DTYPES])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("damaged", [(), (1,)], ids=["whole", "skipping"])
def test_dtype_layout_and_channels(dtype, layout, channels, damaged, caplog, loaders_device):
    caplog.set_level(logging.CRITICAL, logger="cuaug")
    h, w = 5, 7
    pictures = [photo(h, w, seed) for seed in range(4)]
    data = [b"x" if i in damaged else encode(Image.fromarray(p), "PNG") for i, p in enumerate(pictures)]
    chain = [T.Grayscale()] if channels == 1 else []
    ((images, labels),) = epoch_of(Bytes(*data), chain, batch_size=4, dtype=dtype, layout=layout, on_error="skip")
    n = 4 - len(damaged)
    assert images.shape == (n, channels, h, w) and images.dtype == (dtype or torch.uint8)
    assert images.device.type == labels.device.type == loaders_device
    c = channels
    assert images.stride() == ((c * h * w, h * w, w, 1) if layout == "NCHW" else (h * w * c, 1, w * c, c))
    want = np.stack([pictures[i] for i in labels.tolist()]).transpose(0, 3, 1, 2).astype(np.float64)
    if channels == 1:
        want = (want * np.array([0.2989, 0.587, 0.114])[:, None, None]).sum(1, keepdims=True)
    unit = DTYPES[images.dtype]
    slack = 0.5 * unit if channels == 1 and unit == 1 else {torch.float16: 3e-4, torch.bfloat16: 2e-3}.get(dtype, 1e-6)
    assert np.abs(images.double().cpu().numpy() - want * unit).max() <= slack + 1e-9


def test_a_float_chain_needs_no_dtype():
    pixels = photo(6, 6)
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.3, 0.25]
    ((images, _),) = epoch_of(Bytes(encode(Image.fromarray(pixels), "PNG")), [T.Normalize(mean, std)])
    want = (pixels / 255.0 - np.array(mean)) / np.array(std)
    assert images.dtype == torch.float32
    np.testing.assert_allclose(images[0].permute(1, 2, 0).cpu().numpy(), want, atol=1e-5)


def test_dtype_overrides_the_chain():
    assert epoch_of(Memory(1), [T.ToDtype(torch.float32, scale=True)], dtype=torch.float16)[0][0].dtype == torch.float16
    assert numbers_of(epoch_of(Memory(1), [T.ToDtype(torch.float32, scale=True)], dtype=torch.uint8)[0][0]) == [0]


SAME = T.Lambda(lambda images: images)
CHAINS = {
    "a fill": [T.Pad(2, fill=114)],
    "a float fill": [T.ToDtype(torch.float32, scale=True), T.Pad(1, fill=0.5)],
    "noise": [T.RandomErasing(1, value="random")],
    "levels as floats": [T.ToDtype(torch.float32)],
    "scaled": [T.ToDtype(torch.float16, scale=True)],
    "normalized": [T.Normalize(0.5, 0.25)],
}


@pytest.mark.parametrize("dtype", [None, *DTYPES])
@pytest.mark.parametrize("name", CHAINS)
def test_the_last_stage_has_the_dtype(name, dtype):
    """A Lambda before or after the chain makes a stage of its own, and changes neither range nor dtype."""
    data = Bytes(*(encode(Image.fromarray(photo(9, 11, seed)), "PNG") for seed in range(3)))
    if dtype == torch.uint8 and name in ("normalized", "levels as floats"):
        for chain in ([SAME, *CHAINS[name]], [*CHAINS[name], SAME]):
            with pytest.raises(TransformError, match="they cannot become uint8"):
                list(Loader(data, chain, batch_size=3, dtype=dtype))
        return
    ((want, _),) = Loader(data, CHAINS[name], batch_size=3, dtype=dtype)
    for chain in ([SAME, *CHAINS[name]], [*CHAINS[name], SAME], [SAME, *CHAINS[name], SAME]):
        ((images, _),) = Loader(data, chain, batch_size=3, dtype=dtype)
        assert images.dtype == want.dtype and images.shape == want.shape
        if name != "noise":  # its random numbers depend on its position in the chain
            rounding = 1e-6 if name != "scaled" else {torch.bfloat16: 8e-3}.get(dtype, 1e-3)  # rounded twice
            np.testing.assert_allclose(images.double().cpu(), want.double().cpu(), rtol=rounding, atol=1e-9)
        elif dtype == torch.float32:
            assert abs(float(images.mean()) - float(want.mean())) < 0.5


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_a_mix_uses_the_dtype_of_the_chain(dtype):
    """A fill in uint8 levels stays one with any `dtype`."""
    chain = [T.MixUp(num_classes=3), T.Pad(2, fill=51)]
    data = Bytes(*(encode(Image.fromarray(photo(9, 11, seed)), "PNG") for seed in range(3)))
    ((want, _),) = Loader(data, chain, batch_size=3, seed=0)
    ((images, _),) = Loader(data, chain, batch_size=3, dtype=dtype, seed=0)
    atol = 2e-3 * (dtype != torch.uint8)
    np.testing.assert_allclose(images.double().cpu(), want.double().cpu() * DTYPES[dtype], atol=atol)


def test_a_mosaic_fills_with_uint8_levels():
    """A mosaic gets the chain's dtype, not the loader's."""

    class Boxed(Bytes):
        def read(self, index):
            return self.data[index], {"boxes": np.array([[2.0, 2, 9, 9]])}

    data = Boxed(*[encode(Image.new("RGB", (20, 20), (100, 100, 100)), "PNG")] * 2)
    chain = [T.Mosaic(60, (-0.5, -0.5), fill=114)]
    ((want, _),) = Loader(data, chain, batch_size=2, collate_fn=list)
    ((images, _),) = Loader(data, chain, batch_size=2, collate_fn=list, dtype=torch.float32)
    assert set(want.unique().tolist()) == {100, 114}
    np.testing.assert_allclose(images.cpu(), want.cpu() / 255, rtol=1e-6)


@pytest.mark.parametrize(
    "made",
    [lambda x: x[:, :2], lambda x: x.flatten(1), lambda x: x > 0, lambda x: x.long(), lambda x: torch.stack([x, x], 1)],
)
def test_a_lambda_at_the_end_gets_the_dtype_and_may_return_anything(made):
    given = []

    def last(images):
        given.append(images.dtype)
        return made(images)

    data = Bytes(*(png(i) for i in range(4)))
    ((images, _),) = Loader(data, [T.Lambda(last)], batch_size=4, dtype=torch.float32)
    assert given == [torch.float32] and len(images) == 4


def test_a_mix_of_a_batch_without_good_samples():
    options = {"batch_size": 4, "dtype": torch.float16, "on_error": "skip"}
    batches = epoch_of(Memory(8, damaged=range(4)), [T.MixUp(num_classes=8)], **options)
    assert [batch.images.shape for batch in batches] == [(0, 3, 4, 5), (4, 3, 4, 5)]
    assert {batch.images.dtype for batch in batches} == {torch.float16}


@pytest.mark.parametrize("after", [[], [T.CutMix(num_classes=3)], [T.CutMix(num_classes=3), T.RandomErasing()]])
def test_uint8_after_normalize_is_refused(after):
    for first in (T.Normalize(0.5, 0.25), T.ToDtype(torch.float32)):
        message = "normalized images are not in"
        assert_epoch_raises(TransformError, message, Memory(3), [first, *after], batch_size=3, dtype=torch.uint8)


def test_kept_batches_do_not_change():
    """A kept batch may be written to while later ones are made."""
    with Loader(Memory(64), T.Resize((16, 16)), batch_size=4, threads=2, prefetch=2) as loader:
        kept, sums = [], []
        for k, (images, labels) in enumerate(loader):
            kept.append((images, labels))
            sums.append(images.long().sum().item())
            if k == 5:
                images.fill_(9)
                sums[-1] = 9 * images.numel()
    del loader
    gc.collect()
    assert [images.long().sum().item() for images, _ in kept] == sums
    pointers = [images.data_ptr() for images, _ in kept]
    assert len(set(pointers)) == len(kept) == 16
    assert torch.cat([labels for _, labels in kept]).tolist() == list(range(64))
