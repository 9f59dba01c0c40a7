"""`Patches`, `Tiles`, `PadToLargest` and `ResizeToMultiple` against the models' processors, in calls and `decode`."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from torch.utils._pytree import tree_map
from torch.utils.data import default_collate

import cuaug
from cuaug import ArgumentError, TransformError
from cuaug import transforms as T
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from tests.references import packing as reference
from tests.support.codec.encoded_images import encode

DTYPES = st.sampled_from([torch.uint8, torch.float16, torch.bfloat16, torch.float32])
MULTIPLE = T.ResizeToMultiple(28, 56 * 56, 120 * 120)


def png(height: int, width: int, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return encode(Image.fromarray(pixels), "PNG")


def want_patches(images: torch.Tensor, *options) -> torch.Tensor:
    """The reference's patches of (T, C, H, W) of any dtype."""
    bits = images.view(torch.int16) if images.dtype == torch.bfloat16 else images
    return torch.from_numpy(reference.patches(bits.numpy(), *options)).view(images.dtype)


@given(st.data(), DTYPES, st.sampled_from([1, 3]), st.sampled_from(["chw", "hwc"]))
def test_patches_of_a_call(data, dtype, channels, order):
    """The same values as without it, also where rows and columns swap, at any width of a patch."""
    size, merge, temporal = (data.draw(st.integers(1, most)) for most in (19, 3, 3))
    across = st.integers(1, 60 // (size * merge))
    height, width = (size * merge * data.draw(across) for _ in range(2))
    images = torch.from_numpy(
        np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 256, (3, channels, 40, 31), dtype=np.uint8)
    )
    chain = [T.D4(), T.Resize((height, width)), T.ToDtype(dtype, scale=True)]
    results = []
    for last in ([], [T.Patches(size, merge, temporal, order)]):
        torch.manual_seed(1)
        results.append(T.Compose([*chain, *last])(images))
    whole, cut = results
    for image, patches in zip(whole, cut, strict=True):
        assert torch.equal(patches, want_patches(image[None], size, merge, temporal, order))


def test_calls_of_one_image_and_of_other_types():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    cut = T.Patches(4)
    want = reference.patches(pixels.transpose(2, 0, 1)[None], 4)
    for image in (pixels, Image.fromarray(pixels), torch.from_numpy(pixels).permute(2, 0, 1)):
        np.testing.assert_array_equal(np.asarray(cut(image)), want)
    last = torch.from_numpy(pixels).permute(2, 0, 1)[None].contiguous(memory_format=torch.channels_last)
    np.testing.assert_array_equal(cut(last)[0], want)
    assert cut(pixels.astype(np.uint16)).dtype == np.uint16 and cut(pixels / 255.0).dtype == np.float64


