"""The lines of docs/programs.md run, with stand-ins for the names of the programs around them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from tests.support.video import loading

PAGE = (Path(__file__).parents[2] / "docs" / "programs.md").read_text()
# The code blocks below each heading.
SECTIONS = {
    section.partition("\n")[0]: re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    for section in re.split(r"^#+ (?=[^\n]*$)", re.sub(r"^# .*\n", "imagenet\n", PAGE), flags=re.MULTILINE)
}
COUNT = 10
LABELS = torch.arange(COUNT) % 5


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUAUG_DEVICE", "cpu")
    for i in range(COUNT):
        Image.new("RGB", (40 + i, 60), (20 * i, 0, 0)).save(f"{i}.png")
    return tmp_path


def image_folder(chain: Any) -> SimpleNamespace:
    """What programs read of torchvision's ImageFolder."""
    samples = [(f"{i}.png", label) for i, label in enumerate(LABELS.tolist())]
    return SimpleNamespace(samples=samples, transform=chain, classes=list("abcde"))


def run(section: str, **names: Any) -> SimpleNamespace:
    """Runs the blocks of a section, and returns their names."""
    names = {"cuaug": cuaug, "Loader": cuaug.Loader, "torch": torch} | names
    for code in SECTIONS[section]:
        exec(code, names)
    return SimpleNamespace(**names)


def args(**settings: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"batch_size": 4, "workers": 2} | settings)


def labels_of(loader: Any) -> list[int]:
    return [label for _, labels in loader for label in labels.tolist()]


TRAIN = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.5)])
EVAL = T.Compose([T.Resize(20), T.CenterCrop(16), T.Normalize(0.5, 0.5)])


def test_every_section_is_tested():
    tested = {name for name in re.findall(r'run\(\s*"([^"]+)"', Path(__file__).read_text())}
    assert tested == {name for name, blocks in SECTIONS.items() if blocks}


def check_folders(train: Any, val: Any, drop: bool = False) -> None:
    assert len(train) == (2 if drop else 3) and len(val) == 3
    assert sorted(labels_of(train)) == sorted(LABELS.tolist()) or drop
    assert labels_of(val) == LABELS.tolist()
    images, labels = next(iter(train))
    assert images.shape == (4, 3, 16, 16) and images.dtype == torch.float32 and labels.dtype == torch.int64


def test_imagenet(folder):
    made = run("imagenet", args=args(), train_dataset=image_folder(TRAIN), val_dataset=image_folder(EVAL))
    check_folders(made.train_loader, made.val_loader)
    made.train_sampler.set_epoch(7)
    assert made.train_loader.epoch == 7


