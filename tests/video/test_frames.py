"""Frames are those that FFmpeg's decoder gives: packets may hold fields, frames that are never shown, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.bitstream import BitStreamFilterContext

from cuaug.codec.video import video_index
from cuaug.codec.video.decoder import VideoDecoder
from cuaug.codec.video.packets import _Bits, _count_vp9, nal_units, packet_check
from cuaug.codec.video.video_index import scan_video
from cuaug.errors import DecodeError
from tests.support.video.fields import encode_fields, random_frames
from tests.support.video.videos import Video, pictures, plain_frames, plane_bytes, rewrite_packets, write_video
from tests.video.test_exact import random_clip
from tests.video.test_packed import encode, kind, not_coded

MS = Fraction(1, 1000)
X264 = {"x264-params": "bframes=2:keyint=12:scenecut=0:b-adapt=0"}
# Codecs whose packets are not understood are always decoded.
DEMUXED = {
    "h264 mp4": Video("mp4", "libx264", X264),
    "h264 mkv": Video("matroska", "libx264", {"x264-params": "bframes=3:open-gop=1:b-pyramid=normal:slices=3"}),
    "h264 ts": Video("mpegts", "libx264", X264),
    "h264 10 bits": Video("mp4", "libx264", X264, "yuv422p10le"),
    "h264 edit list": Video("mp4", "libx264", X264, edits=((17, 73),)),
    "hevc mp4": Video("mp4", "libx265", {"x265-params": "bframes=4:keyint=30:slices=2:log-level=none"}),
    "hevc ts": Video("mpegts", "libx265", {"x265-params": "bframes=4:keyint=30:log-level=none"}),
    "vp8": Video("webm", "libvpx", {"deadline": "realtime", "cpu-used": "8"}),
    "vp9": Video("webm", "libvpx-vp9", {"lag-in-frames": "16", "auto-alt-ref": "1", "cpu-used": "8"}),
    "vp9 444": Video("matroska", "libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}, "yuv444p"),
    "av1": Video("mp4", "libsvtav1", {"preset": "12"}),
}


@pytest.fixture
def decoded(monkeypatch) -> list[str]:
    """The videos whose index was made by decoding."""
    found: list[str] = []
    decode = video_index._decode_all
    monkeypatch.setattr(video_index, "_decode_all", lambda path, delay: found.append(path) or decode(path, delay))
    return found


def check(path: str, expected: Sequence[tuple[int, list[bytes]]] | None = None) -> video_index.VideoIndex:
    """Compares the index with plain decoding, and all frames of random clips."""
    expected = plain_frames(path) if expected is None else expected
    index, rng = scan_video(path), np.random.default_rng(0)
    assert index.pts.tolist() == [pts for pts, _ in expected]
    singles = [np.array([number]) for number in range(len(expected))]
    for numbers in [*singles, *(random_clip(rng, len(expected)) for _ in range(10))]:
        frames = VideoDecoder().decode(path, index, numbers)
        for number, frame in zip(numbers.tolist(), frames, strict=True):
            assert plane_bytes(frame.owner) == expected[number][1], f"frame {number} of {numbers}"
    return index


def mux(path: Path, container: str, codec: str, packets: Iterable[tuple[int, bool, bytes]]) -> str:
    """Writes packets (time in ms, is key, data) as they are."""
    # By default Matroska's muxer joins hidden frames of VP9 with the next ones.
    with av.open(str(path), "w", format=container, options={"fflags": "-autobsf"}) as output:
        stream = output.add_mux_stream(codec, rate=25, width=96, height=64, pix_fmt="yuv420p")
        stream.time_base = MS
        for time, is_key, data in packets:
            packet = av.Packet(data)
            packet.pts, packet.dts, packet.time_base = time, time, MS
            packet.stream, packet.is_keyframe = stream, is_key
            output.mux(packet)
    return str(path)


@pytest.mark.parametrize("name", DEMUXED)
def test_indexes_of_common_streams_are_made_by_demuxing(tmp_path, decoded, name):
    path = write_video(tmp_path, name, DEMUXED[name])
    index = scan_video(path)
    assert index.pts.tolist() == [pts for pts, _ in plain_frames(path)] and index.one_per_packet
    assert decoded == []


@pytest.mark.parametrize("distance", [0, 1, 20])  # ms from a frame to the hidden one behind it
def test_hidden_frames_of_vp8(tmp_path, distance):
    encoder = av.CodecContext.create("libvpx", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = 96, 64, "yuv420p", MS
    encoder.gop_size, encoder.thread_count = 8, 1
    encoder.options = {"lag-in-frames": "0", "auto-alt-ref": "0", "cpu-used": "4"}
    encoded, hidden = [], {5, 6, 12, 23}
    for time, image in enumerate(pictures(30, 64, 96)):
        frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format="yuv420p")
        frame.pts, frame.time_base = 40 * time, MS
        encoded += encoder.encode(frame)
    encoded += encoder.encode(None)
    packets = []
    for number, packet in enumerate(encoded):
        data, is_hidden = bytearray(packet), number in hidden
        data[0] &= 0xEF if is_hidden else 0xFF  # show_frame
        time = packets[-1][0] + distance if is_hidden else packet.pts
        packets.append((time, packet.is_keyframe, bytes(data)))
    index = check(mux(tmp_path / "hidden.webm", "webm", "vp8", packets))
    assert len(index.pts) == 26 and not index.one_per_packet and len(index.keys) == 4


def packets_of(path: str, bitstream_filter: str | None = None) -> list[list[bytes]]:
    """The packets of a video, each in the parts that a filter makes of it."""
    with av.open(path) as source:
        stream = source.streams.video[0]
        chain = None if bitstream_filter is None else BitStreamFilterContext(bitstream_filter, stream)
        packets = [packet for packet in source.demux(stream) if packet.size]
        return [[bytes(p) for p in ([packet] if chain is None else chain.filter(packet))] for packet in packets]


def superframe(parts: Sequence[bytes]) -> bytes:
    """Frames of VP9 in one packet (bitstream specification, annex B)."""
    marker = bytes([0b11001000 | len(parts) - 1])
    return b"".join(parts) + marker + b"".join(len(part).to_bytes(2, "little") for part in parts) + marker


@pytest.mark.parametrize("apart", [True, False])
def test_hidden_frames_of_vp9(tmp_path, decoded, apart):
    options = {"deadline": "realtime", "cpu-used": "8", "error-resilient": "default"}
    path = write_video(tmp_path, "whole", Video("matroska", "libvpx-vp9", options, count=40, key_distance=8))
    frames = [bytearray(data) for (data,) in packets_of(path)]
    packets: list[tuple[int, bool, bytes]] = []
    for number in (8, 24):  # key frames
        assert frames[number][0] & 0b1110 == 0b0010
        frames[number][0] &= 0b11111101  # show_frame
    for number, data in enumerate(map(bytes, frames)):
        if not apart and number in (9, 25):
            packets[-1] = (40 * number, True, superframe([packets[-1][2], data]))
        else:
            packets.append((40 * number, number % 8 == 0, data))
    index = check(mux(tmp_path / "hidden.mkv", "matroska", "vp9", packets))
    assert len(index.pts) == 38 and index.one_per_packet is not apart and bool(decoded) is apart


def test_hidden_frames_of_av1(tmp_path):
    """Encoders put a hidden frame and the next one that is shown in one packet; here they are apart."""
    path, packets = write_video(tmp_path, "whole", Video("matroska", "libsvtav1", {"preset": "12"})), []
    for number, parts in enumerate(packets_of(path, "av1_frame_split")):
        packets += [(40 * number + k, number % 30 == 0 and k == 0, part) for k, part in enumerate(parts)]
    assert len(packets) > 90
    index = check(mux(tmp_path / "split.mkv", "matroska", "av1", packets))
    assert len(index.pts) == 90 and not index.one_per_packet


@pytest.mark.parametrize("container", ["matroska", "mp4", "mpegts"])
@pytest.mark.parametrize("distance", [None, 0, 20])  # ms from a field to the next; None: both are in one packet
def test_fields_of_h264(tmp_path, container, distance):
    if distance == 0 and container != "matroska":
        pytest.skip("the container takes no packets of one time")
    frames, packets = random_frames(30), []
    for number, (first, second) in enumerate(encode_fields(frames)):
        time, is_key = 40 * number, number % 8 == 0
        both = [(time, is_key, first), (time + (distance or 0), False, second)]
        packets += both if distance is not None else [(time, is_key, first + second)]
    path = mux(tmp_path / "fields", container, "h264", packets)
    plain = plain_frames(path)
    assert [planes for _, planes in plain] == [[plane.tobytes() for plane in frame] for frame in frames]
    assert check(path, plain).keys.tolist() == [pts for pts, _ in plain[::8]]


def test_damage_to_one_field_is_noticed(tmp_path):
    packets = []
    for number, (first, second) in enumerate(encode_fields(random_frames(20))):
        if number == 11:
            first = first[: len(first) // 2]
        packets += [(40 * number, number % 8 == 0, first), (40 * number + 20, False, second)]
    path = mux(tmp_path / "fields.mkv", "matroska", "h264", packets)
    index = scan_video(path)
    assert len(VideoDecoder().decode(path, index, np.arange(10))) == 10
    with pytest.raises(DecodeError, match=r"near 0\.\d+ s"):
        VideoDecoder().decode(path, index, np.array([11]))


@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("container", ["mp4", "matroska", "avi"])
def test_pictures_of_mpeg4_that_are_not_coded(tmp_path, container, b_frames):
    """Encoders write them in place of frames that are equal to the one before, and FFmpeg gives none for them."""
    encoded = encode(b_frames)
    times = sorted(packet.pts for packet in encoded)
    path = tmp_path / "not_coded"
    with av.open(str(path), "w", format=container) as output:
        stream = output.add_mux_stream("mpeg4", rate=25, width=96, height=64, pix_fmt="yuv420p")
        stream.time_base = Fraction(1, 25)
        for number, packet in enumerate(encoded):
            # Without a reference frame FFmpeg gives B-frames other times, in no order: they are refused.
            is_empty = number % 12 in (4, 5) and (kind(bytes(packet)) == "B" or not b_frames)
            data = not_coded(bytes(packet)) if is_empty else bytes(packet)
            copy = av.Packet(data)
            copy.pts, copy.dts = packet.pts, times[number] - 2
            copy.time_base, copy.stream, copy.is_keyframe = Fraction(1, 25), stream, packet.is_keyframe
            output.mux(copy)
    index = check(str(path))
    assert len(encoded) - 7 < len(index.pts) < len(encoded) - 1


def with_reordering(unit: bytes, frames: int | None) -> bytes:
    """A parameter set of H.264's Main profile that states this reordering; None: none (7.3.2.1.1 and E.1.1)."""
    assert unit[1] == 77
    bits = _Bits(unit[1:])
    length = bits._left
    bits.u(24), [bits.ue() for _ in range(5)], bits.u(1), bits.ue(), bits.ue(), bits.u(3)
    text = f"{bits._value:0{length}b}"[: length - bits._left]
    if frames is not None:
        code = f"{frames + 1:b}"
        text += "1" + "0" * 8 + "11" + "1" * 4 + "0" * (len(code) - 1) + code + "00101"
    else:
        text += "0"
    text += "1"
    text += "0" * (-len(text) % 8)
    return unit[:1] + int(text, 2).to_bytes(len(text) // 8, "big")


@pytest.mark.parametrize("stated", [None, 0])
@pytest.mark.parametrize("container", ["matroska", "mpegts"])
def test_h264_that_does_not_state_its_reordering(tmp_path, container, stated):
    """FFmpeg guesses from the first frames, which are not reordered here, and drops some of the first B-frames."""
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.thread_count = 96, 64, "yuv420p", 1
    encoder.time_base, encoder.framerate = MS, Fraction(25)
    params = "bframes=3:b-adapt=0:b-pyramid=normal:keyint=12:min-keyint=12:scenecut=0:repeat-headers=1"
    encoder.options = {"profile": "main", "x264-params": params}
    packets: list[Any] = []
    for number, image in enumerate(pictures(48, 64, 96)):
        frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format="yuv420p")
        frame.pts, frame.time_base = 40 * number, MS
        if 0 < number < 12:
            frame.pict_type = av.video.frame.PictureType.P
        packets += encoder.encode(frame)
    packets += encoder.encode(None)

    def write(name: str, edit: Callable[[bytes], bytes]) -> str:
        with av.open(str(tmp_path / name), "w", format=container) as output:
            stream = output.add_mux_stream("h264", rate=25, width=96, height=64, pix_fmt="yuv420p")
            stream.time_base = MS
            for packet in packets:
                data = bytes(packet)
                units = [edit(data[start:end].rstrip(b"\0")) for start, end in nal_units(data, "h264", b"")]
                copy = av.Packet(b"".join(b"\0\0\0\1" + unit for unit in units if unit[0] & 31 != 6))
                copy.pts, copy.dts, copy.time_base = packet.pts, packet.dts, MS
                copy.is_keyframe, copy.stream = packet.is_keyframe, stream
                output.mux(copy)
        return str(tmp_path / name)

    sound = plain_frames(write("sound", lambda unit: unit))
    path = write("edited", lambda unit: with_reordering(unit, stated) if unit[0] & 31 == 7 else unit)
    assert len(sound) == 48 > len(plain_frames(path)), "FFmpeg drops none"
    assert check(path, sound).delay == 2


