"""Indexes of videos, in memory and on disk."""

from __future__ import annotations

import functools
import os
from fractions import Fraction
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cuaug.codec.video.video_index import MAX_DELAY, VideoIndex, scan_video
from cuaug.errors import DecodeError, SourceError
from cuaug.sources.shards.shard_index import Index, IndexFormat, load_indexes

_INDEXES_IN_MEMORY = 4096


def open_index(path: str) -> VideoIndex:
    """The index of a video, from memory, from disk, or made now.

    Raises:
        DecodeError: the file is no video, or its frames have no usable timestamps.
        OSError: the file cannot be read.
    """
    status = os.stat(path)
    # A file that replaces another one may have its size and its modification time.
    version = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return _open_index(path, version)


@functools.lru_cache(_INDEXES_IN_MEMORY)
def _open_index(path: str, version: tuple[int, ...]) -> VideoIndex:
    try:
        (index,) = load_indexes(_FORMAT, [path])
    except SourceError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise DecodeError(str(error)) from error
    notes = index.notes
    return VideoIndex(
        index.arrays["pts"],
        index.arrays["keys"],
        Fraction(*notes["time_base"]),
        notes["size"][0],
        notes["size"][1],
        notes["orientation"],
        notes["codec"],
        notes["one_per_packet"],
        notes["delay"],
    )


def _scan(path: str, file: BinaryIO) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    index = scan_video(path)
    notes = {
        "time_base": [index.time_base.numerator, index.time_base.denominator],
        "size": [index.stored_height, index.stored_width],
        "orientation": index.orientation,
        "codec": index.codec,
        "one_per_packet": index.one_per_packet,
        "delay": index.delay,
    }
    return notes, {"pts": index.pts, "keys": index.keys}


def _check(index: Index) -> None:
    pts, keys, notes = index.arrays["pts"], index.arrays["keys"], index.notes
    if not len(pts) or (np.diff(pts) <= 0).any() or (np.diff(keys) <= 0).any():
        raise ValueError("its timestamps do not ascend")
    height, width = notes["size"]
    numerator, denominator = notes["time_base"]
    numbers = (height, width, numerator, denominator)
    if not all(type(number) is int and 0 < number < 1 << 31 for number in numbers):
        raise ValueError("its size or time base is not positive")
    if notes["orientation"] not in range(1, 9) or type(notes["codec"]) is not str:
        raise ValueError("its orientation or codec is unknown")
    if type(notes["one_per_packet"]) is not bool or type(notes["delay"]) is not int:
        raise ValueError("its notes on packets have other types")
    if not 0 <= notes["delay"] <= MAX_DELAY:
        raise ValueError("its delay is out of bounds")


_FORMAT = IndexFormat("video frames", _scan, {"pts": "<i8", "keys": "<i8"}, _check, is_hidden=True)
