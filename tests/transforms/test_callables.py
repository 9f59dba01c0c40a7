"""Functions and modules in chains, and transforms of other libraries."""

from __future__ import annotations

import pickle
import warnings

import pytest
import torch
from PIL import Image

from cuaug import ChainWarning, Loader, TransformError
from cuaug import transforms as T

IMAGES = torch.randint(0, 256, (4, 3, 12, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def halve(images: torch.Tensor) -> torch.Tensor:
    return images // 2


class Blur(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layer(images)


V2 = "torchvision.transforms.v2._geometry"


def foreign(module: str, name: str, *bases: type) -> type:
    return type(name, bases or (torch.nn.Module,), {"__module__": module, "__call__": lambda self, x: x})


def test_functions_and_modules_run_on_the_batch():
    blur = Blur()
    chain = T.Compose([T.CenterCrop(8), halve, T.Normalize(0.5, 0.5), blur, T.RandomVerticalFlip(0)])
    assert chain(IMAGES[0]).shape == (3, 8, 8)
    expected = blur(T.Compose([T.CenterCrop(8), T.Lambda(halve), T.Normalize(0.5, 0.5)])(IMAGES)).detach()
    made = chain(IMAGES)
    assert torch.allclose(made, expected, atol=1e-6) and not made.requires_grad
    assert "Lambda(function=halve)" in repr(chain) and "Conv2d(3, 3" in repr(chain)
    assert torch.equal(pickle.loads(pickle.dumps(chain))(IMAGES), made)
    assert torch.equal(T.Compose([torch.nn.Sequential(blur)])(IMAGES / 255), T.Lambda(blur)(IMAGES / 255))


def test_a_programs_own_class_with_the_name_of_a_transform():
    """DINO's `utils.GaussianBlur` takes a PIL image; inside MultiView nobody wrote a Lambda."""
    blur = foreign("utils", "GaussianBlur", object)()
    with pytest.raises(
        TransformError, match=r"GaussianBlur .* acts on whole batches.* use cuaug\.transforms\.GaussianBlur"
    ):
        T.MultiView([T.Compose([T.CenterCrop(8), blur])] * 2)


def test_a_loader_takes_functions(tmp_path):
    Image.fromarray(IMAGES[0].permute(1, 2, 0).numpy()).save(tmp_path / "1.png")
    for transforms in (halve, [halve], [T.Identity(), halve]):
        with Loader([str(tmp_path / "1.png")], transforms, batch_size=1, device="cpu") as loader:
            images, _ = next(iter(loader))
        assert torch.equal(images[0], IMAGES[0] // 2)


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        (V2, "Resize", "torchvision.transforms.v2.Resize: use cuaug.transforms.Resize"),
        ("torchvision.transforms.transforms", "ToTensor", r"ToTensor: use cuaug.transforms: ToDtype\(torch.float32"),
        ("torchvision.transforms.v2._other", "Unknown", "Unknown: use a transform of cuaug.transforms, or .*Lambda"),
        (
            "albumentations.augmentations.geometric.flip",
            "HorizontalFlip",
            "albumentations.HorizontalFlip: use cuaug.transforms: RandomHorizontalFlip",
        ),
        (
            "kornia.augmentation._2d.geometric.horizontal_flip",
            "RandomHorizontalFlip",
            "kornia.augmentation.RandomHorizontalFlip: use cuaug.transforms.RandomHorizontalFlip",
        ),
        ("timm.data.mixup", "Mixup", "timm.data.Mixup: use cuaug.transforms: MixUp and CutMix"),
    ],
)
def test_transforms_of_other_libraries_are_named(module, name, message):
    transform = foreign(module, name)()
    for transforms in ([transform], [torch.nn.Sequential(transform)]):
        with pytest.raises(TransformError, match=f"^transforms: .*{message}"):
            T.Compose(transforms)
    with pytest.raises(TransformError, match=message):
        T.RandomApply([transform])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChainWarning)
        assert T.Compose([T.Lambda(transform)])(IMAGES).equal(IMAGES), "asked for"


class Holder:
    """As torchvision.transforms.Compose, which is no module."""

    def __init__(self, *transforms) -> None:
        self.transforms = list(transforms)

    def __call__(self, images):
        return images


@pytest.mark.parametrize("name", ["RandomResizedCrop", "ColorJitter", "RandAugment"])
@pytest.mark.parametrize("hold", [lambda x: x, torch.nn.Sequential, Holder, lambda x: Holder(torch.nn.Sequential(x))])
def test_a_lambda_of_a_random_torchvision_transform_warns(name, hold):
    message = f"function: torchvision's {name} draws once for all images .*: use cuaug.transforms.{name}"
    with pytest.warns(ChainWarning, match=message) as caught:
        T.Lambda(hold(foreign(V2, name)()))
    assert len(caught) == 1 and caught[0].filename == __file__


@pytest.mark.parametrize(
    "transform",
    [
        foreign(V2, "Resize")(),
        foreign("kornia.augmentation._2d", "RandomHorizontalFlip")(),  # draws for each image
        foreign("mine", "RandomCrop")(),
        torch.nn.Sequential(foreign(V2, "CenterCrop")()),
        halve,
    ],
)
def test_other_lambdas_do_not_warn(transform):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        T.Lambda(transform)


def test_a_subclass_of_a_foreign_transform():
    base = foreign("torchvision.transforms.v2._transform", "Transform")
    with pytest.raises(TransformError, match=r"Mine is a torchvision.transforms.v2.Transform: derive it from cuaug"):
        T.Compose([foreign("mine", "Mine", base)()])


def test_every_replacement_exists():
    from cuaug._runtime import migration_hints

    for name in migration_hints._RENAMED.values():
        first = name.replace(",", " ").replace("(", " ").split()[0]
        assert first in T.__all__ or first == "no", name