def write_recordings(folder: Path, container: str, start: int, x264: str, skip: int = 0) -> str:
    """Two recordings in one file: the first begins at 3 s, the second at `start` ms, without `skip` packets."""
    data = b""
    for number, time in enumerate((3000, start)):
        video = Video(container, "libx264", {"x264-params": x264}, count=24, time_base=MS, muxer={})
        options = {"mpegts_copyts": "1"} if container == "mpegts" else {}
        times = tuple(time + 40 * k for k in range(24))
        path = write_video(folder, str(number), Video(**{**video.__dict__, "times": times, "muxer": options}))
        if number and skip:
            with av.open(path) as source:
                packets = [(p.pts, p.dts, p.is_keyframe, bytes(p)) for p in source.demux(video=0) if p.size]
                base = source.streams.video[0].time_base
                path = str(folder / "cut.ts")
                with av.open(path, "w", format=container, options=options) as output:
                    stream = output.add_stream_from_template(source.streams.video[0])
                    for pts, dts, is_key, packet_data in packets[skip:]:
                        packet = av.Packet(packet_data)
                        packet.pts, packet.dts, packet.time_base = pts, dts, base
                        packet.stream, packet.is_keyframe = stream, is_key
                        output.mux(packet)
        data += Path(path).read_bytes()
    joined = folder / "joined"
    joined.write_bytes(data)
    return str(joined)


