"""Further pictures of a sample take the same parameters as its image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import DecodedCache, DecodeError, DecodeOptions, Loader, LoaderError, TransformError
from cuaug import transforms as T
from tests.support.codec.encoded_images import encode
from tests.support.transforms.cases import CASES
from tests.targets.test_mask_files import load

H, W = 22, 30
ALL = [pytest.param(case[0], id=f"{name}-{k}") for name, cases in CASES.items() for k, case in enumerate(cases)]
COLOR_AND_GEOMETRY = [
    T.RandomResizedCrop((12, 16)),
    T.RandomHorizontalFlip(),
    T.ColorJitter(0.4, 0.4, 0.4, 0.2),
    T.RandomErasing(0.5),
    T.RandomRotation(20),
    T.GaussianBlur(3),
]


def noise(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape or (H, W, 3), dtype=np.uint8)


def seeded(chain: Any, *arguments: Any) -> Any:
    torch.manual_seed(3)
    return chain(*arguments)


# --- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", ALL)
def test_every_transform_acts_as_on_the_picture_alone(transform):
    """The reference: the chain on each picture by itself, with the same seed."""
    for seed in range(3):
        image, right = noise(seed), noise(seed + 10)
        torch.manual_seed(seed)
        made, target = transform(image, {"images": {"right": right, "same": image}})
        for picture, got in ((right, target["images"]["right"]), (image, target["images"]["same"]), (image, made)):
            torch.manual_seed(seed)
            np.testing.assert_array_equal(got, transform(picture))


KINDS = {
    "tensor": lambda: torch.from_numpy(noise(1, 3, H, W)),
    "float tensor": lambda: torch.from_numpy(noise(1, 3, H, W)) / 255,
    "gray tensor": lambda: torch.from_numpy(noise(1, 1, H, W)),
    "array": lambda: noise(1),
    "gray array": lambda: noise(1, H, W),
    "PIL": lambda: Image.fromarray(noise(1)),
    "gray PIL": lambda: Image.fromarray(noise(1, H, W)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("image_kind", ["tensor", "array", "PIL"])
def test_pictures_keep_their_own_type(kind, image_kind):
    """RGB beside infrared: one channel takes the parameters of three."""
    chain, other = T.Compose(COLOR_AND_GEOMETRY), KINDS[kind]()
    _, target = seeded(chain, KINDS[image_kind](), {"images": {"other": other}, "number": 7})
    got, want = target["images"]["other"], seeded(chain, other)
    assert type(got) is type(other) and target["number"] == 7 and list(target) == ["images", "number"]
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_pictures_of_a_batch():
    chain, images = T.Compose(COLOR_AND_GEOMETRY), torch.from_numpy(noise(0, 4, 3, H, W))
    others, gray = torch.from_numpy(noise(1, 4, 3, H, W)), noise(2, 4, H, W)
    _, targets = seeded(chain, images, [{"images": {"b": b, "g": g}} for b, g in zip(others, gray, strict=True)])
    assert torch.equal(torch.stack([t["images"]["b"] for t in targets]), seeded(chain, others))
    want = seeded(chain, gray[..., None])[..., 0]
    np.testing.assert_array_equal(np.stack([t["images"]["g"] for t in targets]), want)


def test_pictures_beside_boxes_and_masks():
    """RandomIoUCrop draws by the boxes: the pictures follow the same window."""
    boxes = np.array([[4.0, 4.0, 14.0, 14.0]])
    chain = T.Compose([T.RandomIoUCrop(), T.RandomHorizontalFlip()])
    image = noise(0)
    for seed in range(8):
        torch.manual_seed(seed)
        made, target = chain(image, {"boxes": boxes, "mask": image[..., 0], "images": {"same": image}})
        np.testing.assert_array_equal(target["images"]["same"], made)
        np.testing.assert_array_equal(target["mask"], made[..., 0])


def test_pictures_in_tuples_and_dicts():
    image, other = noise(0), noise(1)
    made, (deep, number) = T.RandomHorizontalFlip(1)(image, ({"deep": {"images": {"a": other, "b": image}}}, 3))
    np.testing.assert_array_equal(deep["deep"]["images"]["a"], other[:, ::-1])
    np.testing.assert_array_equal(deep["deep"]["images"]["b"], made)
    got = T.RandomHorizontalFlip(1)({"image": image, "images": {"right": other}})
    np.testing.assert_array_equal(got["images"]["right"], other[:, ::-1])
    assert number == 3


def test_pictures_follow_a_replay():
    chain, image, other = T.Compose(COLOR_AND_GEOMETRY), noise(0), noise(1)
    (_, first), params = chain.trace(image, {"images": {"right": other}})
    for seed in range(3):
        torch.manual_seed(seed)
        _, again = chain.replay(params, image, {"images": {"right": other}})
        np.testing.assert_array_equal(again["images"]["right"], first["images"]["right"])


@pytest.mark.parametrize(
    ("transform", "images", "message"),
    [
        (T.Pad(1), {"right": noise(1, H, W + 1, 3)}, rf"images\.right must have the size of its image, {H} x {W}, not"),
        (T.Pad(1), {"right": "right.png"}, r"images\.right is a file, and only a Loader reads files"),
        (T.Pad(1), {"right": 3}, r"images\.right must be a further picture .* not 3; .*pass_through=\('images',\)"),
        (T.Pad(1), {"right": noise(1, 2, H, W, 3)}, r"images\.right must be one picture, not a batch of 2"),
        (T.FiveCrop(4), {"right": noise(1)}, "FiveCrop, TenCrop and MultiView do not take further pictures"),
        (T.Lambda(lambda images: images), {"right": noise(1)}, "Lambda.*does not take further pictures"),
    ],
)
def test_pictures_that_cannot_follow_are_refused(transform, images, message):
    with pytest.raises(TransformError, match=message):
        transform(noise(0), {"images": images})


def test_pictures_of_a_batch_must_stack():
    images = torch.from_numpy(noise(0, 2, 3, H, W))
    message = r"names in all targets .* target 0 has \['images\.a'\], target 1 has \[\]"
    with pytest.raises(TransformError, match=message):
        T.Pad(1)(images, [{"images": {"a": images[0]}}, {}])
    message = r"images\.a: pictures of a batch must be tensors or arrays of one shape, not Image"
    with pytest.raises(TransformError, match=message):
        T.Pad(1)(images, [{"images": {"a": Image.new("RGB", (W, H))}}] * 2)


def test_pass_through_keeps_pictures_in_place():
    other = noise(1, 5, 5, 3)
    chain = T.Compose([T.RandomHorizontalFlip(1)], pass_through=("images",))
    assert chain(noise(0), {"images": {"right": other}})[1]["images"]["right"] is other


# --- in a Loader ------------------------------------------------------------------------------------------------------


def write(folder: Path, count: int = 6) -> tuple[list[str], list[str]]:
    """Two folders of noise."""
    sides: tuple[list[str], list[str]] = ([], [])
    for side, paths in enumerate(sides):
        (folder / str(side)).mkdir()
        for i in range(count):
            paths.append(str(folder / str(side) / f"{i}.png"))
            Image.fromarray(noise(100 * side + i)).save(paths[-1])
    return sides


@pytest.mark.parametrize(
    ("layout", "stack", "dtype"),
    [("NCHW", True, None), ("NHWC", True, torch.float16), ("NCHW", False, torch.float16), ("NHWC", False, None)],
)
@pytest.mark.parametrize(
    "kind",
    [str, Path, lambda path: Path(path).read_bytes(), lambda path: np.asarray(Image.open(path)), Image.open,
     lambda path: torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)],
    ids=["str", "Path", "bytes", "array", "PIL", "tensor"],
)  # fmt: skip
def test_pictures_equal_those_of_a_second_loader(tmp_path, layout, stack, dtype, kind):
    """The reference: a loader of the other side alone, with the same seed."""
    left, right = write(tmp_path)
    files = [(a, {"images": {"right": kind(b)}, "i": i}) for i, (a, b) in enumerate(zip(left, right, strict=True))]
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 5, "device": "cpu"}
    options |= {"layout": layout, "stack": stack, "dtype": dtype}
    with Loader(files, COLOR_AND_GEOMETRY, **options) as both, Loader(right, COLOR_AND_GEOMETRY, **options) as alone:
        for batch, reference in zip(both, alone, strict=True):
            assert torch.equal(batch.indices, reference.indices)
            want = torch.stack(list(reference.images))
            got = batch.labels["images"]["right"]
            assert got.shape == want.shape and got.dtype == want.dtype and torch.equal(got, want)


def test_pictures_beside_boxes_in_a_loader(tmp_path):
    left, _ = write(tmp_path)
    files = [(path, {"boxes": np.array([[1.0, 2.0, 9.0, 9.0]] * i), "images": {"same": path}}) for i, path in
             enumerate(left)]  # fmt: skip
    with Loader(files, [T.RandomHorizontalFlip()], batch_size=6, device="cpu", cache="decoded") as loader:
        for _ in range(2):
            ((images, targets),) = loader
            for image, target, i in zip(images, targets, range(6), strict=True):
                assert torch.equal(target["images"]["same"], image) and target["boxes"].shape == (i, 4)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("missing.png", r"missing\.png' \(sample 2\): images\.right: No such file"),
        (b"nothing", "images.right: not an image"),
        (noise(0, H, W + 1, 3), rf"images\.right: it must have the size of its image, {H} x {W}, not {H} x {W + 1}"),
        (np.zeros((H, W, 3)), "images.right: a decoded image must be a uint8 array"),
    ],
)
def test_a_picture_that_cannot_be_read_costs_its_sample(tmp_path, on_error, other, reason):
    left, right = write(tmp_path)
    files = [(a, {"images": {"right": other if i == 2 else right[i]}}) for i, a in enumerate(left)]
    errors: list[DecodeError] = []
    with Loader(files, batch_size=6, device="cpu", on_error=on_error, error_callback=errors.append) as loader:
        (batch,) = loader
        assert batch.indices[batch.valid].tolist() == [0, 1, 3, 4, 5]
        assert len(batch.labels["images"]["right"]) == len(batch.images)
    with pytest.raises(DecodeError, match=reason):
        raise errors[0]


def test_limits_and_exif_hold_for_pictures(tmp_path):
    left, _ = write(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 3
    files = [(left[0], {"images": {"right": encode(Image.fromarray(noise(0)), "PNG", exif=exif)}})]
    for apply_exif, want in ((True, noise(0)[::-1, ::-1]), (False, noise(0))):
        labels = load(files, decode=DecodeOptions(apply_exif=apply_exif))
        np.testing.assert_array_equal(labels["images"]["right"][0].permute(1, 2, 0), want)
    big = encode(Image.new("RGB", (W, 2 * H)), "PNG")
    with pytest.raises(DecodeError, match=rf"images\.right: .* above the limit max_pixels={H * W}"):
        load([(left[0], {"images": {"right": big}})], decode=DecodeOptions(max_pixels=H * W))


@pytest.mark.parametrize("chain", [[T.MixUp(num_classes=3)], [T.FiveCrop(4)], [T.Pad(1), T.Lambda(lambda x: x)]])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_chains_that_do_not_take_pictures_end_the_run(tmp_path, chain, on_error):
    left, right = write(tmp_path)
    files = [(a, {"images": {"right": b}}) for a, b in zip(left, right, strict=True)]
    with pytest.raises(TransformError, match="take further pictures"):
        load(files, chain, batch_size=2, on_error=on_error)


def test_a_cache_of_smaller_images_is_refused(tmp_path):
    left, right = write(tmp_path)
    files = [(a, {"images": {"right": b}}) for a, b in zip(left, right, strict=True)]
    with Loader(files, device="cpu", cache="decoded") as loader:
        for _ in range(2):
            labels = [batch.labels for batch in loader]
            np.testing.assert_array_equal(labels[3]["images"]["right"][0].permute(1, 2, 0), noise(103))
    with pytest.raises(LoaderError, match=r"short_side=9 scales images down, but not their .* further pictures"):
        load(files, cache=DecodedCache(short_side=9))
