"""Clips: all frames of one share their draws, as in torchvision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import Loader, TransformError
from cuaug import functional as F
from cuaug import transforms as T

FRAME = torch.randint(0, 256, (3, 24, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
#: (N, T, C, H, W), of one frame.
CLIPS = FRAME.expand(4, 5, 3, 24, 32)


@pytest.mark.parametrize("noise", [T.GaussianNoise(), T.SaltAndPepper(p=1.0), T.ShotNoise(p=1.0)])
def test_noise_differs_from_frame_to_frame(noise):
    torch.manual_seed(3)
    made, params = T.Compose([noise]).trace(CLIPS)
    assert all(not torch.equal(made[:, 0], made[:, t]) for t in range(1, 5))
    assert torch.equal(T.Compose([noise]).replay(params, CLIPS), made)
    torch.manual_seed(3)
    assert torch.equal(noise(CLIPS[:, 0]), made[:, 0]), "the first frame has the noise of an image"


def test_per_frame_draws_anew_for_each_frame():
    torch.manual_seed(4)
    chain = T.Compose([T.RandomCrop(12), T.PerFrame([T.ColorJitter(0.5), T.RandomErasing(1.0)]), T.ColorJitter(0.5)])
    made, params = chain.trace(CLIPS)
    assert all(not torch.equal(made[:, 0], made[:, t]) for t in range(1, 5))
    assert torch.equal(chain.replay(params, CLIPS), made)
    frames = [step["frame"] for step in params[0] if step["transform"] == "RandomErasing"]
    assert frames == [0, 1, 2, 3, 4] and sum("frame" not in step for step in params[0]) == 2
    torch.manual_seed(4)
    without = T.Compose([T.RandomCrop(12), T.ColorJitter(0.5)]).trace(CLIPS)[1]
    assert [step["params"] for step in without[0]] == [s["params"] for s in params[0] if "frame" not in s], (
        "PerFrame changes no other draws"
    )


def test_per_frame_within_views():
    views = T.Compose([T.MultiView([T.PerFrame(T.ColorJitter(0.5)), T.Compose([])])])
    torch.manual_seed(5)
    made, params = views.trace(CLIPS)
    assert made.shape == (4, 2, 5, 3, 24, 32) and torch.equal(made[:, 1], CLIPS)
    assert torch.equal(views.replay(params, CLIPS), made)
    assert len({float(step["params"]["brightness"]) for step in params[0]}) == 5, "each frame its own"


def test_per_frame_refuses_images_and_views():
    with pytest.raises(TransformError, match="needs clips"):
        T.PerFrame(T.ColorJitter(0.5))(FRAME)
    with pytest.raises(TransformError, match="several views"):
        T.PerFrame([T.FiveCrop(8)])
    with pytest.raises(TransformError, match=r"another chain|with the chain"):
        chain = T.Compose([T.PerFrame(T.ColorJitter(0.5))])
        T.Compose([T.ColorJitter(0.5)]).replay(chain.trace(CLIPS)[1], CLIPS)


MOVING = {"boxes": [[2.0, 3.0, 9.0, 8.0]], "mask": np.eye(24, 32, dtype=np.uint8)}


@pytest.mark.parametrize(
    "moving",
    [
        T.RandomHorizontalFlip(),
        T.RandomVerticalFlip(0.1),
        T.RandomCrop(8),
        T.RandomRotation(9),
        T.Pad(2),
        T.RandomResize(20, 30),
        T.ElasticTransform(),
        T.RandomPerspective(),
        T.RandAugment(),
    ],
    ids=lambda transform: type(transform).__name__,
)
@pytest.mark.parametrize("target", [MOVING, {"mask": MOVING["mask"]}], ids=["boxes", "mask"])
def test_a_target_of_a_clip_does_not_follow_frames_that_move_apart(moving, target):
    chain = T.Compose([T.RandomApply([T.PerFrame(moving)], p=1.0)])
    torch.manual_seed(0)
    with pytest.raises(TransformError, match="belong to the whole clip, but PerFrame moves each frame apart"):
        chain(CLIPS, [target] * 4)
    if not isinstance(moving, T.RandomResize):  # frames of several sizes
        assert chain(CLIPS, [1, 2, 3, 4])[1] == [1, 2, 3, 4]


def test_a_target_of_a_clip_stays_where_frames_draw_colors_apart():
    apart = [T.ColorJitter(0.5), T.RandomErasing(1.0), T.RandomEqualize(), T.GaussianBlur(3), T.JPEG((20, 90))]
    chain = T.Compose([T.RandomHorizontalFlip(1.0), T.PerFrame(apart), T.RandomCrop((20, 30))])
    torch.manual_seed(6)
    clips, targets = chain(CLIPS, [MOVING] * 4)
    assert all(not torch.equal(clips[:, 0], clips[:, t]) for t in range(1, 5))
    torch.manual_seed(6)
    _, expected = T.Compose([T.RandomHorizontalFlip(1.0), T.RandomCrop((20, 30))])(CLIPS, [MOVING] * 4)
    for found, other in zip(targets, expected, strict=True):
        np.testing.assert_array_equal(found["boxes"], other["boxes"])
        np.testing.assert_array_equal(found["mask"], other["mask"])


def test_segments_and_functions_of_frames():
    shapes = []

    def double(frames):
        shapes.append(tuple(frames.shape))
        return frames

    chain = T.Compose([T.RandomCrop(12), T.Lambda(double), T.RandomHorizontalFlip(), T.ColorJitter(0.3)])
    made = chain(CLIPS)
    assert shapes == [(20, 3, 12, 12)] and made.shape == (4, 5, 3, 12, 12) and (made == made[:, :1]).all()
    assert F.horizontal_flip(CLIPS).equal(CLIPS.flip(-1))


@pytest.mark.parametrize("mix", [T.MixUp(num_classes=4), T.CutMix(num_classes=4)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_clips_of_a_call_are_mixed_as_a_whole(mix, channels_last):
    """Each clip with the next: the same draws for all frames, which are equal here."""
    clips = CLIPS[:, :1].expand_as(CLIPS).contiguous()
    clips[1::2] = 255 - clips[1::2]
    torch.manual_seed(3)
    frames, frame_labels = mix(clips[:, 0], [0, 1, 2, 3])
    torch.manual_seed(3)
    made, labels = mix(clips.movedim(2, -1).numpy() if channels_last else clips, [0, 1, 2, 3])
    made = torch.from_numpy(made).movedim(-1, 2) if channels_last else made
    assert torch.equal(made, frames[:, None].expand_as(clips)) and not torch.equal(made, clips)
    assert np.array_equal(np.stack(labels), np.stack(frame_labels)) and np.allclose(np.stack(labels).sum(1), 1)
    torch.manual_seed(3)
    chain = T.Compose([mix, T.RandomHorizontalFlip()])
    (again, _), params = chain.trace(clips, [0, 1, 2, 3])
    assert torch.equal(chain.replay(params, clips, [0, 1, 2, 3])[0], again)


def test_a_clip_has_one_target():
    boxes = [{"boxes": [[2.0, 3.0, 9.0, 8.0]], "labels": [k]} for k in range(4)]
    torch.manual_seed(0)
    chain = T.Compose([T.RandomHorizontalFlip(), T.RandomIoUCrop(), T.Resize((9, 9)), T.SanitizeBoundingBoxes()])
    made, moved, names = chain(CLIPS, boxes, [*"abcd"])
    assert made.shape[:3] == (4, 5, 3) and len(moved) == 4 and names == [*"abcd"]
    assert all(target["labels"] in ([k], []) for k, target in enumerate(moved))
    mask = np.arange(24 * 32, dtype=np.int32).reshape(24, 32)
    flipped, target = T.RandomHorizontalFlip(1)(CLIPS[:1], [{"mask": mask}])
    assert torch.equal(flipped, CLIPS[:1].flip(-1)) and np.array_equal(target[0]["mask"], mask[:, ::-1])


@pytest.mark.parametrize(("frames", "count"), [(5, 3), (5, 5), (2, 6), (30, 7), (9, 1)])
def test_uniform_temporal_subsample(frames, count):
    """Against the formula, in integers."""
    clip = torch.arange(frames, dtype=torch.uint8)[None, :, None, None, None].expand(1, frames, 3, 4, 4)
    expected = [k * (frames - 1) // (count - 1) for k in range(count)] if count > 1 else [0]
    made = T.UniformTemporalSubsample(count)(clip)
    assert made.shape == (1, count, 3, 4, 4) and made[0, :, 0, 0, 0].tolist() == expected
    array = T.Compose([T.CenterCrop(2), T.UniformTemporalSubsample(count)])(clip.movedim(2, -1).numpy())
    assert array.shape == (1, count, 2, 2, 3) and array[0, :, 0, 0, 0].tolist() == expected


def test_what_takes_no_clips_is_refused(tmp_path):
    subsample = T.UniformTemporalSubsample(2)
    with pytest.raises(TransformError, match="UniformTemporalSubsample needs clips"):
        subsample(CLIPS[0])
    with pytest.raises(TransformError, match="have no pixels"):
        subsample(CLIPS[:, :0])
    with pytest.raises(TransformError, match="acts on all clips"):
        T.RandomApply([subsample], 1.0)(CLIPS)
    with pytest.raises(TransformError, match=r"boxes must be \(K, 4\) .* \(target 2 of the batch\)"):
        T.Pad(1)(CLIPS, [1, 2, {"boxes": [[1, 2, 3]]}, 3])
    with pytest.raises(TransformError, match="target must be one per image: 4, not 5"):
        T.Pad(1)(CLIPS, [1] * 5)
    Image.fromarray(FRAME.permute(1, 2, 0).numpy()).save(tmp_path / "1.png")
    with (
        Loader([str(tmp_path / "1.png")], [subsample], batch_size=1, device="cpu") as loader,
        pytest.raises(TransformError, match="a Loader loads images"),
    ):
        next(iter(loader))