@pytest.mark.parametrize("container", ["mpegts", "matroska"])
@pytest.mark.parametrize("start", [1000, 3020, 3900])
@pytest.mark.parametrize("x264", ["bframes=0:keyint=8", "bframes=2:keyint=8", "keyint=1"])
def test_a_clock_that_goes_back_is_refused(tmp_path, container, start, x264):
    with pytest.raises(DecodeError, match=r"go back from 3\.9\d+ to \d\.\d+ s at frame 2\d, .*joined by cat"):
        scan_video(write_recordings(tmp_path, container, start, x264))


@pytest.mark.parametrize("distance", [8, 48])
def test_a_clock_that_goes_back_to_a_group_without_its_beginning(tmp_path, distance):
    path = write_recordings(tmp_path, "mpegts", 3020, f"bframes=0:keyint={distance}:scenecut=0", skip=2)
    with pytest.raises(DecodeError, match="timestamp"):
        scan_video(path)


@pytest.mark.parametrize("container", ["mpegts", "matroska"])
def test_a_clock_that_jumps_ahead(tmp_path, container):
    path = write_recordings(tmp_path, container, 5 * 3_600_000, "bframes=0:keyint=8")
    assert len(check(path).pts) == 48


def test_a_recording_that_begins_within_a_group(tmp_path):
    """The frames before the first key frame cannot be decoded: FFmpeg gives none."""
    path = write_recordings(tmp_path, "mpegts", 3000, "bframes=0:keyint=8:scenecut=0", skip=3)
    cut = str(tmp_path / "cut.ts")
    assert Path(path).exists() and len(check(cut).pts) == 16


