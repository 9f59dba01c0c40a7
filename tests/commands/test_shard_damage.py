"""Damaged plans, records and manifests of `cuaug shard` are an error of one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands.shard_sets import shard, write_photos

pytestmark = pytest.mark.cpu_only


@pytest.fixture
def photos(tmp_path) -> Path:
    return write_photos(tmp_path, 6)


def begin(photos: Path, out: Path, ranks: int, monkeypatch) -> None:
    """Makes the first rank's shards."""
    out.mkdir()
    monkeypatch.setenv("RANK", "0"), monkeypatch.setenv("WORLD_SIZE", str(ranks))
    assert shard(photos, out / "a-{:03d}.tar", "--size", "1kB") == 0
    monkeypatch.delenv("RANK"), monkeypatch.delenv("WORLD_SIZE")


@pytest.mark.parametrize(
    ("ranks", "name", "change", "message"),
    [
        (2, "a.partial/plan.json", [], "'version' is missing, or no valid int"),
        (2, "a.partial/plan.json", {"arguments": None}, "'arguments' is missing, or no valid dict"),
        (2, "a.partial/plan.json", {"shards": 10**12}, "1000000000000 shards of 6 samples"),
        (2, "a.partial/plan.json", {"shards": 0}, "0 shards of 6 samples"),
        (2, "a.partial/plan.json", {"samples": 5}, "shards of 5 samples"),
        (2, "a.partial/a-000.tar.json", {"bytes": "1"}, "'bytes' is missing, or no valid int"),
        (2, "a.partial/a-000.tar.json", {"images": [["png"]]}, "its images or labels are no names"),
        (1, "a.manifest.json", {"shards": [3]}, "'name' is missing, or no valid str"),
        (1, "a.manifest.json", {"shards": [{"name": "../a.tar", "bytes": 1}]}, "is no name of a file in the folder"),
        (1, "a.manifest.json", {"bytes": 10**400}, "'bytes' is missing, or no valid int"),
        (1, "a.manifest.json", {"skipped": 3}, "'skipped' is missing, or no valid list"),
        (1, "a.manifest.json", "[" * 100_000, "maximum recursion depth"),
    ],
)
def test_damage_is_an_error_of_one_line(photos, tmp_path, monkeypatch, capsys, ranks, name, change, message):
    out = tmp_path / "out"
    begin(photos, out, ranks, monkeypatch)
    path = out / name
    value: Any = change
    if isinstance(change, dict):
        value = {**json.loads(path.read_text()), **change}
    path.write_text(change if isinstance(change, str) else json.dumps(value))
    capsys.readouterr()
    assert shard(photos, out / "a-{:03d}.tar", "--size", "1kB") == 1
    error = capsys.readouterr().err
    assert error.startswith("cuaug shard: ") and message in error and error.strip().count("\n") == 0


def test_a_damaged_schema(photos, tmp_path, monkeypatch, capsys):
    out, pattern = tmp_path / "out", "a-{:03d}.parquet"
    out.mkdir()
    monkeypatch.setenv("RANK", "0"), monkeypatch.setenv("WORLD_SIZE", "2")
    assert shard(photos, out / pattern, "--size", "150") == 0
    path = out / "a.partial" / "plan.json"
    for schema in ("no base64", "AAAA", 3):
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema": schema}))
        assert shard(photos, out / pattern, "--size", "150") == 1
        assert "its schema cannot be read" in capsys.readouterr().err
