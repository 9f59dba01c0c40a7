"""Indexes of videos: sizes, rotation, timestamps, limits, and what is refused."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from cuaug.codec.sniff import orient_array
from cuaug.codec.video import video_index
from cuaug.codec.video.video_index import scan_video
from cuaug.errors import DecodeError
from cuaug.sources.shards.shard_index import Index, Stamp
from cuaug.sources.video_index_file import open_index
from tests.support.video.videos import VIDEOS, Video, make_video, write_video


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "indexes"


@pytest.mark.parametrize(
    "matrix, turn",
    [
        ((1, 0, 0, 1), lambda image: image),
        ((0, -1, 1, 0), np.rot90),  # counter-clockwise
        ((-1, 0, 0, -1), lambda image: np.rot90(image, 2)),
        ((0, 1, -1, 0), lambda image: np.rot90(image, 3)),
        ((-1, 0, 0, 1), lambda image: image[:, ::-1]),
        ((1, 0, 0, -1), lambda image: image[::-1]),
        ((0, 1, 1, 0), lambda image: image.swapaxes(0, 1)),
        ((0, -1, -1, 0), lambda image: np.rot90(image, 2).swapaxes(0, 1)),
    ],
)
def test_display_matrices(tmp_path, matrix, turn):
    path = write_video(tmp_path, "turned", Video("mp4", "libx264", count=5, matrix=matrix))
    index, image = scan_video(path), np.arange(64 * 96 * 3).reshape(64, 96, 3)
    np.testing.assert_array_equal(orient_array(image, index.orientation), turn(image))
    assert (index.height, index.width) == turn(image).shape[:2]


@pytest.mark.parametrize(
    "matrix, orientation",
    [
        ((0, 0, 0, 0), 1),  # as if there were none
        ((1, 2**-16, -(2**-16), 1), 1),
        ((2**-16, 1 - 2**-16, -1, 0), 6),
        ((-0.99999, 0.0001, -0.0001, -0.99999), 3),
        ((0.01, -2, 2, 0), 8),
    ],
)
def test_rounded_display_matrices(tmp_path, matrix, orientation):
    path = write_video(tmp_path, "turned", Video("mp4", "libx264", count=5, matrix=matrix))
    assert scan_video(path).orientation == orientation


@pytest.mark.parametrize("matrix", [(1, 1, -1, 1), (1, 0.03, -0.03, 1), (1, 0, 0, 0)])
def test_other_angles_are_refused(tmp_path, matrix):
    path = write_video(tmp_path, "turned", Video("mp4", "libx264", count=5, matrix=matrix))
    with pytest.raises(DecodeError, match="another angle"):
        scan_video(path)


def test_seconds_count_from_the_first_frame(tmp_path):
    index = scan_video(write_video(tmp_path, "h264 mp4 start offset"))
    np.testing.assert_allclose(index.seconds, np.arange(90) / 25)
    times = np.array(VIDEOS["h264 mkv variable rate"].times)
    index = scan_video(write_video(tmp_path, "h264 mkv variable rate"))
    np.testing.assert_allclose(index.seconds, (times - times[0]) / 25, atol=1e-3)


def test_an_index_is_kept_hidden_beside_its_video(tmp_path, monkeypatch):
    path = write_video(tmp_path, "h264 mp4")
    first = open_index(path)
    assert sorted(os.listdir(tmp_path)) == [".h264_mp4.mp4.cuaug-index", "h264_mp4.mp4"]
    open_index.__globals__["_open_index"].cache_clear()
    monkeypatch.setattr(open_index.__globals__["_scan"], "__code__", (lambda path, file: 1 / 0).__code__)
    again = open_index(path)
    assert again.pts.tolist() == first.pts.tolist() and again.time_base == first.time_base
    assert (again.height, again.width, again.codec) == (64, 96, "h264")


@pytest.mark.parametrize("how", ["renamed", "written over"])
def test_a_video_of_equal_size_and_time_replaces_another(tmp_path, how):
    first, second = (make_video(Video("mpegts", "libx264", count=count)) for count in (20, 30))
    packet = b"\x47\x1f\xff\x10" + b"\xff" * 184  # says nothing
    first += packet * ((len(second) - len(first)) // len(packet))
    path = tmp_path / "a.ts"
    path.write_bytes(first)
    os.utime(path, ns=(10**18, 10**18))
    assert len(open_index(str(path)).pts) == 20
    before = os.stat(path)
    if how == "renamed":
        new = tmp_path / "new.ts"
        new.write_bytes(second)
        os.utime(new, ns=(10**18, 10**18))
        new.replace(path)
    else:
        path.write_bytes(second)
        while os.stat(path).st_ctime_ns == before.st_ctime_ns or os.stat(path).st_mtime_ns != before.st_mtime_ns:
            os.utime(path, ns=(10**18, 10**18))  # the clock of file systems ticks every few ms
    assert os.stat(path).st_size == before.st_size
    assert len(open_index(str(path)).pts) == 30


@pytest.mark.parametrize("name, value", [("delay", 16), ("delay", True), ("delay", -1), ("one_per_packet", 1)])
def test_notes_on_packets_are_within_bounds(tmp_path, name, value):
    """FFmpeg ends the process at a longer delay."""
    module = open_index.__globals__
    notes, arrays = module["_scan"](write_video(tmp_path, "h264 mp4"), None)
    module["_check"](Index(Stamp(0, 0, 0), notes, arrays))
    with pytest.raises(ValueError, match=r"packets|delay"):
        module["_check"](Index(Stamp(0, 0, 0), notes | {name: value}, arrays))


def test_a_name_with_a_colon(tmp_path):
    path = tmp_path / "concat:a|b.mp4"
    path.write_bytes(make_video(Video("mp4", "libx264", count=5)))
    assert len(scan_video(str(path)).pts) == 5


def test_playlists_open_no_other_file(tmp_path):
    """FFmpeg tells formats by their first bytes, whatever the file's name."""
    write_video(tmp_path, "h264 ts")
    playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nh264_ts.ts\n#EXT-X-ENDLIST\n"
    scripts = {"a.m3u8": playlist, "b.mp4": playlist, "c.mp4": "ffconcat version 1.0\nfile h264_ts.ts\n"}
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(DecodeError, match="not a video in one of the containers mov, matroska"):
            scan_video(str(tmp_path / name))


