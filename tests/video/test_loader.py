"""The loader's promises hold for clips of videos."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

import cuaug
from cuaug import ArgumentError, DecodeError, Loader, TransformError
from cuaug import transforms as T
from cuaug.codec.video.decoder import VideoDecoder
from cuaug.sources import Videos
from tests.support.video.loading import CHAIN, COUNT, FRAMES, H, W, load, videos, write


def decoded(path: str, numbers: torch.Tensor) -> np.ndarray:
    """(T, H, W, 3): the whole frames, by the loader's own decoder and converter."""
    (batch,) = load(Videos([path], frames=FRAMES), [])
    return batch.images[0].permute(0, 2, 3, 1).numpy()[numbers.numpy()]


def test_clips_have_the_promised_shape(paths):
    batches = load(videos(paths), shuffle=True)
    assert [batch.images.shape for batch in batches] == [(4, 5, 3, 24, 24), (2, 5, 3, 24, 24)]
    for batch in batches:
        assert (
            batch.clips.numbers.shape == batch.clips.timestamps.shape == batch.clips.padding.shape == (len(batch[1]), 5)
        )
        assert (batch.clips.numbers.diff(dim=1) == 3).all() and not batch.clips.padding.any()
        assert torch.allclose(batch.clips.timestamps, batch.clips.numbers.double() / 25)
        assert [Path(path).stem for path in batch.paths] == [str(int(label)) for label in batch.labels]
    across = load(videos(paths), shuffle=True, layout="NCTHW")
    for batch, other in zip(batches, across, strict=True):
        assert other.images.is_contiguous() and torch.equal(other.images, batch.images.transpose(1, 2))


def test_pixels_are_those_of_the_chain_on_decoded_frames(paths):
    """The region that the loader converts is that of the whole frames."""
    crop = [T.CenterCrop((31, 27)), T.Resize((16, 18)), T.RandomInvert(1.0)]
    for batch in load(videos(paths), crop, batch_size=2):
        for clip, path, numbers in zip(batch.images, batch.paths, batch.clips.numbers, strict=True):
            want = T.Compose(crop)(decoded(path, numbers)[None])
            assert np.array_equal(clip.permute(0, 2, 3, 1).numpy(), want[0])


def test_each_epoch_draws_other_clips(paths):
    with Loader(videos(paths), CHAIN, batch_size=6, seed=0) as loader:
        (one,), (two,) = list(loader), list(loader)
        loader.set_epoch(0)
        (again,) = loader
    assert not torch.equal(one.clips.numbers, two.clips.numbers)
    assert torch.equal(one.clips.numbers, again.clips.numbers) and torch.equal(one.images, again.images)
    assert one.digest == again.digest != two.digest


@pytest.fixture
def damaged(paths, tmp_path) -> list[str]:
    """The second file is none, the fourth is cut off."""
    none, cut = tmp_path / "none.mp4", tmp_path / "cut.mkv"
    none.write_bytes(b"this is no video" * 100)
    whole = tmp_path / "whole.mkv"
    write(whole, 3)
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return [paths[0], str(none), paths[2], str(cut)]


def test_damaged_videos(damaged):
    source = videos(damaged, frames=8, stride=5)
    with pytest.raises(DecodeError, match=r"none\.mp4.*not a video"):
        load(source)
    told = []
    (skipped,) = load(source, on_error="skip", error_callback=told.append)
    assert [Path(error.path).name for error in told] == ["none.mp4", "cut.mkv"] and len(skipped.images) == 2
    (replaced,) = load(source, on_error="replace")
    assert replaced.valid.tolist() == [True, False, True, False] and len(replaced.clips.numbers) == 4
    assert set(replaced.labels.tolist()) <= {0, 2}


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EMFILE])
def test_a_video_that_disappears_after_its_index_was_read(paths, monkeypatch, number):
    """It is damage of one sample; too many open files are not."""
    decode = VideoDecoder.decode

    def gone(self: VideoDecoder, file: str, *arguments: Any) -> Any:
        if file == paths[1]:
            raise OSError(number, os.strerror(number), file)
        return decode(self, file, *arguments)

    monkeypatch.setattr(VideoDecoder, "decode", gone)
    if number == errno.EMFILE:
        with pytest.raises(OSError, match="Too many open files"):
            load(videos(paths), on_error="skip")
        return
    with pytest.raises(DecodeError, match=r"1\.mp4.*No such file"):
        load(videos(paths))
    told: list[Any] = []
    batches = load(videos(paths), on_error="skip", error_callback=told.append)
    assert [error.path for error in told] == [paths[1]] and sum(len(batch.images) for batch in batches) == COUNT - 1


