"""MkDocs hooks: documents outside docs/, the API reference, links and anchors as GitHub makes them.

Links of documents are relative to the repository, so that they work on GitHub. On the site, links that leave docs/ lead
to copies of their targets: further documents in OUTSIDE, programs as pages, other files as they are.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the commands' arguments are in cuaug, which need not be installed

import notebooks  # noqa: E402
import reference  # noqa: E402

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
#: Documents outside docs/ -> their pages.
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "measuring.md",
    "examples/notebooks/README.md": "notebooks/README.md",
} | {f"examples/notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in NOTEBOOKS}
#: No page of its own: the home page says the same.
SAME_AS = {"README.md": "index.md"}
_PROGRAMS = {".py": "python", ".h": "cpp", ".cpp": "cpp", ".cu": "cpp", ".sh": "bash", ".yml": "yaml"}
_CODE = re.compile(r"^(?:```.*?^```|<!--.*?-->)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(\]\()(?!\w+:)([^)#\s]+)((?:#[^)\s]*)?\))")
_NOT_SEARCHED = "---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n\n"


def slugify(heading: str, separator: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify
    return config


def on_files(files: Files, config: Any) -> Files:
    for path, page in OUTSIDE.items():
        source = ROOT / path
        text = notebooks.to_markdown(source) if source.suffix == ".ipynb" else source.read_text()
        files.append(File.generated(config, page, content=text))
    for name, text in reference.pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    waiting = [(repository_path(file), file.content_string) for file in files.documentation_pages()]
    while waiting:
        origin, text = waiting.pop()
        for target in _targets(origin, text):
            uri = page_of(target)
            if files.get_file_from_path(uri) or target.startswith("docs/"):
                continue
            source = ROOT / target
            if not source.exists():
                raise FileNotFoundError(f"{origin}: {target}")
            content = _copy(target)
            files.append(File.generated(config, uri, content=content))
            if source.is_dir():
                waiting.append((f"{target}/", str(content)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    origin = repository_path(page.file)
    if page.file.src_uri == "gallery.md":
        markdown = _cards(markdown)

    def rewrite(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link[2]))
        return f"{link[1]}{posixpath.relpath(page_of(target), posixpath.dirname(page.file.src_uri) or '.')}{link[3]}"

    return _outside_code(markdown, lambda text: _LINK.sub(rewrite, text))


def repository_path(file: File) -> str:
    """A page's path from the repository's root; a generated page's, as if it lay in docs/."""
    origins = {page: path for path, page in OUTSIDE.items()}
    if file.src_uri.startswith("source/"):
        return file.src_uri.removeprefix("source/").removesuffix(".md").removesuffix("index")
    return origins.get(file.src_uri, f"docs/{file.src_uri}")


def page_of(target: str) -> str:
    """The file of the site, from a path in the repository."""
    if target.startswith("docs/"):
        path = target.removeprefix("docs/")
        return f"{path}/README.md" if (ROOT / target).is_dir() else path
    if target in OUTSIDE or target in SAME_AS:
        return (OUTSIDE | SAME_AS)[target]
    if (ROOT / target).is_dir():
        return f"source/{target}/index.md"
    return f"source/{target}.md" if Path(target).suffix in _PROGRAMS else f"source/{target}"


def _targets(origin: str, text: str) -> list[str]:
    """Paths in the repository that a document links to."""
    folder = posixpath.dirname(origin)
    return [posixpath.normpath(posixpath.join(folder, link[2])) for link in _LINK.finditer(_CODE.sub("", text))]


def _outside_code(text: str, change: Any) -> str:
    """Apply `change` to the text between blocks of code and comments."""
    parts, end = [], 0
    for block in _CODE.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def _copy(target: str) -> str | bytes:
    """A linked file of the repository: a page for programs and folders, its bytes for others."""
    source = ROOT / target
    if source.is_dir():
        names = sorted(path.name for path in source.iterdir() if path.is_file() and not path.name.startswith("."))
        return f"{_NOT_SEARCHED}# `{target}`\n\n" + "\n".join(f"- [{name}]({name})" for name in names) + "\n"
    language = _PROGRAMS.get(source.suffix)
    if language is None:
        return source.read_bytes()
    return f"{_NOT_SEARCHED}# `{target}`\n\n````{language}\n{source.read_text().rstrip()}\n````\n"


def _cards(markdown: str) -> str:
    """The gallery's transforms as cards that lead to the reference, its own operations to their source."""
    public = reference.public_names("cuaug.transforms")
    head, *sections = re.split(r"^(?=## )", markdown, flags=re.MULTILINE)
    for number, section in enumerate(sections):
        title, *cards = re.split(r"^(?=### )", section, flags=re.MULTILINE)
        boxes = []
        for card in cards:
            name = card.splitlines()[0].removeprefix("### ")
            link = f"[Reference](reference/transforms.md#cuaug.transforms.{name})"
            if name not in public:
                link = "[Source](../examples/own_operations.py)"
            boxes.append(f'<div class="card" markdown>\n\n{card.rstrip()}\n\n{link}\n\n</div>\n')
        sections[number] = f'{title}<div class="cards" markdown>\n\n' + "\n".join(boxes) + "\n</div>\n\n"
    return head + "".join(sections)
