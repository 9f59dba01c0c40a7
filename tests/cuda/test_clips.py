"""Clips of videos on a GPU: the bits of the CPU's loader, and of the conversion from YUV alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cuaug import DecodeOptions, Loader
from cuaug import transforms as T
from cuaug.codec.video.yuv import FORMATS, PlaneRows, describe_frames
from cuaug.devices.cuda import CudaExecutor
from cuaug.devices.workspace import Workspace
from cuaug.plan import Layout, Type
from cuaug.sources import Videos
from tests.cuda import equal_epochs
from tests.support.run_plans import plan_for
from tests.support.video.frames import RandomFrame, convert
from tests.support.video.videos import Video, write_video

pytestmark = pytest.mark.cuda

VIEW = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
CHAINS = [
    [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4), T.Normalize(0.5, 0.2)],
    [T.RandomCrop(32), T.GaussianBlur(3), T.RandomEqualize(0.5)],
    [T.MultiView([VIEW, VIEW]), T.PerFrame(T.ColorJitter(0.5))],
]


@pytest.mark.parametrize("name", ["h264 mp4", "h264 mp4 rotated", "h264 mp4 10 bits", "h264 mp4 gray", "mjpeg avi"])
@pytest.mark.parametrize("layout", ["NTCHW", "NCTHW"])
def test_clips_have_the_bits_of_the_cpu(tmp_path, name, layout):
    source = Videos([write_video(tmp_path, name)], frames=8, stride=3, clips_per_video=6)
    for chain in CHAINS:
        options: dict[str, Any] = {"batch_size": 3, "shuffle": True, "seed": 5, "layout": layout, "threads": 3}
        equal_epochs(source, chain, 3, **options)


@pytest.mark.parametrize(
    ("codec", "pixel_format"),
    [(codec, "yuv420p") for codec in ("libx264", "libx265", "libvpx-vp9", "libsvtav1")]
    + [(codec, "yuv420p10le") for codec in ("libx265", "libsvtav1")],
)
def test_nvdec_has_the_bits_of_ffmpeg(tmp_path, codec, pixel_format):
    """In the first epoch and when sessions are used again. A GPU that does not decode a format leaves it to FFmpeg."""
    pytest.importorskip("PyNvVideoCodec", exc_type=Exception, reason="PyNvVideoCodec or the video driver is missing")
    container = "webm" if codec == "libvpx-vp9" else "mp4"
    files = []
    for height, width in ((192, 256), (180, 322)):
        video = Video(container, codec, {}, pixel_format, height=height, width=width)
        files.append(write_video(tmp_path, f"{height}", video))
    source = Videos(files, frames=8, stride=3, clips_per_video=6)
    options: dict[str, Any] = {"batch_size": 3, "shuffle": True, "seed": 5, "threads": 3}
    nvdec = Loader(source, CHAINS[0], device="cuda", decode=DecodeOptions(video_decoder="nvdec"), **options)
    cpu = Loader(source, CHAINS[0], device="cpu", **options)
    for _ in range(4):
        for got, want in zip(nvdec, cpu, strict=True):
            assert torch.equal(got.images.cpu(), want.images)
    decoded = nvdec.stats().decoded_by
    nvdec.close()
    if (codec, pixel_format) == ("libx264", "yuv420p"):  # each GPU with NVDEC decodes it
        assert decoded == {"nvdec": 48}


def test_batches_of_clips_are_the_users_to_keep(tmp_path):
    """Their memory, and the pinned memory of later batches, is not theirs to overwrite."""
    source = Videos([write_video(tmp_path, "h264 mp4")], frames=8, clips_per_video=40)
    with Loader(source, CHAINS[0], batch_size=2, seed=1, device="cuda") as loader:
        kept = [(batch.images, batch.images.cpu()) for batch in loader]
        for images, first in kept:
            assert torch.equal(images.cpu(), first)
        for (_, first), batch in zip(kept, Loader(source, CHAINS[0], batch_size=2, seed=1, device="cpu"), strict=True):
            assert torch.equal(first, batch.images)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("cosited", [False, True])
def test_frames_of_every_format(name, cosited):
    """A part of large frames, in a plan that copies it."""
    rng, region = np.random.default_rng(0), (13, 21, 150, 400)
    frames = [RandomFrame.make(name, 181, 421, "bt709", False, rng, False).described(cosited) for _ in range(5)]
    want = np.stack([convert(frame, region) for frame in frames])
    plan = plan_for(*want)
    images = describe_frames(frames, region, [0] * 5, want.strides[1])
    rows = PlaneRows(images)
    memory = np.empty(rows.bytes, np.uint8)
    images = rows.copy(memory.ctypes.data)
    workspace = Workspace(torch.device("cuda", torch.cuda.current_device()))
    (planes,) = workspace.upload(memory)
    for plane in ("y", "u", "v"):
        images[plane] += np.where(images[plane] == 0, 0, planes.data_ptr() - memory.ctypes.data).astype(np.uint64)
    target = torch.zeros(want.shape, dtype=torch.uint8, device="cuda")
    CudaExecutor(plan.compile(Type.UINT8, Layout.HWC)).run(np.zeros(5, np.uint64), target, frames=images)
    assert np.array_equal(target.cpu().numpy(), want)