def test_what_is_no_video(tmp_path):
    (tmp_path / "text.mp4").write_text("no video")
    Image.new("RGB", (20, 10)).save(tmp_path / "picture.png")
    with av.open(str(tmp_path / "sound.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=44_100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 44_100
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    for name, reason in (("text.mp4", "not a video"), ("picture.png", "not a video"), ("sound.mp4", "no video stream")):
        with pytest.raises(DecodeError, match=reason):
            scan_video(str(tmp_path / name))
    with pytest.raises(FileNotFoundError):
        scan_video(str(tmp_path / "missing.mp4"))


def test_codecs_that_nobody_fuzzed_are_refused(tmp_path):
    path = write_video(tmp_path, "x", Video("matroska", "ffv1", count=3))
    with pytest.raises(DecodeError, match="its codec is ffv1, which is none of av1, "):
        scan_video(path)


def test_limits(tmp_path, monkeypatch):
    path = write_video(tmp_path, "h264 mp4")
    monkeypatch.setattr(video_index, "MAX_FRAMES", 50)
    with pytest.raises(DecodeError, match="more than 50 frames"):
        scan_video(path)
    monkeypatch.setattr(video_index, "MAX_FRAMES", 100)
    monkeypatch.setattr(video_index, "MAX_PIXELS", 64 * 95)
    with pytest.raises(DecodeError, match="above the limit"):
        scan_video(path)


@pytest.mark.parametrize("name", ["h264 mp4", "mpeg4 avi b-frames"])
def test_lack_of_memory_does_not_shorten_an_index(tmp_path, monkeypatch, name):
    """Other errors end the index as the end of a truncated file does; this one passes."""
    path, container = write_video(tmp_path, name), video_index.open_container

    class Container:
        """Fails after ten packets or frames."""

        def __init__(self, path: str) -> None:
            self._container = container(path)

        def __getattr__(self, attribute: str):
            value = getattr(self._container, attribute)
            return (lambda stream: self._few(value(stream))) if attribute in ("demux", "decode") else value

        def __enter__(self):
            return self

        def __exit__(self, *error) -> None:
            self._container.close()

        def _few(self, items):
            yield from itertools.islice(items, 10)
            raise av.error.MemoryError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(video_index, "open_container", Container)
    with pytest.raises(DecodeError, match=r"no memory\. FFmpeg may allocate 512 MB at once"):
        scan_video(path)


def test_the_largest_frame_is_converted():
    """`MAX_ALLOCATION` admits what `MAX_PIXELS` does."""
    video_index._limit_allocations()
    side = int(video_index.MAX_PIXELS**0.5)
    largest = av.VideoFrame(side, side, "gbrp").reformat(format="yuv444p10le")
    assert largest.planes[2].buffer_size == 2 * side * side
    with pytest.raises(MemoryError):
        av.VideoFrame(2 * side, side, "yuv444p10le")
