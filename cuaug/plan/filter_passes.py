"""The neighborhood operations of `Plan`: separable filters, stencils, medians and JPEG.

Each runs as a pass that filters an image instead of resampling it. The pass reads the whole image so far; a plain crop
of the source before it folds in. Later crops, flips, quarter turns, pads and point operations fold in too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug._runtime.native import address, library
from cuaug.errors import TransformError
from cuaug.plan.layout import Border, Neighborhood
from cuaug.plan.pass_table import Indices, PassTable
from cuaug.plan.regions import pack_taps

#: Window sides of the median filters that the kernels have, in pixels.
MEDIAN_SIZES = (3, 5, 7)
_WHOLE_IMAGE = ("a filter reads the finished image before it",)
# A JPEG's pixel depends on its block of 16 x 16 and on the pixels beside it: fancy upsampling blends their chroma in.
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
    """(N, 2, 8, 8) libjpeg's quantization steps of luma and chroma at qualities 1 to 100."""
    quality = np.atleast_1d(quality).astype(np.int64)[:, None, None, None]
    percent = np.where(quality < 50, 5000 // np.maximum(quality, 1), 200 - 2 * quality)
    return np.clip((np.stack([_LUMA_STEPS, _CHROMA_STEPS]) * percent + 50) // 100, 1, 255)


def convolve(table: PassTable, chosen: Indices, down: ArrayLike, across: ArrayLike, border: Border) -> None:
    """`Plan.convolve` of the chosen samples."""
    kernels = []
    for name, values in (("down", down), ("across", across)):
        kernel = np.atleast_2d(np.asarray(values, dtype=np.float32))
        if kernel.ndim != 2 or kernel.shape[1] % 2 == 0:
            raise TransformError(f"{name} must be (K,) or (N, K) weights, K odd, not {np.shape(values)}")
        kernels.append(np.broadcast_to(kernel, (len(table), kernel.shape[1]))[chosen])
    reach_down, reach_across = (kernel.shape[1] // 2 for kernel in kernels)
    _set_filter(table, chosen, Neighborhood.SEPARABLE, reach_down, reach_across, border)
    table.current["weights"][chosen] = table.add_values(np.concatenate(kernels, axis=1))


def stencil(table: PassTable, chosen: Indices, taps: ArrayLike, frame: int, clamp: float, border: Border) -> None:
    """`Plan.stencil` of the chosen samples; sums are limited to [0, clamp] unless it is -1."""
    rows = np.asarray(taps, dtype=np.float32)
    if rows.ndim not in (2, 3) or rows.shape[-1] != 3:
        raise TransformError(f"taps must be (K, 3) or (N, K, 3), (dy, dx, weight) each, not {rows.shape}")
    rows = table.rows_of("taps", rows, chosen) if rows.ndim == 3 else rows[None]
    rows, count, reach = pack_taps(rows)
    _set_filter(table, chosen, Neighborhood.STENCIL, reach[0], reach[1], border)
    current = table.current
    current["weights"][chosen] = table.add_values(rows.reshape(len(rows), 3 * rows.shape[1]))
    current["extent"][chosen], current["frame"][chosen], current["clamp"][chosen] = count, frame, clamp


def median(table: PassTable, chosen: Indices, size: ArrayLike) -> None:
    """`Plan.median` of the chosen samples; edge pixels repeat beyond the edge."""
    (sizes,) = table.per_sample(chosen, size)
    if not np.isin(sizes, MEDIAN_SIZES).all():
        raise TransformError(f"a median's size must be one of {MEDIAN_SIZES}, not {np.unique(sizes).tolist()}")
    _set_filter(table, chosen, Neighborhood.MEDIAN, sizes // 2, sizes // 2, Border.EDGE)
    table.current["extent"][chosen] = sizes


def jpeg(table: PassTable, chosen: Indices, quality: ArrayLike, level: float) -> None:
    """`Plan.jpeg` of the chosen samples, as libjpeg; `level` is the value of a uint8 level."""
    (qualities,) = table.per_sample(chosen, quality)
    if ((qualities < 1) | (qualities > 100)).any():
        raise TransformError(f"quality must be 1 to 100, not {np.unique(qualities).tolist()}")
    _set_filter(table, chosen, Neighborhood.JPEG, 0, 0, Border.CONSTANT)
    current = table.current
    current["weights"][chosen] = table.add_values(quantization_tables(qualities).reshape(len(chosen), 128))
    current["level"][chosen] = level
    table.axes["taps"][:, chosen] = _JPEG_REACH


def _set_filter(
    table: PassTable, chosen: Indices, kind: Neighborhood, down: ArrayLike, across: ArrayLike, border: Border
) -> None:
    """Makes the current pass a filter, or begins one unless it is a plain crop."""
    reach = np.empty((2, len(chosen)), dtype=np.int64)
    reach[0], reach[1] = down, across
    table.change(_WHOLE_IMAGE, library.cuaug_set_filter, chosen, address(reach))
    index = table.index(chosen)
    table.current["neighborhood"][index], table.current["before"]["border"][index] = kind, border
