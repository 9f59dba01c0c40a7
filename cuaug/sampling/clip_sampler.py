"""`ClipSampler`: which frames of a video a clip holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.arguments import integer, one_of
from cuaug.errors import ArgumentError, DecodeError

_SAMPLINGS = ("random", "uniform", "segments", "all")
_PADS = ("error", "last", "loop")


@dataclass(frozen=True)
class ClipSampler:
    """Chooses the T frames of each clip of a video.

    A clip spans `frames` frames at a distance of `stride` frames, or of 1 / `fps` seconds; with fps the last frame
    shown at each time is taken, whatever the video's rate.

    Args:
        frames: T, the number of frames of a clip.
        stride: distance of two frames of a clip, in frames of the video.
        fps: frames per second of the clip, by timestamps; in place of `stride`.
        sampling: where clips begin.
            "random": anywhere, each place with the same probability; drawn anew in each epoch.
            "uniform": at equal distances, the first at the beginning, the last at the end; one clip lies in the middle.
            "segments": one frame at random from each of T equal parts of the video, as in Temporal Segment Networks
                (Wang et al. 2016).
            "all": every `step` frames, as long as a whole clip fits; at least once.
        clips_per_video: number of clips of each video for "random", "uniform" and "segments".
        step: frames from one clip's beginning to the next's, for "all"; None: the frames that a clip spans.
        pad: where the video, or its range, is too short for a clip. "error": the sample is damaged. "last": the last
            frame repeats. "loop": the clip starts over.

    Raises:
        ArgumentError: an argument is invalid, or arguments do not fit together.
    """

    frames: int
    stride: int = 1
    fps: float | None = None
    sampling: Literal["random", "uniform", "segments", "all"] = "random"
    clips_per_video: int = 1
    step: int | None = None
    pad: Literal["error", "last", "loop"] = "error"

    def __post_init__(self) -> None:
        integer("frames", self.frames, 1)
        integer("stride", self.stride, 1)
        integer("clips_per_video", self.clips_per_video, 1)
        one_of("sampling", self.sampling, _SAMPLINGS)
        one_of("pad", self.pad, _PADS)
        if self.fps is not None:
            if not isinstance(self.fps, (int, float)) or not 0 < self.fps < float("inf"):
                raise ArgumentError(f"fps must be a positive number, not {self.fps!r}")
            if self.stride != 1:
                raise ArgumentError("stride counts frames and fps seconds: give one of them")
        if self.sampling == "segments" and (self.stride != 1 or self.fps is not None):
            raise ArgumentError("sampling='segments' spreads the frames over the video: it takes no stride and no fps")
        if self.step is not None:
            integer("step", self.step, 1)
            if self.sampling != "all":
                raise ArgumentError(f"step is for sampling='all', not for {self.sampling!r}")
        if self.sampling == "all" and self.clips_per_video != 1:
            raise ArgumentError("sampling='all' makes as many clips as fit: it takes no clips_per_video")

    @property
    def is_random(self) -> bool:
        """Whether a clip's frames differ from epoch to epoch."""
        return self.sampling in ("random", "segments")

    def count(self, seconds: NDArray[np.float64], first: int, end: int) -> int:
        """Number of clips of a video, for frames `first` up to `end` of those shown at `seconds`."""
        if self.sampling != "all":
            return self.clips_per_video
        starts = self._fitting_starts(seconds, first, end)
        return max(1, -(-starts // self._step(seconds, first, end)))

    def choose(
        self, seconds: NDArray[np.float64], clip: int, first: int, end: int, draws: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Choose the frames of a clip.

        Args:
            seconds: (F,) when each frame of the video is shown, ascending.
            clip: number of the clip within its video.
            first, end: range of the clip's frames, the end excluded.
            draws: (T,) uniform in [0, 1).

        Returns:
            (T,) frame numbers, and (T,) bool, the frames that are padding.

        Raises:
            DecodeError: the range is empty, or too short for a clip while pad="error".
        """
        if not 0 <= first < end <= len(seconds):
            raise DecodeError(f"its range, frames {first} to {end}, holds none of its {len(seconds)} frames")
        if self.sampling == "segments":
            return self._of_segments(first, end, draws)
        starts = self._fitting_starts(seconds, first, end)
        if self.sampling == "random":
            start = first + int(draws[0] * max(starts, 1))
        elif self.sampling == "all":
            start = first + clip * self._step(seconds, first, end)
        elif self.clips_per_video == 1:
            start = first + max(starts - 1, 0) // 2
        else:
            start = first + round(clip * max(starts - 1, 0) / (self.clips_per_video - 1))
        numbers = self._frames_from(seconds, start)
        return self._padded(seconds, numbers, start, first, end)

    def _frames_from(self, seconds: NDArray[np.float64], start: int) -> NDArray[np.int64]:
        """(T,) frame numbers from `start` on; numbers at or above F lie beyond the video."""
        if self.fps is None:
            return start + self.stride * np.arange(self.frames)
        times = seconds[start] + np.arange(self.frames) / self.fps
        numbers = np.searchsorted(seconds, times + 1e-6, side="right") - 1
        return np.where(times > self._end_time(seconds) - 1e-6, len(seconds), numbers)

    @staticmethod
    def _end_time(seconds: NDArray[np.float64]) -> float:
        """When the last frame's display ends: it is shown as long as the one before."""
        return float(2 * seconds[-1] - seconds[-2]) if len(seconds) > 1 else float(seconds[-1]) + 1e-3

    def _fitting_starts(self, seconds: NDArray[np.float64], first: int, end: int) -> int:
        """Number of frames at which a whole clip may begin."""
        if self.fps is None:
            return max(0, end - first - self.stride * (self.frames - 1))
        limit = self._end_time(seconds[:end]) - (self.frames - 1) / self.fps
        return max(0, int(np.searchsorted(seconds[:end], limit - 1e-6, side="left")) - first)

    def _step(self, seconds: NDArray[np.float64], first: int, end: int) -> int:
        if self.step is not None:
            return self.step
        if self.fps is None:
            return self.stride * self.frames
        rate = (end - first) / max(self._end_time(seconds[:end]) - float(seconds[first]), 1e-9)
        return max(1, round(self.frames / self.fps * rate))

    def _of_segments(
        self, first: int, end: int, draws: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        count = end - first
        if count < self.frames and self.pad == "error":
            raise DecodeError(
                f"it has {count} frames, but a clip needs {self.frames}; pad='last' or 'loop' repeats some"
            )
        edges = np.arange(self.frames + 1) * count // self.frames  # whole frames, or two parts could share one
        numbers = edges[:-1] + (draws * np.maximum(np.diff(edges), 1)).astype(np.int64)
        padding = np.zeros(self.frames, dtype=bool)
        padding[1:] = numbers[1:] == numbers[:-1]
        return first + numbers, padding

    def _padded(
        self, seconds: NDArray[np.float64], numbers: NDArray[np.int64], start: int, first: int, end: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        padding = numbers >= end
        if padding.any():
            if self.pad == "error":
                span = f"{self.frames} frames at stride {self.stride}"
                if self.fps is not None:
                    span = f"{self.frames} frames at {self.fps} a second"
                raise DecodeError(
                    f"it has {end - first} frames from {seconds[first]:.3f} s on, too few for a clip of {span}; "
                    "pad='last' or 'loop' repeats some"
                )
            held = int((~padding).sum())  # at least 1: the first frame
            fill = (
                np.full(len(numbers) - held, held - 1) if self.pad == "last" else np.arange(held, len(numbers)) % held
            )
            numbers = np.concatenate([numbers[:held], numbers[fill]])
        return numbers, padding
