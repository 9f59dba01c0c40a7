"""Pages of the API reference: which public name is on which page. Imports no MkDocs, and no torch.

`pages` returns Markdown with one directive of mkdocstrings per public name. Transforms are grouped as in the table of
docs/transforms.md; other packages keep the order of their `__all__`.
"""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path

from cuaug.commands.cli import make_parser

__all__ = ["PACKAGES", "pages", "public_names"]

ROOT = Path(__file__).resolve().parents[2]
#: Page of the site -> (title, package whose public names it documents).
PACKAGES = {
    "cuaug": ("Loading and decoding", "cuaug"),
    "transforms": ("Transforms", "cuaug.transforms"),
    "ops": ("Pixel functions", "cuaug.ops"),
    "functional": ("Functions", "cuaug.functional"),
    "sources": ("Sources", "cuaug.sources"),
    "targets": ("Targets", "cuaug.targets"),
    "cache": ("Caches", "cuaug.cache"),
    "ray": ("Ray Data", "cuaug.ray"),
    "transformers": ("Processors of Transformers", "cuaug.transformers"),
}
#: Modules among the names of `cuaug`: each has a page of its own.
MODULES = {"cache", "functional", "ops", "ray", "sources", "transformers", "transforms"}
_GROUPS = (
    ("Loading", ["Loader", "Batch", "DecodeOptions", "collate", "show"]),
    ("Decoding without a loader", ["decode"]),
    ("Operations of your own", ["op", "uniform", "normal", "choice"]),
    ("Samplers", ["RepeatedSampler", "ShardSampler", "WeightedSampler"]),
    ("Caches", ["DecodedCache", "EncodedCache"]),
)
_WITH_MEMBERS = {"AutoAugmentPolicy", "BatchTransform", "Compose", "InterpolationMode", "RandomTransform", "Transform"}


def public_names(package: str) -> list[str]:
    """`__all__` of a package, from its source."""
    return list(ast.literal_eval(_assigned(_tree(package), "__all__")))


def pages() -> dict[str, str]:
    """Page -> Markdown."""
    return {page: _page(title, package) for page, (title, package) in PACKAGES.items()} | {"cli": _command_line()}


def _page(title: str, package: str) -> str:
    summary = (ast.get_docstring(_tree(package)) or "").split("\n\n")[0]
    lines = [f"# {title} {{ #{package} }}", f"`{package}`: {summary}"]
    for group, names in _groups(package):
        if group:
            lines.append(f"## {group}")
        lines += [_directive(package, name) for name in names]
    return "\n\n".join(lines) + "\n"


def _directive(package: str, name: str) -> str:
    directive = f"::: {package}.{name}"
    if package != "cuaug.transforms" or name in _WITH_MEMBERS:
        return directive
    # Methods are the same for all transforms: `Transform` documents them.
    directive += "\n    options:\n      members: []\n      inherited_members: false"
    if (ROOT / "docs" / "gallery" / f"{name}.jpg").is_file():
        directive += f"\n\n![{name}, drawn several times](../gallery/{name}.jpg){{ loading=lazy }}"
    return directive


def _groups(package: str) -> list[tuple[str, list[str]]]:
    names = public_names(package)
    if package == "cuaug.transforms":
        groups = _table_of_transforms()
        placed = {name for _, members in groups for name in members}
        return [*groups, ("Base classes and enumerations", [name for name in names if name not in placed])]
    if package != "cuaug":
        return [("", names)]
    names = [name for name in names if name not in MODULES]
    placed = {name for _, members in _GROUPS for name in members}
    return [*_GROUPS, ("Errors and warnings", [name for name in names if name not in placed])]


def _table_of_transforms() -> list[tuple[str, list[str]]]:
    """Kind -> names, from the table of docs/transforms.md."""
    table = (ROOT / "docs" / "transforms.md").read_text().partition("| kind |")[2].partition("\n\n")[0]
    rows = [line.strip("|").partition("|") for line in table.splitlines()[2:]]
    return [(kind.strip().capitalize(), re.findall(r"`(\w+)`", names)) for kind, _, names in rows]


def _command_line() -> str:
    parser = make_parser()
    lines = ["# The `cuaug` command", _help(parser)]
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        lines += [f"## cuaug {name} {{ #cuaug-{name} }}", _help(command)]
    return "\n\n".join(lines) + "\n"


def _help(parser: argparse.ArgumentParser) -> str:
    """The text of --help, 100 characters wide."""

    class Formatter(parser.formatter_class):  # type: ignore[misc,name-defined]
        def __init__(self, prog: str) -> None:
            super().__init__(prog, width=100)

    parser.formatter_class = Formatter
    return f"```text\n{parser.format_help()}```"


def _tree(package: str) -> ast.Module:
    path = ROOT.joinpath(*package.split("."))
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())


def _assigned(tree: ast.Module, name: str) -> ast.expr:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [t.id for t in node.targets if isinstance(t, ast.Name)] == [name]:
            return node.value
    raise ValueError(f"no assignment to {name}")