@pytest.fixture
def zeroed(paths, tmp_path) -> list[str]:
    """The second file's packet of frame 23, at 0.92 s, is zeros."""
    path = tmp_path / "zeroed.mp4"
    data = bytearray(Path(paths[1]).read_bytes())
    with av.open(paths[1]) as container:
        (packet,) = (p for p in container.demux(video=0) if p.pts is not None and round(p.pts * p.time_base * 25) == 23)
        data[packet.pos : packet.pos + packet.size] = bytes(packet.size)
    path.write_bytes(data)
    return [paths[0], str(path), *paths[2:4]]


def test_damage_within_a_video_names_its_path_and_time(zeroed, caplog):
    source = videos(zeroed, frames=8, sampling="uniform")  # frames 9, 12, ..., 30
    with pytest.raises(DecodeError, match=r"zeroed\.mp4' \(sample 1\): damaged near (0\.[89]|1\.0)\d+ s"):
        load(source)
    for mode, action in (("skip", "skipped"), ("replace", "replaced")):
        told = []
        caplog.clear()
        with Loader(source, CHAIN, batch_size=4, seed=0, on_error=mode, error_callback=told.append) as loader:
            (batch,) = loader
            assert loader.stats().failed == 1
        (error,) = told
        assert error.path == zeroed[1] and error.index == 1
        (near,) = re.findall(r"near (\d+\.\d+) s", error.cause)
        assert abs(float(near) - 23 / 25) <= 0.12
        (message,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
        assert message == f"{action}: {error}" and zeroed[1] in message
        assert len(batch.images) == (3 if mode == "skip" else 4) and 1 not in batch.labels.tolist()
    whole = videos(zeroed, frames=8, stride=1, sampling="uniform", clips_per_video=3)
    told = []
    load(whole, on_error="skip", error_callback=told.append)
    assert [error.index for error in told] == [4], "the other clips of the video are sound"


def test_targets_of_each_frame(paths):
    mask = np.zeros((5, H, W), np.uint8)
    boxes = np.zeros((5, 1, 4))
    for t in range(5):
        mask[t, 10 : 14 + t, 20:30] = 1
        boxes[t, 0] = [20, 10, 30, 14 + t]
    label = {"boxes": boxes, "mask": mask, "labels": np.array([3]), "name": "a"}
    source = Videos([(path, label) for path in paths], frames=5, sampling="uniform")
    (batch,) = load(source, [T.RandomCrop((40, 50)), T.RandomHorizontalFlip()], batch_size=6)
    for target in batch.labels:
        found = torch.as_tensor(target["boxes"]), torch.as_tensor(target["mask"])
        assert found[0].shape == (5, 1, 4) and found[1].shape == (5, 40, 50) and target["name"] == "a"
        for t in range(5):
            x0, y0, x1, y1 = found[0][t, 0].tolist()
            rows, columns = found[1][t].nonzero(as_tuple=True)
            assert (rows.min(), rows.max() + 1, columns.min(), columns.max() + 1) == (y0, y1, x0, x1)
    with pytest.raises(
        TransformError, match=r"boxes of a clip needs one entry for each of its 4 frames, not \(5, 1, 4\)"
    ):
        load(Videos([(path, label) for path in paths], frames=4), [T.RandomCrop(20)])


def test_targets_outside_of_a_dict_are_refused(paths):
    label = ({"boxes": np.full((1, 4), 3.0) * [1, 1, 4, 4]}, 5)
    with pytest.raises(TransformError, match="in a dict, one entry per frame, not in a tuple"):
        load(Videos([(path, label) for path in paths], frames=4), [T.RandomCrop(20)])


def test_settings_for_images_are_refused(paths):
    for how, name in (
        ({"stack": False}, "stack"),
        ({"decode": cuaug.DecodeOptions(mode="L")}, "mode"),
        ({"layout": "NCHW"}, "layout"),
    ):
        with pytest.raises(ArgumentError, match=name):
            Loader(videos(paths), CHAIN, **how)
    with pytest.raises(ArgumentError, match="layout must be one of 'NCHW', 'NHWC'"):
        Loader(["a.png"], CHAIN, layout="NTCHW")


@pytest.mark.parametrize("layout", ["NTCHW", "NCTHW"])
def test_a_batch_of_clips_is_shown_as_strips(paths, layout):
    label = {"boxes": np.full((5, 1, 4), [20.0, 10.0, 30.0, 20.0])}
    source = Videos([(path, label) for path in paths], frames=5)
    (batch,) = load(source, [T.Resize((20, 30))], batch_size=6, layout=layout)
    shown = cuaug.show(batch, side=60)
    assert shown.width > 5 * 60 and shown.height > 6 * 40
    assert "<img" in batch._repr_html_()
