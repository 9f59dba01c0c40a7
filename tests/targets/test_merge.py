"""Mosaic, CopyPaste and MixUp, on images in which every instance has its own color."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.errors import TransformError

seeds = st.integers(0, 2**32 - 1)


def painted(
    n: int, height: int, width: int, seed: int = 0, class_masks: bool = True
) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    """n images of overlapping rectangles on 0; "labels" are their colors, from 1, in all channels."""
    rng = np.random.default_rng(seed)
    images, targets, color = [], [], 0
    for i in range(n):
        image = np.zeros((height, width), dtype=np.uint8)
        colors = []
        for _ in range(rng.integers(0, 5)):
            (x0, x1), (y0, y1) = (np.sort(rng.choice(side + 1, 2, replace=False)) for side in (width, height))
            color += 1
            image[y0:y1, x0:x1] = color
            colors.append(color)
        colors = [value for value in colors if (image == value).any()]
        masks = np.stack([image == value for value in colors]) if colors else np.zeros((0, height, width), dtype=bool)
        targets.append(
            {
                "boxes": torch.tensor([box(mask) for mask in masks], dtype=torch.float32).reshape(-1, 4),
                "masks": torch.from_numpy(masks),
                "labels": torch.tensor(colors, dtype=torch.int64),
                "names": [f"color {value}" for value in colors],
                "area": torch.from_numpy(masks.sum(axis=(1, 2))).float(),
                "keypoints": torch.tensor([[[*box(mask)[:2], 2.0]] for mask in masks]).reshape(-1, 1, 3),
                "image_id": i,
            }
            | ({"mask": image.astype(np.int64)} if class_masks else {})
        )
        images.append(np.repeat(image[None], 3, axis=0))
    return torch.from_numpy(np.stack(images)), targets


def box(mask: np.ndarray) -> list[float]:
    y, x = np.nonzero(mask)
    return [float(x.min()), float(y.min()), float(x.max() + 1), float(y.max() + 1)]


def check(image: torch.Tensor, target: dict[str, Any], boxes: bool = True) -> set[int]:
    """Check each instance against the visible pixels of its color; returns the colors."""
    pixels = image[0].numpy()
    colors = target["labels"].tolist()
    assert target["names"] == [f"color {value}" for value in colors]
    assert {len(target[name]) for name in ("boxes", "masks", "area", "keypoints")} == {len(colors)}
    assert target["masks"].dtype == torch.bool and target["boxes"].dtype == torch.float32
    for k, color in enumerate(colors):
        assert np.array_equal(target["masks"][k].numpy(), pixels == color)
        if boxes and (pixels == color).any():
            assert target["boxes"][k].tolist() == box(pixels == color)
    assert np.array_equal(target["mask"], pixels) and target["mask"].dtype in (np.int64, torch.int64)
    return set(colors)


# --- Mosaic -----------------------------------------------------------------------------------------------------------


@given(
    size=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    window=st.none() | st.tuples(st.integers(1, 50), st.integers(1, 50)),
    start=st.sampled_from([(0.3, 0.7), (-1.0, 1.0), (0.0, 0.0), (-0.5, 0.5)]),
    seed=seeds,
)
def test_targets_of_a_mosaic_match_its_image(size, window, start, seed):
    x, targets = painted(5, *size, seed)
    chain = T.Compose([T.Mosaic(window, start)])
    torch.manual_seed(seed)
    (made, mixed), told = chain.trace(x, targets)
    height, width = window or size
    assert made.shape == (5, 3, height, width)
    for i, (image, target) in enumerate(zip(made, mixed, strict=True)):
        drawn = told[i][0]["params"]
        canvas = np.zeros((200, 200), dtype=np.uint8)
        (h, w), top, left = size, drawn["top"], drawn["left"]
        assert start[0] * h - 1 <= top <= start[1] * h and start[0] * w - 1 <= left <= start[1] * w
        for q in range(4):
            y0, x0 = 60 + q // 2 * h, 60 + q % 2 * w
            canvas[y0 : y0 + h, x0 : x0 + w] = x[(i + q) % 5, 0].numpy()
        want = canvas[60 + top : 60 + top + height, 60 + left : 60 + left + width]
        assert np.array_equal(image[0].numpy(), want) and torch.equal(image[0], image[2])
        # Boxes also span hidden parts; a fully visible one encloses its pixels.
        colors = check(image, target, boxes=False)
        assert set(np.unique(want)) - {0} <= colors
        assert target["image_id"] == i
    again, mixed_again = chain.replay(told, x, targets)
    assert torch.equal(again, made) and all(
        torch.equal(a["boxes"], b["boxes"]) for a, b in zip(mixed, mixed_again, strict=True)
    )


def one_rectangle(n: int, height: int, width: int, seed: int) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    """As `painted`, with one fully visible instance each."""
    rng = np.random.default_rng(seed)
    x, targets = torch.zeros((n, 3, height, width), dtype=torch.uint8), []
    for i in range(n):
        (x0, x1), (y0, y1) = (np.sort(rng.choice(side + 1, 2, replace=False)) for side in (width, height))
        x[i, :, y0:y1, x0:x1] = i + 1
        targets.append({"boxes": np.array([[x0, y0, x1, y1]], dtype=np.float32), "labels": [i + 1]})
    return x, targets


@given(seed=seeds, size=st.tuples(st.integers(1, 24), st.integers(1, 24)))
def test_boxes_of_a_mosaic_enclose_their_visible_pixels(seed, size):
    x, targets = one_rectangle(4, *size, seed)
    made, mixed = T.Mosaic(size, (-1.0, 1.0))(x, targets)
    for image, target in zip(made, mixed, strict=True):
        seen = sorted(set(image.unique().tolist()) - {0})
        assert sorted(target["labels"]) == seen and target["boxes"].dtype == np.float32
        for color, corners in zip(target["labels"], target["boxes"].tolist(), strict=True):
            assert corners == box(image[0].numpy() == color)


def test_keypoints_and_class_masks_of_a_mosaic():
    x, targets = painted(4, 20, 30, 3)
    made, mixed = T.Mosaic(fill=7)(x, targets)
    for image, target in zip(made, mixed, strict=True):
        check(image, target, boxes=False)
        for corners, ((px, py, v),) in zip(target["boxes"].tolist(), target["keypoints"].tolist(), strict=True):
            assert (v == 2 and (px, py) == (corners[0], corners[1])) or (v == 0 and px == py == 0)
    seen = torch.cat([target["keypoints"] for target in mixed])[..., 2]
    assert (seen == 2).any() and (seen == 0).any()


def test_class_masks_show_the_fill_beyond_the_images():
    x, targets = torch.zeros(1, 3, 4, 4, dtype=torch.uint8), [{"mask": np.ones((4, 4), dtype=np.uint8)}]
    chain = T.Compose([T.Mosaic((10, 10), (-0.25, -0.25), fill=(1, 2, 3))], mask_fill=255)
    made, (target,) = chain(x, targets)
    want = np.full((10, 10), 255)
    want[1:9, 1:9] = 1
    assert np.array_equal(target["mask"], want)
    assert made[0, :, 0, 0].tolist() == made[0, :, 9, 9].tolist() == [1, 2, 3] and not made[0, :, 1:9, 1:9].any()


@pytest.mark.parametrize("formats", [("xyxy", "xywh"), ("xywh", "cxcywh"), ("cxcywh", "xyxy")])
@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_boxes_of_different_formats_merge_into_the_first_format(formats, kind):
    own = [2.0, 4.0, 6.0, 10.0]
    written = {"xyxy": own, "xywh": [2.0, 4.0, 4.0, 6.0], "cxcywh": [4.0, 7.0, 4.0, 6.0]}
    masks = np.zeros((2, 1, 20, 20), np.uint8)
    masks[0, 0, 12, 12:15], masks[1, 0, 12, 2:5] = 1, 1
    targets = [
        {"boxes": kind([written[format]]), "format": format, "masks": mask}
        for format, mask in zip(formats, masks, strict=True)
    ]
    # Boxes of instances below are recomputed from their masks.
    pasted = [[[12, 12, 15, 13], own], [[2, 12, 5, 13], own]]
    mosaic = [(np.array(own) + [x, y, x, y]).tolist() for y in (0, 20) for x in (0, 20)]
    for transform, want in (
        (T.CopyPaste(1, blending=False), pasted),
        (T.Mosaic(40, (0, 0)), [mosaic, mosaic]),
        (T.MixUp(), [[own, own], [own, own]]),
    ):
        for i, target in enumerate(transform(np.zeros((2, 20, 20, 3), np.uint8), targets)[1]):
            assert target["format"] == formats[i] and type(target["boxes"]) is type(targets[0]["boxes"])
            boxes = torch.as_tensor(target["boxes"]).clone()
            if formats[i] == "cxcywh":
                boxes[:, :2] -= boxes[:, 2:] / 2
            if formats[i] != "xyxy":
                boxes[:, 2:] += boxes[:, :2]
            assert boxes.tolist() == want[i]


@pytest.mark.parametrize("transform", [T.Mosaic(), T.CopyPaste(1)])
def test_tuples_with_one_item_per_instance_merge_like_lists(transform):
    x, targets = painted(5, 20, 30, 7)
    for target in targets:
        target["category"] = tuple((name, color) for name, color in zip(target["names"], target["labels"], strict=True))
        target["scale"] = (2, 3, 5, 7, 11, 13)
    for target in transform(x, targets)[1]:
        assert isinstance(target["category"], tuple) and len(target["boxes"]) > 0
        assert target["category"] == tuple(zip(target["names"], target["labels"], strict=True))
        assert target["scale"] == (2, 3, 5, 7, 11, 13)


@pytest.mark.parametrize("fill", [0, 1, 255])
def test_the_fill_is_not_part_of_an_instance(fill):
    """Only class masks show mask_fill; in an instance mask, a recomputed box would enclose it."""
    masks = np.zeros((1, 20, 20), np.uint8)
    masks[0, 5:9, 5:9] = 1
    one = {"masks": masks, "boxes": np.array([[5.0, 5, 9, 9]]), "area": np.array([16])}
    none = {"masks": masks[:0], "boxes": np.zeros((0, 4)), "area": np.zeros(0, int)}
    chain = T.Compose([T.Pad((4, 0, 0, 0)), T.CopyPaste(1, blending=False)], mask_fill=fill)
    for target in chain(np.zeros((2, 20, 20, 3), np.uint8), [one, none])[1]:
        assert target["boxes"].tolist() == [[9, 5, 13, 9]] and target["area"].tolist() == [16]

    masks = np.zeros((1, 20, 20), np.uint8)
    masks[0, :3, :3], masks[0, 12:15, 12:16] = 1, 1
    mosaic = T.Compose([T.Mosaic(start_ratio_range=(0.5, 0.5))], mask_fill=fill)
    _, (target,) = mosaic(np.zeros((1, 20, 20, 3), np.uint8), [{"masks": masks}])
    assert target["masks"].sum(axis=(1, 2)).tolist() == [12, 9], "the two lower right copies show nothing"


def test_small_boxes_and_empty_masks_are_dropped():
    whole = np.zeros((2, 8, 8), dtype=bool)
    whole[0], whole[1, 0, 0] = True, True
    chain = T.Mosaic(start_ratio_range=(0.5, 0.5))
    _, (target,) = chain(torch.zeros(1, 3, 8, 8), [{"masks": whole, "labels": [1, 2]}])
    assert target["labels"] == [1, 1, 1, 1, 2] and target["masks"].any(axis=(1, 2)).all()
    _, (target,) = T.Mosaic(start_ratio_range=(0.5, 0.5), min_bbox_size=17)(
        torch.zeros(1, 3, 8, 8), [{"boxes": [[0.0, 0.0, 8.0, 8.0]]}]
    )
    assert target["boxes"] == []


@pytest.mark.parametrize("transform", [T.Mosaic(), T.CopyPaste(1)])
def test_images_without_instances(transform):
    one = {"boxes": [[1.0, 2.0, 5.0, 6.0]], "masks": np.ones((1, 8, 8), np.uint8), "keypoints": np.ones((1, 2, 3))}
    none = {"boxes": [], "masks": np.zeros(0, np.uint8), "keypoints": np.zeros(0)}
    for batch in ([one, none], [none, one], [none, none]):
        for target in transform(np.zeros((2, 8, 8, 3), np.uint8), batch)[1]:
            assert len(target["boxes"]) == len(target["masks"]) == len(target["keypoints"])


@pytest.mark.parametrize("fill", [114.6, 114.4, 300, -1, (0.5, 1.5, 254.7)])
def test_a_mosaic_rounds_its_fill_like_pad(fill):
    for image in (np.zeros((1, 8, 8, 3), np.uint8), np.zeros((1, 8, 8, 3), np.float32)):
        corner = T.Mosaic((20, 20), fill=fill)(image)[0, -1, -1]
        assert corner.tolist() == T.Pad(1, fill)(image)[0, 0, 0].tolist()


def test_mosaic_with_p_below_one():
    x, targets = painted(60, 12, 14, 1)
    made, mixed = T.Mosaic(p=0.5)(x, targets)
    same = (made == x).flatten(1).all(1)
    assert 12 < int(same.sum()) < 48
    for image, target in zip(made, mixed, strict=True):
        check(image, target, boxes=False)
    assert torch.equal(T.Mosaic(p=0)(x), x)
    with pytest.raises(TransformError, match=r"output_size must be the images' size, 12 x 14, in Mosaic\(.*\)"):
        T.Mosaic(20, p=0)(x)


# --- CopyPaste --------------------------------------------------------------------------------------------------------


@given(size=st.tuples(st.integers(1, 24), st.integers(1, 24)), seed=seeds)
def test_targets_of_copy_paste_match_its_image(size, seed):
    x, targets = painted(5, *size, seed)
    chain = T.Compose([T.CopyPaste(1.0, blending=False)])
    torch.manual_seed(seed)
    (made, mixed), told = chain.trace(x, targets)
    for i, (image, target) in enumerate(zip(made, mixed, strict=True)):
        colors = check(image, target)
        assert set(image.unique().tolist()) - {0} == colors, "every instance is visible"
        own, other = (set(targets[k % 5]["labels"].tolist()) for k in (i, i + 1))
        assert colors <= own | other and (not other or colors & other)
        assert torch.equal(target["area"], target["masks"].sum(dim=(1, 2)).float())
        for color in colors & other:
            assert torch.equal(image == color, x[(i + 1) % 5] == color), (
                "pasted instances are whole and keep their position"
            )
    again, _ = chain.replay(told, x, targets)
    assert torch.equal(again, made)


@pytest.mark.slow
def test_instances_are_drawn_like_torchvisions():
    """One of K, K times: each is pasted with probability 1 - (1 - 1 / K) ** K, and at least one is."""
    k, n = 4, 2000
    masks = torch.eye(k, dtype=torch.bool)[:, :, None]
    x = torch.zeros(n, 3, k, 1, dtype=torch.uint8)
    targets = [{"masks": masks if i % 2 else masks[:0], "labels": torch.arange(k)[: k * (i % 2)]} for i in range(n)]
    _, mixed = T.CopyPaste(1.0)(x, targets)
    pasted = [mixed[i]["labels"].tolist() for i in range(0, n, 2)]
    counts = np.bincount(np.concatenate(pasted), minlength=k) / len(pasted)
    assert (np.abs(counts - (1 - (1 - 1 / k) ** k)) < 0.05).all() and min(map(len, pasted)) == 1
    acts = [len(target["labels"]) for target in T.CopyPaste(0.25)(x, targets)[1][::2]]
    assert 190 < np.count_nonzero(acts) < 310


def test_blending_blurs_only_the_edge():
    x = torch.zeros(2, 3, 30, 30)
    x[1] = 1.0
    mask = torch.zeros(1, 30, 30, dtype=torch.bool)
    mask[:, 10:20, 10:20] = True
    targets = [{"masks": mask}] * 2
    sharp, soft = (T.CopyPaste(1.0, blending=blending)(x, targets) for blending in (False, True))
    assert torch.equal(sharp[0][0, 0], mask[0].float())
    row = soft[0][0, 0, 15]
    assert row[:8].eq(0).all() and row[12:18].sub(1).abs().max() < 1e-6 and row[22:].eq(0).all()
    assert (row[8:12].diff() > 0.1).all() and row[8:12].add(row[8:12].flip(0)).sub(1).abs().max() < 1e-6
    assert torch.equal(soft[1][0]["masks"], sharp[1][0]["masks"])


@pytest.mark.parametrize(
    ("transform", "targets", "message"),
    [
        (
            T.Mosaic(),
            [1, 2],
            r"Mosaic: labels must be dicts of boxes, masks or keypoints, not 1 \(target 0 of the batch\)",
        ),
        (T.Mosaic(), [{}, {"a": {"boxes": [[0, 0, 1, 1]]}}], r"in the dict itself, not in its \['a'\] \(target 1"),
        (
            T.Mosaic(),
            [{"boxes": [[0, 0, 1, 1]]}, {}],
            r"targets to merge must have the same keys, but only some have \['boxes'\]",
        ),
        (
            T.Mosaic(start_ratio_range=(0.3, 0.3)),
            [{"keypoints": np.ones((1, points, 2)), "boxes": [[0, 0, 9, 9]]} for points in (2, 3)],
            r"keypoints of targets to merge must have rows of one shape, not \(\d, \d, 2\), \(",
        ),
        (T.Mosaic(), [{"boxes": [[0, 0, 1, 1]], "labels": [1, 2]}], "boxes has 1 instances and labels has 2"),
        (T.CopyPaste(1.0), [{"boxes": [[0, 0, 1, 1]]}] * 2, 'a target must have "masks" of instances'),
        (T.CopyPaste(), ["cat", "dog"], "CopyPaste: labels must be dicts .* not 'cat'"),
    ],
)
def test_invalid_targets_are_refused(transform, targets, message):
    with pytest.raises(TransformError, match=message):
        transform(torch.zeros(len(targets), 3, 8, 8), targets)


def test_invalid_arguments_are_refused():
    with pytest.raises(TransformError, match="CopyPaste needs masks: call the chain with targets"):
        T.CopyPaste()(torch.zeros(2, 3, 8, 8))
    for make, message in (
        (lambda: T.Mosaic(0), "output_size .* not 0"),
        (lambda: T.Mosaic(start_ratio_range=(0.7, 0.3)), r"start_ratio_range .* not \(0.7, 0.3\)"),
        (lambda: T.Mosaic(start_ratio_range=(-2, 0)), r"start_ratio_range .* from -1 to 1, .* not \(-2, 0\)"),
        (lambda: T.Mosaic(min_bbox_size=-1), "min_bbox_size .* not -1"),
        (lambda: T.Mosaic(p=2), "p must be a probability"),
        (lambda: T.CopyPaste(-1), "p must be a probability"),
    ):
        with pytest.raises(TransformError, match=message):
            make()
    assert repr(T.Mosaic(64)) == "Mosaic(output_size=(64, 64))" and repr(T.CopyPaste()) == "CopyPaste()"


@pytest.mark.parametrize(
    "transform",
    [T.Mosaic(), T.CopyPaste(0.7, False), T.MixUp(8.0), T.Compose([T.CopyPaste(blending=False), T.Mosaic(p=0.5)])],
)
def test_results_are_independent_of_the_batch_size(tmp_path, transform):
    x, targets = painted(11, 20, 30, 5, class_masks=not isinstance(transform, T.MixUp))
    items = []
    for i, (image, target) in enumerate(zip(x, targets, strict=True)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path := tmp_path / f"{i}.png")
        items.append((str(path), target))
    results = []
    for batch_size in (1, 4, 11):
        chain = [T.RandomHorizontalFlip(), transform, T.RandomVerticalFlip()]
        with cuaug.Loader(items, chain, batch_size=batch_size, shuffle=True, seed=3) as loader:
            results.append(
                [(image, target) for images, labels in loader for image, target in zip(images, labels, strict=True)]
            )
    for image, target in results[0]:
        if isinstance(transform, (T.Mosaic, T.CopyPaste)):  # after both, a mosaic may show an instance twice
            check(image, target, boxes=False)
    for other in results[1:]:
        for (image, target), (same_image, same_target) in zip(results[0], other, strict=True):
            assert torch.equal(image, same_image) and target["names"] == same_target["names"]
            assert all(torch.equal(target[name], same_target[name]) for name in ("boxes", "masks"))


# --- MixUp ------------------------------------------------------------------------------------------------------------


@given(st.integers(2, 5), seeds, st.sampled_from([0.0, 0.5, 1.0]))
def test_the_instances_of_both_images_are_kept(n, seed, p):
    images, targets = painted(n, 12, 14, seed, class_masks=False)
    chain = T.Compose([T.MixUp(32.0, p=p)], generator=torch.Generator().manual_seed(seed))
    (mixed, merged), params = chain.trace(images, targets)
    for i, target in enumerate(merged):
        lam = params[i][0]["params"]["lam"]
        own, next_one = targets[i], targets[(i + 1) % n]
        want = images[i].double() * lam + images[(i + 1) % n].double() * (1 - lam)
        assert (mixed[i].double() - want).abs().max() <= 0.51
        assert target["image_id"] == own["image_id"]
        for key in ("boxes", "masks", "labels", "area", "keypoints"):
            both = torch.cat([own[key], next_one[key]]) if lam < 1 else own[key]
            assert target[key].dtype == own[key].dtype
            torch.testing.assert_close(target[key], both)
        assert target["names"] == own["names"] + (next_one["names"] if lam < 1 else [])


def test_what_does_not_mix_is_refused():
    images, targets = painted(2, 12, 14)
    with pytest.raises(TransformError, match="class masks of two images do not blend into one"):
        T.MixUp()(images, targets)
    with pytest.raises(TransformError, match=r"MixUp: labels must be dicts .*target 1 of the batch"):
        T.MixUp(num_classes=3)(images, [targets[0], 1])
