"""Urls: a local HTTP server and fsspec's memory file system; lists of urls, folders, and servers that fail."""

from __future__ import annotations

import http.server
import shutil
import threading
import time
from pathlib import Path

import pytest

from cuaug import DecodeError, Loader, LoaderError
from cuaug.sources import Csv, Files, ListFile, Remote, open_source
from tests.loader.pictures import numbers_of, png
from tests.sources.writers import served

aiohttp = pytest.importorskip("aiohttp")
fsspec = pytest.importorskip("fsspec")


ALL = ("http", "https", "memory", "file", "zip")


@pytest.fixture
def tree(tmp_path) -> Path:
    """Two classes, one with a space in its name and a folder inside; files that are no pictures."""
    names = ["wild boar/a.png", "ant/deep/b.PNG", "ant/c.png", "wild boar/d.png", "ant-eater/e.png"]
    for number, name in enumerate(names):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    (tmp_path / "tree" / "readme.md").write_text("")
    (tmp_path / "tree" / "loose.png").write_bytes(png(9))
    (tmp_path / "tree" / "ant" / "notes.txt").write_text("")
    return tmp_path / "tree"


@pytest.fixture
def server(tree):
    with served(tree) as url:
        yield url


@pytest.fixture
def memory(tree, request):
    """The same tree in fsspec's memory file system."""
    root = f"/{request.node.name}"
    for path in tree.rglob("*"):
        if path.is_file():
            fsspec.filesystem("memory").pipe(f"{root}/{path.relative_to(tree)}", path.read_bytes())
    return f"memory://{root}"


def batch(loader: Loader):
    with loader:
        ((images, labels),) = loader
    return numbers_of(images), labels.tolist()


# --- lists -----------------------------------------------------------------------------------------------------------


def test_urls(server, memory):
    for root in (server, memory):
        urls = [f"{root}/ant/c.png", f"{root}/wild boar/a.png"]
        assert batch(Loader(Remote(urls, protocols=ALL), batch_size=2)) == ([2, 0], [0, 1])
        assert batch(Loader(Remote(urls, [5, 6], protocols=ALL), batch_size=2)) == ([2, 0], [5, 6])
        pairs = zip(urls, [5, 6], strict=True)
        assert batch(Loader(Remote(pairs, protocols=ALL), batch_size=2)) == ([2, 0], [5, 6])
        assert batch(Loader(Remote(urls[0], protocols=ALL))) == ([2], [0])
        assert Remote(urls, protocols=ALL).path(1) == urls[1]


def test_urls_among_files(server, tree):
    pairs = [(f"{server}/ant/c.png", 7), (str(tree / "ant/deep/b.PNG"), 8), (f"{server}/ant/c.png", 9)]
    assert batch(Loader(pairs, batch_size=3)) == ([2, 1, 2], [7, 8, 9])
    assert batch(Loader([path for path, _ in pairs], batch_size=3)) == ([2, 1, 2], [0, 1, 2])


def test_urls_in_lists_and_tables(server, tree):
    (tree / "list.txt").write_text(f"ant/c.png 7\n{server}/ant/deep/b.PNG 8\n")
    assert batch(Loader(tree / "list.txt", batch_size=2)) == ([2, 1], [7, 8])
    assert batch(Loader(ListFile(tree / "list.txt", root=server), batch_size=2)) == ([2, 1], [7, 8])
    (tree / "t.csv").write_text(f"path,label\nant/c.png,7\n{server}/ant/deep/b.PNG,8\n")
    assert batch(Loader(Csv(tree / "t.csv", root=server + "/"), batch_size=2)) == ([2, 1], [7, 8])


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_of_classes(server, memory, tree):
    want = Files.from_directory(tree)
    for url in (server, memory, f"file://{tree}"):
        sources = [Remote.from_folder(each, protocols=ALL) for each in (url, url + "/")]
        for source in [*sources, open_source(url)] if url == server else sources:
            assert source.classes == want.classes == ["ant", "ant-eater", "wild boar"]
            with Loader(source, batch_size=5) as loader, Loader(want, batch_size=5) as local:
                ((images, labels),), ((same, of_same),) = loader, local
            assert numbers_of(images) == numbers_of(same) and labels.equal(of_same)


def test_a_folder_in_an_archive(tree, tmp_path):
    """Chains of urls: the path stands before the first "::", also the empty one of all that a zip file holds."""
    archive = shutil.make_archive(str(tmp_path / "pictures"), "zip", tree.parent)
    whole = shutil.make_archive(str(tmp_path / "whole"), "zip", tree)
    want = batch(Loader(tree, batch_size=5))
    for url in (f"zip://tree::{archive}", f"zip://tree/::file://{archive}", f"zip://::{whole}"):
        with pytest.raises(LoaderError, match="is a chain of urls"):
            open_source(url)
        source = Remote.from_folder(url, protocols=("zip", "file"))
        assert source.classes == ["ant", "ant-eater", "wild boar"]
        assert batch(Loader(source, batch_size=5)) == want, url


