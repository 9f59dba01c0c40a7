"""Batch transforms on clips: MixUp, CutMix, AugMix, Lambda and chains after them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cuaug import Loader, TransformError
from cuaug import transforms as T
from cuaug.sources import Videos
from tests.support.video.loading import COUNT, H, W, load, videos

CROP = [T.RandomResizedCrop(24), T.RandomHorizontalFlip()]
MIXES = [T.MixUp(num_classes=COUNT), T.CutMix(num_classes=COUNT)]


def params_of(batch, name: str) -> list[dict]:
    return [next(step["params"] for step in steps if step["transform"] == name) for steps in batch.params()]


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: type(mix).__name__)
def test_a_clip_is_mixed_as_a_whole(paths, mix):
    """One weight, or one box, for all frames of a clip; the partner is the next clip in epoch order."""
    (plain,) = load(videos(paths), CROP, batch_size=COUNT)
    (mixed,) = load(videos(paths), [*CROP, mix], batch_size=COUNT)
    assert torch.equal(plain.clips.numbers, mixed.clips.numbers) and mixed.images.shape == plain.images.shape
    own, partner = plain.images.double(), plain.images.roll(-1, 0).double()
    for k, drawn in enumerate(params_of(mixed, type(mix).__name__)):
        if "box" in drawn:
            x0, y0, x1, y1 = drawn["box"]
            weight, expected = 1 - (x1 - x0) * (y1 - y0) / 24**2, own[k].clone()
            expected[..., y0:y1, x0:x1] = partner[k, ..., y0:y1, x0:x1]
        else:
            weight = drawn["lam"]
            expected = weight * own[k] + (1 - weight) * partner[k]
        assert (mixed.images[k].double() - expected).abs().max() <= 0.51
        label = torch.zeros(COUNT)
        label[k] += weight
        label[(k + 1) % COUNT] += 1 - weight
        assert torch.allclose(mixed.labels[k], label, atol=1e-6)
    assert not torch.equal(mixed.images, plain.images)


@pytest.mark.parametrize(
    "chain",
    [
        [*CROP, T.RandomChoice(MIXES)],
        [*CROP, T.AugMix(), T.ColorJitter(0.3), T.Normalize([0.5] * 3, [0.2] * 3)],
        [*CROP, T.MixUp(num_classes=COUNT), T.PerFrame(T.RandomErasing(1.0)), T.ToDtype(torch.float32, scale=True)],
        [T.MultiView([T.RandomResizedCrop(16), T.Resize((16, 16))]), MIXES[1]],
        [T.Resize((20, 24)), T.Lambda(lambda frames: 255 - frames), T.RandomRotation(20), MIXES[0]],
    ],
    ids=["choice", "AugMix", "per frame", "views", "Lambda"],
)
@pytest.mark.parametrize("layout", ["NTCHW", "NCTHW"])
def test_mixed_clips_do_not_depend_on_batches_and_ranks(paths, chain, layout):
    source, how = videos(paths, clips_per_video=2), {"shuffle": True, "seed": 4, "layout": layout}

    def rows(batches):
        return {
            int(i): (image, label)
            for batch in batches
            for i, image, label in zip(batch.indices, batch.images, batch.labels, strict=True)
        }

    expected = rows(load(source, chain, batch_size=12, **how))
    for other in ({"batch_size": 5, "threads": 3}, *({"batch_size": 3, "rank": k, "world_size": 2} for k in (0, 1))):
        for i, (image, label) in rows(load(source, chain, **other, **how)).items():
            assert torch.equal(image, expected[i][0]) and torch.equal(label, expected[i][1])
    across = {"NTCHW": "NCTHW", "NCTHW": "NTCHW"}[layout]
    for i, (image, _) in rows(load(source, chain, batch_size=12, **how | {"layout": across})).items():
        assert torch.equal(image.transpose(-3, -4), expected[i][0])
    with Loader(source, chain, batch_size=5, **how) as loader:
        batches = list(loader)
        again = loader.replay(epoch=0, step=1)
    assert torch.equal(again.images, batches[1].images) and again.digest == batches[1].digest
    assert len(batches[1].params()) == 5


def test_frames_of_a_clip_share_draws_after_a_batch_transform(paths):
    still = Videos([(path, k, 7, 8) for k, path in enumerate(paths)], frames=4, pad="last")
    chain = [T.Resize((24, 24)), MIXES[0], T.AugMix(), T.RandomResizedCrop(16), T.ColorJitter(0.5)]
    (batch,) = load(still, chain, batch_size=COUNT)
    assert torch.equal(batch.images, batch.images[:, :1].expand_as(batch.images)), "one frame, four times"
    (apart,) = load(still, [*chain, T.PerFrame(T.ColorJitter(0.5))], batch_size=COUNT)
    assert not torch.equal(apart.images[:, 0], apart.images[:, 1])
    assert [step["frame"] for step in apart.params()[0] if "frame" in step] == [0, 1, 2, 3]


def test_boxes_of_frames_after_a_batch_transform(paths):
    boxes = np.zeros((5, 1, 4))
    boxes[:, 0] = [[20, 10, 30, 14 + t] for t in range(5)]
    source = Videos([(path, {"boxes": boxes, "labels": np.array([1])}) for path in paths], frames=5, sampling="uniform")
    chain = [T.RandomCrop((40, 50)), T.RandomHorizontalFlip()]
    (first,) = load(source, [*chain, T.Pad(2)], batch_size=COUNT)
    (later,) = load(source, [*chain, lambda frames: frames, T.Pad(2)], batch_size=COUNT)
    assert torch.equal(first.images, later.images)
    for target, other in zip(first.labels, later.labels, strict=True):
        assert np.array_equal(target["boxes"], other["boxes"]) and np.shape(target["boxes"]) == (5, 1, 4)
    boxes[:] = [2, 2, 4, 4]  # which become (0.5, 0.5, 1, 1): read again by later segments, and not refused there
    relative = Videos([(path, {"boxes": boxes / [W, H, W, H]}) for path in paths], frames=5)
    for each, given in ((source, False), (relative, True)):
        small = T.Compose([T.Resize((H // 4, W // 4)), lambda frames: frames, T.Pad(0)], relative_boxes=given)
        (batch,) = load(each, small, batch_size=COUNT)
        assert all(np.allclose(target["boxes"], [0.5, 0.5, 1, 1], atol=1e-6) for target in batch.labels)
    with pytest.raises(TransformError, match="of clips takes class numbers or vectors as labels, not dicts"):
        load(source, [T.Resize((8, 8)), T.MixUp()], batch_size=COUNT)


@pytest.mark.parametrize("transform", [T.Mosaic(), T.CopyPaste(), T.RandomChoice([T.MixUp(num_classes=3), T.Mosaic()])])
def test_transforms_that_combine_targets_are_refused(paths, transform):
    with pytest.raises(TransformError, match="combines images and their targets, and takes no clips"):
        Loader(videos(paths), [T.Resize((8, 8)), transform])
    with pytest.raises(TransformError, match=r"takes no clips|takes class numbers"):
        T.Compose([transform])(torch.zeros(2, 3, 3, 8, 8, dtype=torch.uint8), [{}, {}])
