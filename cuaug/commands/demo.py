"""`cuaug demo`: trains a small network on pictures of shapes that it draws itself.

The pictures are JPEGs in a temporary folder, one folder per class, as users have them. The work is done by the public
API alone, so this file is also a short example of a training.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

from cuaug import transforms as T
from cuaug.errors import CuaugError
from cuaug.loader import Loader

_COUNT, _EPOCHS, _BATCH, _SIDE = 1600, 8, 32, 64
_MEAN, _STD = 0.5, 0.25
_CORNERS = {"triangle": 3, "square": 4, "star": 5}
_CLASSES = ("circle", *_CORNERS)


def demo(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """Draws, trains, prints, and returns the exit status; errors are one line on `errors`."""
    try:
        if options.pictures:
            _write_pictures(Path(options.pictures), out)
            return 0
        with tempfile.TemporaryDirectory(prefix="cuaug-demo-") as folder:
            _run(Path(folder), options.device, options.output, out)
    except (CuaugError, OSError, ValueError) as error:
        print(f"cuaug demo: {error}", file=errors)
        return 1
    return 0


def _run(folder: Path, device: str | None, picture: str, out: TextIO) -> None:
    start = time.perf_counter()
    torch.manual_seed(0)  # the loader's seed too
    _write_pictures(folder, out)
    normalize = T.Normalize(_MEAN, _STD)
    chain = [
        T.RandomResizedCrop(_SIDE, scale=(0.7, 1.0)),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.4, 0.4, 0.4, 0.1),
        normalize,
    ]
    with (
        Loader(folder / "train", chain, batch_size=_BATCH, shuffle=True, last_batch="drop", device=device) as loader,
        Loader(folder / "validation", [T.Resize((_SIDE, _SIDE)), normalize], batch_size=_BATCH, device=device) as held,
    ):
        loader.peek().show(classes=loader.classes, side=2 * _SIDE).save(picture)
        print(f"one batch, as the network sees it: {picture}\n", file=out, flush=True)
        _train(loader, held, out)
        print(f"\nThe loader's stages, all epochs:\n{loader.stats()}", file=out)
    print(f"\n{time.perf_counter() - start:.0f} s in total. Next, with images of your own: docs/tutorial.md", file=out)


def _write_pictures(folder: Path, out: TextIO) -> None:
    """Writes folder/train and folder/validation, which must not exist."""
    start = time.perf_counter()
    write_shapes(folder / "train", _COUNT, seed=0)
    write_shapes(folder / "validation", _COUNT // 4, seed=1)
    seconds = time.perf_counter() - start
    print(f"{_COUNT} JPEGs of {len(_CLASSES)} shapes, and {_COUNT // 4} to validate: {seconds:.1f} s", file=out)


def _train(loader: Loader, held: Loader, out: TextIO) -> None:
    """Trains, and prints a line for each epoch."""
    torch.set_num_threads(1)  # the loader's threads need the CPUs too, and the network gains little from more
    model = network(len(_CLASSES)).to(loader.device)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=_EPOCHS * len(loader))
    for epoch in range(_EPOCHS):
        model.train()
        start = time.perf_counter()
        count = 0
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            count += len(images)
        loss.item()  # waits for the GPU
        rate = count / (time.perf_counter() - start)
        correct = accuracy(held, model, loader.device)
        print(f"epoch {epoch + 1}/{_EPOCHS}: {rate:6.0f} images/s, {correct:6.1%} correct", file=out, flush=True)


def network(classes: int) -> nn.Module:
    """Four convolutions of stride 2, a global average, and a linear layer."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


@torch.inference_mode()
def accuracy(batches: Iterable[tuple[torch.Tensor, torch.Tensor]], model: nn.Module, device: torch.device) -> float:
    """The fraction of correctly classified images."""
    model.eval()
    correct = total = 0
    for images, labels in batches:
        correct += int((model(images.to(device)).argmax(1) == labels.to(device)).sum())
        total += len(labels)
    return correct / total


def write_shapes(root: Path, count: int, seed: int) -> None:
    """Writes `count` JPEGs of 160 to 320 pixels a side into one folder per class below `root`."""
    for name in _CLASSES:
        (root / name).mkdir(parents=True)
    seeds = np.random.default_rng(seed).integers(2**32, size=count)
    with ThreadPoolExecutor() as pool:  # Pillow releases the GIL
        list(pool.map(lambda index: _write_shape(root, index, int(seeds[index])), range(count)))


def _write_shape(root: Path, index: int, seed: int) -> None:
    """One shape of a random color, place, size and angle, on soft random colors."""
    rng = np.random.default_rng(seed)
    name = _CLASSES[index % len(_CLASSES)]
    width, height = (int(side) for side in rng.integers(160, 321, size=2))
    image = Image.fromarray(rng.integers(0, 110, size=(4, 4, 3), dtype=np.uint8)).resize((width, height))
    radius = min(width, height) * rng.uniform(0.25, 0.4)
    x, y = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
    color = tuple(int(level) for level in rng.integers(140, 256, size=3))
    draw = ImageDraw.Draw(image)
    if name == "circle":
        draw.circle((x, y), radius, fill=color)
    else:
        draw.polygon(_outline(name, x, y, radius, rng.uniform(0, 2 * math.pi)), fill=color)
    image.save(root / name / f"{index:05d}.jpg", quality=90)


def _outline(name: str, x: float, y: float, radius: float, angle: float) -> list[tuple[float, float]]:
    """The corners of a regular polygon, or of a star, around (x, y); `angle` in radians."""
    corners = _CORNERS[name]
    radii = [radius]
    if name == "star":
        corners, radii = 2 * corners, [radius, 0.4 * radius]
    polar = [(radii[k % len(radii)], 2 * math.pi * k / corners + angle) for k in range(corners)]
    return [(x + r * math.cos(a), y + r * math.sin(a)) for r, a in polar]
