"""Every transform on clips: each frame is the image that the clip's parameters make of it, statistics included."""

from __future__ import annotations

import pytest
import torch

from cuaug import transforms as T
from tests.support.run_plans import assert_same
from tests.support.transforms.cases import CASES

#: (N, T, C, H, W), of different frames.
CLIPS = torch.randint(0, 256, (2, 3, 3, 24, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
CLIPS = (CLIPS.float() * torch.linspace(0.3, 1.0, 3)[:, None, None, None]).to(torch.uint8)  # other histograms
ALL = [pytest.param(case[0], id=f"{name}-{k}") for name, cases in CASES.items() for k, case in enumerate(cases)]
NOISE = {"GaussianNoise", "SaltAndPepper", "ShotNoise", "RandomErasing", "CoarseDropout"}


def sizes_agree(transform: T.Transform) -> bool:
    """Whether all images come out with one size: a stack has one."""
    torch.manual_seed(0)
    try:
        transform(CLIPS[:, 0])
    except T.base.TransformError as error:
        assert "different sizes" in str(error)
        return False
    return True


@pytest.mark.parametrize("transform", ALL)
def test_every_transform_on_clips(transform):
    count = 2 if sizes_agree(transform) else 1
    clips, chain = CLIPS[:count], T.Compose([transform])
    torch.manual_seed(0)
    made, params = chain.trace(clips)
    assert made.shape[:2] == (count, 3)
    array = chain.replay(params, clips.movedim(2, -1).numpy())
    assert_same(torch.from_numpy(array).movedim(-1, 2), made)
    frames = range(1 if type(transform).__name__ in NOISE else 3)  # noise of the first frame is an image's
    for t in frames:
        assert_same(made[:, t], chain.replay(params, clips[:, t]))
