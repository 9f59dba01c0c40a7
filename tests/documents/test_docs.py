"""The documents name tests and files that exist."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POLICIES = [ROOT / name for name in ("CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")]
DOCUMENTS = [ROOT / "README.md", *POLICIES, *sorted((ROOT / "docs").glob("**/*.md")), ROOT / "benchmarks" / "README.md"]
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@functools.cache
def functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tests_that_are_named_exist(document):
    for path, name in TEST.findall(document.read_text()):
        assert (ROOT / path).is_file(), f"{document.name}: {path}"
        assert not name or name in functions(ROOT / path), f"{document.name}: {path}::{name}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert target.startswith("http") or (document.parent / target).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_headings(document):
    """A heading's anchor, as GitHub makes it: lower case, words joined by hyphens, no other punctuation."""
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#([^)]*)\)", document.read_text()):
        page = (document.parent / target).read_text() if target else document.read_text()
        headings = re.findall(r"^#+ (.*)", page, re.MULTILINE)
        anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert anchor in anchors, f"{document.name}: {target}#{anchor}"


def test_tables_are_those_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import tables

    blocks = [name for path in tables.DOCUMENTS for _, name, _ in tables.BLOCK.findall(path.read_text())]
    assert sorted(blocks) == sorted(tables.TABLES)
    for path in tables.DOCUMENTS:
        assert tables.render(path.read_text()) == path.read_text(), f"{path.name}: run python benchmarks/tables.py"


def test_names_exist_after_import_cuaug():
    """Each in modules of its own: what another name has imported must not help."""
    pattern = r"(?<!from )\bcuaug(?:\.[A-Za-z]\w*)+"
    names = {name for path in DOCUMENTS for name in re.findall(pattern, path.read_text())}
    assert len(names) >= 10
    program = (
        "import functools, sys, torch\n"
        "for name in sys.argv[1:]:\n"
        "    for module in [module for module in sys.modules if module.split('.')[0] == 'cuaug']:\n"
        "        del sys.modules[module]\n"
        "    import cuaug\n"
        "    try:\n"
        "        functools.reduce(getattr, name.split('.')[1:], cuaug)\n"
        "    except AttributeError as error:\n"
        "        print(f'{name}: {error}')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *sorted(names)], capture_output=True, text=True, check=True)
    assert done.stdout == ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_say_where_they_lead(document):
    for label, target in re.findall(r"\[`?([^\]`]+\.\w+)`?\]\(([^)#]+)[^)]*\)", document.read_text()):
        assert label.split("/")[-1] == target.split("/")[-1], f"{document.name}: [{label}]({target})"


def test_the_map_has_everything():
    tree = (ROOT / "docs" / "design.md").read_text().partition("## The map")[2].partition("## One crop")[0]
    parts = [path for path in (ROOT / "cuaug").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    assert len(parts) > 20
    for path in parts:
        name = path.name if path.suffix else f"{path.name}/"
        assert name.startswith("__") or name in tree, f"docs/design.md, The map: {name}"


ROOMS = sorted(path.parent for path in (ROOT / "cuaug").rglob("__init__.py") if len(list(path.parent.glob("*.py"))) > 1)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(ROOT).as_posix())
def test_the_map_of_a_room_names_its_files(room):
    """The docstring of its `__init__.py` names all its files, and no others."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    files = {path.name for path in room.glob("*.py")} - {"__init__.py"}
    rows = re.findall(r"^((?:\w+\.py(?:, )?)+)  ", text, re.MULTILINE)
    assert {name for row in rows for name in row.split(", ")} == files


def test_only_the_contract_branches_on_the_build():
    """core/ includes the contract and itself; each build's entry points include its half, and core/."""
    texts = {path.relative_to(ROOT / "kernels"): path.read_text() for path in (ROOT / "kernels").glob("**/*.h")}
    branches = {str(path) for path, text in texts.items() if "__CUDACC__" in text}
    assert branches == {"platform.h", "simd.h"}
    for path, text in texts.items():
        folders = {name.rpartition("/")[0] for name in re.findall(r'#include [<"](.*)[>"]', text)}
        if path.parent.name == "core":
            assert folders <= {"", "core"}, path
        assert {"cpu": "cuda", "cuda": "cpu"}.get(path.parent.name) not in folders, path


KERNELS = [path for path in sorted((ROOT / "kernels").glob("*/*.*")) if path.suffix in (".h", ".cpp", ".cu")]


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_kernel_file_opens_with_four_labeled_lines(path):
    """Continuation lines are indented; files are named as they are."""
    head = re.match(r"(//.*\n)+", path.read_text())[0].partition("//\n")[0]
    labels = [line.split(":")[0] for line in head.splitlines() if not line.startswith("//           ")]
    assert labels == ["// Computes", "// Threads", "// Reference", "// Tests"]
    for name in re.findall(r"\b(?:core|cpu|cuaug|cuda|jpeg|planner|tests)/[\w/]+\.(?:py|h|cu|cpp)\b", head):
        assert (ROOT / name).is_file() or (ROOT / "kernels" / name).is_file(), name


def test_every_promise_and_every_trap_has_its_tests():
    *promises, others = re.split(r"^## ", (ROOT / "docs" / "promises.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(promises) == 10
    for promise in promises:
        assert TEST.search(promise), promise.splitlines()[0]
    rows = re.findall(r"^\| (?!promise ).*", others, re.MULTILINE)
    traps = re.findall(r"^\| .*", (ROOT / "docs" / "traps.md").read_text(), re.MULTILINE)[1:]
    assert len(rows) >= 60 and len(traps) >= 20
    for row in rows + traps:
        assert TEST.search(row) or "not tested:" in row, row


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 900
