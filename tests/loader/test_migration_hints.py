"""Arguments of other libraries are refused, and the error names the Loader's argument."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest
from torch.utils.data import DataLoader

from cuaug import DecodeOptions, Loader
from cuaug.migration_hints import LOADER_ARGUMENTS
from tests.loader.pictures import Memory

OWN = set(inspect.signature(Loader).parameters)
OPTIONS = {field.name for field in dataclasses.fields(DecodeOptions)}


def test_all_arguments_of_a_dataloader_are_known():
    assert set(inspect.signature(DataLoader).parameters) <= OWN | set(LOADER_ARGUMENTS)
    assert not OWN & set(LOADER_ARGUMENTS)


@pytest.mark.parametrize("name", LOADER_ARGUMENTS)
def test_the_named_argument_exists(name):
    with pytest.raises(TypeError, match=re.escape(f"Loader has no argument {name!r}: {LOADER_ARGUMENTS[name]}")):
        Loader(Memory(4), **{name: 1})
    assert set(re.findall(r"(\w+)=", LOADER_ARGUMENTS[name])) <= OWN | OPTIONS


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_decode_options_as_loader_arguments_are_refused(name):
    with pytest.raises(TypeError, match=rf"no argument '{name}': decode=cuaug.DecodeOptions\({name}="):
        Loader(Memory(4), **{name: 1})


def test_all_foreign_arguments_are_named_at_once():
    with pytest.raises(TypeError, match=r"no argument 'num_workers': threads=.*; nor 'drop_last': last_batch=\"drop\""):
        Loader(Memory(4), num_workers=4, shuffle=True, drop_last=True)
    with pytest.raises(TypeError, match="no argument 'dataset': files"):
        Loader(dataset=Memory(4), batch_size=2)


def test_other_mistakes_raise_pythons_errors():
    with pytest.raises(TypeError, match=r"Loader.__init__\(\) got an unexpected keyword argument 'tread'"):
        Loader(Memory(4), tread=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'files'"):
        Loader()


class Subclass(Loader):
    def __init__(self, files, num_workers):
        super().__init__(files, threads=num_workers)


def test_a_subclass_has_its_own_arguments():
    with Subclass(Memory(4), num_workers=3) as loader:
        assert loader.threads == 3
    assert next(iter(inspect.signature(Loader).parameters)) == "files"
