"""The kinds of errors: each has one base, and the built-in one that it is."""

from __future__ import annotations

import pickle

import pytest

import cuaug
from cuaug import errors
from tests.support.loader.further_pictures import Memory

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
