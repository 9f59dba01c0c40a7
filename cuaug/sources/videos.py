"""Clips of video files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.arguments import integer
from cuaug._runtime.extras import require_module
from cuaug._runtime.threads import map_in_threads
from cuaug.errors import ArgumentError, DecodeError, SourceError
from cuaug.sampling.clip_sampler import ClipSampler
from cuaug.sources.files import Files
from cuaug.sources.labels import Classes
from cuaug.sources.source import ReprMixin, cache_key, cached_method, fingerprint, relative_paths
from cuaug.sources.text import PathResolver, open_text, parse_number

#: File extensions of videos in a directory.
EXTENSIONS = (
    *(".mp4", ".mkv", ".webm", ".avi", ".mov", ".qt", ".m4v", ".mpg", ".mpeg", ".mpe", ".m1v", ".m2v", ".vob", ".divx"),
    *(".ts", ".mts", ".m2ts", ".m2t", ".flv", ".f4v", ".wmv", ".asf", ".3gp", ".3g2", ".ogv", ".mxf", ".dv"),
)

# A place in a video: a frame number, or a float in seconds.
Place = int | float | None


class ClipRequest(NamedTuple):
    """A clip to load.

    Attributes:
        path: of the video.
        clip: number of the clip within its video.
        start, end: the range of its frames, the end excluded: frame numbers, or floats in seconds from the first frame.
            None: the video's beginning and end.
        sampler: chooses the frames.
    """

    path: str
    clip: int
    start: Place
    end: Place
    sampler: ClipSampler

    def frame_range(self, seconds: NDArray[np.float64]) -> tuple[int, int]:
        """The range in frame numbers, for frames shown at `seconds`; cut to the video."""
        return frame_range(seconds, self.start, self.end)


def frame_range(seconds: NDArray[np.float64], start: Place, end: Place) -> tuple[int, int]:
    """(first, end): the frames of a range that is given in frames or seconds."""

    def number(place: Place, default: int) -> int:
        if place is None:
            return default
        if isinstance(place, float):
            return int(np.searchsorted(seconds, place - 1e-6, side="left"))
        return min(place, len(seconds))

    return number(start, 0), number(end, len(seconds))


class _VideoFiles(Files):
    extensions = EXTENSIONS
    kind = "videos"


class Videos(ReprMixin):
    """Clips of video files, with one label per video.

        source = cuaug.sources.Videos("clips/train", frames=16, stride=4)
        loader = cuaug.Loader(source, transforms, batch_size=8, shuffle=True, layout="NCTHW")

    The samples of a `Loader` are clips: `images` is (N, T, C, H, W), or (N, C, T, H, W) with layout="NCTHW", and
    `batch.clips` names their frames. Reading needs `pip install ".[video]"`.

    Args:
        videos: a folder with one subfolder per class, or with videos alone; a list file, "path label" or
            "path label start end" per line; paths; (path, label) or (path, label, start, end) tuples; or
            {path: label}. Paths alone are labeled with their index. `start` and `end` limit the frames of clips to a
            range: integers are frame numbers, floats are seconds from the first frame, None is no limit.
        frames: T, the number of frames of a clip.
        stride: distance of two frames of a clip, in frames of the video.
        fps: frames per second of a clip, in place of `stride`: the frames shown at these times.
        sampling: where clips begin: "random", anew in each epoch; "uniform", at equal distances, or one in the
            middle; "segments", one random frame from each of T equal parts; "all", every `step` frames.
        clips_per_video: number of clips of each video, unless sampling="all".
        step: frames from one clip's beginning to the next's, for "all"; None: the frames that a clip spans.
        pad: where a video, or its range, is too short: "error", the sample is damaged; "last", the last frame repeats;
            "loop", the clip starts over.
        classes: as for `Files`.

    Attributes:
        clip_sampler: chooses the frames of a clip.
        paths: of the videos.
        labels: of the clips.

    Raises:
        LoaderError: no videos, an entry is malformed, or with sampling="all" a video cannot be read.
        ArgumentError: the arguments do not fit together.
    """

    def __init__(
        self,
        videos: str | os.PathLike[str] | Sequence[Any] | Mapping[str, Any],
        *,
        frames: int,
        stride: int = 1,
        fps: float | None = None,
        sampling: Any = "random",
        clips_per_video: int = 1,
        step: int | None = None,
        pad: Any = "error",
        classes: Classes = "auto",
    ) -> None:
        require_module("av", "video")
        self.clip_sampler = ClipSampler(frames, stride, fps, sampling, clips_per_video, step, pad)
        files, self._ranges = _open_videos(videos, classes)
        self.paths, self.classes = files.paths, files.classes
        self._video_labels = files.labels
        counts = self._count_clips()
        #: (n,) the video of each clip, and the number of the clip within it.
        self._video_of = np.repeat(np.arange(len(self.paths)), counts)
        self._clip_of = np.arange(len(self._video_of)) - np.repeat(np.cumsum(counts) - counts, counts)

    def _count_clips(self) -> NDArray[np.int64]:
        from cuaug.sources.video_index_file import open_index  # imports Pillow

        sampler = self.clip_sampler
        if sampler.sampling != "all":
            return np.full(len(self.paths), sampler.clips_per_video)

        def count(video: int) -> int:
            try:
                seconds = open_index(self.paths[video]).seconds
            except (DecodeError, OSError) as error:
                raise SourceError(
                    f"cannot count the clips of {self.paths[video]!r}: {error}; sampling='all' needs every video"
                ) from error
            first, end = frame_range(seconds, *self._ranges[video])
            return sampler.count(seconds, first, end)

        return np.array(map_in_threads(count, range(len(self.paths)), os.cpu_count() or 1), dtype=np.int64)

    @property
    def labels(self) -> list[Any]:
        """One label per clip."""
        return [self._video_labels[video] for video in self._video_of.tolist()]

    @property
    def samples(self) -> list[tuple[str, Any]]:
        """(path, label) of each video, as torchvision's Kinetics names them."""
        return list(zip(self.paths, self._video_labels, strict=True))

    def __len__(self) -> int:
        return len(self._video_of)

    def read(self, index: int) -> tuple[ClipRequest, Any]:
        """Returns (the clip to load, label)."""
        video = int(self._video_of[index])
        request = ClipRequest(self.paths[video], int(self._clip_of[index]), *self._ranges[video], self.clip_sampler)
        return request, self._video_labels[video]

    def label(self, index: int) -> Any:
        """The label alone, as `read` returns it."""
        return self._video_labels[int(self._video_of[index])]

    def path(self, index: int) -> str:
        """The path of the clip's video."""
        return self.paths[int(self._video_of[index])]

    @cached_method
    def fingerprint(self) -> str:
        """Digest of the paths below their common folder, the labels, the ranges and the sampler."""
        ranges = [repr(limits) for limits in self._ranges]
        paths = relative_paths(self.paths)
        return fingerprint("videos", paths, self._video_labels, self.classes, ranges, repr(self.clip_sampler))

    def cache_key(self) -> str:
        """The common folder, and a digest of the modification times of up to 1,000 files."""
        return cache_key(self.paths, repr(self.clip_sampler))


