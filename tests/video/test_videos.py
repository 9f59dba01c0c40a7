"""`Videos`: folders, lists and mappings of videos, the number of clips, ranges, labels and what tells sources apart."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cuaug._runtime.extras import install_command
from cuaug.errors import ArgumentError, SourceError
from cuaug.sources import Videos
from cuaug.sources.source import Source
from tests.support.video.videos import Video, make_video


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """run/{a,b}.mp4 of 30 and 20 frames, walk/c.mkv of 12 frames."""
    root = tmp_path_factory.mktemp("videos")
    for name, container, count in (("run/a.mp4", "mp4", 30), ("run/b.mp4", "mp4", 20), ("walk/c.mkv", "matroska", 12)):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(make_video(Video(container, "mpeg4", count=count)))
    (root / "notes.txt").write_text("not a video")
    return root


def names(source: Videos) -> list[str]:
    return [Path(source.path(i)).name for i in range(len(source))]


def test_a_folder_per_class(folder):
    source = Videos(folder, frames=4)
    assert isinstance(source, Source)
    assert names(source) == ["a.mp4", "b.mp4", "c.mkv"] and source.classes == ["run", "walk"]
    assert [source.read(i)[1] for i in range(3)] == source.labels == [0, 0, 1]
    assert [source.label(i) for i in range(3)] == source.labels
    assert repr(source).startswith("Videos(3 samples in 2 classes, the first")


def test_endings_of_folders(tmp_path, caplog):
    for number, ending in enumerate(("m2ts", "asf", "VOB", "ogv", "3g2", "mxf")):
        (tmp_path / f"{number}.{ending}").touch()
    assert len(Videos(tmp_path, frames=4)) == 6 and not caplog.records
    (tmp_path / "6.doc").touch()
    assert len(Videos(tmp_path, frames=4)) == 6 and "1 file(s) beside the videos are not loaded" in caplog.text


def test_lists_and_mappings(folder):
    a, b = str(folder / "run/a.mp4"), folder / "run/b.mp4"
    assert Videos([a, b], frames=4).labels == [0, 1]
    assert Videos([(a, 7), (b, 9)], frames=4).labels == [7, 9]
    assert Videos({a: 3, str(b): 4}, frames=4).labels == [3, 4]
    assert Videos(a, frames=4).paths == [a]
    source = Videos([(a, 0, 2, 10), (a, 1, 0.5, None)], frames=4)
    requests = [source.read(i)[0] for i in range(2)]
    seconds = np.arange(30) / 25
    assert [request.frame_range(seconds) for request in requests] == [(2, 10), (13, 30)]
    assert pickle.loads(pickle.dumps(requests)) == requests


def test_list_files(folder):
    path = folder / "list.txt"
    path.write_text("# a comment\nrun/a.mp4 3\n\nrun/b.mp4 4 2 10\nwalk/c.mkv 5 0.1 0.4\n")
    source = Videos(path, frames=4)
    assert source.labels == [3, 4, 5] and names(source) == ["a.mp4", "b.mp4", "c.mkv"]
    assert [tuple(source.read(i)[0][2:4]) for i in range(3)] == [(None, None), (2, 10), (0.1, 0.4)]
    path.write_text("run/a.mp4\n")
    with pytest.raises(SourceError, match='line 1: expected "path label" or "path label start end"'):
        Videos(path, frames=4)
    path.write_text("../elsewhere.mp4 1\n")
    with pytest.raises(SourceError, match="leads out of"):
        Videos(path, frames=4)


def test_the_number_of_clips(folder):
    source = Videos(folder, frames=4, clips_per_video=3)
    assert len(source) == 9 and source.labels == [0] * 6 + [1] * 3
    assert [source.read(i)[0].clip for i in range(9)] == [0, 1, 2] * 3
    source = Videos(folder, frames=4, stride=2, sampling="all")  # 7 frames a clip, a step of 8
    assert names(source) == ["a.mp4"] * 3 + ["b.mp4"] * 2 + ["c.mkv"]
    assert len(Videos(folder, frames=4, sampling="all", step=1)) == 27 + 17 + 9
    assert len(Videos([(str(folder / "run/a.mp4"), 0, 10, 20)], frames=4, sampling="all", step=1)) == 7


def test_what_is_refused(folder, tmp_path):
    a = str(folder / "run/a.mp4")
    with pytest.raises(ArgumentError, match="videos: entry 0 is 3, not a path"):
        Videos([3], frames=4)
    with pytest.raises(ArgumentError, match="starts at 9 and ends at 9"):
        Videos([(a, 0, 9, 9)], frames=4)
    with pytest.raises(ArgumentError, match="start of entry 0 must be a time of 0 or more seconds"):
        Videos([(a, 0, -1.0, None)], frames=4)
    with pytest.raises(SourceError, match=r"no \.mp4, \.mkv"):
        Videos(tmp_path, frames=4)
    (tmp_path / "x.mp4").write_bytes(b"no video")
    with pytest.raises(SourceError, match=r"cannot count the clips of .*x.mp4.*not a video.*needs every video"):
        Videos(tmp_path, frames=4, sampling="all")


def test_fingerprints_tell_sources_apart(folder):
    a = str(folder / "run/a.mp4")
    sources = [
        Videos(folder, frames=4),
        Videos(folder, frames=5),
        Videos(folder, frames=4, stride=2),
        Videos([a], frames=4),
        Videos([(a, 0, 1, None)], frames=4),
        Videos([(a, 1)], frames=4),
    ]
    assert len({source.fingerprint() for source in sources}) == len(sources)
    assert Videos(folder, frames=4).fingerprint() == pickle.loads(pickle.dumps(sources[0])).fingerprint()
    assert len({source.cache_key() for source in sources[:3]}) == 3


def test_a_missing_pyav_names_the_extra(folder):
    program = (
        "import sys; sys.modules['av'] = None\nimport cuaug\n"
        "try: cuaug.sources.Videos(sys.argv[1], frames=4)\nexcept cuaug.LoaderError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=600)
    assert install_command("video") in done.stdout, done.stderr
