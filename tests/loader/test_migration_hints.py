"""Arguments of other libraries are refused, and the error names the Loader's argument."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest
import torch
from torch.utils.data import DataLoader

import cuaug
from cuaug import DecodeOptions, Loader, LoaderError, sources
from cuaug import transforms as T
from cuaug._runtime.migration_hints import LOADER_ARGUMENTS, LOADER_ATTRIBUTES
from tests.support.loader.further_pictures import Memory, assert_epoch_raises

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


class Derived(T.Transform):
    def __init__(self, strength):
        self.strength = strength


@pytest.mark.parametrize(
    ("call", "wrong", "right"),
    [
        (Loader, "batchsize", "batch_size"),
        (Loader, "transform_s", "transforms"),
        (T.ColorJitter, "brigthness", "brightness"),
        (T.Compose, "box_fromat", "box_format"),
        (Derived, "strenght", "strength"),
        (sources.Csv, "labels", "label"),
        (sources.Coco, "keepcrowds", "keep_crowds"),
        (sources.TarShards, "imge", "image"),
        (sources.RemoteOptions, "cachedir", "cache_dir"),
        (DecodeOptions, "max_pixel", "max_pixels"),
        (cuaug.EncodedCache, "limit_byte", "limit_bytes"),
        (cuaug.DecodedCache, "limit_byte", "limit_bytes"),
        (cuaug.ShardSampler, "windows", "window"),
        (cuaug.decode, "devise", "device"),
        (cuaug.show, "colums", "columns"),
    ],
)
def test_a_misspelled_argument_is_named_wherever_there_are_arguments(call, wrong, right):
    with pytest.raises(TypeError, match=rf"^{call.__name__} has no argument '{wrong}': do you mean {right}=\?$"):
        call(**{wrong: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'xyz'"):
        call(xyz=1)


def test_a_misspelled_argument_of_a_function_of_an_image():
    with pytest.raises(TypeError, match=r"^resize has no argument 'antialiass': do you mean antialias=\?$"):
        cuaug.functional.resize(None, 4, antialiass=True)  # type: ignore[call-arg]


def test_a_type_error_of_the_function_itself_stays():
    class Odd(T.Transform):
        def __init__(self, strength, **options):
            raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        Odd(1, strenght=2)


COLLATE = "collate_fn failed: .*the list of a batch's labels, without the images"


@pytest.mark.parametrize(
    "collate_fn",
    [
        lambda samples: tuple(zip(*samples, strict=True)),
        lambda samples: [image for image, _ in samples],
        lambda samples: [sample["image"] for sample in samples],
        lambda samples: [sample[0] for sample in samples],
        lambda samples: [sample.image for sample in samples],
        lambda samples: torch.stack(next(zip(*samples, strict=True))),
    ],
)
def test_a_dataloaders_collate_fn_is_told_what_it_gets(collate_fn):
    assert_epoch_raises(LoaderError, COLLATE, Memory(4), batch_size=2, collate_fn=collate_fn)


def test_other_errors_of_a_collate_fn_stay():
    def fail(labels):
        raise KeyboardInterrupt

    with Loader(Memory(4), collate_fn=fail) as loader, pytest.raises(KeyboardInterrupt):
        next(iter(loader))