def _open_videos(videos: Any, classes: Classes) -> tuple[Files, list[tuple[Place, Place]]]:
    """The videos with their labels, and the range of each."""
    if isinstance(videos, (str, os.PathLike)):
        path = os.fspath(videos)
        if os.path.isdir(path):
            files: Files = _VideoFiles.from_directory(path)
            return files, [(None, None)] * len(files.paths)
        videos = [path] if path.lower().endswith(EXTENSIONS) else _read_list(path)
    entries: list[Any] = list(videos.items()) if isinstance(videos, Mapping) else list(videos)
    if entries and all(isinstance(entry, (str, os.PathLike)) for entry in entries):
        return _VideoFiles(entries), [(None, None)] * len(entries)
    paths, labels, ranges = [], [], []
    for i, entry in enumerate(entries):
        if not isinstance(entry, (tuple, list)) or len(entry) not in (2, 3, 4):
            raise ArgumentError(
                f"videos: entry {i} is {entry!r:.200}, not a path, (path, label) or (path, label, start, end)"
            )
        path, label, *limits = entry
        start, end = (*limits, None, None)[:2]
        paths.append(path)
        labels.append(label)
        ranges.append((_place("start", start, i), _place("end", end, i)))
        if None not in (start, end) and type(start) is type(end) and not start < end:
            raise ArgumentError(f"videos: entry {i} starts at {start} and ends at {end}: nothing lies between")
    return _VideoFiles(paths, labels, classes), ranges


def _place(name: str, value: Any, entry: int) -> Place:
    if value is None:
        return None
    if isinstance(value, (float, np.floating)):
        if not value >= 0.0:
            raise ArgumentError(f"videos: {name} of entry {entry} must be a time of 0 or more seconds, not {value}")
        return float(value)
    return integer(f"videos: {name} of entry {entry}", value, 0)


def _read_list(path: str) -> list[tuple[Any, ...]]:
    """The lines of a list file as (path, label, start, end)."""
    resolve = PathResolver(path, None)
    entries = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            fields = line.strip()
            if not fields or fields.startswith("#"):
                continue
            entry = _parse_line(fields)
            if entry is None:
                raise SourceError(
                    f'{path!r} line {number}: expected "path label" or "path label start end", got {fields!r:.200}'
                )
            entries.append((resolve(entry[0]), *entry[1:]))
    if not entries:
        raise SourceError(f"{path!r} names no video")
    return entries


def _parse_line(line: str) -> tuple[Any, ...] | None:
    """(path, label) or (path, label, start, end), numbers as numbers; paths may contain spaces."""
    for count in (3, 1):
        name, *fields = line.rsplit(None, count)
        if len(fields) != count:
            continue
        try:
            numbers = [parse_number(field) for field in fields]
        except ValueError:
            continue
        if count == 1 or name.lower().endswith(EXTENSIONS):
            return (name, *numbers)
    return None
