"""URLs: lists, folders and failing servers, on a local HTTP server and fsspec's memory file system."""

from __future__ import annotations

import http.server
import shutil
import threading
import time
from pathlib import Path

import pytest

from cuaug import DecodeError, Loader, LoaderError
from cuaug.sources import Csv, Files, ListFile, Remote, open_source
from tests.support.loader.further_pictures import numbers_of, png
from tests.support.sources.writers import served

aiohttp = pytest.importorskip("aiohttp")
fsspec = pytest.importorskip("fsspec")


ALL = ("http", "https", "memory", "file", "zip")


@pytest.fixture
def tree(tmp_path) -> Path:
    """Three classes, with a space in a name and a subfolder; also files that are no images."""
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


def test_lists_of_urls(server, memory):
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
    local = Files.from_directory(tree)
    for url in (server, memory, f"file://{tree}"):
        sources = [Remote.from_folder(root, protocols=ALL) for root in (url, url + "/")]
        for source in [*sources, open_source(url)] if url == server else sources:
            assert source.classes == local.classes == ["ant", "ant-eater", "wild boar"]
            with Loader(source, batch_size=5) as loader, Loader(local, batch_size=5) as local_loader:
                ((images, labels),), ((local_images, local_labels),) = loader, local_loader
            assert numbers_of(images) == numbers_of(local_images) and labels.equal(local_labels)


def test_a_folder_in_an_archive(tree, tmp_path):
    """In a chain, the path stands before the first "::"; it is empty for a whole zip file."""
    archive = shutil.make_archive(str(tmp_path / "pictures"), "zip", tree.parent)
    whole = shutil.make_archive(str(tmp_path / "whole"), "zip", tree)
    expected = batch(Loader(tree, batch_size=5))
    for url in (f"zip://tree::{archive}", f"zip://tree/::file://{archive}", f"zip://::{whole}"):
        with pytest.raises(LoaderError, match="is a chain of URLs"):
            open_source(url)
        source = Remote.from_folder(url, protocols=("zip", "file"))
        assert source.classes == ["ant", "ant-eater", "wild boar"]
        assert batch(Loader(source, batch_size=5)) == expected, url


def test_the_fingerprint_does_not_depend_on_the_folder(memory, tree):
    other = "memory:///elsewhere/" + memory.rpartition("/")[2]
    for path in tree.rglob("*.*"):
        fsspec.filesystem("memory").pipe(f"{other[9:]}/{path.relative_to(tree)}", path.read_bytes())

    def fingerprint(url: str) -> str:
        return Remote.from_folder(url, protocols=("memory",)).fingerprint()

    assert fingerprint(memory) == fingerprint(other)
    fsspec.filesystem("memory").pipe(f"{other[9:]}/ant/new.png", png(1))
    assert fingerprint(memory) != fingerprint(other)


def test_folders_without_classes_are_refused(server, memory):
    for url in (memory, server):
        with pytest.raises(LoaderError, match=r"holds no folder with a \.jpg.* \(\d+ files found\)"):
            Remote.from_folder(f"{url}/ant/deep", protocols=ALL)
    with pytest.raises(LoaderError, match=r"/none' holds no folder|cannot list .*/none'"):
        Remote.from_folder(f"{memory}/none", protocols=ALL)
    with pytest.raises(LoaderError, match=r"cannot list .*/none'"):
        Remote.from_folder(f"{server}/none")


def test_an_unlistable_folder_is_refused(tree):
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


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_missing_file_damages_its_sample(server, memory):
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
def test_failing_servers(tmp_path, name, cause):
    """aiohttp's errors become OSErrors."""
    with served(tmp_path, Failing) as url:
        options = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=0.5 if name == "slow" else 60)}}
        source = Remote([f"{url}/{name}.png"], storage_options=options)
        with pytest.raises(OSError, match=rf"cannot fetch '{url}/{name}.png': .*({cause})") as caught:
            source.read(0)
        assert type(caught.value) is OSError and caught.value.__cause__ is not None


def test_a_stopped_server():
    with served(Path("/")) as url:
        pass
    with pytest.raises(OSError, match=rf"cannot fetch '{url}/a.png': ClientConnectorError"):
        Remote([f"{url}/a.png"]).read(0)


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        (["nothing://x/a.png"], "fsspec cannot open 'nothing://x/a.png': Protocol not known: nothing"),
        (["memory://a.png", "b.png"], "urls: entry 1 is 'b.png', not a URL"),
        ([b"memory://a.png"], r"files: entry 0 is neither a path nor"),
        ([], "paths is empty"),
        ([("memory://a.png", 1), "memory://b.png"], "mixes paths and"),
        ([f"{protocol}://a.png" for protocol in ("memory", "file")], "'file://a.png' has the protocol 'file', which"),
    ],
)
def test_invalid_urls_are_refused(urls, message):
    with pytest.raises(LoaderError, match=message):
        Remote(urls, protocols=("nothing", "memory"))


def test_protocols_must_be_a_list():
    with pytest.raises(LoaderError, match=r"protocols must be a list of names, such as \('memory',\), not 'memory'"):
        Remote(["memory://a.png"], protocols="memory")


def test_too_few_labels_are_refused():
    with pytest.raises(LoaderError, match=r"labels has 1 entries for 2 paths"):
        Remote(["http://a", "http://b"], [1])


def test_requests_run_in_parallel(tmp_path):
    """Each thread makes its own request; they are answered by threes."""
    three = threading.Barrier(3, timeout=60)

    class Slow(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            three.wait()
            super().do_GET()

        def log_message(self, format, *arguments) -> None:
            pass

    for i in range(24):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    with served(tmp_path, Slow) as url:
        loader = Loader(Remote([f"{url}/{i}.png" for i in range(24)]), batch_size=24, threads=6)
        assert batch(loader) == (list(range(24)), list(range(24)))
