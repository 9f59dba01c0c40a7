"""What all jobs of a loader have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cuaug.pipeline.reading import Reader
from cuaug.plan import Layout, Type
from cuaug.transforms import Compose

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """What a loader's jobs have in common; `Loader` says what each is."""

    reader: Reader
    transforms: Compose
    target_type: Type | None
    layout: Layout
    fancy_upsampling: bool
    index_bytes: int | None
    load_hint: float | str | None
    decode_threads: int | None
    prefetch: int
    most_images: int
    on_error: str
    collate: Callable[[list[Any]], Any]
