"""The gallery shows every transform, and its page is up to date."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from cuaug import transforms as T

ROOT = Path(__file__).parents[2]

gallery = SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "gallery.py")))
CODES = [code for codes in gallery.cases().values() for code in codes]


def test_every_transform_has_a_chain():
    public = {name for name in T.__all__ if inspect.isclass(c := getattr(T, name)) and issubclass(c, T.Transform)}
    names = [gallery.name_of(code) for code in CODES]
    assert len(set(names)) == len(names), "each chain needs its own file"
    assert set(names) == public - gallery.HIDDEN


@pytest.mark.parametrize("code", CODES)
def test_the_page_shows_each_chain(code):
    assert gallery.chain_of(code).transforms
    name = gallery.name_of(code)
    page = (ROOT / "docs" / "gallery.md").read_text()
    assert f"`{code}`" in page and f"(gallery/{name}.jpg)" in page, "run `python examples/gallery.py`"
    assert (ROOT / "docs" / "gallery" / f"{name}.jpg").is_file()


def test_every_operation_of_the_example_is_shown():
    assert sorted(gallery.OWN) == gallery.own_operations.__all__
    page = (ROOT / "docs" / "gallery.md").read_text()
    assert all(f"`{name}()`" in page for name in gallery.OWN), "run `python examples/gallery.py`"


def test_the_images_are_few_and_small():
    files = list((ROOT / "docs" / "gallery").iterdir())
    assert {file.stem for file in files} == {*map(gallery.name_of, CODES), *gallery.OWN}, "no unused image"
    assert sum(file.stat().st_size for file in files) < 1.75e6