def test_the_presets_of_torchvisions_references():
    """Names and arguments of the presets' transforms, for `get_module(use_v2=True)`."""
    module = run("torchvision's references").get_module(True)
    bilinear = module.InterpolationMode.BILINEAR
    chain = module.Compose(
        [
            module.RandomResizedCrop(16, interpolation=bilinear, antialias=True),
            module.RandomHorizontalFlip(0.5),
            module.RandAugment(interpolation=bilinear, magnitude=9),
            module.TrivialAugmentWide(interpolation=bilinear),
            module.AugMix(interpolation=bilinear, severity=3),
            module.AutoAugment(policy=module.AutoAugmentPolicy("imagenet"), interpolation=bilinear),
            module.PILToTensor(),
            module.ToDtype(torch.float, scale=True),
            module.Normalize(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
            module.RandomErasing(p=0.1),
            module.ToPureTensor(),
        ]
    )
    assert chain(Image.new("RGB", (30, 20))).shape == (3, 16, 16)
    detection = [
        module.ToImage(),
        module.ScaleJitter(target_size=(32, 32), antialias=True),
        module.FixedSizeCrop(size=(32, 32), fill=(123.0, 117.0, 104.0)),
        module.RandomShortestSize(min_size=(16, 20), max_size=40),
        module.RandomPhotometricDistort(),
        module.RandomZoomOut(fill=[123.0, 117.0, 104.0]),
        module.RandomIoUCrop(),
        module.ConvertBoundingBoxFormat("XYXY"),
        module.SanitizeBoundingBoxes(),
    ]
    target = {"boxes": torch.tensor([[1.0, 2, 20, 18]]), "labels": torch.tensor([1])}
    assert set(module.Compose(detection)(torch.zeros(3, 20, 30, dtype=torch.uint8), target)[1]) == {"boxes", "labels"}


@pytest.mark.parametrize("mixes", [None, T.RandomChoice([T.MixUp(alpha=0.2, num_classes=5), T.CutMix(num_classes=5)])])
def test_classification(folder, mixes):
    datasets = [image_folder(SimpleNamespace(transforms=chain)) for chain in (TRAIN, EVAL)]
    made = run("Classification", args=args(), dataset=datasets[0], dataset_test=datasets[1], mixup_cutmix=mixes)
    if mixes is None:
        check_folders(made.data_loader, made.data_loader_test)
    else:
        assert next(iter(made.data_loader)).labels.shape == (4, 5)
    assert len(made.train_sampler) == COUNT


class Scenes(torch.utils.data.Dataset):
    """Decoded images with targets, as torchvision's data sets give them."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def __len__(self) -> int:
        return COUNT - 1

    def __getitem__(self, i: int) -> tuple[Image.Image, Any]:
        return Image.open(f"{i}.png"), self.target(i)


def transforms_of(train: Any, evaluation: Any) -> Any:
    return lambda is_train, args: SimpleNamespace(transforms=T.Compose([train if is_train else evaluation]))


def test_detection(folder):
    def target(i: int) -> dict[str, Any]:
        return {"image_id": i, "boxes": torch.tensor([[5.0, 5, 25, 35]]), "labels": torch.tensor([i])}

    made = run(
        "Detection",
        args=args(batch_size=2),
        dataset=Scenes(target),
        dataset_test=Scenes(target),
        get_transform=transforms_of(T.RandomHorizontalFlip(1), T.Identity()),
    )
    assert len(made.data_loader) == 4 and len(made.data_loader_test) == COUNT - 1
    for images, targets in made.data_loader:
        for image, found in zip(images, targets, strict=True):
            width = 40 + found["image_id"]
            assert image.shape == (3, 60, width) and found["boxes"].tolist() == [[width - 25, 5, width - 5, 35]]
    evaluated = {found["image_id"]: len(images) for images, (found,) in made.data_loader_test}
    assert evaluated == dict.fromkeys(range(COUNT - 1), 1)


def test_segmentation(folder):
    made = run(
        "Segmentation",
        args=args(batch_size=2),
        dataset=Scenes(lambda i: {"mask": Image.new("L", (40 + i, 60), i)}),
        dataset_test=Scenes(lambda i: {"mask": Image.new("L", (40 + i, 60), i)}),
        get_transform=transforms_of(T.RandomCrop(70, pad_if_needed=True, fill=9), T.Resize((20, 20))),
    )
    assert all(images.shape[-2:] == labels["mask"].shape[-2:] == (70, 70) for images, labels in made.data_loader)
    assert [labels["mask"].unique().tolist() for _, labels in made.data_loader_test] == [[i] for i in range(COUNT - 1)]


def test_video_classification(folder):
    for number, name in enumerate("ab"):
        (folder / name).mkdir()
        loading.write(folder / name / "0.mp4", number)
    made = run(
        "Video classification",
        args=args(batch_size=2, clip_len=2, frame_rate=5, clips_per_video=2),
        traindir=folder,
        valdir=folder,
        transform_train=SimpleNamespace(transforms=T.RandomCrop(16)),
        transform_test=SimpleNamespace(transforms=T.CenterCrop(16)),
    )
    for loader in (made.data_loader, made.data_loader_test):
        found = [
            (*video.shape[1:], label, number) for video, *rest in loader for label, number in zip(*rest, strict=True)
        ]
        assert sorted(found) == [(3, 2, 16, 16, 0, 0)] * 2 + [(3, 2, 16, 16, 1, 1)] * 2


def test_timm(folder):
    reader = SimpleNamespace(reader=image_folder(None))
    made = run(
        "timm",
        args=args(scale=[0.08, 1.0], ratio=[0.75, 4 / 3], hflip=0.5, aa="rand-m9-mstd0.5-inc1", reprob=0.25),
        data_config={"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.9}
        | {"interpolation": "bicubic"},
        dataset_train=reader,
        dataset_eval=reader,
    )
    check_folders(made.loader_train, made.loader_eval, drop=True)


def test_dino(folder):
    crops = [T.Compose([T.RandomResizedCrop(size), T.Normalize(0.5, 0.5)]) for size in (32, 32, 16)]
    made = run(
        "DINO",
        args=SimpleNamespace(batch_size_per_gpu=4, num_workers=2),
        dataset=image_folder(None),
        **dict(zip(("global_transfo1", "global_transfo2", "local_transfo"), crops, strict=True)),
        local_crops_number=8,
    )
    assert len(made.data_loader) == 2
    made.data_loader.sampler.set_epoch(3)
    for views, labels in made.data_loader:
        assert [view.shape for view in views] == [(4, 3, 32, 32)] * 2 + [(4, 3, 16, 16)] * 8
        for view in views:  # red is 20 times the image's number
            numbers = ((view[:, 0].mean((1, 2)) + 1) * 255 / 40).round()
            assert (numbers % 5).tolist() == labels.tolist()
    image = Image.new("RGB", (30, 30), (200, 0, 0))
    assert T.Compose([made.blur])(image).size == (30, 30)
    assert {T.Compose([made.solarize])(image).getpixel((0, 0))[0] for _ in range(50)} == {200, 55}


def test_mae(folder):
    settings = SimpleNamespace(batch_size=4, num_workers=2)
    made = run("MAE", args=settings, dataset_train=image_folder(None), transform_train=TRAIN)
    check_folders(made.data_loader_train, cuaug.Loader(image_folder(None).samples, EVAL, batch_size=4), drop=True)


def test_lightning(folder):
    made = run("Lightning")
    module = SimpleNamespace(
        train_dataset=image_folder(TRAIN), eval_dataset=image_folder(EVAL), batch_size=4, workers=2
    )
    check_folders(made.train_dataloader(module), made.val_dataloader(module))


class Rows(torch.utils.data.Dataset):
    """A Hugging Face data set whose column of images is not decoded."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"image": {"bytes": Path(f"{i}.png").read_bytes(), "path": None}, "label": int(LABELS[i])}


class Splits(dict[str, Rows]):
    def cast_column(self, name: str, feature: Any) -> Splits:
        assert name == "image" and not feature.decode
        return self


def test_transformers(folder, monkeypatch):
    library: Any = SimpleNamespace(Image=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "datasets", library)
    made = run(
        "Transformers",
        dataset=Splits(train=Rows(), validation=Rows()),
        data_args=SimpleNamespace(image_column_name="image"),
        trainer=SimpleNamespace(),
        training_args=SimpleNamespace(train_batch_size=4, eval_batch_size=4),
        _train_transforms=TRAIN,
        _val_transforms=EVAL,
    )
    batches = list(made.trainer.get_eval_dataloader(None))
    assert all(batch["pixel_values"].shape == (4, 3, 16, 16) for batch in batches)
    assert torch.cat([batch["labels"] for batch in batches]).tolist() == [*LABELS.tolist(), -100, -100]
    trained = torch.cat([batch["labels"] for batch in made.trainer.get_train_dataloader()])
    assert sorted(trained.tolist()) == sorted(LABELS.tolist())


def test_accelerate(folder):
    names = [f"{i}.png" for i in range(COUNT)]
    made = run(
        "Accelerate",
        file_names=names,
        extract_label=lambda name: f"label {name}",
        label_to_id={f"label {name}": 3 * i for i, name in enumerate(names)},
        train_dataset=SimpleNamespace(file_names=names[2:]),
        eval_dataset=SimpleNamespace(file_names=names[:2]),
        train_tfm=TRAIN,
        eval_tfm=EVAL,
        batch_size=2,
    )
    (batch,) = made.eval_dataloader
    assert batch["image"].shape == (2, 3, 16, 16) and batch["label"].tolist() == [0, 3]
    trained = [label for batch in made.train_dataloader for label in batch["label"].tolist()]
    assert sorted(trained) == list(range(6, 30, 3))


def test_ultralytics(folder, monkeypatch):
    class DetectionTrainer:
        args = SimpleNamespace(imgsz=32, data=str(folder / "data.yaml"), close_mosaic=1)
        epochs = 1

        def get_dataloader(self, *arguments: Any) -> Any:
            return arguments

    for name in ("ultralytics", "ultralytics.models", "ultralytics.models.yolo", "ultralytics.models.yolo.detect"):
        library: Any = SimpleNamespace(DetectionTrainer=DetectionTrainer)
        monkeypatch.setitem(sys.modules, name, library)
    (folder / "data.yaml").write_text("train: images\nnames: [a, b, c]\n")
    (folder / "images").mkdir()
    (folder / "labels").mkdir()
    for i in range(3):
        Image.new("RGB", (64, 32)).save(folder / "images" / f"{i}.png")
        (folder / "labels" / f"{i}.txt").write_text(f"{i} 0.5 0.5 0.25 0.5\n" * i)
    trainer = run("ultralytics", T=T).Trainer()
    assert trainer.get_dataloader("path", 4, 0, "val") == ("path", 4, 0, "val")
    (batch,) = trainer.get_dataloader("path", 4)
    assert batch["img"].shape == (3, 3, 32, 32) and batch["img"].dtype == torch.uint8
    assert sorted(batch["cls"][:, 0].tolist()) == [1, 2, 2] and batch["cls"].shape == (3, 1)
    assert len(batch["batch_idx"].unique()) == 2
    assert torch.allclose(batch["bboxes"], torch.tensor([0.5, 0.5, 0.25, 0.25]))


def test_segmentation_models_pytorch(folder):
    folders = {}
    for split in ("train", "val", "test"):
        for kind in "xy":
            folders[f"{kind}_{split}_dir"] = place = folder / kind / split
            place.mkdir(parents=True)
            for i in range(3):
                array = np.full((30, 20), i if kind == "y" else 40 * i, np.uint8)
                Image.fromarray(array).save(place / f"{i}.png")
    made = run("segmentation_models.pytorch", **folders, input_image_reshape=(16, 16), foreground_class=1, batch_size=2)
    images, masks = (torch.cat(column) for column in zip(*made.valid_dataloader, strict=True))
    assert images.shape == (3, 1, 16, 16) and torch.allclose(images[:, 0, 0, 0] * 255, torch.tensor([0.0, 40, 80]))
    assert masks.dtype == torch.int64 and [mask.unique().tolist() for mask in masks] == [[0], [1], [0]]
    assert len(made.train_dataloader) == len(made.test_dataloader) == 2


# --- images at their own size -----------------------------------------------------------------------------------------


@pytest.fixture
def captioned(folder):
    """Images of four sizes with captions, and a model that keeps what it gets."""
    files = []
    for i in range(COUNT):
        Image.new("RGB", [(90, 60), (60, 90), (64, 64), (200, 60)][i % 4], (20 * i, 0, 0)).save(f"{i}.png")
        files.append((f"{i}.png", f"a caption, number {i}"))
    calls: list[tuple[Any, ...]] = []
    return (
        {"files": cuaug.sources.Files(*zip(*files, strict=True), classes=None)},
        lambda *given: calls.append(given),
        calls,
    )


def test_packed_batches(captioned):
    names, model, calls = captioned
    made = run("Packed batches for vision-language models", model=model, captions=list, **names)
    patches, grids, ends, texts = (list(values) for values in zip(*calls, strict=True))
    assert sorted(text for batch in texts for text in batch) == sorted(f"a caption, number {i}" for i in range(COUNT))
    for values, grid, end in zip(patches, grids, ends, strict=True):
        assert values.shape == (grid.prod(1).sum(), 3 * 2 * 14 * 14) and len(values) == end[-1] <= 16_384
    assert sum(map(len, patches)) == made.patches.sum()


def test_naflex(captioned):
    names, model, calls = captioned
    run("SigLIP 2 NaFlex", model=model, **names)
    assert len(calls) == 3
    for images, mask, grids in calls:
        assert images.shape[-1] == 3 * 16 * 16
        assert mask.sum(1).tolist() == grids.prod(1).tolist() and grids.prod(1).max() <= 256


def test_text_to_image_in_buckets(captioned):
    names, model, calls = captioned
    run("Text to image, in buckets of aspect ratio", model=model, args=args(batch_size=2, resolution=256), **names)
    assert len({images.shape[-2:] for images, _ in calls}) == 3 and all(len(texts) == 2 for _, texts in calls)
    assert all(text.startswith("a caption") for _, texts in calls for text in texts)


def test_groups_of_one_orientation(captioned):
    names, model, calls = captioned
    numbered = {"files": [(path, i) for i, (path, _) in enumerate(names["files"].samples)]}
    run("torchvision's GroupedBatchSampler", model=model, args=args(batch_size=2), **numbered)
    assert sorted(i for _, _, labels in calls for i in labels.tolist()) == list(range(COUNT))
    for images, mask, _ in calls:
        assert images.shape[0] == mask.shape[0] and mask.any(dim=(1, 2)).all() and max(images.shape[-2:]) <= 64
