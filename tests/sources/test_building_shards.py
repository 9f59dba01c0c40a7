"""The programs of docs/building_shards.md: cuaug reads the shards that other libraries write.

webdataset is installed for `make test`, the other libraries for `make test-torchvision`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cuaug
from cuaug import transforms as T
from tests.support.codec.encoded_images import RGB, encode
from tests.support.pages import code_blocks

ROOT = Path(__file__).parents[2]
BLOCKS = [block.code for block in code_blocks((ROOT / "docs/building_shards.md").read_text())]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "size", "small"),
    [("webdataset", "1 << 30", "5000"), ("streaming", '"256mb"', '"5kb"'), ("litdata", '"256MB"', '"5KB"')],
)
def test_shards_hold_the_bytes_and_labels_of_the_photos(tmp_path, monkeypatch, library, size, small):
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    photos = {encode(RGB, "JPEG", quality=50 + number): number % 2 for number in range(20)}
    for number, (data, label) in enumerate(photos.items()):
        path = tmp_path / "photos/train" / "ab"[label] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)

    (at,) = (i for i, code in enumerate(BLOCKS) if f"import {library}" in code or f"from {library} import" in code)
    assert size in BLOCKS[at]
    Path("program.py").write_text(BLOCKS[at].replace(size, small))
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path, "TMPDIR": str(tmp_path)}  # litdata leaves files in the latter
    done = subprocess.run([sys.executable, "program.py"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    names: dict[str, Any] = {"cuaug": cuaug, "chain": [T.CenterCrop(4)]}
    exec(BLOCKS[at + 1], names)
    assert len(names["source"].shard_sizes) > 1
    assert dict(map(names["source"].read, range(len(names["source"])))) == photos
    with names["loader"] as loader:
        assert sum(len(images) for images, _ in loader) == len(photos)