def test_a_folder_does_not_depend_on_where_it_lies(memory, tree):
    other = "memory:///elsewhere/" + memory.rpartition("/")[2]
    for path in tree.rglob("*.*"):
        fsspec.filesystem("memory").pipe(f"{other[9:]}/{path.relative_to(tree)}", path.read_bytes())

    def fingerprint(url: str) -> str:
        return Remote.from_folder(url, protocols=("memory",)).fingerprint()

    assert fingerprint(memory) == fingerprint(other)
    fsspec.filesystem("memory").pipe(f"{other[9:]}/ant/new.png", png(1))
    assert fingerprint(memory) != fingerprint(other)


def test_folders_that_hold_no_classes(server, memory):
    for url in (memory, server):
        with pytest.raises(LoaderError, match=r"holds no folder with a \.jpg.* \(\d+ files were found\)"):
            Remote.from_folder(f"{url}/ant/deep", protocols=ALL)
    with pytest.raises(LoaderError, match=r"/none' holds no folder|cannot list .*/none'"):
        Remote.from_folder(f"{memory}/none", protocols=ALL)
    with pytest.raises(LoaderError, match=r"cannot list .*/none'"):
        Remote.from_folder(f"{server}/none")


def test_a_folder_that_cannot_be_listed_is_not_left_out(tree):
    class Closed(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/ant-eater"):
                self.send_error(500)
            else:
                super().do_GET()

        def log_message(self, format, *arguments) -> None:
            pass

    with served(tree, Closed) as url, pytest.raises(LoaderError, match=rf"cannot list '{url}': .*500"):
        Remote.from_folder(url)


# --- what cannot be had ----------------------------------------------------------------------------------------------


def test_a_missing_file_costs_its_sample(server, memory):
    for root in (server, memory):
        urls = [f"{root}/ant/c.png", f"{root}/ant/none.png", f"{root}/ant/deep/b.PNG"]
        with pytest.raises(OSError, match=r"cannot fetch '.*/ant/none.png': FileNotFoundError"):
            Remote(urls, protocols=ALL).read(1)
        assert batch(Loader(Remote(urls, protocols=ALL), batch_size=3, on_error="skip")) == ([2, 1], [0, 2])
        with Loader(Remote(urls, protocols=ALL), batch_size=3) as loader, pytest.raises(DecodeError) as caught:
            next(iter(loader))
        assert caught.value.path == urls[1] and caught.value.index == 1


class Failing(http.server.BaseHTTPRequestHandler):
    """Each path fails in another way."""

    def __init__(self, *arguments, directory: str) -> None:
        super().__init__(*arguments)

    def do_GET(self) -> None:
        if self.path == "/500.png":
            self.send_error(500, "the disk is full")
        elif self.path == "/closed.png":
            self.connection.close()
        elif self.path == "/cut.png":
            self.send_response(200)
            self.send_header("Content-Length", str(len(png(0))))
            self.end_headers()
            self.wfile.write(png(0)[:20])
        elif self.path == "/slow.png":
            time.sleep(2)

    def log_message(self, format, *arguments) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "cause"),
    [("500", "500"), ("closed", "Disconnected"), ("cut", "Payload|ContentLength"), ("slow", "Timeout")],
)
def test_servers_that_fail(tmp_path, name, cause):
    """aiohttp's errors are no OSErrors by themselves, but here they are."""
    with served(tmp_path, Failing) as url:
        options = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=0.5)}}
        source = Remote([f"{url}/{name}.png"], storage_options=options)
        with pytest.raises(OSError, match=rf"cannot fetch '{url}/{name}.png': .*({cause})") as caught:
            source.read(0)
        assert type(caught.value) is OSError and caught.value.__cause__ is not None


def test_nobody_listens():
    with served(Path("/")) as url:
        pass
    with pytest.raises(OSError, match=rf"cannot fetch '{url}/a.png': ClientConnectorError"):
        Remote([f"{url}/a.png"]).read(0)


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        (["nothing://x/a.png"], "fsspec cannot open 'nothing://x/a.png': Protocol not known: nothing"),
        (["memory://a.png", "b.png"], "entry 1 of urls is 'b.png', not a url"),
        ([b"memory://a.png"], r"entry 0 of files is neither a path nor"),
        ([], "list of files is empty"),
        ([("memory://a.png", 1), "memory://b.png"], "mixes paths and"),
        ([f"{protocol}://a.png" for protocol in ("memory", "file")], "'file://a.png' has the protocol 'file', which"),
    ],
)
def test_urls_that_are_none(urls, message):
    with pytest.raises(LoaderError, match=message):
        Remote(urls, protocols=("nothing", "memory"))


def test_protocols_is_a_list_of_names():
    with pytest.raises(LoaderError, match=r"protocols is a list of names, such as \('memory',\), not 'memory'"):
        Remote(["memory://a.png"], protocols="memory")


def test_fewer_labels_than_urls():
    with pytest.raises(LoaderError, match=r"2 paths but 1 labels"):
        Remote(["http://a", "http://b"], [1])


def test_many_at_once(tmp_path):
    """Each thread makes its own request, so that a slow server is asked for several images at a time."""
    inside, most = 0, 0
    lock = threading.Lock()

    class Slow(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal inside, most
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.05)
            super().do_GET()
            with lock:
                inside -= 1

        def log_message(self, format, *arguments) -> None:
            pass

    for i in range(24):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    with served(tmp_path, Slow) as url:
        loader = Loader(Remote([f"{url}/{i}.png" for i in range(24)]), batch_size=24, threads=6)
        assert batch(loader) == (list(range(24)), list(range(24)))
    assert most > 2
