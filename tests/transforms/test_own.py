"""The examples of docs/your_own.md run as printed."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from cuaug import TransformError
from cuaug import transforms as T

ROOT = Path(__file__).parents[2]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "your_own.md").read_text(), re.DOTALL)


TYPED = """
class Typed(T.BatchTransform):
    def run(self, images: torch.Tensor, targets: list[Any] | None, *, k: Any) -> tuple[torch.Tensor, list[Any] | None]:
        return images, targets


T.Normalize([0.5, 0.5, 0.5], 0.5), T.Resize(8, 2), T.RandomRotation(9, T.InterpolationMode.BILINEAR, fill=(1, 2, 3))
tensor: torch.Tensor = F.normalize(F.resize(torch.zeros(3, 9, 9), 8, "bicubic"), 0.5, 0.5)
array: np.ndarray[Any, Any] = F.rotate(F.horizontal_flip(np.zeros((9, 9))), 30, fill=None)
"""


@pytest.mark.long
def test_the_examples_pass_mypy(tmp_path):
    """cuaug ships its types (py.typed)."""
    pytest.importorskip("mypy")
    imports = "from typing import Any\nimport torch\nfrom cuaug import functional as F\n"
    (file := tmp_path / "own.py").write_text("\n".join([imports, *EXAMPLES, TYPED]))
    # With cuaug's own mypy options, whose cache already has torch.
    command = [sys.executable, "-m", "mypy", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """In a file: pixel functions are read from their source."""
    (file := tmp_path_factory.mktemp("own") / "own.py").write_text("\n".join(EXAMPLES))
    return runpy.run_path(str(file))


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    smooth = [cv2.GaussianBlur(rng.random((40, 50, 3)), (0, 0), 3) for _ in range(6)]
    smooth = [(image - image.min()) / (image.max() - image.min()) for image in smooth]
    return torch.from_numpy(np.stack(smooth)).permute(0, 3, 1, 2).float()


def test_swing_rotates_about_the_nail(own, images):
    got, params = T.Compose([own["RandomSwing"](30, p=1.0)]).trace(images)
    angles = [steps[0]["params"]["angle"] for steps in params]
    assert len(set(angles)) == 6
    for image, out, angle in zip(images, got, angles, strict=True):
        # OpenCV's pixel centers are whole numbers: the nail is at (24.5, -0.5).
        matrix = cv2.getRotationMatrix2D((24.5, -0.5), np.degrees(angle), 1.0)
        expected = cv2.warpAffine(image.permute(1, 2, 0).numpy().astype(np.float64), matrix, (50, 40))
        assert np.abs(out.permute(1, 2, 0).numpy() - expected).mean() < 2e-3


def test_curve(own, images):
    got, params = T.Compose([own["RandomSCurve"](p=1.0)]).trace(images)
    for image, out, steps in zip(images, got, params, strict=True):
        x = np.floor(image.numpy() * 255 + 0.5) / 255
        curve = 3 * x**2 - 2 * x**3
        np.testing.assert_allclose(out.numpy(), x + steps[0]["params"]["strength"] * (curve - x), atol=1e-5)


def test_sepia(own, images):
    half = own["RandomSepia"](0.5)(images.repeat(20, 1, 1, 1))
    all_toned = own["RandomSepia"](1.0)(images)
    r, g, b = images.unbind(1)
    torch.testing.assert_close(all_toned[:, 0], (0.393 * r + 0.769 * g + 0.189 * b).clamp(0, 1), atol=1e-5, rtol=0)
    torch.testing.assert_close(all_toned[:, 2], (0.272 * r + 0.534 * g + 0.131 * b).clamp(0, 1), atol=1e-5, rtol=0)
    toned = (half != images.repeat(20, 1, 1, 1)).flatten(1).any(1)
    assert 40 < int(toned.sum()) < 80


def test_the_whole_chain(own, images):
    chain = own["chain"]
    out, params = chain.trace(images)
    assert out.shape == (6, 3, 224, 224)
    torch.testing.assert_close(out.mean(dim=(2, 3)), torch.zeros(6, 3), atol=1e-4, rtol=0)
    assert torch.equal(chain.replay(params, images), out)
    assert "RandomSwing(degrees=10)" in repr(chain)


def test_explain_of_the_whole_chain(own):
    text = own["chain"].explain()
    assert text.startswith("5 transforms, 256 images: 2 launches\nlaunch 1\n    RandomResizedCrop       geometry\n")
    assert "ends at RandomSwing for" in text and ": a second resampling of another kind\nlaunch 2\n" in text
    assert text.endswith(
        "batch transform: Lambda(function=without_mean)\n    images are stored before it and read after it"
    )


@pytest.mark.parametrize(
    ("chain", "launches"),
    [
        ([], 1),
        ([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.5)], 1),
        ([T.RandomResizedCrop(224), T.ColorJitter(contrast=0.5)], 2),
        ([T.Resize(256), T.GaussianBlur(5), T.RandomRotation(9)], 3),
        ([T.TenCrop(200), T.ToDtype(torch.float32, scale=True)], 1),
    ],
)
def test_explain_counts_the_launches(chain, launches):
    text = T.Compose(chain).explain(batch_size=16)
    assert f"{launches} launch" in text.splitlines()[0] and text.count("\nlaunch ") == launches


class Fixed(T.Transform):
    """Returns fixed parameters."""

    def __init__(self, params):
        self.params = params

    def make_params(self, rng, heights, widths):
        return self.params

    def write(self, plan, where, **params):
        pass


class FixedOfBatches(T.BatchTransform):
    def __init__(self, params):
        self.params = params

    make_params = Fixed.make_params

    def run(self, images, targets, **params):
        return images, targets


@pytest.mark.parametrize("kind", [Fixed, FixedOfBatches])
@pytest.mark.parametrize("value", [3, None, [1, 2, 3], np.zeros(()), np.zeros((2, 6)), np.zeros(5)], ids=repr)
def test_parameters_need_one_row_per_sample(images, kind, value):
    message = f"{kind.__name__}.make_params gives arrays of 6 rows, one for each sample, not k( of shape|=)"
    for chain in (kind({"k": value}), T.Compose([T.Pad(1), kind({"j": np.zeros(6), "k": value})])):
        with pytest.raises(TransformError, match=message):
            chain(images)


@pytest.mark.parametrize("kind", [Fixed, FixedOfBatches])
def test_parameters_must_be_a_dict(images, kind):
    with pytest.raises(TransformError, match=f"{kind.__name__}.make_params gives a dict of arrays, not None"):
        kind(None)(images)


@pytest.mark.parametrize("kind", [Fixed, FixedOfBatches])
def test_parameters_may_be_lists_and_any_array_type(images, kind):
    for values in ([1, 2, 3, 4, 5, 6], np.zeros((6, 2, 3)), torch.zeros(6), np.array(list("abcdef"))):
        _, params = T.Compose([kind({"k": values})]).trace(images)
        assert [steps[0]["params"]["k"] for steps in params] == np.asarray(values).tolist()
    views = T.Compose([T.FiveCrop(8), Fixed({"k": np.arange(30)})])
    assert [steps[-1]["params"]["k"] for steps in views.trace(images)[1]] == [0, 5, 10, 15, 20, 25]
