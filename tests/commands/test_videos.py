"""`cuaug check` of videos, and the time limits of a loader and of `check`."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from PIL import Image

from cuaug import Loader, LoaderTimeoutError
from cuaug.codec.video import decoder as video_module
from cuaug.sources import Videos
from tests.support.video.videos import Video, make_video

pytestmark = pytest.mark.timeout(120)

COUNT = 30


@pytest.fixture(scope="module")
def data() -> bytes:
    """Thirty frames of 64 x 96 at 25 a second, key frames every ten."""
    return make_video(Video("mp4", "libx264", {"bf": "0"}, count=COUNT, key_distance=10))


@pytest.fixture
def folder(tmp_path, data) -> Path:
    """A folder for each of two classes, of four videos; the third has damaged packets, the last is none."""
    folder = tmp_path / "clips"
    paths = [folder / "ant" / "0.mp4", folder / "ant" / "1.mp4", folder / "bee" / "2.mp4", folder / "bee" / "3.mp4"]
    for path in paths:
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(data)
    damaged = bytearray(data)
    begin = damaged.index(b"mdat") + 4
    middle = begin + 2 * (len(damaged) - begin) // 3
    damaged[middle : middle + 200] = b"\x5a" * 200
    paths[2].write_bytes(damaged)
    paths[3].write_bytes(b"this is no video" * 100)
    return folder


def test_check_names_the_time_of_the_damage(folder, run):
    status, lines, errors = run("check", "--threads", "2", folder)
    assert (status, errors) == (1, "") and lines[-1] == "4 of 4 samples checked, 2 damaged"
    damaged, none = sorted(lines[:-2])
    assert damaged.startswith(f"'{folder}/bee/2.mp4' (sample 2): damaged near ")
    seconds = float(damaged.partition("near ")[2].partition(" s")[0])
    assert 0.2 < seconds < COUNT / 25
    assert none.startswith(f"'{folder}/bee/3.mp4' (sample 3): not a video in one of the containers ")


def test_check_without_decoding_reads_the_indexes(folder, run):
    status, lines, _ = run("check", "--threads", "1", "--no-decode", folder)
    assert status == 1 and len(lines) == 3 and "(sample 3)" in lines[0]


@pytest.mark.slow
def test_check_takes_files_and_lists_of_videos(folder, run, tmp_path):
    sound = [folder / "ant" / "0.mp4", folder / "ant" / "1.mp4"]
    assert run("check", *sound)[:2] == (0, ["2 of 2 samples checked, 0 damaged"])
    assert run("check", sound[0])[:2] == (0, ["1 of 1 samples checked, 0 damaged"])
    # The range of the second line ends before the damage.
    (tmp_path / "list.txt").write_text("# videos\nclips/ant/0.mp4 1\nclips/bee/2.mp4 1 0 5\n")
    assert run("check", tmp_path / "list.txt")[:2] == (0, ["2 of 2 samples checked, 0 damaged"])
    (tmp_path / "list.txt").write_text("clips/ant/0.mp4 1\nclips/bee/2.mp4 1\n")
    assert run("check", tmp_path / "list.txt")[0] == 1


def test_check_of_a_folder_with_an_image_checks_images(folder, run):
    for name in ("ant", "bee"):
        Image.new("RGB", (20, 10)).save(folder / name / "a.png")
    status, lines, errors = run("check", folder)
    assert (status, lines[1:]) == (0, ["2 of 2 samples checked, 0 damaged"])
    assert "4 file(s) beside the images of its class folders are not loaded, the first 'ant/0.mp4'" in errors


# --- time limits -----------------------------------------------------------------------------------------------------


_STUCK = """
from cuaug.codec.video import decoder as video
decode = video._Decoding._take
def slow(self, frame):
    time.sleep({seconds})
    return decode(self, frame)
def check(self, path, *rest):
    video._Decoding._take = slow if path.endswith({name!r}) else decode
    return original(self, path, *rest)
original, video.VideoDecoder.check = video.VideoDecoder.check, check
"""


@pytest.mark.slow
def test_check_names_a_video_whose_decoder_hangs(folder, run, in_place_of):
    in_place_of("av", _STUCK.format(seconds=60, name="ant/1.mp4"))
    videos = [folder / "ant" / "0.mp4", folder / "ant" / "1.mp4"]
    status, lines, _ = run("check", "--threads", "1", "--timeout", "3", *videos)
    assert status == 1 and lines == [
        f"'{videos[1]}' (sample 1): it takes longer than 3 seconds",
        "2 of 2 samples checked, 1 damaged",
    ]


@pytest.mark.slow
def test_check_lets_a_long_video_take_its_time(folder, run, in_place_of):
    """Decoding it takes 6 s; no second passes without a frame."""
    in_place_of("av", _STUCK.format(seconds=0.2, name="ant/0.mp4"))
    status, lines, _ = run("check", "--threads", "1", "--timeout", "3", folder / "ant" / "0.mp4")
    assert (status, lines) == (0, ["1 of 1 samples checked, 0 damaged"])


def test_a_loader_names_a_video_whose_decoder_hangs(folder, monkeypatch):
    decode, release = video_module.VideoDecoder.decode, threading.Event()

    def slow(self, path, *rest):
        if path.endswith("1.mp4"):
            release.wait()
        return decode(self, path, *rest)

    monkeypatch.setattr(video_module.VideoDecoder, "decode", slow)
    source = Videos([folder / "ant" / "0.mp4", folder / "ant" / "1.mp4"], frames=2)
    says = r"decoding .*1\.mp4.* has taken"
    with (
        Loader(source, batch_size=2, threads=2, timeout_seconds=2) as loader,
        pytest.raises(LoaderTimeoutError, match=says),
    ):
        next(iter(loader))
    release.set()
