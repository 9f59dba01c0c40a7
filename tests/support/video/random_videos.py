"""Random videos of all codecs: B-frame patterns, variable rates, start offsets, edit lists, cut ends."""

from __future__ import annotations

import itertools

import numpy as np

from tests.support.video.videos import Video

#: FFmpeg's encoder -> the containers and pixel formats that it is tried in.
_ENCODERS = {
    "libx264": (("mp4", "mov", "matroska", "mpegts"), ("yuv420p", "yuv422p", "yuv444p", "yuv420p10le")),
    "libx265": (("mp4", "matroska", "mpegts"), ("yuv420p", "yuv420p10le")),
    "libvpx-vp9": (("webm", "matroska", "mp4"), ("yuv420p", "yuv444p")),
    "libsvtav1": (("mp4", "webm", "matroska"), ("yuv420p", "yuv420p10le")),
    "mpeg4": (("mp4", "matroska", "avi"), ("yuv420p",)),
    "mjpeg": (("avi", "mov", "matroska"), ("yuvj420p", "yuvj444p")),
    "mpeg2video": (("mpegts", "matroska"), ("yuv420p",)),
}


def random_video(rng: np.random.Generator) -> tuple[Video, float]:
    """A video, and the share of its file to keep: 1, or less for a cut end."""
    codec = str(rng.choice(list(_ENCODERS)))
    containers, formats = _ENCODERS[codec]
    container, count = str(rng.choice(containers)), int(rng.integers(20, 100))
    uneven = rng.random() < 0.4 and container not in ("avi", "mpegts")
    start = int(rng.integers(1, 300)) if container != "avi" and rng.random() < 0.4 else 0
    has_edits = container == "mp4" and codec != "libvpx-vp9" and rng.random() < 0.5
    uneven, start = uneven and not has_edits, 0 if has_edits else start
    steps = rng.integers(1, 8, count - 1).tolist() if uneven else [1] * (count - 1)
    times = tuple(itertools.accumulate(steps, initial=start))
    muxer = {}
    if container == "mp4" and not has_edits and rng.random() < 0.4:
        muxer = {"movflags": str(rng.choice(["frag_keyframe+empty_moov", "faststart"]))}
    video = Video(
        container,
        codec,
        _options(rng, codec),
        str(rng.choice(formats)),
        count=count,
        height=int(rng.integers(32, 60)) * 2,
        width=int(rng.integers(32, 60)) * 2,
        key_distance=int(rng.integers(5, 60)),
        times=times if uneven or start else None,
        muxer=muxer,
        edits=_edits(rng, count) if has_edits else None,
    )
    streams = container in ("mpegts", "matroska", "webm") or muxer.get("movflags") == "faststart"
    return video, float(rng.uniform(0.5, 0.95)) if streams and rng.random() < 0.4 else 1.0


def _edits(rng: np.random.Generator, count: int) -> tuple[tuple[int, int], ...]:
    """One or two ascending ranges of frames, perhaps after a time without any."""
    empty = ((-1, int(rng.integers(1, 40))),) if rng.random() < 0.4 else ()
    places = np.sort(rng.choice(count + 1, 2 * int(rng.integers(1, 3)), replace=False)).tolist()
    return (*empty, *((first, end - first) for first, end in zip(places[::2], places[1::2], strict=True)))


def _options(rng: np.random.Generator, codec: str) -> dict[str, str]:
    """B-frames, references and open groups of pictures, as the encoder names them."""
    b_frames, choice = int(rng.integers(0, 8)), rng.integers
    if codec == "libx264":
        pyramid = rng.choice(["none", "strict", "normal"])
        return {
            "preset": "veryfast",
            "x264-params": f"bframes={b_frames}:b-pyramid={pyramid}:b-adapt={choice(3)}:ref={choice(1, 6)}:"
            f"open-gop={choice(2)}:scenecut={40 * choice(2)}:intra-refresh={int(rng.random() < 0.1)}",
        }
    if codec == "libx265":
        parameters = (
            f"bframes={min(b_frames, 4)}:b-pyramid={choice(2)}:open-gop={choice(2)}:ref={choice(1, 5)}:log-level=none"
        )
        return {"preset": "ultrafast", "x265-params": parameters}
    if codec == "libvpx-vp9":
        lag = int(choice(0, 20))
        return {"cpu-used": "8", "lag-in-frames": str(lag), "auto-alt-ref": str(int(lag > 0))}
    if codec == "libsvtav1":
        return {"preset": "12"}
    return {"bf": str(b_frames % 4)} if codec != "mjpeg" else {}
