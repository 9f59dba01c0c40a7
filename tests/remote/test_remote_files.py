"""URLs: lists, folders and failing servers."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from cuaug import DecodeError, LoaderError
from cuaug.sources import Csv, Files, ListFile, Remote, open_source
from tests.support.loader.further_pictures import png
from tests.support.sources.loading import load, load_numbers
from tests.support.sources.writers import Quiet, served


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
def bucket(tree, s3):
    """The same tree at S3."""
    for path in tree.rglob("*"):
        if path.is_file():
            s3.put(f"tree/{path.relative_to(tree)}", path.read_bytes())
    return "s3://photos/tree"


def test_lists_of_urls(server, bucket, s3):
    for root, options in ((server, {}), (bucket, s3.options)):
        urls = [f"{root}/ant/c.png", f"{root}/wild boar/a.png"]
        pairs = zip(urls, [5, 6], strict=True)
        assert load_numbers(Remote(urls, storage_options=options)) == ([2, 0], [0, 1])
        assert load_numbers(Remote(urls, [5, 6], storage_options=options)) == ([2, 0], [5, 6])
        assert load_numbers(Remote(pairs, storage_options=options)) == ([2, 0], [5, 6])
        assert load_numbers(Remote(urls[0], storage_options=options)) == ([2], [0])
        assert Remote(urls).path(1) == urls[1]


def test_urls_among_files(server, tree):
    pairs = [(f"{server}/ant/c.png", 7), (str(tree / "ant/deep/b.PNG"), 8), (f"{server}/ant/c.png", 9)]
    assert load_numbers(pairs) == ([2, 1, 2], [7, 8, 9])
    assert load_numbers([path for path, _ in pairs]) == ([2, 1, 2], [0, 1, 2])


def test_urls_in_lists_and_tables(server, tree):
    (tree / "list.txt").write_text(f"ant/c.png 7\n{server}/ant/deep/b.PNG 8\n")
    assert load_numbers(tree / "list.txt") == ([2, 1], [7, 8])
    assert load_numbers(ListFile(tree / "list.txt", root=server)) == ([2, 1], [7, 8])
    (tree / "t.csv").write_text(f"path,label\nant/c.png,7\n{server}/ant/deep/b.PNG,8\n")
    assert load_numbers(Csv(tree / "t.csv", root=server + "/")) == ([2, 1], [7, 8])


def test_a_folder_of_classes(bucket, tree, s3, environment):
    local = Files.from_directory(tree)
    from_options = [Remote.from_folder(root, storage_options=s3.options) for root in (bucket, bucket + "/")]
    for source in [*from_options, open_source(bucket)]:
        assert source.classes == local.classes == ["ant", "ant-eater", "wild boar"]
        assert source.fingerprint() == local.fingerprint()
        assert load_numbers(source) == load_numbers(local)


def test_folders_that_give_no_source(bucket, server, s3):
    with pytest.raises(LoaderError, match=r"deep' holds no folder with a \.jpg.* \(1 files found\)"):
        Remote.from_folder(f"{bucket}/ant/deep", storage_options=s3.options)
    with pytest.raises(LoaderError, match=r"/none' holds no folder"):
        Remote.from_folder(f"{bucket}/none", storage_options=s3.options)
    with pytest.raises(LoaderError, match=r"cannot read 's3://none': .*404"):
        Remote.from_folder("s3://none", storage_options=s3.options)
    with pytest.raises(LoaderError, match="HTTP servers have no lists of files: give the files' URLs"):
        open_source(server)


def test_a_missing_file_damages_its_sample(server, bucket, s3):
    for root, options in ((server, {}), (bucket, s3.options)):
        urls = [f"{root}/ant/c.png", f"{root}/ant/none.png", f"{root}/ant/deep/b.PNG"]
        source = Remote(urls, storage_options=options)
        with pytest.raises(OSError, match=r"cannot read '.*/ant/none.png': .*(404|not found)"):
            source.read(1)
        assert load_numbers(source, on_error="skip") == ([2, 1], [0, 2])
        with pytest.raises(DecodeError) as caught:
            load(source)
        assert caught.value.path == urls[1] and caught.value.index == 1


class Failing(Quiet):
    """Each path fails in another way."""

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


@pytest.mark.parametrize(
    ("name", "cause"),
    [("500", "500"), ("closed", "Disconnected"), ("cut", "IncompleteRead"), ("slow", "Timeout")],
)
def test_failing_servers(tmp_path, name, cause):
    """urllib3's errors become OSErrors."""
    with served(tmp_path, Failing) as url:
        source = Remote([f"{url}/{name}.png"], timeout_seconds=1 if name == "slow" else 60)
        with pytest.raises(OSError, match=rf"cannot read '{url}/{name}.png': .*({cause})"):
            source.read(0)


def test_a_busy_bucket_is_asked_again(bucket, s3):
    s3.faults.share, s3.faults.kinds = 0.5, ("503", "truncate", "reset")
    source = Remote([f"{bucket}/ant/c.png"] * 12, storage_options=s3.options)
    assert [source.read(i)[0] for i in range(12)] == [png(2)] * 12
    assert s3.faults.seen["503"] and s3.faults.seen["truncate"]


def test_a_stopped_server():
    with served(Path("/")) as url:
        pass
    with pytest.raises(OSError, match=rf"cannot read '{url}/a.png': NewConnectionError"):
        Remote([f"{url}/a.png"]).read(0)


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        (["nothing://x/a.png"], "'nothing://x/a.png' has the protocol 'nothing', which is not allowed"),
        (["s3://b/a.png", "b.png"], "urls: entry 1 is 'b.png', not a URL"),
        ([b"s3://b/a.png"], r"files: entry 0 is neither a path nor"),
        ([], "paths is empty"),
        ([("s3://b/a.png", 1), "s3://b/b.png"], "mixes paths and"),
        (["s3://b/a.png", "file://a.png"], "'file://a.png' has the protocol 'file', which"),
    ],
)
def test_invalid_urls_are_refused(urls, message):
    with pytest.raises(LoaderError, match=message):
        Remote(urls)


def test_the_timeout_must_be_a_number():
    with pytest.raises(LoaderError, match="timeout_seconds must be a number above 0"):
        Remote(["http://a"], timeout_seconds=None)


def test_requests_run_in_parallel(tmp_path):
    """Each thread makes its own request; they are answered by threes."""
    three = threading.Barrier(3, timeout=600)

    class Slow(Quiet):
        def do_GET(self) -> None:
            three.wait()
            super().do_GET()

    for i in range(24):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    with served(tmp_path, Slow) as url:
        source = Remote([f"{url}/{i}.png" for i in range(24)])
        assert load_numbers(source, threads=6) == (list(range(24)), list(range(24)))
