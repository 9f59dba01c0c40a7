"""What all jobs of a loader have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cuaug.errors import TransformError
from cuaug.pipeline.reader import Reader
from cuaug.plan import Layout, Type
from cuaug.transforms import Compose

__all__ = ["BatchConfig"]


@dataclass(frozen=True)
class BatchConfig:
    """What a loader's jobs have in common; `Loader` says what each is."""

    reader: Reader
    transforms: Compose
    target_type: Type | None
    layout: Layout
    stack: bool
    fancy_upsampling: bool
    index_bytes: int | None
    load_hint: float | str | None
    decode_threads: int | None
    prefetch: int
    most_images: int
    max_pixels: int
    on_error: str
    collate: Callable[[list[Any]], Any]

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raises a TransformError where the chain, which may have been edited, needs a stack and is to make none."""
        chain = self.transforms
        if not self.stack and (len(chain.segments) > 1 or chain.views > 1):
            raise TransformError(
                "stack=False is for chains that make one image of each, without functions of whole batches (MixUp, "
                f"Lambda, ...) and MultiView, FiveCrop or TenCrop, not for {chain!r:.300}"
            )
