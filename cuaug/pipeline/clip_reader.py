"""`ClipReader`: chooses the frames of clips, and looks for their videos or pixels in the cache."""

from __future__ import annotations

import os
from typing import cast

import numpy as np
from numpy.typing import NDArray

from cuaug.cache import DecodedCache, EncodedCache, shrunken_size
from cuaug.codec.video_index import VideoIndex
from cuaug.decode_options import DecodeOptions
from cuaug.pipeline.clips import EncodedClip, read_clip
from cuaug.sources._bytes import read_bytes
from cuaug.sources.video_index import open_index
from cuaug.sources.videos import ClipRequest

__all__ = ["ClipReader"]


class ClipReader:
    """Reads clips for a loader, with or without a cache.

    | cache | holds | saves |
    |---|---|---|
    | encoded | the bytes and the index of each video that fits | reading |
    | decoded | all frames of each clip that fits, converted to RGB | reading, decoding, conversion |
    """

    def __init__(self, options: DecodeOptions, cache: EncodedCache | DecodedCache | None) -> None:
        self._encoded = cache if isinstance(cache, EncodedCache) else None
        self._decoded = cache if isinstance(cache, DecodedCache) else None
        self._max_pixels, self._max_bytes = options.max_pixels, options.max_bytes

    def read(self, sample: int, request: ClipRequest, draws: NDArray[np.float64]) -> EncodedClip:
        """Choose the frames of a clip.

        Args:
            sample: its index in the source.
            draws: (T,) uniform in [0, 1), the clip's random numbers.

        Raises:
            DecodeError: the file is no video, too short for the clip, or not the expected one.
            OSError: the file cannot be read.
        """
        pixels = None if self._decoded is None else self._decoded.get(sample)
        if pixels is not None:
            file, index = None, None
        else:
            file, index = self._open(request)
        clip = read_clip(request, draws, self._max_pixels, file, index)
        if self._decoded is not None:
            side = self._decoded.short_side
            clip.height, clip.width = shrunken_size(clip.index.height, clip.index.width, side)
            self._use_decoded(clip, sample, pixels)
        return clip

    def _use_decoded(self, clip: EncodedClip, sample: int, found: object) -> None:
        """The cache keeps a clip as one image, (T * height, width, 3): its frames one below the other."""
        cache, shape = self._decoded, (clip.frames, clip.height, clip.width, 3)
        assert cache is not None
        if isinstance(found, np.ndarray):
            clip.pixels = found.reshape(shape)
            return

        def keep(pixels: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
            kept = cache.put(sample, pixels.reshape(-1, *shape[2:]))
            return None if kept is None else kept.reshape(shape)

        clip.keep = keep

    def _open(self, request: ClipRequest) -> tuple[bytes | None, VideoIndex]:
        """The bytes of a video, if it is cached, and its index."""
        path, cache = request.path, self._encoded
        if cache is not None and (entry := cache.get(path)) is not None:
            return cast(tuple[bytes, VideoIndex], entry)
        index, size = open_index(path), os.stat(path).st_size
        if cache is None or size > self._max_bytes or not cache.has_room(size):
            return None, index
        data = read_bytes(path, self._max_bytes)
        cache.put(path, data, index)
        return data, index
