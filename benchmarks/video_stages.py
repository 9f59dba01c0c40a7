"""CPU time of each stage of a clip, from a file to RGB pixels; `benchmarks/video.py` runs it.

One thread does nothing else. FFmpeg decodes the frames that a clip needs for every contender, so decoding bounds what a
loader can gain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["stages"]

# Of a frame's height and width: RandomResizedCrop takes 54 % of the area on average.
_MEAN_SIDE = 0.735


def stages(clips: Sequence[tuple[str, int]], frames: int, stride: int, repetitions: int = 3) -> dict[str, float]:
    """CPU milliseconds per clip, the least of some repetitions.

    Args:
        clips: path, and number of the first frame.

    Returns:
        open: the container and its streams. read: seek, and packets up to the clip's last frame. decode: of the frames
        that a clip needs. convert: YUV to RGB of a crop's region.
    """
    from cuaug.codec.video.decoder import VideoDecoder
    from cuaug.codec.video.video_index import open_container, video_stream
    from cuaug.codec.video.yuv import convert_frames, describe_frames
    from cuaug.sources.video_index_file import open_index

    chosen = [(path, open_index(path), start + stride * np.arange(frames)) for path, start in clips]
    decoder = VideoDecoder()

    def open_only(path: str, index: Any, numbers: Any) -> None:
        with open_container(path) as container:
            video_stream(container)

    def read(path: str, index: Any, numbers: Any) -> None:
        first, last = index.pts[numbers[[0, -1]]].tolist()
        with open_container(path) as container:
            stream = video_stream(container)
            key = max(int(np.searchsorted(index.keys, first, side="right")) - 1, 0)
            container.seek(int(index.keys[key]), stream=stream)
            for packet in container.demux(stream):
                if packet.pts is None or packet.pts >= last:
                    break

    def decode(path: str, index: Any, numbers: Any) -> Any:
        return decoder.decode(path, index, numbers)

    def milliseconds(act: Callable[..., Any]) -> float:
        least = float("inf")
        for _ in range(repetitions):
            begin = time.thread_time()
            for clip in chosen:
                act(*clip)
            least = min(least, 1000 * (time.thread_time() - begin) / len(chosen))
        return least

    opening, reading, decoding = milliseconds(open_only), milliseconds(read), milliseconds(decode)
    planes = decode(*chosen[0])
    height, width = chosen[0][1].height, chosen[0][1].width
    rows, columns = round(height * _MEAN_SIDE), round(width * _MEAN_SIDE)
    top, left = (height - rows) // 2, (width - columns) // 2
    pixels = np.zeros((frames, rows, columns, 3), np.uint8)
    targets = (pixels.ctypes.data + np.arange(frames) * pixels.strides[0]).tolist()
    region = (top, left, top + rows, left + columns)
    images = describe_frames(planes, region, targets, pixels.strides[1])
    converting = milliseconds(lambda *_: convert_frames(images))
    return {"open": opening, "read": reading - opening, "decode": decoding - reading, "convert": converting}
