"""Mistakes of a first program with chains, `decode` and devices: the error names the remedy, and has its kind."""

from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path

import pytest
import torch
from PIL import Image

import cuaug
from cuaug import errors
from cuaug import transforms as T
from tests.support.loader.further_pictures import Memory


@pytest.fixture
def files(tmp_path) -> list[str]:
    """Two JPEGs of different sizes."""
    paths = [str(tmp_path / f"{name}.jpg") for name in "ab"]
    for path, size in zip(paths, ((40, 30), (60, 50)), strict=True):
        Image.new("RGB", size, (200, 100, 50)).save(path)
    return paths


def test_decode_of_images_and_open_files(files):
    image = Image.open(files[0])
    with pytest.raises(cuaug.ArgumentError, match=r"input 0 .*looks like a decoded image.*Compose\(\[...\]\)\(image\)"):
        cuaug.decode(image, device="cpu")
    data = Path(files[0]).read_bytes()
    with open(files[0], "rb") as opened, open(files[0], encoding="latin-1") as text:
        for file in (io.BytesIO(data), opened, text):
            with pytest.raises(cuaug.ArgumentError, match=r"input 1 .*; give the bytes that read\(\) returns$"):
                cuaug.decode([data, file], device="cpu")


@pytest.mark.parametrize("kind", [str, Path, lambda path: Path(path).read_bytes(), lambda path: open(path, "rb")])  # noqa: SIM115
def test_a_chain_that_is_called_with_a_file(files, kind):
    for chain in (T.Resize(8), T.Compose([T.Resize(8)])):
        with pytest.raises(cuaug.TransformError, match=r"^image must .*: cuaug\.decode\(path or bytes, chain\) reads"):
            chain(kind(files[0]))
    with pytest.raises(cuaug.TransformError, match=r"^image must be .*, not builtins\.int$"):
        T.Resize(8)(7)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA works here")
def test_a_device_that_does_not_work(files):
    for use in (lambda: cuaug.Loader(files, device="cuda"), lambda: cuaug.decode(files[0], device="cuda")):
        with pytest.raises(cuaug.DeviceError, match=r"cannot use cuda: .*; device=None takes the CPU .*doctor"):
            use()


# --- functions in a chain ---------------------------------------------------------------------------------------------


def brighten(images):
    return images + 1


@pytest.mark.parametrize("before", [[], [T.RandomHorizontalFlip()]])
def test_a_function_before_images_have_one_size_is_named(files, before):
    named = (
        r"transforms: Lambda\(function=brighten\) takes the images of a batch as one tensor.*; put it after a transform"
    )
    with pytest.raises(cuaug.TransformError, match=named) as caught:
        list(cuaug.Loader(files, [*before, brighten, T.Resize((20, 20))], batch_size=2, device="cpu"))
    assert "end the chain" not in str(caught.value) and "stack=False" not in str(caught.value)
    with pytest.raises(cuaug.TransformError, match=r"end the chain with .*stack=False"):
        list(cuaug.Loader(files, before, batch_size=2, device="cpu"))


def to_levels(images):
    return images.float()


@pytest.mark.parametrize("last", [T.ColorJitter(0.2), T.Normalize([0.5] * 3, [0.5] * 3)])
def test_a_function_that_returns_levels_is_named_where_it_stands(files, last):
    chain = [T.Resize((20, 20)), to_levels, last]
    with pytest.warns(
        cuaug.ChainWarning, match=r"image: Lambda\(function=to_levels\) returns float values beyond 1"
    ) as caught:
        list(cuaug.Loader(files, chain, batch_size=2, device="cpu"))
    line = to_levels.__code__.co_firstlineno
    assert {(warning.filename, warning.lineno) for warning in caught} == {(__file__, line)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(cuaug.Loader(files, [chain[0], lambda images: images / 255, last], batch_size=2, device="cpu"))


# --- the kinds of errors: each has one base, and the built-in one that it is ------------------------------------------

BUILT_IN = {
    "ArgumentError": ValueError,
    "LoaderTimeoutError": TimeoutError,
    "LoaderClosedError": RuntimeError,
    "SourceError": RuntimeError,
    "RankError": RuntimeError,
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_loaders_errors_have_one_base(name):
    error = getattr(cuaug, name)("why")
    assert isinstance(error, cuaug.LoaderError) and isinstance(error, cuaug.CuaugError)
    assert isinstance(error, BUILT_IN[name]) and str(error) == "why"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == "why"


def test_all_are_public():
    assert {name for name in errors.__all__ if name.endswith("Error")} <= set(cuaug.__all__)


def test_each_fault_has_its_kind(tmp_path):
    with pytest.raises(cuaug.ArgumentError, match=r"^batch_size must be"):
        cuaug.Loader(Memory(2), batch_size=0)
    with pytest.raises(cuaug.ArgumentError, match=r"^sampler yields index 9"):
        cuaug.Loader(Memory(2), sampler=[9])
    with pytest.raises(cuaug.SourceError, match=r"holds no|has no folders"):
        cuaug.Loader(tmp_path)
    loader = cuaug.Loader(Memory(2), seed=0)
    loader.close()
    with pytest.raises(cuaug.LoaderClosedError):
        next(iter(loader))
    with pytest.raises(cuaug.ArgumentError, match=r"^state_dict is not"):
        loader.load_state_dict({})
