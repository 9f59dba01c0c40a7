"""The pictures of docs/video.md show what the clip samplers and the decoder do."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.tools.sampling_pictures import PICTURES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "video"


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_current(name):
    text = PICTURES[name]()
    assert (FOLDER / name).read_text() == text, "run `python -m tests.tools.sampling_pictures`"
    assert len(list(ElementTree.fromstring(text))) > 50
    assert f"](video/{name})" in (ROOT / "docs" / "video.md").read_text()


def test_no_picture_is_left_over():
    assert {path.name for path in FOLDER.iterdir()} == set(PICTURES)
