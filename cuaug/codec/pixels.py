"""Images that come decoded: from arrays, data sets and caches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import DecodeError
from cuaug.limits import check_pixels

__all__ = ["DecodedImage"]


class DecodedImage:
    """A decoded image in host memory, which the decoders take in place of a `EncodedImage`.

    Args:
        array: (H, W, 3), (H, W, 1) or (H, W) uint8; gray is repeated.
        max_pixels: refuse more than this many pixels, if given.

    Attributes:
        height, width: in pixels.
        array: (H, W, 3) uint8 RGB; each row's pixels are packed. Not to be written to.

    Raises:
        DecodeError: not such an array, or one without pixels. It carries no path or index; add them with `.at()`.
    """

    __slots__ = ("array", "height", "width")

    def __init__(self, array: NDArray[Any], *, max_pixels: int | None = None) -> None:
        if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3)):
            raise DecodeError(
                f"a decoded image is a uint8 array (H, W, 3), (H, W, 1) or (H, W), not {array.dtype} {array.shape}"
            )
        if array.size == 0:
            raise DecodeError(f"an array of shape {array.shape} holds no picture")
        self.height, self.width = array.shape[:2]
        if max_pixels is not None:
            check_pixels(self.height, self.width, max_pixels, "the array has")
        if array.ndim == 2:
            array = array[:, :, None]
        if array.shape[2] == 1:
            array = np.repeat(array, 3, axis=2)
        packed = array.strides[2] == 1 and (array.strides[1] == 3 or self.width == 1)
        self.array: NDArray[np.uint8] = array if packed and array.strides[0] >= 0 else np.ascontiguousarray(array)

    def __repr__(self) -> str:
        return f"DecodedImage(height={self.height}, width={self.width})"
