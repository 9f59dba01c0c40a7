"""Invalid targets cost their own sample; names that say nothing end the run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cuaug import DecodeError, Loader, TransformError
from cuaug import transforms as T
from tests.targets.test_mask_files import load

H, W, COUNT, BAD = 20, 30, 6, 2
VALID = {"boxes": np.array([[1.0, 2.0, 5.0, 6.0]]), "labels": [1]}


def files(folder: Path, **replaced: Any) -> list[tuple[str, Any]]:
    """Pairs of which one has other values."""
    pairs: list[tuple[str, Any]] = []
    for i in range(COUNT):
        path = folder / f"{i}.png"
        Image.new("RGB", (W, H)).save(path)
        pairs.append((str(path), {**VALID, **(replaced if i == BAD else {})}))
    return pairs


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("chain", [[T.RandomHorizontalFlip()], [T.RandomIoUCrop(), T.Resize((8, 8)), T.Mosaic()]])
@pytest.mark.parametrize(
    ("replaced", "reason"),
    [
        ({"boxes": np.array([[5.0, 2.0, 1.0, 6.0]])}, "with its end before its beginning; .*box_format='xywh'"),
        ({"boxes": np.array([[5.0, np.nan, 9.0, 6.0]])}, "which is not finite"),
        ({"boxes": np.array([[0.1, 0.2, 0.4, 0.6]])}, "boxes must be in pixels, .* relative_boxes=True"),
        ({"boxes": np.zeros(4)}, r"not of shape \(4,\)"),
        ({"labels": [1, 2]}, "boxes has 1 instances and labels has 2"),
        ({"mask": np.zeros((3, 3))}, r"mask must be .* not of shape \(3, 3\)"),
        ({"keypoints": [[[np.inf, 2.0]]]}, "keypoints must be"),
    ],
    ids=["reversed", "not finite", "relative", "shape", "counts", "mask", "keypoint"],
)
def test_invalid_targets_cost_their_sample(tmp_path, on_error, chain, replaced, reason):
    errors: list[DecodeError] = []
    options = {"on_error": on_error, "error_callback": errors.append, "batch_size": 3, "device": "cpu"}
    with Loader(files(tmp_path, **replaced), chain, **options) as loader:
        indices = [int(i) for batch in loader for i, valid in zip(batch.indices, batch.valid, strict=True) if valid]
    assert indices == [i for i in range(COUNT) if i != BAD]
    assert {(error.index, Path(error.path).name) for error in errors} == {(BAD, f"{BAD}.png")}
    assert all(re.search(reason, str(error)) for error in errors)


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize(
    ("replaced", "chain", "message"),
    [
        ({"bbox": [[1, 2, 3, 4]]}, [], r"bbox looks like boxes.*pass_through"),
        ({"depth": np.zeros((H, W))}, [], r"depth looks like a mask.*pass_through"),
        ({"camera": [1]}, [T.SanitizeBoundingBoxes(10)], r"camera has 1 rows.*instance_fields.*pass_through"),
    ],
)
def test_names_that_say_nothing_end_the_run(tmp_path, on_error, replaced, chain, message):
    """They are the chain's fault, and would cost every sample that has them."""
    with pytest.raises(TransformError, match=rf"{BAD}\.png' \(sample {BAD}\): {message}"):
        load(files(tmp_path, **replaced), chain, batch_size=3, on_error=on_error)
