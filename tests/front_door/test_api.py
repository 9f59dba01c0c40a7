"""The public API: cost of imports, names, docstrings."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from typing import TypeVar

import pytest

import cuaug
from cuaug._runtime.migration_hints import FUNCTIONS, RENAMED_TRANSFORMS

MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages(cuaug.__path__, "cuaug.")
    if not name.endswith(("__main__", "._kernels"))
)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)


def test_importing_and_running_on_the_cpu_imports_no_codec_and_prints_nothing():
    """DataLoader workers need neither a codec nor a compiler, and these may touch a GPU."""
    done = python(
        "import cuaug, numpy, sys\n"
        "from cuaug import transforms as T, functional as F, Loader\n"
        "chain = T.Compose([T.RandomResizedCrop(4), T.ColorJitter(0.4, 0.4)])\n"
        "chain(numpy.zeros((9, 9, 3), numpy.uint8))\n"
        "bad = [m for m in sys.modules if {'cupy', 'cv2', 'torchvision', 'nvimgcodec'} & set(m.split('.'))]\n"
        "bad += [m for m in sys.modules if m == 'torch._dynamo']\n"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_importing_loads_little():
    """Neither `import cuaug`, whose modules load on first use, nor all of them load what only some programs need.

    Nor does the command `cuaug`.
    """
    done = python(
        "import sys, cuaug, cuaug.commands.cli\n"
        "bad = sorted({'torch', 'numpy', 'PIL', 'cupy', 'cuaug.loader', 'cuaug.transforms'} & set(sys.modules))\n"
        "import torch, numpy\n"
        "before = set(sys.modules)\n"
        "for name in cuaug.__all__:\n"
        "    getattr(cuaug, name)\n"
        "for module in sorted(set(sys.modules) - before):\n"
        "    package = module.split('.')[0]\n"
        "    bad += [module] * (package not in {'cuaug', 'numpy', 'PIL', *sys.stdlib_module_names})\n"
        "    bad += [module] * (module.endswith('ImagePlugin') or module in ('PIL.features', 'numpy.testing'))\n"
        "    bad += [module] * (package in ('asyncio', 'sqlite3', 'unittest', 'xml'))\n"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_public_names():
    assert cuaug.__all__ == sorted(cuaug.__all__, key=lambda name: (not name.isupper(), name)), "constants come first"
    assert set(dir(cuaug)) == {*cuaug.__all__, "__version__"}
    for name in cuaug.__all__:
        assert getattr(cuaug, name) is not None
    with pytest.raises(AttributeError, match="'cuaug' has no attribute 'Lodaer'"):
        cuaug.Lodaer  # noqa: B018
    assert re.fullmatch(r"\d+\.\d+\.\d+", cuaug.__version__)


@pytest.mark.parametrize(
    ("module", "hints"),
    [("transforms", RENAMED_TRANSFORMS), ("functional", FUNCTIONS)],
    ids=["transforms", "functional"],
)
def test_torchvisions_and_albumentations_names_raise_a_hint(module, hints):
    assert "ToTensor" in RENAMED_TRANSFORMS and "HorizontalFlip" in RENAMED_TRANSFORMS and len(FUNCTIONS) > 10
    for name, instead in hints.items():
        with pytest.raises(AttributeError) as caught:
            getattr(getattr(cuaug, module), name)
        assert str(caught.value).startswith(f"module 'cuaug.{module}' has no attribute '{name}': {instead}")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("DataLoader", "cuaug.Loader"),
        ("datasets", "cuaug.sources"),
        ("Compose", "cuaug.transforms.Compose"),
        ("resize", "cuaug.functional.resize"),
        ("Coco", "cuaug.sources.Coco"),
    ],
)
def test_names_that_people_look_for_in_the_package(name, instead):
    with pytest.raises(AttributeError, match=f"^module 'cuaug' has no attribute '{name}': {instead}"):
        getattr(cuaug, name)


#: The public functions of torchvision.transforms.v2.functional 0.29.1, without those of one kind of input.
TORCHVISION = """
    adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_saturation adjust_sharpness affine autocontrast
    center_crop clamp_bounding_boxes clamp_keypoints convert_bounding_box_format convert_image_dtype crop elastic
    elastic_transform equalize erase five_crop gaussian_blur gaussian_noise get_dimensions get_image_num_channels
    get_image_size get_num_channels get_num_frames get_size grayscale_to_rgb hflip horizontal_flip invert jpeg normalize
    pad permute_channels perspective pil_to_tensor posterize resize resized_crop rgb_to_grayscale rotate
    sanitize_bounding_boxes sanitize_keypoints solarize ten_crop to_dtype to_grayscale to_image to_pil_image to_tensor
    uniform_temporal_subsample vertical_flip vflip
"""


def test_every_function_of_torchvision_exists_or_has_a_hint():
    assert set(TORCHVISION.split()) <= set(cuaug.functional.__all__) | set(FUNCTIONS)
    assert not set(FUNCTIONS) & set(cuaug.functional.__all__)


def test_unknown_names_raise_pythons_error():
    """Python suggests a similar name."""
    done = python(
        "import sys\n"
        "from cuaug import functional, transforms\n"
        "for module, name in ((transforms, 'RandomCorp'), (functional, 'horizontal_flop')):\n"
        "    try:\n"
        "        getattr(module, name)\n"
        "    except AttributeError as error:\n"
        "        sys.excepthook(type(error), error, None)\n"
    )
    for module, name, meant in (("transforms", "RandomCorp", "RandomCrop"), ("functional", "horizontal_flop", "\\w+")):
        output = f"AttributeError: module 'cuaug.{module}' has no attribute '{name}'. Did you mean: '{meant}'"
        assert re.search(output, done.stderr)
        assert not hasattr(getattr(cuaug, module), "__path") and not hasattr(getattr(cuaug, module), "_x")


@pytest.mark.parametrize("name", ["cuaug", *MODULES])
def test_dunder_all_of_every_module(name):
    """`__all__` has existing names only, and all public classes and functions of its module.

    Modules inside of a package may lack it: names without an underscore are for other modules.
    """
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    if name.rsplit(".", 1)[-1] in ("cli", "doctor"):
        return
    if name.count(".") > 1 and not hasattr(module, "__path__") and not hasattr(module, "__all__"):
        return
    names = getattr(module, "__all__", [])
    assert len(set(names)) == len(names)
    for public in names:
        assert hasattr(module, public), f"{name}.__all__ names {public!r}, which is not there"
    own = {
        public
        for public, value in vars(module).items()
        if not public.startswith("_") and getattr(value, "__module__", None) == name and callable(value)
        if not isinstance(value, TypeVar)
    }
    assert own <= set(names), f"{name} defines {sorted(own - set(names))} outside its __all__"


def test_every_argument_is_documented():
    sources = [value for name in cuaug.sources.__all__ if inspect.isclass(value := getattr(cuaug.sources, name))]
    assert len(sources) > 10
    sources.remove(cuaug.sources.Source)
    for kind in (cuaug.Loader, cuaug.DecodeOptions, *sources):
        text = inspect.getdoc(kind)
        for name in inspect.signature(kind).parameters:
            assert re.search(rf"^\s+([a-z_]+, )*{name}(, [a-z_]+)*:", text, re.MULTILINE), name


def test_doctests_run():
    results = [doctest.testmod(importlib.import_module(name)) for name in ["cuaug", *MODULES]]
    assert sum(result.failed for result in results) == 0
    assert sum(result.attempted for result in results) >= 3
