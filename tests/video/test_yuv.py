"""Frames to RGB: the kernel against libswscale, and bit by bit against NumPy."""

from __future__ import annotations

from unittest import mock

import av
import numpy as np
import pytest
from av.video.reformatter import Interpolation
from hypothesis import given
from hypothesis import strategies as st

from cuaug._runtime.native import BEST_ISA
from cuaug.codec.sniff import orient_array
from cuaug.codec.video import yuv
from cuaug.codec.video.decoder import VideoDecoder
from cuaug.codec.video.video_index import scan_video
from cuaug.codec.video.yuv import FORMATS, convert_frames, describe_frames
from tests.references.yuv import WEIGHTS, to_rgb
from tests.support.codec.jpeg_crops import draw_region, slice_region
from tests.support.video.frames import RandomFrame, convert, swscale
from tests.support.video.videos import VIDEOS, Video, write_video

#: SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT beside bilinear chroma: libswscale's most exact settings.
INTERPOLATION = int(Interpolation.BILINEAR) | 0x42000
OTHER_CODECS = {
    "mpeg1 mkv": Video("matroska", "mpeg1video", count=5),
    "h264 mp4 bt2020": Video("mp4", "libx264", {"x264-params": "colormatrix=bt2020nc"}, count=5),
    "h264 mp4 full range": Video("mp4", "libx264", {"x264-params": "fullrange=on"}, "yuv420p10le", count=5),
    "msmpeg4 avi": Video("avi", "msmpeg4", count=5),
    "wmv2 avi": Video("avi", "wmv2", count=5),
    "vp8 webm": Video("webm", "libvpx", count=5),
}

seeds = st.integers(0, 2**32 - 1)
sizes = st.tuples(st.integers(1, 20), st.sampled_from([1, 2, 3, 15, 16, 63, 64, 65, 66, 127, 128, 129, 200]))
names = st.sampled_from(sorted(FORMATS))
matrices = st.sampled_from(sorted(WEIGHTS))


def reference(frame: RandomFrame, cosited: bool) -> np.ndarray:
    name = frame.frame.format.name
    full_range = frame.full_range or name.startswith(("yuvj", "gray"))
    return to_rgb(frame.luma, frame.u, frame.v, FORMATS[name].bits, frame.matrix, full_range, cosited)


@given(names, sizes, matrices, st.booleans(), st.booleans(), st.booleans(), seeds)
def test_every_size_has_the_bits_of_the_reference(name, size, matrix, full_range, cosited, legal, seed):
    """With each instruction set."""
    frame = RandomFrame.make(name, *size, matrix, full_range, np.random.default_rng(seed), legal)
    for isa in range(BEST_ISA + 1):
        with mock.patch.object(yuv, "BEST_ISA", isa):
            np.testing.assert_array_equal(convert(frame.described(cosited)), reference(frame, cosited))


@given(names, sizes, st.booleans(), st.integers(1, 8), seeds, st.data())
def test_regions_of_turned_frames_are_parts_of_the_whole(name, size, cosited, orientation, seed, data):
    frame = RandomFrame.make(name, *size, "bt709", False, np.random.default_rng(seed), True)
    whole = orient_array(reference(frame, cosited), orientation)
    height, width, _ = whole.shape
    region = data.draw(draw_region(height, width))
    part = convert(frame.described(cosited), region, orientation)
    np.testing.assert_array_equal(part, slice_region(whole, region))


@pytest.mark.parametrize("cosited", [False, True], ids=["between", "cosited"])
@pytest.mark.parametrize("full_range", [False, True], ids=["limited", "full"])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("matrix", WEIGHTS)
def test_within_one_level_of_libswscale(name, matrix, full_range, cosited):
    rng = np.random.default_rng(0)
    for height, width in ((64, 128), (16, 150), (2, 2)):
        full_range = full_range or name.startswith("yuvj")  # libswscale takes the range from the name
        frame = RandomFrame.make(name, height, width, matrix, full_range, rng, True)
        difference = np.abs(convert(frame.described(cosited)).astype(int) - swscale(frame, cosited))
        assert difference.max() <= 1


@pytest.mark.parametrize("name", [*VIDEOS, *OTHER_CODECS])
def test_decoded_frames_are_within_one_level_of_libswscale(name, tmp_path):
    """Here FFmpeg's decoders say where the chroma of a codec lies, and which matrix and range a stream has."""
    if name == "h264 avi b-frames":
        pytest.skip("has no index")
    path = write_video(tmp_path, name, OTHER_CODECS.get(name))
    with av.open(path) as container:
        expected = next(container.decode(video=0)).reformat(format="rgb24", interpolation=INTERPOLATION).to_ndarray()
    (frame,) = VideoDecoder().decode(path, scan_video(path), np.array([0]))
    assert np.abs(convert(frame).astype(int) - expected).max() <= 1


@pytest.mark.parametrize("cosited", [False, True])
@pytest.mark.parametrize("width", [511, 514, 1025])
@pytest.mark.parametrize("name", ["yuv420p", "yuv422p10le", "yuv444p", "nv12"])
def test_rows_longer_than_a_chunk(name, width, cosited):
    """The CPU kernel computes 512 pixels of a row at once, from an even column on."""
    frame = RandomFrame.make(name, 3, width, "bt709", False, np.random.default_rng(width), False)
    whole = reference(frame, cosited)
    np.testing.assert_array_equal(convert(frame.described(cosited)), whole)
    np.testing.assert_array_equal(convert(frame.described(cosited), (1, 7, 3, width - 1)), whole[1:3, 7 : width - 1])


def test_a_frame_of_a_clip_does_not_touch_its_neighbors():
    rng = np.random.default_rng(1)
    frames = [RandomFrame.make("yuv420p", 9, 17, "bt601", False, rng, False) for _ in range(3)]
    together = np.zeros((3, 9, 17, 3), np.uint8)
    addresses = [image.ctypes.data for image in together]
    convert_frames(describe_frames([frame.described() for frame in frames], (0, 0, 9, 17), addresses, 17 * 3))
    for frame, image in zip(frames, together, strict=True):
        np.testing.assert_array_equal(image, reference(frame, False))
