"""Damaged files that cuaug itself keeps: indexes of remote shards, cached blocks, indexes of videos;
and states of loaders.

Random damage must change no byte and no pixel: the file is made again. Indexes with valid checksums and other contents,
as only their owner could write them, may raise cuaug's errors alone.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cuaug import Loader
from cuaug.codec.video.decoder import VideoDecoder
from cuaug.errors import CuaugError
from cuaug.remote import RemoteObject, RemoteOptions
from cuaug.remote.block_cache import BlockCache, CachedReader
from cuaug.sources import video_index_file
from cuaug.sources.shards.shard_index import SUFFIX
from tests.fuzz import fuzz_index
from tests.fuzz.fuzz_files import changed_json, damaged
from tests.support.loader.further_pictures import png
from tests.support.sources import writers
from tests.support.video.videos import VIDEOS, Video, make_video

# --- indexes of remote shards ----------------------------------------------------------------------------------------


def run_remote_index(rng: random.Random, folder: Path) -> None:
    """The index beside a shard, or the one kept in the user's cache, is damaged; or the shard itself."""
    name = rng.choice(sorted(fuzz_index.SOURCES))
    shard, index = fuzz_index.whole(name)
    served = folder / "served"
    served.mkdir()

    def read() -> list[Any]:
        source = fuzz_index.SOURCES[name](f"{url}/{name}", remote=RemoteOptions(timeout_seconds=1))
        source.fingerprint()
        return [fuzz_index.read(source, i) for i in range(len(source))]

    os.environ["CUAUG_CACHE_DIR"] = str(folder / "cache")
    is_edit = rng.random() < 0.5
    change = fuzz_index.edit if is_edit else damaged
    place = rng.choice(("beside", "beside", "cache", "shard"))
    (served / name).write_bytes(damaged(rng, shard) if place == "shard" else shard)
    if place != "cache":
        (served / f"{name}{SUFFIX}").write_bytes(change(rng, index) if place == "beside" else index)
    with writers.served(served, writers.Ranges) as url:
        if place == "cache":
            read()
            (kept,) = (folder / "cache" / "indexes").iterdir()
            kept.write_bytes(change(rng, kept.read_bytes()))
        try:
            found = read()
        except CuaugError:
            assert is_edit or place == "shard", "a damaged index is made again"
            return
        assert is_edit or place == "shard" or found == [(b"%d" % i, i) for i in range(fuzz_index.COUNT)]


# --- blocks of remote shards -----------------------------------------------------------------------------------------

_BLOCK_BYTES = 70_000  # two pages
_DATA = random.Random(1).randbytes(2 * _BLOCK_BYTES + 1234)
_OBJECT = RemoteObject("s3://bucket/a.tar", len(_DATA), "etag")


class _Store:
    connections = 1

    def read(self, remote: RemoteObject, offset: int, size: int, stop: object = None) -> bytes:
        return _DATA[offset : offset + size]


def run_blocks(rng: random.Random, folder: Path) -> None:
    """A reader before and after damage to the folder's files returns the object's bytes, within the limit."""
    limit = rng.choice((1 << 20, 160_000))

    def make() -> CachedReader:
        return CachedReader(_Store(), BlockCache(folder / "blocks", limit, block_bytes=_BLOCK_BYTES))  # type: ignore[arg-type]

    reader = make()
    reader.read(_OBJECT, 0, len(_DATA))
    path = rng.choice(sorted((folder / "blocks").iterdir()))
    how = rng.random()
    if how < 0.1:
        path.unlink()
    elif how < 0.2:
        path.write_bytes(rng.choice(sorted((folder / "blocks").iterdir())).read_bytes())
    elif how < 0.25:
        path.unlink()
        path.symlink_to("/etc/passwd")
    else:
        path.write_bytes(damaged(rng, path.read_bytes()))
    for other in (reader, make()):
        for _ in range(3):
            offset = rng.randrange(len(_DATA))
            size = rng.randint(1, len(_DATA) - offset)
            assert other.read(_OBJECT, offset, size) == _DATA[offset : offset + size], f"wrong bytes after {path.name}"
    kept = (path for path in (folder / "blocks").glob("*.block") if not path.is_symlink())
    # Each thread that writes may add one block.
    assert sum(path.stat().st_size for path in kept) <= limit + _BLOCK_BYTES + 1000


# --- indexes of videos -----------------------------------------------------------------------------------------------


@functools.cache
def _video() -> tuple[bytes, bytes]:
    """A video, and its index."""
    data = make_video(Video(**{**VIDEOS["h264 mp4"].__dict__, "count": 24}))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.mp4")
        _write_video(path, data)
        video_index_file.open_index(str(path))
        return data, _index_of(path).read_bytes()


def _index_of(path: Path) -> Path:
    return path.with_name(f".{path.name}{SUFFIX}")


def _write_video(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.utime(path, ns=(10**18, 10**18))


def run_video_index(rng: random.Random, folder: Path) -> None:
    data, index = _video()
    path = folder / "a.mp4"
    _write_video(path, data)
    is_edit = rng.random() < 0.5
    kept = _index_of(path)
    kept.write_bytes((fuzz_index.edit if is_edit else damaged)(rng, index))
    os.chmod(kept, 0o644)
    video_index_file._open_index.cache_clear()
    with contextlib.suppress(CuaugError) if is_edit else contextlib.nullcontext():
        found = video_index_file.open_index(str(path))
        numbers = np.sort(np.array([rng.randrange(len(found.pts)) for _ in range(3)]))
        for frame in VideoDecoder().decode(str(path), found, numbers):
            assert (frame.height, frame.width) == (found.stored_height, found.stored_width)
    if not is_edit:
        assert kept.read_bytes() == index


# --- states of a loader ----------------------------------------------------------------------------------------------


def run_state(rng: random.Random, folder: Path) -> None:
    """A loader refuses a changed state, or takes it."""
    with contextlib.suppress(CuaugError), _loader() as loader:
        loader.load_state_dict(changed_json(rng, _state()))


@functools.cache
def _state() -> dict[str, Any]:
    with _loader() as loader:
        next(iter(loader))
        return loader.state_dict()


def _loader() -> Loader:
    return Loader(Path(_photos().name), batch_size=2, device="cpu", threads=1)


@functools.cache
def _photos() -> tempfile.TemporaryDirectory[str]:
    """A folder of photos that stays the same, since a state names its source's times."""
    folder = tempfile.TemporaryDirectory()
    for i in range(6):
        path = Path(folder.name, f"class{i % 2}", f"{i}.png")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(i))
    return folder
