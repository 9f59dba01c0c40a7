"""The programs of docs/recipes.md run and do what the text says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.references.packing import patches

NAMES = (
    "views sizes masks pairs bands resolutions buckets crops augmix clip video frames repeated killed decode show "
    "pillow processor patches"
)
PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
CODE = dict(zip(NAMES.split(), re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), strict=True))
COUNT, H, W = 14, 120, 160


def write_scenes(folder: Path) -> dict[str, Any]:
    """Smooth images that encode their number, equal for both eyes, with masks and depth."""
    names = [f"{i:02d}" for i in range(COUNT)]
    for kind in ("left", "right", "classes", "depth"):
        (folder / kind).mkdir()
    y, x = np.mgrid[:H, :W]
    for i, name in enumerate(names):
        picture = np.stack([np.full((H, W), 16 * i), 255 * y // H, 255 * x // W], axis=-1).astype(np.uint8)
        for kind in ("left", "right"):
            Image.fromarray(picture).save(folder / kind / f"{name}.jpg", quality=95)
        Image.fromarray((x // 20).astype(np.uint8)).save(folder / "classes" / f"{name}.png")
        Image.fromarray((x * 256 + 128).astype(np.uint16)).save(folder / "depth" / f"{name}.png")
    return {"names": names, "paths": [f"left/{name}.jpg" for name in names]}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the programs up to one, and returns its names."""
    names = write_scenes(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*programs: str) -> dict[str, Any]:
        for program in programs:
            exec(CODE[program], names)
        return names

    return run


def test_two_views_show_the_same_image_and_differ(run):
    names = run("views")
    assert names["one"].shape == names["other"].shape == (4, 3, 96, 96)
    batches = list(names["loader"])
    assert len(batches) == COUNT // 4 and len(torch.cat([batch.indices for batch in batches]).unique()) == 12
    assert all((batch.images[:, 0] - batch.images[:, 1]).abs().amax((1, 2, 3)).min() > 0.1 for batch in batches)


def test_views_of_two_sizes_show_the_same_images_with_independent_draws(run):
    names = run("views", "sizes")
    loader = names["cuaug"].Loader(names["paths"], names["chain"], batch_size=4)
    for globals_, locals_ in (batch.images for batch in loader):
        assert globals_.shape[1:] == (2, 3, 96, 96) and locals_.shape[1:] == (6, 3, 48, 48)
        assert len({view.numpy().tobytes() for images in (globals_, locals_) for view in images[0].cpu()}) == 8
    assert sum(loader.stats().decoded_by.values()) == COUNT
    plain = [names["T"].MultiView([names["large"].transforms[0]] * 2 + [names["small"].transforms[0]] * 2)]
    for batch in names["cuaug"].Loader(names["paths"], plain, batch_size=4):
        for several in batch.images:  # red encodes the image
            red = several[:, :, 0].float().mean((1, 2, 3)).cpu()
            assert (red - 16.0 * batch.labels).abs().max() < 6


