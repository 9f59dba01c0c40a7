"""The sources of the documentation site: pages, public names and plots are complete. `make docs` builds it."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_website"))
    return importlib.import_module("reference")


@pytest.fixture
def plots(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("plots")


def test_every_page_is_in_the_navigation():
    navigation = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    assert len(set(navigation)) == len(navigation)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("**/*.md")}
    assert len(pages) > 20 and pages - set(navigation) == set(), "add them to nav in mkdocs.yml"


def test_every_public_name_is_on_one_page_of_the_reference(reference):
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = reference.pages()
    for page, (_, package) in reference.PACKAGES.items():
        assert f"reference/{page}.md" in navigation
        names = [f"{package}.{name}" for name in importlib.import_module(package).__all__]
        if package == "cuaug":
            for module in reference.MODULES:
                names.remove(f"cuaug.{module}")
                assert module in reference.PACKAGES, f"cuaug.{module} has no page"
        assert sorted(re.findall(r"^::: (\S+)$", pages[page], re.MULTILINE)) == sorted(names)
    commands = re.findall(r"^usage: cuaug (\w+) ", pages["cli"], re.MULTILINE)
    assert {"doctor", "demo", "check", "index"} <= set(commands)


def test_every_name_of_the_reference_has_a_docstring(reference):
    """Its public methods and properties, too: the reference leaves out those without."""
    missing = []
    for _, package in reference.PACKAGES.values():
        for name in importlib.import_module(package).__all__:
            value = getattr(importlib.import_module(package), name)
            missing += [f"{package}.{name}"] * (not inspect.getdoc(value))
            for member, function in vars(value).items() if inspect.isclass(value) else ():
                is_method = inspect.isroutine(function) or isinstance(function, property)
                if is_method and not member.startswith("_") and not inspect.getdoc(getattr(value, member)):
                    missing.append(f"{package}.{name}.{member}")
    assert not missing


def test_the_build_counts_warnings():
    """mkdocs counts none with --quiet, so `strict` would let dead links and anchors pass."""
    (command,) = re.findall(r"mkdocs .*build", (ROOT / "Makefile").read_text())
    config = (ROOT / "mkdocs.yml").read_text()
    assert command == "mkdocs build" and "\nstrict: true\n" in config and "\n  anchors: warn\n" in config


def test_plots_show_the_results(plots):
    files = {path.stem for path in plots.FOLDER.iterdir()}
    assert files == set(plots.PICTURES)
    for name, panels in plots.PICTURES.items():
        figures, texts = plots.described(name)
        assert figures == panels(), f"docs/plots/{name}.svg: run python benchmarks/plots.py"
        for each in figures:
            assert len(each["bars"]) >= 4
            assert {*each["title"].splitlines(), each["unit"], *each["bars"]} <= set(texts)
            assert {plots.label(row[0]) for row in each["bars"].values()} <= set(texts)
