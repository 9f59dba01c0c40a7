"""The code blocks of a document: which of them run, and how a page's blocks run."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuaug.commands.cli import main

LANGUAGES = ("bash", "cpp", "python", "text", "yaml")
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]*?) -->\n\n?)?^```(?P<language>[^\n`]*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block, the line of its page where its code begins, and why it does not run."""

    language: str
    code: str
    line: int
    reason: str


def code_blocks(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    return [
        Block(match["language"], match["code"], text.count("\n", 0, match.start("code")) + 1, match["reason"] or "")
        for match in _BLOCK.finditer(text)
    ]


def commands(block: Block) -> list[list[str]]:
    """The words of each line of a shell block, without comments."""
    lines = block.code.replace("\\\n", " ").splitlines() if block.language == "bash" else []
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run(page: Path, names: Mapping[str, Any], *, python: bool, replace: Mapping[str, str]) -> None:
    """Runs the blocks of a page in their order: Python in one namespace, lines that begin with `cuaug` by its `main`.

    Args:
        page: the document. Errors name its lines.
        names: names that its Python blocks find.
        python: False: Python blocks are left out.
        replace: text of the page, and its replacement.
    """
    text = page.read_text()
    for old, new in replace.items():
        text = text.replace(old, new)
    names = {**names, "__name__": "__main__"}
    for block in code_blocks(text):
        if block.reason:
            continue
        if block.language == "python" and python:
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)
        for words in commands(block):
            if words[0] == "cuaug" and main(words[1:]):
                sys.exit(f"{page}, line {block.line}: {shlex.join(words)} failed")