def test_masks_and_depth_move_with_their_images(run):
    names = run("views", "masks")
    assert names["loss"].isfinite() and names["classes"].dtype == torch.uint8 and names["depth"].dtype == torch.float32
    assert names["images"].shape[-2:] == names["classes"].shape[-2:] == names["depth"].shape[-2:] == (96, 128)
    chain = names["T"].Compose(names["move"], mask_fill=255)
    for images, targets in names["cuaug"].Loader(names["Scenes"](names["names"]), chain, batch_size=4):
        depth = targets["depth"]["mask"]
        inside = depth != 255
        assert ((targets["mask"] == 255) == ~inside).all()
        assert (targets["mask"][inside] == (depth[inside] - 0.5) // 20).all()
        # Blue encodes the column; at the borders it is mixed with black.
        off = images[:, 2].float().cpu() * W / 255 - depth
        assert off[inside].abs().median() < 2 and (off[inside].abs() < 4).float().mean() > 0.97


def test_buckets(run):
    """Images of 120 x 160 are in the bucket of the nearest ratio, 112 x 144; 4 of them fit the budget."""
    names = run("views", "buckets")
    assert names["buckets"] == [(96, 160), (112, 144), (128, 128), (144, 112), (160, 96)]
    with names["loader"] as loader:
        batches = [tuple(batch.images.shape) for batch in loader]
    assert sorted(batches) == [(2, 3, 112, 144)] + [(4, 3, 112, 144)] * 3
    assert [*map(tuple, names["sizes"].tolist())] == [(H, W)] * COUNT


def test_pairs_share_geometric_draws(run):
    names = run("views", "masks", "pairs")
    moving = {"RandomResizedCrop", "RandomHorizontalFlip", "RandomRotation"}
    for pair in zip(names["left"], names["right"], strict=True):
        told = [[[step for step in steps if step["transform"] in moving] for steps in each.params()] for each in pair]
        assert told[0] == told[1] and not torch.equal(pair[0].images, pair[1].images)


def test_tiles_keep_their_bands(run):
    names = run("views")
    Path("tiles/all").mkdir(parents=True)
    for i in range(3):
        Image.fromarray(np.full((256, 256, 4), 50 * i, np.uint8)).save(f"tiles/all/{i}.png")
    names |= {"MEAN": (0.5, 0.5, 0.5, 0.5), "STD": (0.5, 0.25, 0.25, 1.0)}
    exec(CODE["bands"].replace("    batch_size", "    device='cpu',\n    batch_size"), names)
    images = next(iter(names["loader"])).images
    expected = (torch.tensor([0.0, 50, 100]) / 255)[:, None] - 0.5
    assert images.shape == (3, 4, 256, 256)
    torch.testing.assert_close(images[..., 0, 0], expected / torch.tensor(names["STD"]))


def test_resolutions_grow_in_turn(run):
    names = run("views", "resolutions")
    assert names["epoch"] == 2 and names["images"].shape == (4, 3, 96, 96)


def test_ten_crops_score_every_image(run):
    names = run("views", "crops")
    scores = names["scores"]
    assert scores.isfinite().all() and len(scores.unique(dim=0)) == COUNT


def test_augmix_changes_copies_of_the_clean_crops(run):
    names = run("views", "augmix")
    clean, (one, other) = names["clean"], names["mixed"]
    assert clean.shape == one.shape == other.shape and clean.dtype == torch.float32
    assert not torch.equal(clean, one) and not torch.equal(one, other)
    near = torch.corrcoef(torch.stack([clean.flatten(), one.flatten()]))[0, 1]
    assert near > 0.5, "copies of the same crops"


def test_all_frames_of_a_clip_move_together(run):
    names = run("views", "masks", "clip")
    assert names["clips"].shape == (1, 8, 3, 96, 96)
    still = names["chain"](names["frames"][:1].repeat(COUNT, 1, 1, 1)[None])[0]
    assert torch.equal(still, still[:1].expand_as(still))


def write_videos(folder: Path, count: int) -> list[str]:
    av = pytest.importorskip("av")
    paths = [str(folder / f"{number}.mp4") for number in range(count)]
    for number, path in enumerate(paths):
        with av.open(path, "w") as container:
            stream = container.add_stream("mpeg4", rate=30)
            stream.width, stream.height, stream.pix_fmt = 96, 80, "yuv420p"
            for t in range(60):
                picture = np.full((80, 96, 3), (40 * number, 4 * t, 0), np.uint8)
                picture[..., 2] = 2 * np.arange(96)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
    return paths


@pytest.mark.slow
def test_clips_of_videos(run, tmp_path):
    names = run("views")
    names |= {"videos": write_videos(tmp_path, 3), "network": lambda clips: clips.mean((2, 3, 4)).repeat(1, 4)[:, :10]}
    run("video")
    assert len(names["train"]) == 3 and len(names["test"]) == 30
    assert names["crops"].shape[1:] == (3, 3, 8, 56, 56)
    start, middle, end = names["crops"][0].flatten(1)
    assert not torch.equal(start, middle) and not torch.equal(middle, end) and not torch.equal(start, end)
    whole = [names["T"].Resize(56), names["finish"]]
    (clips,) = [batch.images for batch in names["cuaug"].Loader(names["test"], whole, batch_size=30, layout="NCTHW")]
    last = names["crops"][-1]
    for crop, left in zip(last, (0, round((clips.shape[-1] - 56) / 2), clips.shape[-1] - 56), strict=True):
        assert (crop - clips[-1, ..., left : left + 56]).abs().max() < 1e-5
    means = torch.stack([batch.images.mean() for batch in names["cuaug"].Loader(names["test"], names["chain"])])
    assert (names["sums"][:, 0].diff() > 0).all() and len(means) == 30, "videos become redder, one after the other"
    run("frames")
    assert len(names["pairs"]) == 12 and names["images"].shape[1:] == (3, 56, 56)


def test_repeated_images_are_adjacent_and_differ(run):
    names = run("views", "repeated")
    batches = list(names["loader"])
    assert torch.cat([batch.indices for batch in batches]).shape == (COUNT,)
    for batch in batches:
        for i in range(len(batch.indices) - 1):
            if i % 3 < 2:
                assert batch.indices[i] == batch.indices[i + 1] and not torch.equal(
                    batch.images[i], batch.images[i + 1]
                )


def dies_after(count: int, save):
    """A `torch.save` that works a number of times."""
    left = count

    def save_or_die(states, path):
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        save(states, path)
        left -= 1

    return save_or_die


def test_training_that_is_killed_ends_with_the_same_weights(run, monkeypatch):
    expected = run("views", "killed")["model"].state_dict()
    for count in (2, 3):  # the last saved state is from the middle or the end of an epoch
        Path("last.pt").unlink()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(torch, "save", dies_after(count, torch.save))
            run("killed")
        torch.testing.assert_close(run("killed")["model"].state_dict(), expected)


def test_decoding_without_a_loader(run):
    names = run("views")
    exec("from pathlib import Path", names)
    names = run("decode")
    assert names["image"].shape == (3, H, W) and names["batch"].shape == (COUNT, 3, 96, 96)
    assert torch.equal(names["corner"], names["image"][:, :64, :48])
    expected = next(iter(names["cuaug"].Loader(names["paths"], names["chain"], batch_size=COUNT))).images
    assert torch.equal(names["batch"], expected)


def test_a_batch_is_drawn(run):
    run("views", "show")
    assert Image.open("batch.png").size[0] > 4 * 96


def test_the_pixels_of_pillow(run):
    """14 images in batches of four: the last batch has two."""
    names = run("pillow")
    assert names["images"].shape == (2, 3, 224, 224)
    mean, std = (torch.tensor(values)[:, None, None] for values in (names["chain"][2].mean, names["chain"][2].std))
    for image, path in zip(names["images"], names["paths"][-2:], strict=True):
        picture = Image.open(path).resize((256 * W // H, 256), Image.Resampling.BILINEAR)
        left, top = round((picture.width - 224) / 2), 16
        levels = torch.from_numpy(np.array(picture.crop((left, top, left + 224, top + 224)))).permute(2, 0, 1)
        assert torch.equal(image.cpu(), levels.float().div(255).sub_(mean).div_(std))


def test_patches_of_images_at_their_own_size(run):
    """As Pillow and NumPy make them. 14 images in batches of four: the last batch has two."""
    names = run("views", "patches")
    assert names["grids"].tolist() == [[1, 6, 8]] * 2 and [image.shape for image in names["images"]] == [(48, 64)] * 2
    mean, std = (torch.tensor(names[name])[:, None, None] for name in ("mean", "std"))
    want = []
    for path in names["paths"][-2:]:
        picture = Image.open(path).resize((112, 84), Image.Resampling.BICUBIC)
        values = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float().div(255).sub_(mean).div_(std)
        want.append(patches(values[None].numpy(), 14, 2, 2))
    np.testing.assert_array_equal(names["batch"].images, np.concatenate(want))


def test_a_processor_of_transformers(run, tmp_path):
    folder = tmp_path / "clip-vit-base-patch32"
    folder.mkdir()
    (folder / "preprocessor_config.json").write_text('{"image_processor_type": "CLIPImageProcessor", "crop_size": 192}')
    names = run("views", "processor")
    chain = names["chain"]
    picture = Image.open(names["paths"][-1]).resize((224 * W // H, 224), Image.Resampling.BICUBIC)
    left = (picture.width - 192) // 2
    levels = torch.from_numpy(np.array(picture.crop((left, 16, left + 192, 208)))).permute(2, 0, 1)
    mean, std = (torch.tensor(chain.settings[name])[:, None, None] for name in ("image_mean", "image_std"))
    expected = levels.float().div(255).sub_(mean).div_(std)
    assert set(names["inputs"]) == {"pixel_values"}
    assert torch.equal(names["inputs"]["pixel_values"][-1].cpu(), expected)
