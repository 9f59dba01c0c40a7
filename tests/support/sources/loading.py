"""Samples of a source, read directly or by a Loader."""

from __future__ import annotations

from typing import Any

from cuaug import Loader
from tests.support.loader.further_pictures import numbers_of


def read_all(source: Any) -> list[tuple[Any, Any]]:
    return [source.read(i) for i in range(len(source))]


def load(files: Any, **options: Any) -> Any:
    """The only batch that a Loader makes of the files."""
    with Loader(files, **{"batch_size": 100, **options}) as loader:
        (batch,) = loader
    return batch


def load_numbers(files: Any, **options: Any) -> tuple[list[int], list[Any]]:
    """(the images' numbers, their labels)"""
    batch = load(files, **options)
    return numbers_of(batch.images), batch.labels.tolist()
