"""SEI that lies costs no frame of H.264 or HEVC; damage to pictures beside it is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest

from cuaug.codec.video.decoder import VideoDecoder, hide_sei
from cuaug.codec.video.video_index import scan_video
from cuaug.errors import DecodeError
from tests.support.video.videos import Video, plain_frames, plane_bytes, rewrite_packets, write_video

SLICES = {"h264": lambda header: header & 31 in (1, 5), "hevc": lambda header: header >> 1 & 63 < 32}
HEADERS = {"h264": b"\x06", "hevc": b"\x4e\x01"}
OPTIONS = {
    "h264": {"x264-params": "bframes=2:keyint=12:scenecut=0"},
    "hevc": {"x265-params": "bframes=2:keyint=12:open-gop=0:log-level=none"},
}
LIES = {
    "user data beyond its unit": b"\x05\xc8" + bytes(range(1, 21)) + b"\x80",
    "a size without an end": b"\x04" + b"\xff" * 20,
    "a recovery point beyond its unit": b"\x06\xc8\x80",
    "buffering of a parameter set that is missing": b"\x00\x02\x04\x04\x80",
}
Edit = Callable[[bytes], bytes]


def units(data: bytes, length_size: int) -> list[bytes]:
    """The NAL units of a packet: behind lengths, or start codes for 0."""
    if not length_size:
        return [unit.rstrip(b"\0") for unit in data.split(b"\0\0\1")[1:]]
    found = []
    while data:
        end = length_size + int.from_bytes(data[:length_size], "big")
        found.append(data[length_size:end])
        data = data[end:]
    return found


def join(parts: list[bytes], length_size: int) -> bytes:
    return b"".join((len(part).to_bytes(length_size, "big") if length_size else b"\0\0\0\1") + part for part in parts)


def add_unit(codec: str, payload: bytes, length_size: int) -> Edit:
    """Adds one SEI unit before the first slice of a packet."""

    def edit(data: bytes) -> bytes:
        parts = units(data, length_size)
        at = next(k for k, part in enumerate(parts) if SLICES[codec](part[0]))
        return join([*parts[:at], HEADERS[codec] + payload, *parts[at:]], length_size)

    return edit


def make(folder: Path, codec: str, container: str, edits: dict[int, Edit] | Edit) -> tuple[str, str]:
    """The paths of a video of 36 frames, and of the same with edited packets."""
    encoder = {"h264": "libx264", "hevc": "libx265"}[codec]
    path = write_video(folder, "sound", Video(container, encoder, OPTIONS[codec], count=36, key_distance=12))
    return path, rewrite_packets(path, edits)


@pytest.mark.parametrize("container", ["mpegts", "mp4", "matroska"])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("lie", LIES)
def test_sei_that_lies_costs_no_frame(tmp_path, codec, container, lie):
    sound, odd = make(tmp_path, codec, container, add_unit(codec, LIES[lie], 0 if container == "mpegts" else 4))
    index, expected = scan_video(odd), plain_frames(sound)
    assert len(index.pts) == len(expected) == 36
    for numbers in (np.arange(36), np.array([5, 17, 30]), np.array([26, 3])):
        frames = VideoDecoder().decode(odd, index, numbers)
        for number, frame in zip(numbers.tolist(), frames, strict=True):
            assert plane_bytes(frame.owner) == expected[number][1], number


# FFmpeg's decoder of HEVC does not notice cut slices, with or without SEI.
@pytest.mark.parametrize(("codec", "damage"), [("h264", "no slice"), ("h264", "a cut slice"), ("hevc", "no slice")])
def test_damage_beside_sei_is_noticed(tmp_path, codec, damage):
    """The first P-frame of the second group has no picture, or half of one; later frames refer to it."""

    def edit(data: bytes) -> bytes:
        parts = units(data, 0)
        pictures = [part for part in parts if SLICES[codec](part[0])]
        others = [part for part in parts if not SLICES[codec](part[0])]
        cut = [part[: len(part) // 3] for part in pictures] if damage == "a cut slice" else []
        return join([*others, HEADERS[codec] + LIES["user data beyond its unit"], *cut], 0)

    _, odd = make(tmp_path, codec, "mpegts", {13: edit})
    index = scan_video(odd)
    assert len(VideoDecoder().decode(odd, index, np.arange(12))) == 12
    with pytest.raises(DecodeError, match="damaged near"):
        VideoDecoder().decode(odd, index, np.arange(12, 24))


def test_x264_version_and_recovery_points_stay():
    """FFmpeg decodes by them."""
    version = b"\x06\x05\x2e" + bytes(range(16)) + b"x264 - core 148 r1"
    recovery, other, picture = b"\x06\x06\x01\xc4\x80", b"\x06\x01\x01\x02\x80", b"\x65abc"
    packet = av.Packet(join([version, recovery, other, picture], 0))
    assert hide_sei(packet, "h264", None)
    assert units(bytes(packet), 0) == [version, recovery, b"\x0c" + other[1:], picture]
    assert not hide_sei(packet, "h264", None) and not hide_sei(packet, "vp9", None)
