"""`Tiles` against InternVL's and LLaVA-NeXT's functions on Pillow's images, in calls, `decode` and a Loader."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

import cuaug
from cuaug import ArgumentError, TransformError
from cuaug import transforms as T
from tests.references import packing as reference
from tests.support.codec.encoded_images import encode

SIZE = 16
GRIDS = [(1, 2), (2, 1), (2, 2), (1, 3), (3, 1)]
THUMBNAILS = st.sampled_from([None, "first", "last"])


def picture(height: int, width: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def png(image: Image.Image) -> bytes:
    return encode(image, "PNG")


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
    got, packing = cuaug.decode([*map(png, images)], chain)
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
    whole, _ = cuaug.decode([png(image)], [first, T.Tiles(SIZE)])
    flipped = Image.fromarray(np.array(image.crop((5, 1, 85, 49)))[:, ::-1])
    assert torch.equal(whole, cuaug.decode([png(flipped)], [T.Tiles(SIZE)])[0])
    normalize = T.Normalize((0.5, 0.4, 0.3), 0.2)
    after, _ = cuaug.decode([png(image)], [T.Tiles(SIZE), normalize])
    uint8, _ = cuaug.decode([png(image)], [T.Tiles(SIZE)])
    assert after.shape == uint8.shape and (after - normalize(uint8)).abs().max() < 0.02  # rounding to a level
    padded, _ = cuaug.decode([png(picture(5, 90))], [normalize, T.Tiles(SIZE, grids=[(2, 2)])])
    assert not padded[0, :, :4].any()


def test_padding_to_the_most_tiles():
    files = [png(picture(40, 40)), png(picture(20, 90, 1))]
    flat, bounds = cuaug.decode(files, [T.Tiles(SIZE)])
    padded, packing = cuaug.decode(files, [T.Tiles(SIZE, pad=True)])
    counts = bounds.cu_seqlens.diff().tolist()
    assert packing.mask.sum(dim=1).tolist() == counts and counts[0] != counts[1]
    assert torch.equal(padded[packing.mask], flat) and not padded[~packing.mask].any()


def test_a_call():
    """A tensor of images, whose tiles are as many, and one picture."""
    images = torch.from_numpy(np.stack([np.array(picture(40, 90, i)) for i in range(3)])).permute(0, 3, 1, 2)
    got = T.Tiles(SIZE)(images)
    flat, packing = cuaug.decode([png(picture(40, 90, i)) for i in range(3)], [T.Tiles(SIZE)])
    assert torch.equal(got.flatten(0, 1), flat) and got.shape[1] == packing.cu_seqlens[1]
    assert torch.equal(T.Tiles(SIZE)(images[0]), got[0])


def test_a_loader(tmp_path):
    """Batches, the rest, replaced samples: the tiles of each image, as `decode` makes them."""
    sizes = [(40, 40), (20, 90), (16, 16), (90, 33), (64, 48)]
    files = [png(picture(*size, i)) for i, size in enumerate(sizes)]
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
def test_refusals(make):
    with pytest.raises(TransformError):
        make()


def test_tiles_have_no_positions_beside_thumbnails():
    _, packing = cuaug.decode([png(picture(20, 90))], [T.Tiles(SIZE)])
    with pytest.raises(ArgumentError, match="thumbnail"):
        packing.positions()
    _, packing = cuaug.decode([png(picture(SIZE, 3 * SIZE))], [T.Tiles(SIZE, thumbnail=None)])
    assert packing.positions().tolist() == [[0, 0, column] for column in range(3)]
