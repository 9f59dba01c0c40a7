"""Images of other channels than RGB and gray, for kernels that read three channels.

An image of C channels is run in groups of three. All groups share the geometry; numbers per channel are those of the
group. Operations that mix colors have no meaning there and are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cuaug.errors import TransformError
from cuaug.plan import operations
from cuaug.plan.layout import Layout, OpCode

#: Most channels of an image.
MAX_CHANNELS = 16

_FUNCTIONS = (OpCode.FUNCTION_OF_LEVEL, OpCode.FUNCTION_OF_PLACED_LEVEL)
_NOISE = (OpCode.ERASE_NOISE, OpCode.NOISE, OpCode.SHOT_NOISE, *_FUNCTIONS)
_KEY_STEP = 0x9E3779B9  # 2**32 divided by the golden ratio: the keys of groups differ in many bits


def is_rgb_or_gray(channels: int) -> bool:
    return channels in (1, 3)


def count_groups(channels: int) -> int:
    """Groups of three channels; the last one may have fewer."""
    return -(-channels // 3)


def output_layout(channels: int, layout: Layout) -> Layout:
    """The layout of the finished images: several groups write planes of their own."""
    return layout if is_rgb_or_gray(channels) else Layout.CHW


def group_size(channels: int, group: int) -> int:
    """Channels of a group."""
    return min(3, channels - 3 * group)


def group_values(name: str, values: ArrayLike, channels: int, group: int) -> NDArray[np.float64]:
    """`values`, one for all channels or one per channel, as the kernels take them: one, or three.

    Raises:
        TransformError: another number of entries than the images have channels.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or len(array) == 1:
        return array
    if len(array) != channels:
        raise TransformError(
            f"{name} has {len(array)} entries, one per channel, but the images have {channels} "
            f"channel{'s' * (channels > 1)} here"
        )
    # The padding of the last group repeats its last channel.
    return array[np.minimum(3 * group + np.arange(3), channels - 1)]


def group_operations(ops: NDArray[Any], channels: int, group: int) -> NDArray[Any]:
    """The operations for a group: each has noise of its own.

    Raises:
        TransformError: an operation mixes colors.
    """
    mixing = set(ops["code"].tolist()) & operations.MIXING
    if mixing:
        names = ", ".join(sorted(OpCode(code).name for code in mixing))
        raise TransformError(
            f"image: it has {channels} channels, but {names} acts on colors and needs RGB or gray images: leave out "
            "transforms of contrast, saturation, hue and gray, or apply them to three of the channels"
        )
    ops = ops.copy()
    ops["key"][np.isin(ops["code"], _NOISE), 0] ^= np.uint32(group * _KEY_STEP & 0xFFFFFFFF)
    return ops
