"""Fixtures of tests of remote objects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.remote.servers import S3, Faults, s3_server


@pytest.fixture(scope="session")
def _server() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(_server: S3, tmp_path, monkeypatch) -> Iterator[S3]:
    """The S3 server, without faults and without objects of other tests; an empty cache folder."""
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "cache"))
    vars(_server.faults).update(vars(Faults()))
    for entry in _server.client.list_objects_v2(Bucket="photos").get("Contents", []):
        _server.client.delete_object(Bucket="photos", Key=entry["Key"])
    yield _server
    _server.faults.released.set()


@pytest.fixture
def environment(s3: S3, monkeypatch) -> None:
    """The environment names the server, as storage options do otherwise."""
    for name, value in s3.options.items():
        monkeypatch.setenv(f"AWS_{name}".upper(), value)
