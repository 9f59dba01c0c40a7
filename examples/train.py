"""Demo: trains a small network with cuaug, then with a Pillow `DataLoader`, and compares both.

It writes 2,400 photos of eight classes (see photos.py), keeps every fifth one for validation, and prints accuracy,
images per second and the time of each stage. It also writes preview.png, a labeled grid of one augmented batch. It runs
on a GPU if there is one; on a CPU it takes about three minutes, with `--quick` one.

    python examples/train.py
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from baseline import IMAGENET_MEAN, IMAGENET_STD, PillowImages, Sample, worker_loader
from photos import write_classes
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

import cuaug
from cuaug import transforms as T
from cuaug.commands.demo import accuracy, network

SIZE, BATCH, WORKERS = 64, 64, 2
SCALE, JITTER = (0.3, 1.0), (0.3, 0.3, 0.3)  # area of the crop; brightness, contrast, saturation
Batches = cuaug.Loader | DataLoader[tuple[Tensor, Tensor]]


@dataclass
class Run:
    """The result of one training."""

    name: str
    images: int = 0
    seconds: float = 0.0
    waiting_seconds: float = 0.0  # for the next batch
    accuracy: float = 0.0

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds


def split(root: Path) -> tuple[list[str], list[Sample], list[Sample]]:
    """Class names, training samples, and validation samples (every fifth file of a class)."""
    classes = sorted(folder.name for folder in root.iterdir() if folder.is_dir())
    train: list[Sample] = []
    validation: list[Sample] = []
    for label, name in enumerate(classes):
        for index, path in enumerate(sorted((root / name).glob("*.jpg"))):
            (validation if index % 5 == 0 else train).append((str(path), label))
    return classes, train, validation


def training_loader(samples: list[Sample], device: str | None, batch_size: int = BATCH) -> cuaug.Loader:
    """The compared chain, in cuaug."""
    chain = [
        T.RandomResizedCrop(SIZE, scale=SCALE),
        T.RandomHorizontalFlip(),
        T.ColorJitter(*JITTER),
        T.Normalize(IMAGENET_MEAN, IMAGENET_STD),
    ]
    return cuaug.Loader(
        samples,
        transforms=chain,
        batch_size=batch_size,
        shuffle=True,
        last_batch="drop",
        threads=WORKERS,
        device=device,
    )


def validation_loader(samples: list[Sample], device: str | None) -> cuaug.Loader:
    """Whole images, only resized; evaluates both trainings."""
    chain = [T.Resize((SIZE, SIZE)), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    return cuaug.Loader(samples, transforms=chain, batch_size=BATCH, shuffle=False, threads=WORKERS, device=device)


def train(name: str, batches: Batches, model: nn.Module, epochs: int, device: torch.device) -> Run:
    """Trains a model and measures the time spent waiting for batches."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    run = Run(name)
    model.train()
    start = time.perf_counter()
    for epoch in range(epochs):
        progress = tqdm(desc=f"{name}, epoch {epoch + 1}/{epochs}", total=len(batches) * BATCH, unit=" images")
        iterator = iter(batches)
        while True:
            wait_start = time.perf_counter()
            batch = next(iterator, None)
            run.waiting_seconds += time.perf_counter() - wait_start
            if batch is None:
                break
            images, labels = (tensor.to(device) for tensor in batch)
            loss = nn.functional.cross_entropy(model(images), labels.long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.images += len(images)
            progress.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
            progress.update(len(images))
        progress.close()
    run.seconds = time.perf_counter() - start
    return run


def loading_rate(batches: Batches) -> float:
    """Images per second of one epoch without training."""
    start = time.perf_counter()
    images = sum(len(images) for images, _ in batches)
    return images / (time.perf_counter() - start)


def preview(samples: list[Sample], classes: list[str], device: str | None, path: Path) -> None:
    """Writes a grid of one augmented batch, with the class below each image."""
    with training_loader(samples, device, batch_size=32) as loader:
        batch = loader.peek()
    batch.show(classes=classes, side=2 * SIZE).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("demo-data"), help="folder of the photos; written if new")
    parser.add_argument("--count", type=int, default=2400, help="number of photos to write")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: cuda where there is one")
    parser.add_argument("--quick", action="store_true", help="two epochs and one round of loading")
    parser.add_argument("--preview", type=Path, default=Path("preview.png"))
    args = parser.parse_args()
    epochs, rounds = (2, 1) if args.quick else (args.epochs, 3)
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    start = time.perf_counter()
    root = write_classes(args.data / "classes", args.count)
    classes, samples, held_out = split(root)
    print(f"{len(samples)} photos to train on, {len(held_out)} to validate; classes: {', '.join(classes)}")
    print(f"in {root}, ready after {time.perf_counter() - start:.0f} s; training on {device.type}")
    preview(samples, classes, device.type, args.preview)
    print(f"one augmented batch: {args.preview}\n")

    pillow = worker_loader(PillowImages(samples, SIZE, SCALE, JITTER), BATCH, WORKERS)
    with (
        training_loader(samples, device.type) as loader,
        validation_loader(held_out, device.type) as validation,
    ):
        loaders: dict[str, Batches] = {"cuaug": loader, "Pillow": pillow}
        print(f"Loading only, {WORKERS} threads or workers: one warm-up epoch each, then {rounds} in turn")
        for batches in loaders.values():
            loading_rate(batches)
        rates: dict[str, list[float]] = {name: [] for name in loaders}
        for _ in range(rounds):
            for name, batches in loaders.items():
                rates[name].append(loading_rate(batches))
        for name, values in rates.items():
            print(f"  {name:8}{statistics.median(values):7.0f} images/s")
        ratio = statistics.median(ours / theirs for ours, theirs in zip(*rates.values(), strict=True))
        print(f"  cuaug loads {ratio:.2f} times as fast as Pillow\n")

        runs = []
        for name, batches in loaders.items():
            torch.manual_seed(0)
            model = network(len(classes)).to(device)
            run = train(name, batches, model, epochs, device)
            run.accuracy = accuracy(validation, model, device)
            runs.append(run)
        stats = loader.stats()

    print(f"\nTraining, {epochs} epochs of {len(samples)} photos (chance is {1 / len(classes):.1%})")
    for run in runs:
        print(
            f"  {run.name:8}{run.accuracy:6.1%} correct,{run.images_per_second:7.0f} images/s,{run.seconds:6.1f} s: "
            f"{run.waiting_seconds:.1f} s waiting for data, {run.seconds - run.waiting_seconds:.1f} s training"
        )
    ratio = runs[0].images_per_second / runs[1].images_per_second
    print(f"  training runs {ratio:.2f} times as fast with cuaug as with Pillow")
    print(f"\nStages of cuaug's loader, all epochs, summed over its threads:\n{stats}")
    print(f"\n{time.perf_counter() - start:.0f} s in total")


if __name__ == "__main__":
    main()
