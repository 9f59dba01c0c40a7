"""Trains a small network on video clips to tell the direction of motion, which no single frame shows.

It writes 80 videos of 300 frames into a folder per class ("up", "down", "left", "right"): a bright square moves over a
noisy background, and starts over at the other side. The loader takes clips of 8 frames at a stride of 4, anywhere in
the video, anew in each epoch. Every fourth video is for validation. It takes about a minute on two CPU cores.

    pip install ".[video]"
    python examples/video.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import cuaug
from cuaug import transforms as T

DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}  # rows, columns of a frame
VIDEOS_PER_CLASS, VIDEO_FRAMES, SIZE = 20, 300, 72
FRAMES, STRIDE, CROP = 8, 4, 64


def write_video(path: Path, direction: tuple[int, int], rng: np.random.Generator) -> None:
    """A square of 16 x 16 pixels that moves by one or two pixels a frame."""
    import av

    background = rng.integers(0, 100, (SIZE, SIZE, 3), dtype=np.uint8)
    square = rng.integers(150, 256, 3, dtype=np.uint8)
    place, speed = rng.integers(0, SIZE, 2), int(rng.integers(1, 3))
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=30, options={"crf": "20", "g": "60"})
        stream.width, stream.height, stream.pix_fmt = SIZE, SIZE, "yuv420p"
        for number in range(VIDEO_FRAMES):
            frame = background.copy()
            rows, columns = ((place + number * speed * np.array(direction))[:, None] + np.arange(16)) % SIZE
            frame[rows[:, None], columns] = square
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def write_videos(folder: Path) -> None:
    """A folder for each class; videos that exist stay."""
    rng = np.random.default_rng(0)
    for name, direction in DIRECTIONS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(VIDEOS_PER_CLASS):
            path = folder / name / f"{number:02}.mp4"
            if not path.exists():
                write_video(path, direction, rng)


def make_loaders(folder: Path) -> tuple[cuaug.Loader, cuaug.Loader]:
    """Clips for training at random places, clips for validation at three fixed places of other videos."""
    every = cuaug.sources.Videos(folder, frames=FRAMES)
    pairs = list(zip(every.paths, every.labels, strict=True))
    train = cuaug.sources.Videos(
        [pair for number, pair in enumerate(pairs) if number % 4], frames=FRAMES, stride=STRIDE, clips_per_video=3
    )
    validation = cuaug.sources.Videos(pairs[::4], frames=FRAMES, stride=STRIDE, sampling="uniform", clips_per_video=3)
    normalize = T.Normalize([0.5] * 3, [0.25] * 3)
    # A flip would change the class.
    chain = [T.RandomCrop(CROP), T.ColorJitter(0.3, 0.3, 0.3), normalize]
    return (
        cuaug.Loader(train, chain, batch_size=16, shuffle=True, seed=0, layout="NCTHW"),
        cuaug.Loader(validation, [T.CenterCrop(CROP), normalize], batch_size=16, layout="NCTHW"),
    )


def make_network() -> nn.Module:
    """Three convolutions over time and space."""

    def block(channels_in: int, channels: int) -> list[nn.Module]:
        convolution = nn.Conv3d(channels_in, channels, 3, stride=(1, 2, 2), padding=1)
        return [convolution, nn.BatchNorm3d(channels), nn.ReLU()]

    layers = [*block(3, 16), *block(16, 32), *block(32, 64)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, len(DIRECTIONS)))


@torch.no_grad()
def accuracy(network: nn.Module, loader: cuaug.Loader) -> float:
    """Share of validation clips whose direction the network tells."""
    network.eval()
    right = sum(int((network(clips).argmax(1) == labels).sum()) for clips, labels in loader)
    network.train()
    return right / len(loader.source)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("demo-data/motion"))
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    torch.manual_seed(0)
    write_videos(options.data)
    train, validation = make_loaders(options.data)
    network = make_network()
    optimizer = torch.optim.AdamW(network.parameters())
    steps = options.epochs * len(train)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=steps)
    for epoch in range(options.epochs):
        for clips, labels in train:  # (16, 3, 8, 64, 64)
            loss = nn.functional.cross_entropy(network(clips), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: {accuracy(network, validation):.0%} of the validation clips", flush=True)
    print(train.stats())


if __name__ == "__main__":
    main()