@given(st.lists(st.tuples(*[st.integers(20, 200)] * 2), min_size=1, max_size=5), st.booleans())
def test_patches_of_decoded_images(sizes, pad):
    files = [png(*size, i) for i, size in enumerate(sizes)]
    chain = [MULTIPLE, T.Normalize((0.5, 0.4, 0.3), 0.2)]
    alone = [cuaug.decode(file, chain) for file in files]
    patches, packing = cuaug.decode(files, [*chain, T.Patches(14, 2, 2, pad=pad)])
    want = [want_patches(image[None], 14, 2, 2) for image in alone]
    assert packing.sizes.tolist() == [list(image.shape[1:]) for image in alone] and packing.sizes.dtype == torch.int64
    assert packing.grid_thw.tolist() == [[1, image.shape[1] // 14, image.shape[2] // 14] for image in alone]
    if not pad:
        bounds = np.cumsum([0, *map(len, want)]).tolist()
        assert packing.cu_seqlens.tolist() == bounds and packing.cu_seqlens.dtype == torch.int32
        assert torch.equal(patches, torch.cat(want)) and packing.mask is None
        return
    assert packing.cu_seqlens is None and packing.mask.shape == patches.shape[:2]
    assert packing.mask.sum(dim=1).tolist() == list(map(len, want))
    assert patches.shape[1] == max(map(len, want)) and not patches[~packing.mask].any()
    for got, image in zip(patches, want, strict=True):
        assert torch.equal(got[: len(image)], image)


@given(st.lists(st.tuples(*[st.integers(1, 70)] * 2), min_size=1, max_size=5), DTYPES)
def test_whole_images_padded_to_the_largest(sizes, dtype):
    files = [png(*size, i) for i, size in enumerate(sizes)]
    chain = [T.RandomVerticalFlip(1.0), T.ToDtype(dtype, scale=True)]
    images, packing = cuaug.decode(files, [*chain, T.PadToLargest()])
    assert images.shape == (len(files), 3, max(h for h, _ in sizes), max(w for _, w in sizes))
    assert packing.sizes.tolist() == [list(size) for size in sizes] and packing.grid_thw is packing.cu_seqlens is None
    mask = torch.zeros(packing.mask.shape, dtype=torch.bool)
    for i, (height, width) in enumerate(sizes):
        assert torch.equal(images[i, :, :height, :width], cuaug.decode(files[i], chain))
        mask[i, :height, :width] = True
    assert torch.equal(packing.mask, mask)
    assert not images.movedim(1, -1)[~mask].any()


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_other_channels(mode):
    files = [png(30, 20), png(24, 40)]
    images, packing = cuaug.decode(files, [T.PadToLargest()], mode=mode)
    alone = [cuaug.decode(file, [T.RandomHorizontalFlip(0.0)], mode=mode) for file in files]
    assert images.shape == (2, len(mode), 30, 40)
    for got, image in zip(images, alone, strict=True):
        assert torch.equal(got[:, : image.shape[1], : image.shape[2]], image)
        assert int(got.count_nonzero()) == int(image.count_nonzero())
    assert packing.mask.sum(dim=(1, 2)).tolist() == [600, 960]


def test_one_decoded_image():
    alone = cuaug.decode(png(30, 50), [T.Resize((28, 56))])
    patches, packing = cuaug.decode(png(30, 50), [T.Resize((28, 56)), T.Patches(14)])
    assert torch.equal(patches, want_patches(alone[None], 14)) and packing.grid_thw.tolist() == [[1, 2, 4]]


def test_positions_are_those_of_the_patches():
    """Each pixel of an image is its row and column, so a patch's first pixel says where it is."""
    rows, columns = np.mgrid[:84, :56].astype(np.uint8)
    file = encode(Image.fromarray(np.stack([rows, columns, columns], axis=-1)), "PNG")
    patches, packing = cuaug.decode([file] * 2, T.Patches(7, merge=4))
    firsts = patches.view(-1, 3, 49)[:, :2, 0] // 7
    assert torch.equal(packing.positions()[:, 1:], firsts.long()) and not packing.positions()[:, 0].any()
    assert cuaug.batch.Packing(packing.sizes[:0], packing.grid_thw[:0]).positions().shape == (0, 3)
    with pytest.raises(ArgumentError, match="whole images"):
        cuaug.decode([png(3, 4)], [T.PadToLargest()])[1].positions()


SIDES = st.integers(1, 3000)


def resized(transform: T.ResizeToMultiple, height: int, width: int) -> tuple[int, int]:
    plan = Plan([height, 50], [width, 50])
    params = transform.make_params(SampleRNG(0, 0, np.arange(2)), *plan.sizes)
    return int(params["height"][0]), int(params["width"][0])


@given(SIDES, SIDES, st.sampled_from([1, 14, 16, 28, 32]), st.integers(1, 10**6), st.integers(1024, 10**7))
def test_qwens_rule(height, width, of, low, high):
    low = min(low, high)
    transform = T.ResizeToMultiple(of, low, high)
    if max(height, width) > 200 * min(height, width):
        with pytest.raises(TransformError, match=f"{height} x {width} .* 200 times"):
            resized(transform, height, width)
        return
    want = reference.smart_resize(height, width, of, low, high)
    assert resized(transform, height, width) == want
    if low == 1:
        assert resized(T.ResizeToMultiple(of, max_pixels=high), height, width) == want


@given(SIDES, SIDES, st.sampled_from([1, 14, 16, 32]), st.integers(1, 64))
def test_nanovlms_and_siglips_rules(height, width, of, count):
    want = reference.longest(height, width, of, of * count)
    assert resized(T.ResizeToMultiple(of, max_size=of * count), height, width) == want
    want = reference.most_patches(height, width, of, count)
    assert resized(T.ResizeToMultiple(of, max_patches=count), height, width) == want


def test_qwens_pixel_values_have_every_bit_of_pillow_and_numpy():
    """With `pillow`, as Qwen2-VL's slow processor: Pillow's bicubic resize, scaled, normalized, cut."""
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    chain = [T.ResizeToMultiple(28, 56 * 56, 150 * 150), T.Normalize(mean, std), T.Patches(14, 2, 2)]
    files = [png(90, 140), png(300, 70, 1)]
    got, packing = cuaug.decode(files, T.Compose(chain, pillow=True))
    want = []
    for file, (height, width) in zip(files, packing.sizes.tolist(), strict=True):
        image = Image.open(io.BytesIO(file)).resize((width, height), Image.Resampling.BICUBIC)
        values = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        values = (values - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
        want.append(reference.patches(values[None].numpy(), 14, 2, 2))
    np.testing.assert_array_equal(got.numpy(), np.concatenate(want))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.Patches(0), "size must be an integer"),
        (lambda: T.Patches(256), "size must be an integer"),
        (lambda: T.Patches(14, order="whc"), "order must be"),
        (lambda: T.ResizeToMultiple(28, 100, 2000, max_size=280), "three rules"),
        (lambda: T.ResizeToMultiple(28, 5000, 2000), "min_pixels must be at most max_pixels"),
        (lambda: T.ResizeToMultiple(28, max_size=90), "max_size must be a multiple of 28"),
        (lambda: T.ResizeToMultiple(28, max_pixels=783), "max_pixels must be"),
        (lambda: T.Compose([T.Patches(14), T.Normalize(0.5, 0.5)]), "must be the last transform"),
        (lambda: T.Compose([T.Patches(14), T.Patches(14)]), "must be the last transform"),
        (lambda: T.Compose([T.FiveCrop(14), T.Patches(14)]), "not several views"),
        (lambda: T.Compose([T.MixUp(num_classes=2), T.PadToLargest()]), "cannot follow"),
        (lambda: T.Compose([T.RandomApply([T.Patches(14)])])(torch.zeros(3, 28, 28)), "move it out of RandomApply"),
        (lambda: T.Patches(14)(torch.zeros(3, 28, 30)), "28 x 30 .* no multiple of size \\* merge = 14"),
        (lambda: T.Patches(14)(torch.zeros(4, 28, 28)), "1 or 3 channels, not 4"),
        (lambda: T.Patches(14)(torch.zeros(2, 3, 3, 28, 28)), "clips in a Loader"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(TransformError, match=message):
        make()


def test_boxes_and_masks_stay_in_pixels_of_the_resized_image():
    images = torch.zeros(2, 3, 40, 60, dtype=torch.uint8)
    targets = [{"boxes": torch.tensor([[10.0, 10, 30, 20]]), "masks": torch.ones(1, 40, 60, dtype=torch.uint8)}] * 2
    base = [T.RandomHorizontalFlip(1.0), T.Resize((28, 56))]
    _, want = T.Compose(base)(images, targets)
    _, got = T.Compose([*base, T.Patches(14)])(images, targets)
    assert torch.equal(got[0]["boxes"], want[0]["boxes"]) and got[0]["masks"].shape == (1, 28, 56)
    with pytest.raises(TransformError, match="do not take further pictures"):
        T.Compose([*base, T.Patches(14)])(images[0], {"images": {"right": images[1]}})


def test_a_batch_of_patches_moves_and_maps_with_its_packing(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for i, path in enumerate(paths):
        path.write_bytes(png(40 + 20 * i, 60, i))
    with cuaug.Loader(list(map(str, paths)), [MULTIPLE, T.Patches(14)], batch_size=3, device="cpu") as loader:
        (batch,) = loader
    moved = batch.to("meta")
    assert moved.images.is_meta and moved.packing.cu_seqlens.is_meta and moved.packing.merge == 1
    mapped = tree_map(lambda value: value + 1 if isinstance(value, torch.Tensor) else value, batch)
    assert torch.equal(mapped.packing.grid_thw, batch.packing.grid_thw + 1) and mapped.packing.mask is None
    with pytest.raises(ArgumentError, match="do not collate"):
        default_collate([batch, batch])
    with pytest.raises(ArgumentError, match="holds patches, not pictures"):
        batch.show()
    assert "img" not in batch._repr_html_()


def test_damaged_images_are_left_out():
    errors: list[cuaug.DecodeError] = []
    files = [png(56, 28), b"no picture", png(28, 84, 1)]
    patches, packing = cuaug.decode(files, [MULTIPLE, T.Patches(14)], errors=errors)
    assert [error.index for error in errors] == [1] and packing.grid_thw.tolist() == [[1, 6, 4], [1, 4, 8]]
    assert torch.equal(patches, cuaug.decode(files[::2], [MULTIPLE, T.Patches(14)])[0])
    for chain in ([MULTIPLE, T.Patches(14)], [T.Patches(14, merge=2)]):
        patches, packing = cuaug.decode(files[1:2], chain, errors=errors)
        assert patches.shape == (0, 588) and packing.cu_seqlens.tolist() == [0]


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=6), st.sampled_from([1, 2]))
def test_patches_are_counted_from_sizes(sizes, merge):
    chain = T.Compose([T.ResizeToMultiple(8 * merge, 64 * merge**2, 60_000), T.Patches(8, merge=merge)])
    sizes = [size for size in sizes if max(size) <= 200 * min(size)]
    images = [png(*size) for size in sizes]
    counts = chain.count_patches(np.array([*sizes, (0, 0)]))
    assert counts[-1] == 0
    if images:
        _, packing = cuaug.decode(images, chain, device="cpu")
        assert counts[:-1].tolist() == packing.cu_seqlens.diff().tolist()


def test_what_cannot_be_counted_is_refused():
    sizes = [(90, 80), (70, 200)]
    random = T.Compose([T.RandomCrop(64), T.RandomResize(40, 90), T.ResizeToMultiple(8), T.Patches(8)])
    for chain, given_sizes, message in (
        (T.Compose([T.Resize(8)]), sizes, "with Patches or Tiles"),
        (T.Compose([T.PadToLargest()]), sizes, "with Patches or Tiles"),
        (random, sizes[:1], "draws sizes at random"),
        (T.Compose([T.RandomApply([T.Resize(64)], 0.02), T.ResizeToMultiple(8), T.Patches(8)]), sizes[:1], "at random"),
        (T.Compose([T.Patches(8)]), [90, 80], "integers of shape"),
        (T.Compose([T.Patches(8)]), [(90, 80)], "no multiple of size"),
    ):
        with pytest.raises(TransformError, match=message):
            chain.count_patches(given_sizes)


SIZE = 16
GRIDS = [(1, 2), (2, 1), (2, 2), (1, 3), (3, 1)]
THUMBNAILS = st.sampled_from([None, "first", "last"])


def picture(height: int, width: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def tensor(tiles: list[Image.Image]) -> torch.Tensor:
    return torch.stack([torch.from_numpy(np.array(tile)).permute(2, 0, 1) for tile in tiles])


@given(st.lists(st.tuples(*[st.integers(1, 200)] * 2), min_size=1, max_size=4), THUMBNAILS, st.booleans(), st.data())
@example([(SIZE, SIZE), (4 * SIZE, SIZE), (10, 20)], "first", False, None)
@example([(SIZE, SIZE), (3 * SIZE, 2 * SIZE)], "last", True, None)
def test_tiles_of_decoded_images(sizes, thumbnail, by_grids, data):
    """Pillow's bits: InternVL's tiles, where one tile has no thumbnail, and LLaVA-NeXT's, where each image has one."""
    least, most = (1, 12) if data is None else sorted(data.draw(st.tuples(*[st.integers(1, 12)] * 2)))
    images = [picture(*size, i) for i, size in enumerate(sizes)]
    if by_grids:
        tiles = T.Tiles(SIZE, grids=GRIDS, thumbnail=thumbnail)
        want = [tensor(reference.llava_tiles(image, SIZE, GRIDS, thumbnail)) for image in images]
    else:
        tiles = T.Tiles(SIZE, most, least, thumbnail=thumbnail)
        want = [tensor(reference.internvl_tiles(image, SIZE, least, most, thumbnail)) for image in images]
    chain = T.Compose([tiles], pillow=True)
    got, packing = cuaug.decode([encode(image, "PNG") for image in images], chain)
    assert torch.equal(got, torch.cat(want))
    counts = [*map(len, want)]
    assert packing.cu_seqlens.tolist() == np.cumsum([0, *counts]).tolist()
    assert chain.count_patches(np.array(sizes)).tolist() == counts
    grids = packing.grid_thw.tolist()
    assert packing.sizes.tolist() == [[SIZE * rows, SIZE * columns] for _, rows, columns in grids]
    has_thumbnail = [count - rows * columns for count, (_, rows, columns) in zip(counts, grids, strict=True)]
    assert has_thumbnail == [int(thumbnail is not None and (by_grids or count > 1)) for count in counts]


def test_tiles_after_and_before_other_transforms():
    """Those before change what is tiled; `Normalize` comes after, or before: then the padding is 0."""
    image = picture(50, 90)
    first = T.Compose([T.CenterCrop((48, 80)), T.RandomHorizontalFlip(1.0)])
    whole, _ = cuaug.decode([encode(image, "PNG")], [first, T.Tiles(SIZE)])
    flipped = Image.fromarray(np.array(image.crop((5, 1, 85, 49)))[:, ::-1])
    assert torch.equal(whole, cuaug.decode([encode(flipped, "PNG")], [T.Tiles(SIZE)])[0])
    normalize = T.Normalize((0.5, 0.4, 0.3), 0.2)
    after, _ = cuaug.decode([encode(image, "PNG")], [T.Tiles(SIZE), normalize])
    uint8, _ = cuaug.decode([encode(image, "PNG")], [T.Tiles(SIZE)])
    assert after.shape == uint8.shape and (after - normalize(uint8)).abs().max() < 0.02  # rounding to a level
    padded, _ = cuaug.decode([png(5, 90)], [normalize, T.Tiles(SIZE, grids=[(2, 2)])])
    assert not padded[0, :, :4].any()


def test_padding_to_the_most_tiles():
    files = [png(40, 40), png(20, 90, 1)]
    flat, bounds = cuaug.decode(files, [T.Tiles(SIZE)])
    padded, packing = cuaug.decode(files, [T.Tiles(SIZE, pad=True)])
    counts = bounds.cu_seqlens.diff().tolist()
    assert packing.mask.sum(dim=1).tolist() == counts and counts[0] != counts[1]
    assert torch.equal(padded[packing.mask], flat) and not padded[~packing.mask].any()


def test_tiles_of_a_call():
    """A tensor of images, whose tiles are as many, and one picture."""
    images = torch.from_numpy(np.stack([np.array(picture(40, 90, i)) for i in range(3)])).permute(0, 3, 1, 2)
    got = T.Tiles(SIZE)(images)
    flat, packing = cuaug.decode([png(40, 90, i) for i in range(3)], [T.Tiles(SIZE)])
    assert torch.equal(got.flatten(0, 1), flat) and got.shape[1] == packing.cu_seqlens[1]
    assert torch.equal(T.Tiles(SIZE)(images[0]), got[0])


def test_tiles_of_a_loader(tmp_path):
    """Batches, the rest, replaced samples: the tiles of each image, as `decode` makes them."""
    sizes = [(40, 40), (20, 90), (16, 16), (90, 33), (64, 48)]
    files = [png(*size, i) for i, size in enumerate(sizes)]
    files[3] = files[3][:60]
    for i, file in enumerate(files):
        (tmp_path / f"{i}.png").write_bytes(file)
    paths = [tmp_path / f"{i}.png" for i in range(len(files))]
    seen = 0
    for batch in cuaug.Loader(paths, transforms=[T.Tiles(SIZE)], batch_size=3, on_error="replace"):
        bounds = batch.packing.cu_seqlens.tolist()
        for k, index in enumerate(batch.indices.tolist()):
            want, _ = cuaug.decode([files[index]], [T.Tiles(SIZE)])
            assert torch.equal(batch.images[bounds[k] : bounds[k + 1]], want)
            seen += 1
    assert seen == len(files)


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.Tiles(0),
        lambda: T.Tiles(SIZE, 2, 3),
        lambda: T.Tiles(SIZE, 2, grids=GRIDS),
        lambda: T.Tiles(SIZE, grids=[]),
        lambda: T.Tiles(SIZE, grids=[(0, 2)]),
        lambda: T.Tiles(SIZE, thumbnail="middle"),
        lambda: T.Compose([T.Tiles(SIZE), T.Patches(4)]).views,
        lambda: T.Compose([T.FiveCrop(4), T.Tiles(SIZE)]).views,
        lambda: T.Compose([T.Tiles(SIZE), T.CenterCrop(SIZE)])(torch.zeros(3, 40, 90, dtype=torch.uint8)),
        lambda: T.RandomApply([T.Tiles(SIZE)])(torch.zeros(3, 40, 90, dtype=torch.uint8)),
        lambda: T.Tiles(SIZE)(torch.zeros(2, 4, 3, 40, 90, dtype=torch.uint8)),
    ],
)
def test_refused_tiles(make):
    with pytest.raises(TransformError):
        make()


def test_tiles_have_no_positions_beside_thumbnails():
    _, packing = cuaug.decode([png(20, 90)], [T.Tiles(SIZE)])
    with pytest.raises(ArgumentError, match="thumbnail"):
        packing.positions()
    _, packing = cuaug.decode([png(SIZE, 3 * SIZE)], [T.Tiles(SIZE, thumbnail=None)])
    assert packing.positions().tolist() == [[0, 0, column] for column in range(3)]
