"""Damages videos, indexes and decodes them, and reports broken promises as JSON.

    python -m tests.fuzz.fuzz_videos --count 3000                       # of each container, several minutes
    python -m tests.fuzz.fuzz_videos --container mkv --first 17 --count 1 --keep damaged.mkv

Promises: a DecodeError of one line or frames of the index's size; no crash, no hang, bounded memory in each case and
no growth; and a sound video decoded next is unharmed. The fuzzer writes each case to --mark before it starts; a hang
ends the process after --deadline seconds, with the tracebacks of all threads.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from cuaug.codec.video.decoder import VideoDecoder
from cuaug.codec.video.video_index import scan_video
from cuaug.errors import DecodeError
from tests.support.codec.memory import forget_peak, peak_bytes
from tests.support.video.videos import VIDEOS, Video, make_video, plane_bytes

#: Videos of each container that are damaged, by file extension.
CONTAINERS = {
    "mp4": ("h264 mp4", "hevc mp4 open group", "av1 mp4", "mpeg4 mp4", "h264 mp4 fragments", "h264 mp4 422 10 bits"),
    "mkv": ("h264 mkv open group", "vp9 mkv 444", "hevc mkv 10 bits", "mpeg4 mkv", "mjpeg mkv 422"),
    "webm": ("vp9 webm", "vp9 webm hidden frames", "av1 webm"),
    "avi": ("h264 avi", "mpeg4 avi", "mpeg4 avi b-frames", "mjpeg avi"),
    "mov": ("h264 mov", "mjpeg mov 444"),
}
MAX_SECONDS = 5.0  # CPU time of one case
MAX_PEAK = 900 << 20  # bytes that one case may add: two tables of the frames of a track, the larger of 512 MB
WARM_UP = 50  # cases before growth is counted


def originals(container: str) -> dict[str, bytes]:
    """Short videos of a container."""
    return {name: make_video(Video(**{**VIDEOS[name].__dict__, "count": 24})) for name in _short(container)}


def _short(container: str) -> list[str]:
    return [name for name in CONTAINERS[container] if VIDEOS[name].times is None]


def damage(rng: random.Random, data: bytes) -> bytes:
    """A few changes of one kind: flipped bits, random bytes, extreme numbers, a cut, a repeated or a missing piece."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        # Half of the changes hit the headers: the beginning and the end of the file.
        at = rng.randrange(len(changed)) if rng.random() < 0.5 else rng.randrange(min(1500, len(changed)))
        at = len(changed) - 1 - at if rng.random() < 0.4 else at
        match rng.randrange(6):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.randrange(256)
            case 2:
                value = rng.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\1"))
                changed[at : at + 4] = value
            case 3:
                del changed[max(at, 64) :]
            case 4:
                del changed[at : at + rng.randrange(1, 64)]
            case 5:
                changed[at:at] = changed[at : at + rng.randrange(1, 64)]
        changed = changed or bytearray(b"\0")
    return bytes(changed)


class Fuzzer:
    """Runs cases in a folder. `broken` lists broken promises, `counts` the outcomes, `largest` the highest peak."""

    def __init__(self, folder: Path) -> None:
        self.broken: list[str] = []
        self.counts = {"decoded": 0, "refused": 0}
        self.slowest, self.largest = (0.0, ""), (0, "")
        self._folder, self._decoder = folder, VideoDecoder()
        self._sound = folder / "sound.mp4"
        self._sound.write_bytes(make_video(Video(**{**VIDEOS["h264 mp4"].__dict__, "count": 24})))
        self._sound_index = scan_video(str(self._sound))
        self._expected = self._sound_planes()

    def _sound_planes(self) -> list[list[bytes]]:
        frames = self._decoder.decode(str(self._sound), self._sound_index, np.array([3, 11]))
        return [plane_bytes(frame.owner) for frame in frames]

    def run(self, name: str, container: str, data: bytes, rng: random.Random) -> None:
        path, start = self._folder / f"case.{container}", time.process_time()
        path.write_bytes(data)
        before = forget_peak()
        try:
            index = scan_video(str(path))
            numbers = np.sort(np.array([rng.randrange(len(index.pts)) for _ in range(4)]))
            for frame in self._decoder.decode(str(path), index, numbers):
                assert (frame.height, frame.width) == (index.stored_height, index.stored_width)
                plane_bytes(frame.owner)
            self.counts["decoded"] += 1
        except DecodeError as error:
            self.counts["refused"] += 1
            if not error.cause or "\n" in error.cause:
                self.broken.append(f"{name}: no cause in one line: {error.cause!r}")
        except Exception as error:
            self.broken.append(f"{name}: {type(error).__name__}: {error}")
        seconds = time.process_time() - start
        self.slowest = max(self.slowest, (seconds, name))
        if seconds > MAX_SECONDS:
            self.broken.append(f"{name}: took {seconds:.1f} s of processor time")
        peak = peak_bytes() - before
        self.largest = max(self.largest, (peak, name))
        if peak > MAX_PEAK:
            self.broken.append(f"{name}: took {peak >> 20} MB of memory")
        if self._sound_planes() != self._expected:
            self.broken.append(f"{name}: the sound video decoded next was harmed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--container", choices=CONTAINERS, help="None: each")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100, help="cases of each container")
    parser.add_argument("--mark", default=os.devnull, help="a file for the name of the current case")
    parser.add_argument("--keep", help="a file for the last damaged video")
    parser.add_argument("--deadline", type=float, default=600.0)
    arguments = parser.parse_args()
    faulthandler.enable()
    start, mark = time.monotonic(), os.open(arguments.mark, os.O_WRONLY | os.O_CREAT)
    baseline, cases = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder))
        for container in [arguments.container] if arguments.container else CONTAINERS:
            videos = originals(container)
            for number in range(arguments.first, arguments.first + arguments.count):
                rng = random.Random(f"{arguments.seed} {container} {number}")
                original = rng.choice(list(videos))
                name = f"--seed {arguments.seed} --container {container} --first {number} ({original})"
                data = damage(rng, videos[original])
                os.pwrite(mark, name.ljust(120).encode(), 0)
                if arguments.keep:
                    Path(arguments.keep).write_bytes(data)
                faulthandler.dump_traceback_later(arguments.deadline, exit=True)
                fuzzer.run(name, container, data, rng)
                cases += 1
                if cases == WARM_UP:
                    baseline = forget_peak()
    faulthandler.cancel_dump_traceback_later()
    seconds = time.monotonic() - start
    growth = forget_peak() - baseline if baseline else 0
    found = {"broken": fuzzer.broken, "slowest": fuzzer.slowest, "largest": fuzzer.largest}
    found |= {"growth": growth, "seconds": seconds}
    json.dump(fuzzer.counts | found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
