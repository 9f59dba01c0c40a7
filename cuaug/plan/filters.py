"""Operations on neighbourhoods, as `Plan` has them: each begins a pass that filters the image instead of resampling it.

The pass reads the whole image that the chain has made so far. What comes before and is only a crop of the source folds
into it, and so do crops, flips, quarter turns, pads and pixel operations that follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.native import address, library
from cuaug.errors import TransformError
from cuaug.plan.geometry import packed_taps
from cuaug.plan.layout import Border, Neighbourhood
from cuaug.plan.passes import Passes
from cuaug.plan.trace import Where

__all__ = ["MEDIAN_SIZES", "Filters", "quantization_tables"]

#: Widths of the medians that the kernels have.
MEDIAN_SIZES = (3, 5, 7)
_WHOLE = ("a filter sees the finished image before it",)
# A pixel of a JPEG depends on its block of 16 x 16 and on the pixels beside that, whose chroma is blended in.
_JPEG_REACH = 34

# ITU-T T.81 tables K.1 and K.2, by rows.
_LUMA_STEPS = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)
_CHROMA_STEPS = np.full((8, 8), 99)
_CHROMA_STEPS[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]


def quantization_tables(quality: ArrayLike) -> NDArray[np.int64]:
    """(N, 2, 8, 8): libjpeg's quantization_tables steps of luma and chroma at qualities 1 ... 100."""
    quality = np.atleast_1d(quality).astype(np.int64)[:, None, None, None]
    percent = np.where(quality < 50, 5000 // np.maximum(quality, 1), 200 - 2 * quality)
    return np.clip((np.stack([_LUMA_STEPS, _CHROMA_STEPS]) * percent + 50) // 100, 1, 255)


class Filters(Passes):
    """The part of `Plan` that looks at more than one pixel at a time."""

    def barrier(self, where: Where = None) -> None:
        """What follows sees a finished image, and folds into nothing that was before."""
        self._split(self._choose(where), "asked for")

    def convolve(
        self, down: ArrayLike, across: ArrayLike, *, border: Border = Border.REFLECT, where: Where = None
    ) -> None:
        """Weighted sums of neighbours, along columns and along rows.

        Args:
            down, across: (K,), or (N, K) per sample, K odd: weights from top to bottom, and from left to right.
            border: what lies outside the image; constant is 0.
        """
        chosen = self._choose(where)
        kernels = []
        for name, values in (("down", down), ("across", across)):
            kernel = np.atleast_2d(np.asarray(values, dtype=np.float32))
            if kernel.ndim != 2 or kernel.shape[1] % 2 == 0:
                raise TransformError(f"{name} is (K,) or (N, K) weights, K odd, not {np.shape(values)}")
            kernels.append(np.broadcast_to(kernel, (len(self), kernel.shape[1]))[chosen])
        reach = [kernel.shape[1] // 2 for kernel in kernels]
        self._filter(chosen, Neighbourhood.SEPARABLE, reach[0], reach[1], border)
        self._rows.now["weights"][chosen] = self._add_values(np.concatenate(kernels, axis=1))

    def stencil(
        self,
        taps: ArrayLike,
        *,
        frame: int = 0,
        saturate: bool = False,
        border: Border = Border.CONSTANT,
        where: Where = None,
    ) -> None:
        """A sum of shifted images.

        Args:
            taps: (K, 3), or (N, K, 3) per sample: rows (dy, dx, weight) take from each pixel the one dy rows below and
                dx columns to the right, times the weight. Those of weight 0 cost nothing.
            frame: pixels nearer to the edge than this stay as they are.
            saturate: limit the sums to [0, `limit`].
            border: what lies outside the image; constant is 0.
        """
        chosen = self._choose(where)
        rows = np.asarray(taps, dtype=np.float32)
        if rows.ndim not in (2, 3) or rows.shape[-1] != 3:
            raise TransformError(f"taps are (K, 3) or (N, K, 3): dy, dx and a weight each, not {rows.shape}")
        rows = self._of_each("taps", rows, chosen) if rows.ndim == 3 else rows[None]
        rows, count, reach = packed_taps(rows)
        self._filter(chosen, Neighbourhood.STENCIL, reach[0], reach[1], border)
        now = self._rows.now
        now["weights"][chosen] = self._add_values(rows.reshape(len(rows), 3 * rows.shape[1]))
        now["extent"][chosen], now["frame"][chosen] = count, frame
        now["clamp"][chosen] = self.limit if saturate else -1.0

    def median(self, size: ArrayLike, *, where: Where = None) -> None:
        """The median of each channel's values in size x size pixels; beyond the edge its pixels repeat.

        Args:
            size: one of `MEDIAN_SIZES`, or (N,) per sample.
        """
        chosen = self._choose(where)
        each = np.broadcast_to(np.asarray(size, dtype=np.int64), len(self))[chosen]
        if not np.isin(each, MEDIAN_SIZES).all():
            raise TransformError(f"a median's size is one of {MEDIAN_SIZES}, not {np.unique(each).tolist()}")
        self._filter(chosen, Neighbourhood.MEDIAN, each // 2, each // 2, Border.EDGE)
        self._rows.now["extent"][chosen] = each

    def jpeg(self, quality: ArrayLike, *, where: Where = None) -> None:
        """What encoding as JPEG (baseline, 4:2:0) and decoding leaves of the image, as libjpeg does both.

        Args:
            quality: 1 ... 100, or (N,) per sample.
        """
        if self._normalized:
            raise TransformError("normalized images are not in [0, 1]: they cannot be encoded as JPEG")
        chosen = self._choose(where)
        each = np.broadcast_to(np.asarray(quality, dtype=np.int64), len(self))[chosen]
        if ((each < 1) | (each > 100)).any():
            raise TransformError(f"quality is 1 to 100, not {np.unique(each).tolist()}")
        self._filter(chosen, Neighbourhood.JPEG, 0, 0, Border.CONSTANT)
        now = self._rows.now
        now["weights"][chosen] = self._add_values(quantization_tables(each).reshape(len(chosen), 128))
        now["level"][chosen] = self.limit / 255.0
        self._rows.axes["taps"][:, chosen] = _JPEG_REACH

    def _filter(self, chosen: NDArray[np.int64], kind: Neighbourhood, down: Any, across: Any, border: Border) -> None:
        """Begins a pass of this kind, unless what there is of it is a crop; `down`, `across`: how far it looks."""
        now, i = self._rows.now, self._at(chosen)
        reach = np.empty((2, len(chosen)), dtype=np.int64)
        reach[0], reach[1] = down, across
        self._change(_WHOLE, library.cuaug_set_filter, chosen, address(reach))
        now["neighbourhood"][i], now["border_before"][i] = kind, border
