"""Decoded images that are not 8-bit RGB, in the form that the kernels read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.codec.image import DecodedImage
from cuaug.errors import DecodeError
from cuaug.limits import check_pixels

__all__ = ["MultiChannelImage"]

_MAX_CHANNELS = 16
_WHITE = {np.dtype(np.uint8): None, np.dtype(np.uint16): np.float32(65535.0), np.dtype(np.float32): None}


class MultiChannelImage(DecodedImage):
    """A decoded image of 1 to 16 channels in host memory, as images of three channels.

    Args:
        array: (H, W, C) or (H, W), uint8, uint16 or float32.
        mode: the loader's mode: "L" and "RGBA" want uint8 of 1 and 4 channels, "unchanged" takes all.
        max_pixels: refuse more pixels than this, if given.

    Attributes:
        channels: C.
        depth: the array's dtype.
        groups: (G, H, W, 3) uint8, or float32 where uint16 is scaled to [0, 1]. The last group repeats its last
            channel to have three.
        array: the first group.

    Raises:
        DecodeError: another dtype or shape, no pixels, or too many. It has no path and no index; add them with `.at()`.
    """

    __slots__ = ("channels", "depth", "groups")

    def __init__(self, array: NDArray[Any], mode: str = "unchanged", *, max_pixels: int | None = None) -> None:
        channels = array.shape[2] if array.ndim == 3 else 1
        if array.ndim not in (2, 3) or not 0 < channels <= _MAX_CHANNELS or array.dtype not in _WHITE:
            raise DecodeError(
                f"a decoded image must be uint8, uint16 or float32, (H, W) or (H, W, C) of 1 to {_MAX_CHANNELS} "
                f"channels, not {array.dtype} {array.shape}"
            )
        wanted = {"L": 1, "RGBA": 4}.get(mode)
        if wanted is not None and (channels != wanted or array.dtype != np.uint8):
            raise DecodeError(
                f"with mode={mode!r} an array must be uint8 of {wanted} channel{'s' * (wanted > 1)}, not {array.dtype} "
                f"{array.shape}: convert it, or use mode='unchanged'"
            )
        if array.size == 0:
            raise DecodeError(f"an array of shape {array.shape} holds no pixels")
        self.height, self.width = array.shape[:2]
        if max_pixels is not None:
            check_pixels(self.height, self.width, max_pixels, "the array has")
        self.channels, self.depth = channels, array.dtype
        count = 1 if channels == 1 else -(-channels // 3)
        channel = np.minimum(np.arange(3 * count), channels - 1)
        pixels = array.reshape(self.height, self.width, channels)
        white = _WHITE[array.dtype]
        if white is not None:
            pixels = pixels.astype(np.float32) / white
        groups = pixels[None] if channels == 3 else np.moveaxis(pixels[..., channel.reshape(count, 3)], 2, 0)
        self.groups: NDArray[Any] = np.ascontiguousarray(groups)
        self.array = self.groups[0]

    @property
    def group_bytes(self) -> int:
        """Bytes from a pixel of one group to that of the next."""
        return self.groups.strides[0]

    def __repr__(self) -> str:
        return f"MultiChannelImage(height={self.height}, width={self.width}, channels={self.channels}, {self.depth})"
