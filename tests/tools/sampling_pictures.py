"""Draws the pictures of docs/video.md: which frames a clip holds, and which frames are decoded for it.

The real `ClipSampler` and `VideoDecoder` choose the frames. tests/video/test_pictures.py fails if a file is stale.

python -m tests.tools.sampling_pictures [--out docs/video]
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock
from xml.sax.saxutils import escape

import av
import numpy as np

from cuaug.codec.video import decoder as video_module
from cuaug.codec.video.video_index import scan_video
from cuaug.errors import DecodeError
from cuaug.sampling.clip_sampler import ClipSampler
from cuaug.sources.videos import frame_range

__all__ = ["PICTURES"]

ROOT = Path(__file__).parents[2]
COUNT, RATE = 24, 24  # frames of the drawn video, frames per second
LEFT, SIDE, STEP, NUMBERS, WIDTH = 330, 17, 20, 830, 980  # pixels
LINE, TOP = 24, 12
CHOSEN, PADDING, DECODED, PLAIN, OUTSIDE = "#1f6feb", "#f0a030", "#b6d4fe", "#e6e9ed", "#ffffff"


@dataclass
class Line:
    """A video as a row of frames, with one clip.

    Attributes:
        label: code on the left; empty below a line of the same settings.
        numbers: the clip's frames, in order.
        padding: which of them are padding.
        note: text on the right, in place of the numbers.
        times: when each frame is shown, in seconds; None draws them side by side.
        ticks: times at which the clip takes frames, in seconds.
        frames: number of frames of the video.
        limits: the range of frames that clips may hold.
        decoded: frames that come out of the decoder; None is not drawn.
        keys: key frames.
        gap: space above, in pixels.
    """

    label: str
    numbers: Sequence[int] = ()
    padding: Sequence[bool] = ()
    note: str = ""
    times: Sequence[float] | None = None
    ticks: Sequence[float] = ()
    frames: int = COUNT
    limits: tuple[int, int] | None = None
    decoded: Sequence[int] | None = None
    keys: Sequence[int] = ()
    gap: int = 0


def clip(label: str, sampler: ClipSampler, number: int = 0, epoch: int = 0, gap: int = 0, **how: object) -> Line:
    """The line of a clip of a video."""
    line = Line(label, gap=gap, **how)  # type: ignore[arg-type]
    seconds = np.arange(line.frames) / RATE if line.times is None else np.asarray(line.times)
    first, end = line.limits or (0, line.frames)
    draws = np.random.default_rng((175, epoch)).random(sampler.frames)
    try:
        numbers, padding = sampler.choose(seconds, number, first, end, draws)
    except DecodeError:
        line.note = "a damaged sample"
        return line
    line.numbers, line.padding = numbers.tolist(), padding.tolist()
    if sampler.fps is not None:
        start = seconds[line.numbers[0]]
        line.ticks = [float(start + k / sampler.fps) for k in range(sampler.frames)]
    return line


def clips(label: str, sampler: ClipSampler, gap: int = 14, **how: object) -> Iterator[Line]:
    """The lines of all clips of a video."""
    for number in range(sampler.count(np.arange(COUNT) / RATE, 0, COUNT)):
        yield clip("" if number else label, sampler, number, gap=0 if number else gap, **how)


def sampling() -> Iterator[Line]:
    """Where clips begin."""
    random = ClipSampler(4, 2)
    for epoch in range(3):
        yield clip("" if epoch else 'sampling="random", three epochs', random, epoch=epoch)
    yield from clips('sampling="uniform"', ClipSampler(4, 2, sampling="uniform"))
    yield from clips('sampling="uniform", clips_per_video=3', ClipSampler(4, 2, sampling="uniform", clips_per_video=3))
    segments = ClipSampler(4, sampling="segments")
    for epoch in range(2):
        yield clip("" if epoch else 'sampling="segments", two epochs', segments, epoch=epoch, gap=0 if epoch else 14)
    yield from clips('sampling="all"', ClipSampler(4, 2, sampling="all"))
    yield from clips('sampling="all", step=5', ClipSampler(4, 2, sampling="all", step=5))


def distances() -> Iterator[Line]:
    """Distances of frames: in frames, or in seconds of a video with a variable rate."""
    yield clip("stride=1", ClipSampler(5, sampling="uniform"))
    yield clip("stride=4", ClipSampler(5, 4, sampling="uniform"))
    lengths = np.where(np.arange(COUNT) % 12 < 6, 1.0, 3.0)  # each frame is shown for one or three units
    times = ((np.cumsum(lengths) - lengths) / 48).tolist()
    yield clip("stride=4, variable frame rate", ClipSampler(5, 4, sampling="uniform"), times=times, gap=14)
    yield clip("fps=6, variable frame rate", ClipSampler(5, fps=6.0, sampling="uniform"), times=times)


def short() -> Iterator[Line]:
    """Videos and ranges that are too short for a clip."""
    for pad in ("error", "last", "loop"):
        yield clip(f'11 frames, stride=4, pad="{pad}"', ClipSampler(4, 4, pad=pad), frames=11)
    limits = frame_range(np.arange(COUNT) / RATE, 6, 18)
    for epoch in range(3):
        sampler = ClipSampler(4, 3)
        label = "" if epoch else '("a.mp4", label, 6, 18), stride=3'
        yield clip(label, sampler, epoch=epoch, limits=limits, gap=0 if epoch else 14)


def decoding() -> Iterator[Line]:
    """Frames that the decoder gives for a clip, of an MPEG-4 video with two B-frames between reference frames."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "a.mp4")
        with av.open(path, "w") as container:
            stream = container.add_stream("mpeg4", rate=RATE, options={"bf": "2", "sc_threshold": "1000000000"})
            stream.width, stream.height, stream.pix_fmt, stream.gop_size = 32, 32, "yuv420p", 12
            for number in range(COUNT):
                image = np.full((32, 32, 3), 10 * number, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
            container.mux(stream.encode())
        index = scan_video(path)
        keys = np.searchsorted(index.pts, index.keys).tolist()
        for label, numbers in (
            ("stride=1", np.arange(15, 19)),
            ("stride=3", np.arange(2, 12, 3)),
            ("stride=4", np.arange(5, 18, 4)),
            ('sampling="segments"', np.array([1, 8, 15, 20])),
        ):
            decoded = decoded_frames(path, index, numbers)
            yield Line(label, numbers.tolist(), [False] * 4, decoded=decoded, keys=keys)


def decoded_frames(path: str, index: video_module.VideoIndex, numbers: np.ndarray) -> list[int]:
    """The frames that FFmpeg decodes for a clip."""
    with av.open(path) as container:
        is_b_frame = [frame.pict_type == av.video.frame.PictureType.B for frame in container.decode(video=0)]
    runs: list[list[int]] = []  # numbers of the packets that are read, of each seek
    demux = video_module.demux_packets

    def recorded(container: Any, stream: Any) -> Iterator[Any]:
        runs.append([])
        for packet in demux(container, stream):
            runs[-1].append(-1 if packet.pts is None else int(np.searchsorted(index.pts, packet.pts)))
            yield packet

    with mock.patch.object(video_module, "demux_packets", recorded):
        video_module.VideoDecoder().decode(path, index, numbers)
    wanted = set(numbers.tolist())
    decoded = []
    for run in runs:
        # The packet after the last wanted one only tells the decoder to give the frames that it holds back.
        sent = run[:-1] if wanted <= set(run[:-1]) | set(decoded) else run
        # Nothing refers to a B-frame of MPEG-4.
        decoded += [number for number in sent if number >= 0 and (number in wanted or not is_b_frame[number])]
    return decoded


def draw(lines: Sequence[Line], legend: Sequence[tuple[str, str]]) -> str:
    """The lines as SVG. Colors suit light and dark pages."""
    text, y = [], TOP
    for line in lines:
        y += line.gap
        text.append(f'<text x="12" y="{y + 13}">{escape(line.label)}</text>')
        lefts = [LEFT + STEP * k for k in range(line.frames)]
        widths = [SIDE] * line.frames
        if line.times is not None:
            scale = (STEP * COUNT) / (2 * line.times[-1] - line.times[-2])
            edges = [LEFT + scale * time for time in [*line.times, 2 * line.times[-1] - line.times[-2]]]
            lefts, widths = edges[:-1], [b - a - 2 for a, b in itertools.pairwise(edges)]
            for tick in line.ticks:
                x = LEFT + scale * tick + 1
                text.append(f'<path d="M{x:.1f} {y - 4}v{SIDE + 8}" stroke="#c0392b"/>')
        chosen = {n: CHOSEN for n, is_padding in zip(line.numbers, line.padding, strict=True) if not is_padding}
        for k in range(line.frames):
            color = chosen.get(k) or (DECODED if line.decoded is not None and k in line.decoded else PLAIN)
            stroke = ""
            if line.limits and not line.limits[0] <= k < line.limits[1]:
                color, stroke = OUTSIDE, ' stroke="#c4c9d0" stroke-dasharray="2"'
            place = f'x="{lefts[k]:.1f}" y="{y}" width="{widths[k]:.1f}" height="{SIDE}"'
            text.append(f'<rect {place} rx="2" fill="{color}"{stroke}/>')
            if k in line.keys:
                text.append(
                    f'<text x="{lefts[k] + 4:.1f}" y="{y + 13}" fill="{OUTSIDE if k in chosen else "#222"}">K</text>'
                )
        text.append(f'<text x="{NUMBERS}" y="{y + 13}">{numbers_of(line)}</text>')
        y += LINE
    y += 12
    x = LEFT
    for color, meaning in legend:
        text.append(f'<rect x="{x}" y="{y}" width="12" height="12" rx="2" fill="{color}"/>')
        text.append(f'<text x="{x + 17}" y="{y + 10}">{escape(meaning)}</text>')
        x += 40 + 7 * len(meaning)
    height = y + 24
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
    head += 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12" fill="#222">'
    page = f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>'
    return "\n".join([head, page, *text, "</svg>", ""])


def numbers_of(line: Line) -> str:
    """The numbers of a clip's frames, padding in another color."""
    if line.note:
        return f'<tspan fill="#c0392b">{escape(line.note)}</tspan>'
    return " ".join(
        f'<tspan fill="{"#b36b00" if is_padding else "#222"}">{number}</tspan>'
        for number, is_padding in zip(line.numbers, line.padding, strict=True)
    )


_CLIP, _FRAME = (CHOSEN, "frame of the clip"), (PLAIN, "other frame")
#: The text of each picture, by file name.
PICTURES = {
    "sampling.svg": lambda: draw(list(sampling()), [_CLIP, _FRAME]),
    "distances.svg": lambda: draw(list(distances()), [_CLIP, _FRAME, ("#c0392b", "times of the clip, 1/6 s apart")]),
    "short.svg": lambda: draw(list(short()), [_CLIP, _FRAME, ("#b36b00", "number of a padding frame")]),
    "decoding.svg": lambda: draw(
        list(decoding()), [_CLIP, (DECODED, "decoded, too"), (PLAIN, "not decoded"), (OUTSIDE, "K: key frame")]
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "video")
    folder = parser.parse_args().out
    folder.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        (folder / name).write_text(picture())


if __name__ == "__main__":
    main()
