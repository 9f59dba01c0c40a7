"""Loaders of video clips: cuaug, and a torch `DataLoader` around torchcodec, decord2 and PyAV.

All decode with one FFmpeg thread in each of two threads or workers. The peers crop, resize (bilinear, antialiased,
uint8), flip and normalize in torch, with one draw for all frames of a clip, as torchvision does.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from peers import random_crop_box

__all__ = ["CLIP_CONTENDERS", "ClipContender", "ClipTask"]

MEAN, STD = (0.45, 0.45, 0.45), (0.225, 0.225, 0.225)


@dataclass(frozen=True)
class ClipTask:
    """Clips to float32 [N, T, 3, size, size]: RandomResizedCrop, flip, Normalize.

    Attributes:
        clips: path, and number of the first frame.
        stride: distance of two frames of a clip.
        uniform: all clips lie in the middle of their videos, as cuaug's sampling="uniform" takes them.
    """

    clips: tuple[tuple[str, int], ...]
    stride: int
    uniform: bool = False
    frames: int = 16
    batch_size: int = 4
    size: int = 112
    workers: int = 2

    def numbers(self, index: int) -> list[int]:
        """Frame numbers of a clip."""
        start = self.clips[index][1]
        return list(range(start, start + self.frames * self.stride, self.stride))


class ClipContender(ABC):
    """A loader of clips under test; it may run any number of epochs."""

    package: ClassVar[str]  # distribution whose version is reported
    module: ClassVar[str]  # import that must succeed

    def __init__(self, task: ClipTask) -> None:
        self.task = task

    @abstractmethod
    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """One shuffled pass over the clips: (float32 [N, T, 3, size, size], integer [N]) per batch."""

    @abstractmethod
    def frames(self, index: int) -> Tensor:
        """The whole frames of a clip, uint8 [T, 3, H, W]."""

    @abstractmethod
    def close(self) -> None:
        """Stop threads and worker processes."""


class Cuaug(ClipContender):
    package, module = "cuaug", "av"

    def __init__(self, task: ClipTask) -> None:
        super().__init__(task)
        from cuaug import transforms as T

        crop = [T.RandomResizedCrop(task.size), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)]
        self.loader = self._loader(crop, range(len(task.clips)), batch_size=task.batch_size, shuffle=True)

    def _loader(self, chain: list[Any], indices: Any, **arguments: Any) -> Any:
        import cuaug

        # The range of a clip leaves "random" a single place.
        span = (self.task.frames - 1) * self.task.stride + 1
        clips = [(*self.task.clips[index], index) for index in indices]
        entries = [
            (path, index) if self.task.uniform else (path, index, start, start + span) for path, start, index in clips
        ]
        sampling = "uniform" if self.task.uniform else "random"
        source = cuaug.sources.Videos(entries, frames=self.task.frames, stride=self.task.stride, sampling=sampling)
        return cuaug.Loader(source, chain, threads=self.task.workers, dtype=torch.float32, **arguments)

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.loader:
            starts = [self.task.clips[index][1] for index in batch.labels.tolist()]
            if batch.clips.numbers[:, 0].tolist() != starts:
                raise AssertionError(f"clips begin at {batch.clips.numbers[:, 0].tolist()}, not at {starts}")
            yield batch.images, batch.labels

    def frames(self, index: int) -> Tensor:
        with self._loader([], [index], batch_size=1, shuffle=False) as loader:
            (batch,) = loader
        return (batch.images[0] * 255).round().to(torch.uint8)

    def close(self) -> None:
        self.loader.close()


class _Workers(ClipContender, Dataset[tuple[Tensor, int]]):
    """A `DataLoader` with worker processes; subclasses decode."""

    def __init__(self, task: ClipTask) -> None:
        super().__init__(task)
        self._loader = DataLoader(
            self, batch_size=task.batch_size, shuffle=True, num_workers=task.workers, persistent_workers=True
        )
        self._mean, self._std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))

    def __len__(self) -> int:
        return len(self.task.clips)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        frames = self.frames(index)
        size = self.task.size
        left, top, right, bottom = random_crop_box(frames.shape[-1], frames.shape[-2])
        crop = frames[..., top:bottom, left:right]
        clip = functional.interpolate(crop, (size, size), mode="bilinear", antialias=True)
        if random.random() < 0.5:
            clip = clip.flip(-1)
        return clip.float().div_(255).sub_(self._mean).div_(self._std), index

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self._loader)

    def close(self) -> None:
        del self._loader


class TorchCodec(_Workers):
    package, module = "torchcodec", "torchcodec.decoders"

    def frames(self, index: int) -> Tensor:
        from torchcodec.decoders import VideoDecoder

        # "approximate" spares it a scan of the file; the frame rates here are constant.
        decoder = VideoDecoder(self.task.clips[index][0], num_ffmpeg_threads=1, seek_mode="approximate")
        return decoder.get_frames_at(self.task.numbers(index)).data


class Decord(_Workers):
    package, module = "decord2", "decord"

    def frames(self, index: int) -> Tensor:
        import decord

        reader = decord.VideoReader(self.task.clips[index][0], num_threads=1)
        return torch.from_numpy(reader.get_batch(self.task.numbers(index)).asnumpy()).permute(0, 3, 1, 2)


class PyAV(_Workers):
    package, module = "av", "av"

    def frames(self, index: int) -> Tensor:
        import av

        numbers, found = self.task.numbers(index), []
        with av.open(self.task.clips[index][0]) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            ticks = 1 / (stream.average_rate * stream.time_base)  # of a frame; the rates here are constant
            container.seek(round(numbers[0] * ticks), stream=stream)
            for frame in container.decode(stream):
                if frame.pts == round(numbers[len(found)] * ticks):
                    found.append(torch.from_numpy(frame.to_ndarray(format="rgb24")))
                    if len(found) == len(numbers):
                        break
        return torch.stack(found).permute(0, 3, 1, 2)


CLIP_CONTENDERS: dict[str, type[ClipContender]] = {
    "cuaug": Cuaug,
    "torchcodec": TorchCodec,
    "decord2": Decord,
    "pyav": PyAV,
}
