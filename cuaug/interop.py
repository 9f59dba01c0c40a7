"""Images as users have them, seen as the kernels need them, and results handed back in kind.

`open_images` reads a torch tensor, a NumPy or CuPy array or a PIL image as a stack of packed RGB images;
`Opened.finish` makes the result: the same kind of thing, on the same device, with the same axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cuaug.errors import TransformError
from cuaug.plan import Layout, Type

__all__ = ["Opened", "dtype_of", "open_images", "type_of"]

_TYPES = {
    torch.uint8: Type.UINT8,
    torch.float16: Type.FLOAT16,
    torch.bfloat16: Type.BFLOAT16,
    torch.float32: Type.FLOAT32,
}
_DTYPES = {value: key for key, value in _TYPES.items()}


def type_of(dtype: torch.dtype) -> Type:
    """The kernels' name of a torch dtype.

    Raises:
        TransformError: for any but uint8, float16, bfloat16 and float32.
    """
    if dtype not in _TYPES:
        raise TransformError(f"dtype is one of {', '.join(map(str, _TYPES))}, not {dtype!r}")
    return _TYPES[dtype]


def dtype_of(kind: Type) -> torch.dtype:
    return _DTYPES[kind]


@dataclass(frozen=True)
class Opened:
    """A stack of images ready for the kernels.

    Attributes:
        images: (N, H, W, 3) uint8 or float32 tensor, contiguous, on the device that the images came from.
        channels: 1 or 3, as they came; gray ones were spread to three equal channels.
        layout: how the result is to lie in memory.
        target_type: the result's type where the chain does not change uint8 to float; None for uint8 input.
        finish: makes the result from a tensor, (N, C, H, W) or (N, H, W, C) by `layout`.
    """

    images: torch.Tensor
    channels: int
    layout: Layout
    target_type: Type | None
    finish: Callable[[torch.Tensor], Any]


def open_images(images: Any) -> Opened:
    """Sees `images` as a stack; copies only what does not lie in memory as packed RGB.

    Raises:
        TransformError: not an image, or a shape or dtype that is not supported; the message says which are.
    """
    if isinstance(images, torch.Tensor):
        return _open_tensor(images)
    if isinstance(images, np.ndarray):
        # torch has no negative strides, and no unsigned integers wider than a byte to complain about.
        tensor = torch.from_numpy(np.ascontiguousarray(images)) if _numpy_supported(images) else None
        return _open_array(tensor, images, lambda result: result.numpy())
    if hasattr(images, "__cuda_array_interface__"):
        return _open_cupy(images)
    if type(images).__module__.startswith("PIL."):
        return _open_pil(images)
    raise TransformError(
        f"an image is a torch tensor, a NumPy or CuPy array or a PIL image, not {type(images).__module__}."
        f"{type(images).__qualname__}"
    )


def _numpy_supported(array: np.ndarray) -> bool:
    return array.dtype == np.uint8 or array.dtype.kind == "f"


def _open_tensor(tensor: torch.Tensor) -> Opened:
    """(C, H, W) or (N, C, H, W); a channels-last batch comes back channels-last."""
    if tensor.ndim not in (3, 4) or tensor.shape[-3] not in (1, 3):
        raise TransformError(
            f"a tensor is (C, H, W) or (N, C, H, W) with 1 or 3 channels, not {tuple(tensor.shape)}"
        )
    stack = tensor if tensor.ndim == 4 else tensor[None]
    last = (
        tensor.ndim == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)
    )

    def finish(result: torch.Tensor) -> torch.Tensor:
        result = result.permute(0, 3, 1, 2) if last else result
        return result if tensor.ndim == 4 else result[0]

    return _opened(stack.permute(0, 2, 3, 1), Layout.HWC if last else Layout.CHW, tensor, finish)


def _open_array(tensor: torch.Tensor | None, array: Any, convert: Callable[[torch.Tensor], Any]) -> Opened:
    """(H, W), (H, W, C) or (N, H, W, C)."""
    shape = tuple(array.shape)
    if tensor is None:
        raise TransformError(f"images are uint8 or floating point, not {array.dtype}")
    if len(shape) not in (2, 3, 4) or (len(shape) > 2 and shape[-1] not in (1, 3)):
        raise TransformError(
            f"an array is (H, W), (H, W, C) or (N, H, W, C) with 1 or 3 channels, not {shape}"
        )
    stack = tensor[None, :, :, None] if len(shape) == 2 else tensor if len(shape) == 4 else tensor[None]

    def finish(result: torch.Tensor) -> Any:
        if len(shape) == 2 and result.shape[-1] == 1:
            result = result[..., 0]
        return convert(result if len(shape) == 4 else result[0])

    return _opened(stack, Layout.HWC, tensor, finish)


def _open_cupy(array: Any) -> Opened:
    import cupy

    tensor = torch.from_dlpack(cupy.ascontiguousarray(array)) if _numpy_supported(array) else None
    return _open_array(tensor, array, cupy.from_dlpack)


def _open_pil(image: Any) -> Opened:
    """A PIL image of any mode; gray ones stay gray, others are seen as RGB."""
    from PIL import Image

    mode = "L" if image.mode in ("1", "L") else "RGB"
    pixels = torch.from_numpy(np.array(image if image.mode == mode else image.convert(mode)))

    def finish(result: torch.Tensor) -> Any:
        result = result[0]
        if result.dtype != torch.uint8:
            return result.permute(2, 0, 1).contiguous()  # a PIL image cannot hold it
        return Image.fromarray(result[..., 0].numpy() if result.shape[-1] == 1 else result.numpy())

    stack = pixels[None, :, :, None] if mode == "L" else pixels[None]
    return _opened(stack, Layout.HWC, pixels, finish)


def _opened(
    stack: torch.Tensor, layout: Layout, given: torch.Tensor, finish: Callable[[torch.Tensor], Any]
) -> Opened:
    """`stack` is (N, H, W, C) in any memory order."""
    is_uint8 = given.dtype == torch.uint8
    if not is_uint8 and not given.dtype.is_floating_point:
        raise TransformError(f"images are uint8 or floating point, not {given.dtype}")
    if 0 in stack.shape:
        raise TransformError(f"images of shape {tuple(given.shape)} have no pixels")
    channels = stack.shape[-1]
    if channels == 1:
        stack = stack.expand(-1, -1, -1, 3)
    if not is_uint8:
        stack = stack.to(torch.float32)
    # A float64 image is computed in float32, and comes back as it came.
    double = given.dtype == torch.float64
    target_type = None if is_uint8 else _TYPES.get(given.dtype, Type.FLOAT32)
    return Opened(
        stack.contiguous(),
        channels,
        layout,
        target_type,
        (lambda result: finish(result.double() if result.is_floating_point() else result)) if double else finish,
    )
