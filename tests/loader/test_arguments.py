"""Arguments of a loader: errors name the value and the allowed ones."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch

from cuaug import DecodeOptions, DeviceError, Loader, LoaderError, TransformError
from cuaug import transforms as T
from tests.support.loader.further_pictures import Memory


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        *[({"batch_size": v}, LoaderError, rf"batch_size .* at least 1, not {v}") for v in (0, -1, 1.5, True, None)],
        *[({"threads": v}, LoaderError, rf"threads .* at least 1, not {v}") for v in (0, -2, 0.5, False)],
        ({"threads": 4097}, LoaderError, "threads must be at most 4096, not 4097"),
        *[({"prefetch": v}, LoaderError, rf"prefetch .* at least 1, not {v}") for v in (0, 2.0)],
        *[({"seed": v}, LoaderError, rf"seed must be an integer, not {re.escape(repr(v))}") for v in (1.5, [])],
        ({"decode": {"max_pixels": 5}}, LoaderError, "must be a cuaug.DecodeOptions or None, not {'max_pixels': 5}"),
        ({"on_error": "ignore"}, LoaderError, "on_error must be one of 'raise', 'skip', 'replace', not 'ignore'"),
        ({"on_error": None}, LoaderError, "not None"),
        ({"labels_device": "gpu"}, LoaderError, r"labels_device must be None, .* \((cpu|cuda:\d)\), or 'cpu'"),
        *[
            ({"timeout_seconds": v}, LoaderError, f"timeout_seconds must be a number above 0, or None, not {v!r}")
            for v in ("5", 0, -1.5, math.nan, True)
        ],
        ({"shuffle": "no"}, LoaderError, "shuffle must be True or False, not 'no'"),
        *[
            ({name: 3}, LoaderError, f"{name} must be a function, or None, not 3")
            for name in ("error_callback", "collate_fn")
        ],
        ({"layout": "CHW"}, LoaderError, "layout must be one of 'NCHW', 'NHWC', not 'CHW'"),
        ({"dtype": torch.int8}, TransformError, "dtype must be one of .*not torch.int8"),
        ({"dtype": "float16"}, TransformError, "dtype must be one of .*not 'float16'"),
        ({"dtype": []}, TransformError, r"dtype must be one of .*not \[\]"),
        ({"dtype": torch.float64}, TransformError, "not torch.float64"),
        *[({"device": v}, DeviceError, f"device is 'cpu', 'cuda' .*not '{v}'") for v in ("gpu", "meta", "cuda:x")],
        ({"transforms": 3.5}, TransformError, "transforms must hold cuaug transforms, .*, not 3.5"),
        ({"transforms": [T.CenterCrop(3), "flip"]}, TransformError, "transforms must hold cuaug transforms, .*not 'fl"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_invalid_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Loader(Memory(3), **arguments)


@pytest.mark.parametrize(
    ("name", "values"), [("max_bytes", (0, -1, 1.5, "1", None)), ("index_bytes", (-1, 0.5, 1e9, True, "1 GB"))]
)
def test_limits_in_bytes_are_integers(name, values):
    least = 1 if name == "max_bytes" else 0
    for value in values:
        with pytest.raises(LoaderError, match=f"{name} must be an integer of at least {least}, not {value!r}"):
            DecodeOptions(**{name: value})


def test_an_empty_source_is_refused():
    with pytest.raises(LoaderError, match=r"there is nothing to load: .*Memory"):
        Loader(Memory(0))


@pytest.mark.parametrize(
    ("name", "value"), [("transforms", [T.Resize((8, 8))]), ("seed", 3), ("on_error", "skip"), ("dtype", None)]
)
def test_arguments_of_a_loader_are_read_only(name, value):
    with (
        Loader(Memory(3)) as loader,
        pytest.raises(AttributeError, match=rf"{name} is fixed when a Loader is made .* make another"),
    ):
        setattr(loader, name, value)


def test_numpy_integers_are_integers():
    one = np.int64(1)
    with Loader(Memory(2), batch_size=one, threads=one, prefetch=one, seed=np.int64(-1), shuffle=True) as loader:
        loader.set_epoch(one)
        assert len(list(loader)) == 2


@pytest.mark.parametrize("epoch", [-1, 0.5, None])
def test_set_epoch_takes_integers_from_0(epoch):
    with pytest.raises(LoaderError, match=f"epoch .* at least 0, not {epoch}"):
        Loader(Memory(3)).set_epoch(epoch)
