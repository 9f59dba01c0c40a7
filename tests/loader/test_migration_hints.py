"""Arguments of other libraries are refused, and the error names the Loader's argument."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest
from torch.utils.data import DataLoader

from cuaug import DecodeOptions, Loader, LoaderError, sources
from cuaug._runtime.migration_hints import LOADER_ARGUMENTS, LOADER_ATTRIBUTES
from tests.support.loader.further_pictures import Memory

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
    with pytest.raises(TypeError, match=r"Loader.__init__\(\) got an unexpected keyword argument 'xyz'"):
        Loader(Memory(4), xyz=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'files'"):
        Loader()


class Subclass(Loader):
    def __init__(self, files, num_workers):
        super().__init__(files, threads=num_workers)


def test_a_subclass_has_its_own_arguments():
    with Subclass(Memory(4), num_workers=3) as loader:
        assert loader.threads == 3
    assert next(iter(inspect.signature(Loader).parameters)) == "files"


@pytest.mark.parametrize("name", LOADER_ATTRIBUTES)
def test_attributes_of_other_loaders_are_named(name):
    with Loader(Memory(4)) as loader:
        with pytest.raises(AttributeError, match=re.escape(f"no attribute {name!r}: {LOADER_ATTRIBUTES[name]}")):
            getattr(loader, name)
        assert not hasattr(loader, name)
        for known in re.findall(r"loader\.(\w+)", LOADER_ATTRIBUTES[name]):
            assert hasattr(loader, known)
        with pytest.raises(AttributeError, match=r"^'Loader' object has no attribute 'unknown'$"):
            loader.unknown  # noqa: B018


def test_a_loader_around_or_inside_a_loader():
    with Loader(Memory(4)) as loader:
        with pytest.raises(TypeError, match="iterate over it, without a DataLoader"):
            next(iter(DataLoader(loader)))  # type: ignore[arg-type]
        with pytest.raises(LoaderError, match=r"^files is a Loader.*\.source"):
            Loader(loader)
    with pytest.raises(LoaderError, match=r"^files is a torch DataLoader; .* its \.dataset"):
        Loader(DataLoader([1, 2]))  # type: ignore[arg-type]


def test_a_batch_size_in_the_place_of_transforms():
    with pytest.raises(LoaderError, match=r"^transforms must be transforms, not 64: write batch_size=64"):
        Loader(Memory(4), 64)  # type: ignore[arg-type]


def test_class_to_idx():
    source = sources.Files(["a.png", "b.png"], [0, 1], ["ant", "bee"])
    assert Loader(source).class_to_idx == {"ant": 0, "bee": 1}
    assert Loader(["a.png", "b.png"]).class_to_idx is None


@pytest.mark.parametrize(
    ("wrong", "right"), [("batchsize", "batch_size"), ("shufle", "shuffle"), ("transform_s", "transforms")]
)
def test_a_misspelled_argument_is_named(wrong, right):
    with pytest.raises(TypeError, match=f"Loader has no argument '{wrong}': do you mean {right}="):
        Loader(Memory(4), **{wrong: 1})
