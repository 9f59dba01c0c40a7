"""Griffe extension: `mean, std: text` in a docstring documents two arguments."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

__all__ = ["SharedArguments"]

_SHARED = re.compile(r"^(?P<indent> +)(?P<names>\w+(?:, \w+)+): (?P<text>.*\n?(?:(?P=indent) +\S.*\n?)*)", re.MULTILINE)
_ARGUMENTS = re.compile(r"^Args:\n(?:(?: +.*)?\n?)*", re.MULTILINE)


class SharedArguments(Extension):
    """Repeats the text for each name."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _ARGUMENTS.sub(lambda found: _SHARED.sub(_split, found[0]), obj.docstring.value)


def _split(found: re.Match[str]) -> str:
    text = found["text"] if found["text"].endswith("\n") else found["text"] + "\n"
    return "".join(f"{found['indent']}{name}: {text}" for name in found["names"].split(", "))
