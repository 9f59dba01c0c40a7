"""Damaged manifests of `cuaug shard` are an error of one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands.shard_sets import files_of, shard, write_photos

pytestmark = pytest.mark.cpu_only


@pytest.fixture
def photos(tmp_path) -> Path:
    return write_photos(tmp_path, 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([], "'version' is missing, or no valid int"),
        ("{}", "'version' is missing, or no valid int"),
        ("my notes", "Expecting value"),
        ("[" * 100_000, "maximum recursion depth"),
        ({"version": 1}, "another version of cuaug"),
        ({"arguments": None}, "'arguments' is missing, or no valid dict"),
        ({"planned": 10**12}, "1000000000000 shards of 6 samples"),
        ({"planned": 0}, "0 shards of 6 samples"),
        ({"planned": 10**400}, "'planned' is missing, or no valid int"),
        ({"planned": 1}, "is no file of this set"),
        ({"shards": 3}, "'shards' is missing, or no valid list"),
        ({"shards": [3]}, "'name' is missing, or no valid str"),
    ],
)
def test_damage_is_an_error_of_one_line(photos, tmp_path, capsys, change, message):
    check(photos, tmp_path, capsys, change, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bytes": "1"}, "'bytes' is missing, or no valid int"),
        ({"bytes": -1}, "'bytes' is missing, or no valid int"),
        ({"bytes": 1}, "a-000.tar' has not the 1 bytes and the SHA-256 of the manifest"),
        ({"sha256": "x"}, "and the SHA-256 of the manifest"),
        ({"images": [["png"]]}, "are no names"),
        ({"skipped": 3}, "'skipped' is missing, or no valid list"),
        ({"name": "../a.tar"}, "'../a.tar' is no file of this set"),
        ({"name": "a-001.tar"}, "'a-001.tar' is no file of this set, or there twice"),
    ],
)
def test_damage_of_an_entry_is_an_error_of_one_line(photos, tmp_path, capsys, change, message):
    check(photos, tmp_path, capsys, lambda manifest: manifest["shards"][0].update(change), message)


def check(photos: Path, tmp_path: Path, capsys, change: Any, message: str) -> None:
    """Changes the manifest of a finished set; nothing of it is touched then."""
    out = tmp_path / "out"
    out.mkdir()
    assert shard(photos, out / "a-{:03d}.tar", "--size", "1kB") == 0
    path = out / "a.manifest.json"
    value = json.loads(path.read_text())
    assert len(value["shards"]) > 2
    if callable(change):
        change(value)
    else:
        value = {**value, **change} if isinstance(change, dict) else change
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    capsys.readouterr()
    before = files_of(out)
    assert shard(photos, out / "a-{:03d}.tar", "--size", "1kB") == 1
    error = capsys.readouterr().err
    assert error.startswith("cuaug shard: ") and message in error and error.strip().count("\n") == 0
    assert files_of(out) == before
