"""SPDL: a pipeline of threads; FFmpeg decodes, crops, scales and flips in one filter graph."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from baseline import random_crop_box

from peers.task import Batch, Contender, Task

__all__ = ["Spdl"]


class Shuffled:
    """The samples, in a new random order at each iteration."""

    def __init__(self, samples: Sequence[tuple[str, int]]) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(random.sample(self.samples, len(self.samples)))


class Spdl(Contender):
    """A batch becomes one tensor, as SPDL's documentation advises. The pipeline continues across epochs."""

    name, package, module, chains = "SPDL", "spdl", "spdl.io", ("classification",)
    ahead = 12  # each stage has a queue; 9 batches were ready after a pause

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from spdl.pipeline import PipelineBuilder

        self.pipeline = (
            PipelineBuilder()
            .add_source(Shuffled(task.samples), continuous=True)
            .pipe(self.decode, concurrency=task.threads)
            .aggregate(task.batch_size)
            .pipe(self.collate)
            .add_sink(2)
            .build(num_threads=task.threads, max_failures=0)
        )
        self.pipeline.start()

    def decode(self, sample: tuple[str, int]) -> tuple[Any, int]:
        import spdl.io

        path, label = sample
        packets = spdl.io.demux_image(path)
        left, top, right, bottom = random_crop_box(packets.width, packets.height)
        size = self.task.size
        steps = [f"crop={right - left}:{bottom - top}:{left}:{top}", f"scale={size}:{size}:flags=bilinear"]
        if random.random() < 0.5:
            steps.append("hflip")
        return spdl.io.decode_packets(packets, ",".join([*steps, "format=pix_fmts=rgb24"])), label

    def collate(self, batch: list[tuple[Any, int]]) -> Batch:
        import spdl.io

        frames, labels = (list(column) for column in zip(*batch, strict=True))
        pixels = spdl.io.to_torch(spdl.io.convert_frames(frames))  # uint8 [N, H, W, C]
        images = torch.empty(len(frames), 3, *pixels.shape[1:3])
        for channel, (mean, std) in enumerate(zip(self.task.mean, self.task.std, strict=True)):
            torch.mul(pixels[..., channel], 1 / (255 * std), out=images[:, channel]).sub_(mean / std)
        return images, torch.tensor(labels)

    def epoch(self) -> Iterator[Batch]:
        return self.pipeline.get_iterator(timeout=300)

    def close(self) -> None:
        self.pipeline.stop()

    @classmethod
    def missing(cls) -> str | None:
        import_error = super().missing()
        if import_error is not None:
            return import_error
        import spdl.io.utils

        try:  # the wheel loads FFmpeg's libraries at first use
            spdl.io.utils.get_ffmpeg_log_level()
        except RuntimeError as error:
            return str(error)
        return None
