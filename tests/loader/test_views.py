"""A loader's views of a picture: decoded once, drawn as `MultiView` draws them on the picture itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_picture_is_decoded_once_for_all_of_its_views(tmp_path, layout, on_error):
    rng = np.random.default_rng(0)
    paths = [tmp_path / f"{i}.png" for i in range(9)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).save(path)
    if on_error == "skip":
        paths[4].write_bytes(b"no picture")
    view = T.Compose([T.RandomCrop(30), T.RandomHorizontalFlip()])
    chain = T.Compose([T.MultiView([view] * 4), T.ColorJitter(0.3)])
    how = {"layout": layout, "on_error": on_error, "seed": 5}
    seen = {}
    with cuaug.Loader(paths, chain, batch_size=4, **how) as loader:
        for batch in loader:
            for index, image, steps in zip(batch.indices.tolist(), batch.images.cpu(), batch.params(), strict=True):
                picture = torch.from_numpy(np.array(Image.open(paths[index]))).permute(2, 0, 1)
                assert image.shape == (4, 3, 30, 30) and torch.equal(image, chain.replay(steps, picture))
                assert len({view.numpy().tobytes() for view in image}) == 4
                seen[index] = image
        decoded_by = loader.stats().decoded_by
    assert sorted(seen) == [i for i in range(9) if i != 4 or on_error == "raise"]
    assert sum(decoded_by.values()) == len(seen)
    with cuaug.Loader(paths, chain, batch_size=2, shuffle=True, threads=3, **how) as loader:
        for batch in loader:
            for index, image in zip(batch.indices.tolist(), batch.images.cpu(), strict=True):
                assert torch.equal(image, seen[index])
