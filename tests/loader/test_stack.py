"""Batches of several tensors: with `stack=False` a list of images of any size; views of several sizes."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import Loader, LoaderError, TransformError
from cuaug import transforms as T
from tests.support.loader.further_pictures import Memory, epoch_of, numbers_of, planes_of, write_photos

CHAIN = [T.RandomShortestSize(range(20, 40)), T.RandomHorizontalFlip(), T.ColorJitter(0.3)]
LARGE = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
SMALL = T.Compose([T.RandomResizedCrop((10, 12), (0.1, 0.4)), T.ColorJitter(0.4)])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_each_image_is_the_result_of_the_chain(tmp_path, layout, on_error):
    paths = write_photos(tmp_path, 9, form="PNG")
    if on_error != "raise":
        Path(paths[4]).write_bytes(b"no picture")
    how = {"layout": layout, "on_error": on_error, "seed": 2, "stack": False}
    seen, chain = {}, T.Compose([*CHAIN, T.ToDtype(torch.float16, scale=True)])
    with Loader(paths, chain, batch_size=4, **how) as loader:
        for batch in loader:
            assert type(batch.images) is list and len(batch.images) == len(batch.indices) == len(batch.labels)
            for image, index, steps in zip(batch.images, batch.indices.tolist(), batch.params(), strict=True):
                assert image.is_contiguous() == (layout == "NCHW") and image.dtype == torch.float16
                assert torch.equal(image.cpu(), chain.replay(steps, planes_of(paths[index])))
                seen[index] = image.cpu()
    assert sorted(seen) == [i for i in range(9) if i != 4 or on_error == "raise"]
    assert len({image.shape for image in seen.values()}) > 3
    with Loader(paths, chain, batch_size=2, shuffle=True, threads=3, **how) as loader:
        for batch in loader:
            assert all(map(torch.equal, [image.cpu() for image in batch.images], [seen[int(i)] for i in batch.indices]))


def test_boxes_move_with_their_images():
    class Squares:
        """A white square on black at (4, 6), of pictures of many sizes."""

        def __len__(self):
            return 6

        def read(self, index):
            picture = np.zeros((40 + 5 * index, 60, 3), np.uint8)
            picture[6:16, 4:14] = 255
            return picture, {"boxes": np.array([[4, 6, 14, 16]], np.float32), "labels": np.array([index])}

    chain = [T.Resize(80), T.RandomHorizontalFlip(0.5)]
    for images, targets in Loader(Squares(), chain, batch_size=3, stack=False):
        for image, target in zip(images, targets, strict=True):
            x0, y0, x1, y1 = target["boxes"][0].round().long().tolist()
            inside = image[:, y0 + 2 : y1 - 2, x0 + 2 : x1 - 2]
            assert inside.numel() and (inside == 255).all() and image.float().mean() < 128


@pytest.mark.parametrize("damage", [[2], [0, 1, 2, 3], list(range(8))], ids=["one", "a batch", "all"])
def test_damaged_samples_are_left_out(damage):
    with Loader(Memory(12, damaged=damage), batch_size=4, stack=False, on_error="skip") as loader:
        for first, (images, labels) in zip((0, 4, 8), loader, strict=True):
            good = [i for i in range(first, first + 4) if i not in damage]
            assert labels.tolist() == good and type(images) is list
            assert not good if not images else numbers_of(torch.stack(images)) == good


SEVERAL = pytest.mark.parametrize(
    ("chain", "options", "shown"),
    [
        (CHAIN, {"stack": False}, "images: 4 of their own sizes torch.uint8 on cpu, labels: (4,) torch.int64, epoch=0"),
        ([T.MultiView([LARGE, SMALL, SMALL])], {}, "images: (4, 1, 3, 24, 24), (4, 2, 3, 10, 12) torch.uint8 on cpu"),
    ],
    ids=["list", "views"],
)


@SEVERAL
def test_methods_of_a_batch_of_several_tensors(tmp_path, chain, options, shown):
    batch = epoch_of(write_photos(tmp_path, 4), chain, batch_size=4, device="cpu", **options)[0]
    again, into = pickle.loads(pickle.dumps(batch)), [torch.empty_like(image) for image in batch.images]
    batch.copy_into(into)
    for others in (again.images, into, batch.to("cpu").images):
        assert all(map(torch.equal, batch.images, others))
    assert type(again.images) is type(batch.to("cpu").images) is type(batch.images)
    assert all(image.is_meta for image in batch.to("meta").images)
    assert again.params() == [[], [], [], []] and len(batch.params()) == 4
    assert shown in repr(batch)
    with pytest.raises(LoaderError, match=rf"images has 1 tensor\(s\), but the batch has {len(into)}"):
        batch.copy_into(into[0])
    first, second = (re.escape(str(tuple(image.shape))) for image in into[:2])
    with pytest.raises(LoaderError, match=f"images is {first}.* the batch has {second}"):
        batch.copy_into([into[0]] * len(into))


@SEVERAL
def test_a_kept_image_keeps_its_pixels(tmp_path, chain, options, shown):
    """Memory of a batch is reused once none of its images is referenced."""
    with Loader(write_photos(tmp_path, 24), chain, batch_size=4, **options) as loader:
        kept = next(iter(loader)).images[1]
        before = kept.clone()
        for _ in range(2):
            for _ in loader:
                pass
        assert torch.equal(kept, before)


def test_an_image_is_saved_without_the_others():
    """`pickle` and `torch.save` write the whole storage of a tensor, `pickle` once per tensor."""
    batch = epoch_of(Memory(16), batch_size=16, stack=False)[0]
    assert all(image.untyped_storage().nbytes() == image.nbytes for image in batch.images)


@pytest.mark.parametrize(
    "behind",
    [T.MixUp(), T.CopyPaste(), T.Lambda(lambda images: images), T.FiveCrop(8), T.MultiView([T.CenterCrop(8)] * 2)],
    ids=repr,
)
def test_transforms_that_need_a_stack_are_refused(behind):
    remedy = r"leave out stack=False, give the images one size before it, by .*, and pass list\(images\)"
    reason = "takes a batch of one size" if isinstance(behind, T.BatchTransform) else "FiveCrop and TenCrop make more"
    with pytest.raises(TransformError, match=f"stack=False is for chains that make one image .*{reason}: {remedy}"):
        Loader(Memory(4), [T.CenterCrop(9), behind], stack=False)
    with Loader(Memory(4), [T.CenterCrop(9)], stack=False) as loader:
        loader.transforms.transforms.append(behind)
        with pytest.raises(TransformError, match="stack=False is for chains"):
            next(iter(loader))
    with pytest.raises(LoaderError, match="stack must be True or False, not None"):
        Loader(Memory(4), stack=None)


# --- views of several sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_views_of_several_sizes_come_from_one_decoding(tmp_path, layout, on_error):
    paths = write_photos(tmp_path, 9, form="PNG")
    if on_error != "raise":
        Path(paths[4]).write_bytes(b"no picture")
    chain = T.Compose([T.MultiView([LARGE, SMALL, LARGE, SMALL, SMALL]), T.Normalize(0.5, 0.5)])
    how = {"layout": layout, "on_error": on_error, "seed": 5, "dtype": torch.float16}
    seen = {}
    with Loader(paths, chain, batch_size=4, **how) as loader:
        for batch in loader:
            large, small = batch.images
            n = len(batch.indices)
            assert large.shape == (n, 2, 3, 24, 24) and small.shape == (n, 3, 3, 10, 12)
            assert len(batch.labels) == n and large.dtype == small.dtype == torch.float16
            assert large.flatten(0, 1).is_contiguous(
                memory_format=torch.channels_last if layout == "NHWC" else torch.contiguous_format
            )
            for k, (index, steps) in enumerate(zip(batch.indices.tolist(), batch.params(), strict=True)):
                for one, want in zip((large[k], small[k]), chain.replay(steps, planes_of(paths[index])), strict=True):
                    assert torch.equal(one.cpu(), want.half())
                seen[index] = [large[k].cpu(), small[k].cpu()]
        stats = loader.stats()
    assert sorted(seen) == [i for i in range(9) if i != 4 or on_error == "raise"]
    assert sum(stats.decoded_by.values()) == 9 - (on_error == "skip")
    with Loader(paths, chain, batch_size=2, shuffle=True, threads=3, **how) as loader:
        for batch in loader:
            for k, index in enumerate(batch.indices.tolist()):
                assert all(map(torch.equal, [views[k].cpu() for views in batch.images], seen[index]))


def test_a_replacement_whose_views_swap_sizes(tmp_path):
    """Equally many views of each size, but in another order, which once was not noticed."""
    paths = [str(tmp_path / f"{i}.png") for i in range(8)]
    for i, path in enumerate(paths):
        Image.new("RGB", (8, 6) if i == 0 else (6, 8)).save(path)
    Path(paths[1]).write_bytes(b"no picture")
    views = [T.CenterCrop((6, 8)), T.Pad(0), T.CenterCrop((8, 6))]
    told = pytest.raises(TransformError, match=r"view 1 of .* is 6 x 8, view 1 of .* is 8 x 6")
    with Loader(paths, [T.MultiView(views)], batch_size=2, on_error="replace", seed=0) as loader, told:
        next(iter(loader))