@pytest.mark.parametrize("name", ["vp8", "vp9"])
def test_a_file_that_begins_within_a_group(tmp_path, name):
    path = write_video(tmp_path, name, DEMUXED[name])
    with av.open(path) as source:
        packets = [(p.pts, p.is_keyframe, bytes(p)) for p in source.demux(video=0) if p.size]
    first = next(number for number, (_, is_key, _) in enumerate(packets) if number and is_key)
    cut = mux(tmp_path / "cut.mkv", "matroska", name, [(40 * k, *packets[k][1:]) for k in range(3, len(packets))])
    check(cut, [(40 * (first + k), planes) for k, (_, planes) in enumerate(plain_frames(path)[first:])])


@pytest.mark.parametrize("profile, hidden", [(0, 0b10000101), (1, 0b10100101), (2, 0b10010101), (3, 0b10110010)])
def test_headers_of_vp9(profile, hidden):
    """Profile 3 has a bit more. The frames are hidden, shown, and shown again from before."""
    shown, again = (hidden | 1, hidden | 4) if profile == 3 else (hidden | 2, hidden | 8)
    counts = [_count_vp9(bytes([header, 0])) for header in (hidden, shown, again)]
    assert counts == [0, 1, 1]


def test_two_frames_of_one_time_are_refused(tmp_path):
    path = write_video(tmp_path, "vp8", DEMUXED["vp8"])
    packets = [(40 * (number // 2), number == 0, data) for number, (data,) in enumerate(packets_of(path))]
    with pytest.raises(DecodeError, match="or that of another frame"):
        scan_video(mux(tmp_path / "pairs.mkv", "matroska", "vp8", packets))


def test_frames_that_share_a_packet_of_a_transport_stream(tmp_path):
    """FFmpeg splits them, and knows no time of the second one."""
    path, packets = write_video(tmp_path, "ts", Video("mpegts", "libx264", {"x264-params": "bframes=0"}, count=40)), []
    datas = [data for (data,) in packets_of(path)]
    packets = [(40 * number, number == 0, datas[number] + datas[number + 1]) for number in range(0, 40, 2)]
    joined = mux(tmp_path / "pairs.ts", "mpegts", "h264", packets)
    with av.open(joined) as source:
        assert [packet.pts is None for packet in source.demux(video=0)][:4] == [False, True] * 2
    with pytest.raises(DecodeError, match="has no timestamp"):
        scan_video(joined)


def test_damaged_packets_do_not_shorten_a_video_that_is_decoded(tmp_path):
    path = write_video(tmp_path, "whole", Video("matroska", "mpeg4", {"bf": "0"}, key_distance=12))
    whole = scan_video(path)
    index = scan_video(rewrite_packets(path, {40: lambda data: b"\xff" * len(data)}))
    assert index.pts[-1] == whole.pts[-1] and len(index.pts) >= 89


@pytest.mark.parametrize("name", DEMUXED)
def test_damaged_packets_are_not_certain(tmp_path, name):
    """FFmpeg decides whether they give a frame."""
    with video_index.open_container(write_video(tmp_path, name, DEMUXED[name])) as container:
        stream = video_index.video_stream(container)
        check, damaged = packet_check(stream), [b"", b"\0", b"\0\0\1"]
        for packet in container.demux(stream):
            if packet.size:
                assert video_index._is_certain(check, packet)
                damaged += [bytes(packet.size)] + [b"\xff" * packet.size] * (name != "vp8")
        assert not any(video_index._is_certain(check, data) for data in damaged)


def test_hevc_that_may_hide_pictures_is_not_certain(tmp_path):
    path = write_video(tmp_path, "hevc", DEMUXED["hevc ts"])
    packets = [data for (data,) in packets_of(path)]

    def is_certain(number: int, kinds: range, at: int, bits: int) -> bool:
        """The answer to a packet whose first unit of these kinds is edited."""
        with video_index.open_container(path) as container:
            check = packet_check(video_index.video_stream(container))
            assert all(check(data) for data in packets[:number])
            edited = bytearray(packets[number])
            starts = [start for start, _ in nal_units(edited, "hevc", b"")]
            edited[next(start for start in starts if edited[start] >> 1 & 63 in kinds) + at] ^= bits
            return check(bytes(edited))

    slices, picture, keys = range(32), range(34, 35), range(19, 21)
    assert is_certain(0, slices, 2, 0) and is_certain(3, slices, 2, 0)
    assert not is_certain(0, picture, 2, 0b10000)  # output_flag_present_flag, behind two numbers and a flag
    assert not is_certain(0, keys, 2, 0x40)  # no_output_of_prior_pics_flag
    assert not is_certain(0, keys, 0, 2 * (21 ^ 19))  # the first picture may need others
    assert not is_certain(3, slices, 2, 0x80)  # the first slice is missing
    assert not is_certain(3, slices, 0, 2 * 36)  # the end of a sequence


@pytest.mark.parametrize("name, kind, mask", [("h264 ts", 7, 31), ("hevc ts", 33 << 1, 126)])
def test_streams_that_change_their_parameters_or_join_pictures_are_not_certain(tmp_path, name, kind, mask):
    """The decoder begins anew there, and may drop frames. Nor are packets certain that hold other than one picture."""
    path = write_video(tmp_path, name, DEMUXED[name])
    first, second, third = (data for (data,) in packets_of(path)[:3])
    units = [first[start:end] for start, end in nal_units(first, name[:4], b"")]
    parameters = next(unit for unit in units if unit[0] & mask == kind).rstrip(b"\0")
    with video_index.open_container(path) as container:
        check = packet_check(video_index.video_stream(container))
        assert check(first) and check(b"\0\0\1" + parameters + second)
        assert not check(second + third) and not check(b"\0\0\1" + parameters)
        assert not check(b"\0\0\1" + parameters[:-1] + bytes([parameters[-1] ^ 6]) + third)
