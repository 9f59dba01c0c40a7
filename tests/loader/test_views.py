"""Views in a loader: decoded once, equal to `MultiView` applied to the image."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from tests.support.loader.further_pictures import planes_of, write_photos

LARGE = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
SMALL = T.Compose([T.RandomResizedCrop((10, 12), (0.1, 0.4)), T.ColorJitter(0.4)])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_views_of_several_sizes_come_from_one_decoding(tmp_path, layout, on_error):
    paths = write_photos(tmp_path, 9, form="PNG")
    if on_error != "raise":
        Path(paths[4]).write_bytes(b"no picture")
    chain = T.Compose([T.MultiView([LARGE, SMALL, LARGE, SMALL, SMALL]), T.Normalize(0.5, 0.5)])
    how = {"layout": layout, "on_error": on_error, "seed": 5, "dtype": torch.float16}
    seen = {}
    with cuaug.Loader(paths, chain, batch_size=4, **how) as loader:
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
    with cuaug.Loader(paths, chain, batch_size=2, shuffle=True, threads=3, **how) as loader:
        for batch in loader:
            for k, index in enumerate(batch.indices.tolist()):
                assert all(map(torch.equal, [views[k].cpu() for views in batch.images], seen[index]))


def test_a_batch_of_several_sizes(tmp_path):
    """The methods of a batch work with several tensors."""
    paths = write_photos(tmp_path, 4)
    with cuaug.Loader(paths, [T.MultiView([LARGE, SMALL, SMALL])], batch_size=4, device="cpu") as loader:
        batch = next(iter(loader))
    into = [torch.empty_like(each) for each in batch.images]
    batch.copy_into(into)
    again = pickle.loads(pickle.dumps(batch))
    for others in (into, batch.to("cpu").images, again.images):
        assert all(map(torch.equal, batch.images, others))
    assert [each.device.type for each in batch.to("meta").images] == ["meta", "meta"]
    assert again.params() == [[], [], [], []]
    assert [{step["view"] for step in steps} for steps in batch.params()] == [{0, 1, 2}] * 4
    assert "images: (4, 1, 3, 24, 24), (4, 2, 3, 10, 12) torch.uint8 on cpu" in repr(batch)
    with pytest.raises(cuaug.LoaderError, match="images has 1 tensor\\(s\\), but the batch has 2"):
        batch.copy_into(into[0])
    with pytest.raises(cuaug.LoaderError, match=r"images is \(4, 1, 3, 24, 24\).* the batch has \(4, 2, 3, 10, 12\)"):
        batch.copy_into([into[0], into[0]])


def test_kept_batches_keep_all_their_views(tmp_path):
    """Memory of a batch is reused once none of its tensors is referenced."""
    paths = write_photos(tmp_path, 40)
    with cuaug.Loader(paths, [T.MultiView([LARGE, SMALL])], batch_size=4) as loader:
        first = next(iter(loader)).images[1]
        before = first.clone()
        for _ in range(2):
            for _ in loader:
                pass
        assert torch.equal(first, before)


def test_a_replacement_whose_views_swap_sizes(tmp_path):
    """Equally many views of each size, but in another order, which once was not noticed."""
    paths = [str(tmp_path / f"{i}.png") for i in range(8)]
    for i, path in enumerate(paths):
        Image.new("RGB", (8, 6) if i == 0 else (6, 8)).save(path)
    Path(paths[1]).write_bytes(b"no picture")
    views = [T.CenterCrop((6, 8)), T.Pad(0), T.CenterCrop((8, 6))]
    told = pytest.raises(cuaug.TransformError, match=r"view 1 of .* is 6 x 8, view 1 of .* is 8 x 6")
    with cuaug.Loader(paths, [T.MultiView(views)], batch_size=2, on_error="replace", seed=0) as loader, told:
        next(iter(loader))
