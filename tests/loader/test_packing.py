"""Loaders of patches and of images padded to the largest: each image is that of the chain without packing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import Loader, TransformError
from cuaug import transforms as T
from cuaug.batch import Batch
from cuaug.sources import Videos
from tests.references import packing as reference
from tests.support.loader.further_pictures import assert_epoch_raises, epoch_of, write_photos
from tests.support.video.videos import VIDEOS, write_video

BASE = [
    T.RandomRelativeCrop((0.5, 1.0)),
    T.ResizeToMultiple(16, 32 * 32, 96 * 96),
    T.RandomHorizontalFlip(),
    T.Normalize(0.5, 0.25),
]
PACKED = {
    "packed": T.Patches(8, 2, 2),
    "padded": T.Patches(8, 2, order="hwc", pad=True),
    "whole": T.PadToLargest(),
}


def cut(image: torch.Tensor, last: T.Transform) -> torch.Tensor:
    """The patches of an image (C, H, W)."""
    options = last.size, last.merge, last.temporal, last.order
    return torch.from_numpy(reference.patches(image[None].numpy(), *options))


def images_of(batch: Batch, last: T.Transform) -> list[torch.Tensor]:
    """What the batch holds of each image, by its packing; padding has to be 0."""
    packing = batch.packing
    if packing.cu_seqlens is not None:
        assert packing.cu_seqlens[-1] == len(batch.images)
        return list(batch.images.split(packing.cu_seqlens.diff().tolist()))
    if packing.grid_thw is not None:
        assert not batch.images[~packing.mask].any()
        return [image[mask] for image, mask in zip(batch.images, packing.mask, strict=True)]
    assert not batch.images.movedim(1, -1)[~packing.mask].any()
    return [image[:, :h, :w] for image, (h, w) in zip(batch.images, packing.sizes.tolist(), strict=True)]


def seen(loader: Loader, last: T.Transform) -> dict[int, torch.Tensor]:
    found = {}
    for batch in loader:
        assert len(batch.labels) == len(batch.indices) == len(batch.packing.sizes) == len(batch.valid)
        found |= zip(batch.indices.tolist(), images_of(batch, last), strict=True)
    return found


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("name", PACKED)
def test_each_image_is_that_of_the_chain_without_it(tmp_path, name, on_error):
    """Also around damaged files, whose batches are put together again."""
    paths, last = write_photos(tmp_path, 9, form="PNG"), PACKED[name]
    if on_error != "raise":
        Path(paths[4]).write_bytes(b"no picture")
    options = {"batch_size": 4, "seed": 2, "on_error": on_error, "device": "cpu"}
    with Loader(paths, BASE, stack=False, **options) as loader:
        want = {int(i): image for batch in loader for i, image in zip(batch.indices, batch.images, strict=True)}
    if name != "whole":
        want = {index: cut(image, last) for index, image in want.items()}
    with Loader(paths, [*BASE, last], shuffle=True, threads=3, **options) as loader:
        got = seen(loader, last)
    assert got.keys() == want.keys() and len({image.shape for image in want.values()}) > 3
    for index, image in want.items():
        assert torch.equal(got[index], image), index


@pytest.mark.parametrize("name", PACKED)
def test_batches_of_damaged_files_alone_are_empty(tmp_path, name):
    paths = write_photos(tmp_path, 6, form="PNG")
    for path in paths[:3]:
        Path(path).write_bytes(b"no picture")
    empty, full = epoch_of(paths, [*BASE, PACKED[name]], batch_size=3, on_error="skip", device="cpu")
    assert len(empty.images) == len(empty.labels) == len(empty.indices) == len(empty.packing.sizes) == 0
    assert empty.images.ndim == full.images.ndim and empty.images.dtype == full.images.dtype
    assert images_of(empty, PACKED[name]) == [] or empty.packing.cu_seqlens.tolist() == [0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.uint8])
@pytest.mark.parametrize("name", PACKED)
def test_layout_and_dtype_of_the_loader(tmp_path, name, dtype):
    """NHWC is the memory format of whole images; patches have their own order."""
    paths, last = write_photos(tmp_path, 5, form="PNG"), PACKED[name]
    Path(paths[1]).write_bytes(b"no picture")
    base = BASE[:3]
    batches = []
    for layout in ("NCHW", "NHWC"):
        options = {"batch_size": 5, "seed": 1, "dtype": dtype, "layout": layout, "on_error": "skip", "device": "cpu"}
        with Loader(paths, [*base, last], **options) as loader:
            batches += loader
    first, second = batches
    assert first.images.dtype == dtype and torch.equal(first.images, second.images)
    if name == "whole":
        assert second.images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("frames", [1, 2, 3, 5])
def test_patches_of_clips(tmp_path, frames):
    """Frames fill the patches in time; the last frame fills what is left."""
    paths = [write_video(tmp_path, name) for name in list(VIDEOS)[:2]]
    last = T.Patches(8, 2, temporal=2)
    with Loader(Videos(paths, frames=frames), BASE, batch_size=1, seed=3, device="cpu") as loader:
        clips = [batch.images[0] for batch in loader]
    want = [torch.from_numpy(reference.patches(clip.numpy(), 8, 2, 2)) for clip in clips]
    (batch,) = epoch_of(Videos(paths, frames=frames), [*BASE, last], batch_size=2, seed=3, device="cpu")
    assert clips[0].shape != clips[1].shape and torch.equal(batch.images, torch.cat(want))
    assert batch.packing.grid_thw[:, 0].tolist() == [(frames + 1) // 2] * 2
    assert batch.packing.cu_seqlens.diff().tolist() == list(map(len, want))
    options = {"batch_size": 2, "device": "cpu"}
    assert_epoch_raises(
        TransformError, "takes images, not clips", Videos(paths, frames=frames), [*BASE, T.PadToLargest()], **options
    )


def test_boxes_of_a_detector_stay_with_their_images(tmp_path):
    paths = write_photos(tmp_path, 4, form="PNG")
    labels = [{"boxes": torch.tensor([[1.0, 2, 9, 8]]), "labels": torch.tensor([i])} for i in range(4)]
    chain = [T.Resize(40), T.RandomHorizontalFlip(1.0), T.Normalize(0.5, 0.25)]
    pairs = list(zip(paths, labels, strict=True))
    (want,) = epoch_of(pairs, chain, batch_size=4, stack=False, device="cpu")
    (got,) = epoch_of(pairs, [*chain, T.PadToLargest()], batch_size=4, device="cpu")
    for one, other in zip(got.labels, want.labels, strict=True):
        assert torch.equal(one["boxes"], other["boxes"])
    assert got.show().size[0] > 0


def test_refusals(tmp_path):
    paths = write_photos(tmp_path, 2, form="PNG")
    with pytest.raises(TransformError, match="leave out one"):
        Loader(paths, [*BASE, T.Patches(8)], batch_size=2, stack=False, device="cpu")
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(tmp_path / "odd.png")
    message = r"odd\.png.*20 x 30 .* no multiple of size \* merge = 8"
    assert_epoch_raises(TransformError, message, [str(tmp_path / "odd.png")], [T.Patches(8)], device="cpu")
