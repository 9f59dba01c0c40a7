"""Small data sets for tests of `cuaug shard`, and what they must hold when finished."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuaug import sources
from cuaug.commands.cli import main
from tests.support.codec.encoded_images import RGB, encode
from tests.support.loader.further_pictures import png


def write_photos(folder: Path, count: int = 60) -> Path:
    """PNGs in three class folders, sizes differing."""
    for i in range(count):
        path = folder / "photos" / f"class{i % 3}" / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(i) + bytes(17 * i))  # bytes after the image's end stay, as all others
    return folder / "photos"


def shard(source: Path, out: Path | str, *options: str) -> int:
    return main(["shard", str(source), str(out), "--threads", "2", *options])


def read_manifest(path: Path) -> dict[str, Any]:
    """A manifest whose digests are those of its files."""
    manifest = json.loads(path.read_text())
    for entry in manifest["shards"]:
        data = (path.parent / entry["name"]).read_bytes()
        assert len(data) == entry["bytes"] and hashlib.sha256(data).hexdigest() == entry["sha256"], entry
    return manifest


def open_set(manifest: dict[str, Any]) -> Any:
    """The source that the manifest names."""
    return eval(manifest["opens_with"], {"cuaug": type("cuaug", (), {"sources": sources})})


def files_of(folder: Path, is_wanted: Callable[[str], bool] = lambda name: True) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if is_wanted(path.name)}


class Labeled:
    def __init__(self, labels):
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def read(self, index):
        return encode(RGB, "PNG"), self.labels[index]


def shard_source(monkeypatch, source, out, *options):
    monkeypatch.setattr("cuaug.commands.shard.open_paths", lambda *_: source)
    return shard(Path("source"), out, *options)
