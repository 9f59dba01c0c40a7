"""Images whose color encodes their label, and sources that hold them in memory."""

from __future__ import annotations

import functools
import hashlib
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import Batch, Loader
from tests.support.codec.encoded_images import encode
from tests.support.codec.encoded_images import photo as photo


def color_of(number: int) -> tuple[int, int, int]:
    """A color for each number below 2**16, encoded in red and green."""
    return number % 256, number // 256, 77


def numbers_of(images: torch.Tensor) -> list[int]:
    """The numbers of a uint8 batch of one-color images; asserts that each has one color."""
    assert images.dtype == torch.uint8 and images.ndim == 4
    corners = images[:, :, :1, :1]
    assert (images == corners).all(), "an image has several colors"
    assert (corners[:, 2] == 77).all()
    return (corners[:, 0, 0, 0].long() + 256 * corners[:, 1, 0, 0].long()).tolist()


def planes_of(path: str | Path) -> torch.Tensor:
    """(3, H, W) uint8: a file decoded by Pillow."""
    return torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)


@functools.cache
def png(number: int, height: int = 4, width: int = 5) -> bytes:
    return encode(Image.new("RGB", (width, height), color_of(number)), "PNG", compress_level=1)


def noisy_jpeg(height: int, width: int, **options: Any) -> bytes:
    """A JPEG of noise, which is slow to decode."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return encode(Image.fromarray(pixels), "JPEG", quality=95, **options)


@functools.cache
def slow_to_decode(passes: int = 450) -> bytes:
    """A JPEG of 3000 x 3000 pixels that repeats its last scan; each pass takes 3 to 10 ms."""
    data = encode(Image.new("RGB", (3000, 3000)), "JPEG", progressive=True)
    last_scan = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last_scan * passes + data[-2:]


def write_photos(folder: Path, count: int, seed: int = 0, form: str | None = None, **options: Any) -> list[str]:
    """JPEGs of varied sizes, all at least 48 x 48.

    For a GPU they are PNGs under those names, unless `form` says otherwise: there two decoders share the JPEGs, whose
    pixels may differ by a level.
    """
    form = form or ("PNG" if os.environ.get("CUAUG_DEVICE") == "cuda" else "JPEG")
    rng = np.random.default_rng(seed)
    paths = []
    for i in range(count):
        height, width = (int(v) for v in rng.integers(48, 150, 2))
        paths.append(str(folder / f"{i}.jpg"))
        Image.fromarray(photo(height, width, seed + i)).save(paths[-1], form, quality=90, **options)
    return paths


def checksums(images: torch.Tensor) -> list[str]:
    """The checksum of each image of a batch."""
    return [hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest() for image in images.cpu()]


class Memory:
    """One-color images in memory; image i has label i.

    Args:
        damaged: indices of samples that are no image.
        slow: each read sleeps for a random time up to this many seconds.
    """

    def __init__(self, count: int, damaged: Any = (), slow: float = 0.0) -> None:
        self.count, self.damaged, self.slow = count, frozenset(damaged), slow

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> tuple[bytes, int]:
        if self.slow:
            time.sleep(random.random() * self.slow)
        return b"nothing" if index in self.damaged else png(index), index


class WatchedSource(Memory):
    """Records the samples that are read, and names their paths. Calls `before` before each read."""

    def __init__(self, count: int, before: Callable[[int], object] = lambda index: None, damaged: object = ()) -> None:
        super().__init__(count, damaged)
        self.reads: list[int] = []
        self._before = before

    def read(self, index: int) -> tuple[bytes, int]:
        self.reads.append(index)
        self._before(index)
        return super().read(index)

    def path(self, index: int) -> str:
        return f"disk/{index}.png"


class Bytes:
    """Encoded images in memory, labeled with their index."""

    def __init__(self, *data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def read(self, index: int) -> tuple[Any, int]:
        return self.data[index], index


class Arrays(Bytes):
    """Decoded images in memory, labeled with their index."""


class Named(Memory):
    """Images with a fingerprint."""

    def __init__(self, name: str, count: int) -> None:
        super().__init__(count)
        self.name = name

    def fingerprint(self) -> str:
        return self.name


class Labeled(Memory):
    """Images with the given labels, which are also an attribute if it has a name."""

    def __init__(self, *labels: Any, attribute: str | None = None) -> None:
        super().__init__(len(labels))
        self._labels = labels
        if attribute is not None:
            setattr(self, attribute, labels)

    def read(self, index: int) -> tuple[bytes, Any]:
        return png(index), self._labels[index]


def epoch_of(files: Any, chain: Any = (), **options: Any) -> list[Batch]:
    """The batches of an epoch of a new Loader."""
    with Loader(files, chain, **options) as loader:
        batches = list(loader)
        assert len(batches) == len(loader)
    return batches


def assert_epoch_raises(kind: type[Exception], message: str, files: Any, chain: Any = (), **options: Any) -> Exception:
    """The error of an epoch of a new Loader, whose message must match."""
    with Loader(files, chain, **options) as loader, pytest.raises(kind, match=message) as caught:
        list(loader)
    return caught.value
