"""Notebooks as Markdown: text, code, and the results that are stored with them."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

__all__ = ["to_markdown"]


def to_markdown(path: Path) -> str:
    """A notebook's cells in their order; pictures become data URLs.

    Raises:
        ValueError: a result is neither a JPEG or PNG picture nor text.
    """
    parts: list[str] = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"````python\n{source}\n````")
        parts += [_result(path, output) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _result(path: Path, output: dict[str, Any]) -> str:
    data = output.get("data", {})
    for kind in ("image/jpeg", "image/png"):
        if kind in data:
            encoded = "".join(data[kind]).replace("\n", "")
            text = html.escape("".join(data.get("text/plain", "result of the cell above")), quote=True)
            return f'<img alt="{text}" src="data:{kind};base64,{encoded}">'
    text = "".join(output.get("text", data.get("text/plain", "")))
    if not text:
        raise ValueError(f"{path}: a result of {sorted(data) or output['output_type']} is not shown on the site")
    return f"````text\n{text.rstrip()}\n````"
