"""URLs in untrusted lists: they reach no local file, run no code, send no password, and connect late."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from cuaug import DecodeError, LoaderError
from cuaug.sources import Coco, Csv, Files, ListFile, open_source
from tests.support.sources.loading import load

REFUSED = [
    "reference://b.jpg::refs.json",
    "file:///etc/passwd",
    "local:///etc/passwd",
    "c:///etc/passwd",
    "zip://a.jpg::https://host/a.zip",
    "simplecache::https://host/a.jpg",
    "memory://a.jpg",
    "ftp://user:token@host/a.jpg",
    "HTTPS://host/a.jpg",
    "data:image/png;base64,AAAA://",
    "images/https://host/a.jpg",
]


def coco(folder: Path, name: str, **options) -> Coco:
    images = [{"id": 1, "file_name": name, "height": 2, "width": 2}]
    (folder / "coco.json").write_text(json.dumps({"images": images, "annotations": [], "categories": []}))
    return Coco(folder / "images", folder / "coco.json", **options)


def list_file(folder: Path, name: str, **options) -> ListFile:
    (folder / "list.txt").write_text(f"{name} 0\n")
    return ListFile(folder / "list.txt", **options)


def table(folder: Path, name: str, **options) -> Csv:
    (folder / "table.csv").write_text(f'path,label\n"{name}",0\n')
    return Csv(folder / "table.csv", **options)


def files(folder: Path, name: str) -> Files:
    return Files([name])


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_):
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("make", [files, list_file, table, coco])
@pytest.mark.parametrize("url", REFUSED)
def test_other_protocols_are_refused(tmp_path, no_network, make, url):
    with pytest.raises(LoaderError, match=r"has the protocol|leads out of") as caught:
        make(tmp_path, url)
    assert "token" not in str(caught.value)


@pytest.mark.parametrize("url", ["https://user:token@host/a.jpg", "s3://key:token@bucket/a.jpg", "http://token@host"])
@pytest.mark.parametrize("make", [files, list_file, table, coco])
def test_credentials_in_a_url_are_refused(tmp_path, no_network, make, url):
    with pytest.raises(LoaderError, match=r"holds credentials: pass them as storage_options") as caught:
        make(tmp_path, url)
    assert "token" not in str(caught.value)


def test_an_at_sign_in_a_path_is_allowed(no_network):
    assert len(Files(["https://host/a@2x.jpg", "https://host?user@x"])) == 2


@pytest.mark.parametrize("make", [files, list_file, table, coco])
def test_nothing_connects_before_the_first_read(tmp_path, no_network, make):
    source = make(tmp_path, "https://host.invalid/a.jpg")
    assert source.path(0) == "https://host.invalid/a.jpg"
    with pytest.raises(DecodeError, match=r"cannot read 'https://host.invalid/a.jpg'"):
        load(source)


def test_folders_need_a_protocol_that_lists():
    for url in ("file:///tmp", "zip://::photos.zip"):
        with pytest.raises(LoaderError, match=r"has the protocol '(file|zip)', which is not allowed"):
            open_source(url)


@pytest.mark.parametrize("name", ["/etc/passwd", "../a.jpg", "b/../../a.jpg", "..", "b/../../{folder}x/a.jpg"])
@pytest.mark.parametrize("make", [list_file, table, coco])
def test_paths_out_of_the_folder_are_refused(tmp_path, make, name):
    name = name.replace("{folder}", tmp_path.name)
    argument, folder = ("images", "images") if make is coco else ("root", "")
    with pytest.raises(LoaderError, match=rf"leads out of .*: give {argument}=.* or allow_outside=True") as caught:
        make(tmp_path, name)
    assert repr(name) in str(caught.value)
    source = make(tmp_path, name, allow_outside=True)
    assert os.path.abspath(source.path(0)) == os.path.abspath(os.path.join(tmp_path, folder, name))


@pytest.mark.parametrize("make", [list_file, table])
def test_root_replaces_the_folder(tmp_path, make):
    assert make(tmp_path, "/data/a.jpg", root="/").path(0) == "/data/a.jpg"
    assert make(tmp_path, "/data/a.jpg", root="/data").path(0) == "/data/a.jpg"
    assert make(tmp_path, "b/../a..b.jpg").path(0) == f"{tmp_path}/b/../a..b.jpg"
    for root, name in (("/data", "/database/a.jpg"), ("/data", "../a.jpg"), ("https://host/x", "../a.jpg")):
        with pytest.raises(LoaderError, match="leads out of"):
            make(tmp_path, name, root=root)
    with pytest.raises(LoaderError, match="leads out of 'https://host/x/'"):
        make(tmp_path, "/etc/passwd", root="https://host/x")


@pytest.mark.parametrize("make", [list_file, table])
def test_a_list_in_the_current_folder(tmp_path, monkeypatch, make):
    make(tmp_path, "a.jpg")
    monkeypatch.chdir(tmp_path)
    assert make(Path(""), "b/a.jpg").path(0) == "b/a.jpg"
    with pytest.raises(LoaderError, match=r"leads out of '\./'"):
        make(Path(""), "../a.jpg")
