"""Rows of encoded photos for the tests of `cuaug.ray`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image

from cuaug import transforms as T
from tests.support.codec.encoded_images import encode

#: What stands in place of a photo in tests of damage.
DAMAGED = b"no image"

CHAIN = T.Compose(
    [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4), T.ToDtype(torch.float32, scale=True)]
)


def photo(number: int) -> bytes:
    """A small JPEG; its size and pixels depend on the number."""
    rng = np.random.default_rng(number)
    small = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    return encode(small.resize((60 + number % 7, 50 + number % 5)), "JPEG")


def objects(values: list[Any]) -> Any:
    """A column of any values."""
    column = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        column[i] = value
    return column


def columns(count: int, *, damaged: tuple[int, ...] = ()) -> dict[str, Any]:
    """A batch as Ray makes it: "id", "bytes" and a further column "name"."""
    files = objects([DAMAGED if i in damaged else photo(i) for i in range(count)])
    return {"id": np.arange(count), "bytes": files, "name": objects([f"n{i}" for i in range(count)])}
