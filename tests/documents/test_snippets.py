"""The code blocks of README.md, docs/, CONTRIBUTING.md and benchmarks/README.md run, or say why not."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cuaug.commands.cli import make_parser
from tests.support.page_setups import ELSEWHERE
from tests.support.pages import LANGUAGES, Block, code_blocks, commands

ROOT = Path(__file__).parents[2]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [*map(ROOT.joinpath, ("README.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md"))]
    + sorted((ROOT / "docs").glob("**/*.md"))
]


def blocks(page: str) -> list[Block]:
    return code_blocks((ROOT / page).read_text())


def runs(page: str) -> bool:
    """Whether a block of the page runs here."""
    return any(
        not block.reason
        and (
            (block.language == "python" and page not in ELSEWHERE)
            or any(words[0] == "cuaug" for words in commands(block))
        )
        for block in blocks(page)
    )


@pytest.mark.slow
def test_the_blocks_of_the_pages_run(tmp_path):
    """In their order, each page in a new process, in a folder with the files that it names."""
    (hidden := tmp_path / "hidden").mkdir()  # else `cuaug doctor` compiles CUDA kernels for 20 seconds
    (hidden / "cupy.py").write_text("raise ModuleNotFoundError(\"No module named 'cupy'\")\n")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(hidden), str(ROOT), *filter(None, sys.path)]),
        "CUAUG_CACHE_DIR": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    names = [page for page in PAGES if runs(page)]
    assert len(names) >= 10
    command = [sys.executable, "-W", "error::UserWarning", "-m", "tests.support.page_setups", *names]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_names_its_language(page):
    """So none is left out by mistake; indented lines are no blocks."""
    text = (ROOT / page).read_text()
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{page}, line {block.line}: {block.language!r}"
    assert text.count("\n```") + text.startswith("```") == 2 * len(blocks(page)), f"{page}: indented or open blocks"
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"\n\n    \S.*", outside), f"{page}: use ``` and a language"


@pytest.mark.parametrize("page", ELSEWHERE)
def test_pages_whose_blocks_run_elsewhere(page):
    assert any(block.language == "python" for block in blocks(page))
    assert Path(page).name in (ROOT / ELSEWHERE[page]).read_text()


def test_the_table_names_every_block_that_does_not_run():
    rows = re.findall(
        r"^\| \[(\S+)\]\(\S+\) \| `(.*)` \| (.*) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
    )
    found = [(page, block) for page in PAGES for block in blocks(page) if block.reason]
    assert sorted(rows) == sorted((page, block.code.splitlines()[0], block.reason) for page, block in found)


def targets_of_make() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def extras() -> set[str]:
    table = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    return set(re.findall(r"^(\w+) = \[", table, re.MULTILINE))


def problem(words: list[str]) -> str:
    """The fault of a command line that is not `cuaug`; it is read, and does not run."""
    program, *arguments = [word for number, word in enumerate(words) if number or "=" not in word]
    if program == "make":
        return "" if {word for word in arguments if "=" not in word} <= targets_of_make() else "no such target"
    if program == "pip" and arguments[0] in ("install", "wheel"):
        asked = re.findall(r"\[([\w,]+)\]", " ".join(arguments))
        return "" if {name for names in asked for name in names.split(",")} <= extras() else "no such extra"
    if program == "apt-get" or arguments[:2] == ["-m", "venv"]:
        return ""
    if "/" in program or program == "python":
        file = arguments[0] if program == "python" else program
        return "" if (ROOT / file).is_file() else "no such file"
    return "an unknown program: say above the block why it does not run"


@pytest.mark.parametrize("page", PAGES)
def test_command_lines_are_valid(page):
    for block in blocks(page):
        for words in commands(block):
            if "cuaug" in words:  # perhaps behind torchrun
                make_parser().parse_args(words[words.index("cuaug") + 1 :])
            elif not block.reason:
                assert not problem(words), f"{page}, line {block.line}: {shlex.join(words)}: {problem(words)}"
