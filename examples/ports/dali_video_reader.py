"""DALI's video pipeline: sequences of 300-frame videos, with a stride, labeled by folder.

`make_loader` replaces this pipeline and its `DALIGenericIterator`; it also reads videos of variable frame rates, and
decodes on CPUs:

    @pipeline_def(batch_size=8, num_threads=2, device_id=0)
    def pipeline(folder):
        clips, labels = fn.readers.video(device="gpu", file_root=folder, sequence_length=16, stride=4, step=16,
                                         random_shuffle=True, initial_fill=64, name="reader")
        clips = fn.random_resized_crop(clips, size=(112, 112))
        mirror = fn.random.coin_flip()
        clips = fn.crop_mirror_normalize(clips, mirror=mirror, mean=MEAN, std=STD, output_layout="FCHW")
        return clips, labels

    python examples/ports/dali_video_reader.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cuaug
from cuaug import transforms as T

MEAN, STD = (0.45, 0.45, 0.45), (0.225, 0.225, 0.225)
VIDEO_FRAMES, VIDEOS_PER_CLASS, CLASSES = 300, 2, 2
SEQUENCE_LENGTH, STRIDE, STEP = 16, 4, 16


def make_loader(folder: Path) -> cuaug.Loader:
    """Every sequence once an epoch, in another order; shuffled over the whole set, not within `initial_fill`."""
    source = cuaug.sources.Videos(folder, frames=SEQUENCE_LENGTH, stride=STRIDE, sampling="all", step=STEP)
    chain = [T.RandomResizedCrop(112), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)]
    return cuaug.Loader(source, chain, batch_size=8, shuffle=True, seed=0, device="cpu")


def write_video(path: Path, color: int) -> None:
    """A square of one color that moves over noise."""
    import av

    frame = np.random.default_rng(color).integers(60, 100, (48, 64, 3), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = 64, 48, "yuv420p", 30
        for number in range(VIDEO_FRAMES):
            image = frame.copy()
            left = number % 48
            image[16:32, left : left + 16] = color
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for label in range(CLASSES):
            (Path(folder) / f"class{label}").mkdir()
            for number in range(VIDEOS_PER_CLASS):
                write_video(Path(folder) / f"class{label}" / f"{number}.mp4", 120 * label + 60)
        starts: list[tuple[str, int]] = []
        with make_loader(Path(folder)) as loader:
            for batch in loader:
                assert batch.images.shape[1:] == (SEQUENCE_LENGTH, 3, 112, 112)
                assert [f"class{label}" for label in batch.labels.tolist()] == [
                    Path(p).parent.name for p in batch.paths
                ]
                numbers = batch.clips.numbers  # DALI's enable_frame_num="sequence"
                assert torch.equal(numbers, numbers[:, :1] + STRIDE * torch.arange(SEQUENCE_LENGTH))
                starts += zip(batch.paths, numbers[:, 0].tolist(), strict=True)
                print("clips", tuple(batch.images.shape), batch.images.dtype, batch.labels.tolist())
        last = VIDEO_FRAMES - (SEQUENCE_LENGTH - 1) * STRIDE
        assert len(set(starts)) == len(starts) == CLASSES * VIDEOS_PER_CLASS * len(range(0, last, STEP))


if __name__ == "__main__":
    main()
