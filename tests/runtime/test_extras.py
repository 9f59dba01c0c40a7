"""How this cuaug was installed, and the commands that add an extra to it."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from cuaug._runtime.extras import install_command, installed_from

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("record", "kind", "command"),
    [
        ({"url": "file:///src", "dir_info": {"editable": True}}, "editable", 'pip install -e "file:///src[video]"'),
        ({"url": "file:///src", "dir_info": {}}, "source", 'pip install "cuaug[video] @ file:///src"'),
        ({"url": "file:///a.whl", "archive_info": {}}, "wheel", 'pip install "cuaug[video] @ file:///a.whl"'),
        ({"url": "file:///a.tar.gz", "archive_info": {}}, "archive", 'pip install "cuaug[video] @ file:///a.tar.gz"'),
        (
            {"url": "https://host/cuaug", "vcs_info": {"vcs": "git", "commit_id": "1f"}},
            "git",
            'pip install "cuaug[video] @ git+https://host/cuaug@1f"',
        ),
        (None, "", 'pip install ".[video]"  (in the folder of cuaug\'s sources)'),
    ],
)
def test_extras_come_from_where_cuaug_comes_from(monkeypatch, record, kind, command):
    """A folder of sources on sys.path is found first, and has no record."""
    texts = [None, None if record is None else json.dumps(record)]
    found = [SimpleNamespace(read_text=lambda name, text=text: text) for text in texts]
    monkeypatch.setattr(metadata, "distributions", lambda *, name: found)
    assert installed_from()[0] == kind
    assert install_command("video") == command


def test_no_text_sends_people_to_a_package_index():
    """No index has cuaug: anyone could register the name there."""
    by_name = re.compile(r"""pip install [^\n#]*(?<![\w/.-])cuaug\b(?!.* @ )(?!-)""")
    paths = [path for folder in ("cuaug", "docs", "examples", "kernels") for path in (ROOT / folder).rglob("*.*")]
    paths += [*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / "Makefile"]
    texts = {path: path.read_text(errors="ignore") for path in paths if path.suffix not in (".so", ".pyc")}
    assert [str(path.relative_to(ROOT)) for path, text in texts.items() if by_name.search(text)] == []
    assert by_name.search("pip install 'cuaug[cuda12]'") and by_name.search("pip install -U cuaug scikit-image")
