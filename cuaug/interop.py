"""Images as users have them, seen as the kernels need them, and results handed back in kind.

`open_images` reads a torch tensor, a NumPy or CuPy array or a PIL image as a stack of packed RGB images;
`InputImages.finish` makes the result: the same kind of thing, on the same device, with the same axes. `disable_compile`
keeps torch.compile out of all this.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch

from cuaug._runtime.huge_pages import pages
from cuaug._runtime.intraop import threads_for
from cuaug._runtime.native import BEST_ISA, library
from cuaug.errors import TransformError
from cuaug.plan import Layout, Type

__all__ = ["InputImages", "disable_compile", "dtype_of", "empty", "open_images", "type_of"]

_TYPES = {
    torch.uint8: Type.UINT8,
    torch.float16: Type.FLOAT16,
    torch.bfloat16: Type.BFLOAT16,
    torch.float32: Type.FLOAT32,
}
_DTYPES = {value: key for key, value in _TYPES.items()}

# From here on the GNU C library maps memory anew each time, and the system clears it page by page as it is written,
# which takes longer than the kernels do; below, it hands out again what was in use before.
_MAPPED_BYTES = 32 << 20

Function = TypeVar("Function", bound=Callable[..., Any])


def disable_compile(function: Function) -> Function:
    """The function, at which `torch.compile` breaks its graph: it cannot trace NumPy and the kernels."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        # Not as a decorator: that imports the compiler, which takes a second.
        return torch.compiler.disable(function)(*args, **kwargs)

    return cast(Function, call)


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """An uninitialised contiguous tensor. On the CPU, a large one has huge pages."""
    size = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or size < _MAPPED_BYTES:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(pages(size)).view(dtype).view(shape)


def type_of(dtype: torch.dtype) -> Type:
    """The kernels' name of a torch dtype.

    Raises:
        TransformError: for any but uint8, float16, bfloat16 and float32.
    """
    if not isinstance(dtype, torch.dtype) or dtype not in _TYPES:
        raise TransformError(f"dtype is one of {', '.join(map(str, _TYPES))}, not {dtype!r}")
    return _TYPES[dtype]


def dtype_of(kind: Type) -> torch.dtype:
    return _DTYPES[kind]


@dataclass(frozen=True)
class InputImages:
    """A stack of images ready for the kernels.

    Attributes:
        images: (N, H, W, 3) uint8 or float32 tensor, contiguous, on the device that the images came from.
        channels: 1 or 3, as they came; gray ones were spread to three equal channels.
        layout: how a uint8 result is to lie in memory.
        float_layout: how a result of floats is to.
        target_type: the result's type unless the chain asks for another; None for uint8 and float64 input.
        is_double: the input was float64; the result, computed in float32, is to be float64 unless the chain asks.
        finish: makes the result from a tensor (N, C, H, W) that lies so.
    """

    images: torch.Tensor
    channels: int
    layout: Layout
    float_layout: Layout
    target_type: Type | None
    is_double: bool
    finish: Callable[[torch.Tensor], Any]


def open_images(images: Any) -> InputImages:
    """Sees `images` as a stack; copies only what does not lie in memory as packed RGB.

    Raises:
        TransformError: not an image, or a shape or dtype that is not supported; the message says which are.
    """
    if isinstance(images, torch.Tensor):
        return _open_tensor(images)
    if isinstance(images, np.ndarray):
        return _open_array(images, _from_numpy, _to_numpy)
    if hasattr(images, "__cuda_array_interface__"):
        return _open_cupy(images)
    pillow = sys.modules.get("PIL.Image")  # whoever has a PIL image has imported it
    if pillow is not None and isinstance(images, pillow.Image):
        return _open_pil(images)
    raise TransformError(
        f"an image is a torch tensor, a NumPy or CuPy array or a PIL image, not {type(images).__module__}."
        f"{type(images).__qualname__}"
    )


def _from_numpy(array: np.ndarray) -> torch.Tensor:
    # torch has no negative strides, only the native byte order, and a warning for what it may not write to.
    array = _forwards(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _forwards(array: Any) -> Any:
    """Of a contiguous array, one without negative strides: an axis of length 1 may have kept its own."""
    return array if min(array.strides, default=0) >= 0 else array.copy()


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        raise TransformError("NumPy has no bfloat16: ask for another dtype, or pass a torch tensor")
    return tensor.numpy()


def _open_tensor(tensor: torch.Tensor) -> InputImages:
    """(C, H, W) or (N, C, H, W); a channels-last batch comes back channels-last."""
    if tensor.device.type not in ("cpu", "cuda"):
        raise TransformError(f"a tensor is on the CPU or a CUDA device, not on {tensor.device}")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise TransformError("no gradient flows through transforms: pass images.detach(), or use torch.no_grad()")
    tensor = tensor.detach()
    if tensor.ndim not in (3, 4) or tensor.shape[-3] not in (1, 3):
        raise TransformError(f"a tensor is (C, H, W) or (N, C, H, W) with 1 or 3 channels, not {tuple(tensor.shape)}")
    stack = tensor if tensor.ndim == 4 else tensor[None]
    last = tensor.ndim == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)

    def finish(result: torch.Tensor) -> torch.Tensor:
        return result if tensor.ndim == 4 else result[0]

    layout = Layout.HWC if last else Layout.CHW
    return _opened(stack.permute(0, 2, 3, 1), layout, layout, tensor, finish)


def _open_array(
    array: Any, to_torch: Callable[[Any], torch.Tensor], from_torch: Callable[[torch.Tensor], Any]
) -> InputImages:
    """(H, W), (H, W, C) or (N, H, W, C)."""
    shape, dtype = tuple(array.shape), array.dtype
    if dtype != np.uint8 and not (dtype.kind == "f" and dtype.itemsize <= 8):
        raise TransformError(f"images are uint8 or floating point, not {dtype}")
    if len(shape) not in (2, 3, 4) or (len(shape) > 2 and shape[-1] not in (1, 3)):
        raise TransformError(f"an array is (H, W), (H, W, C) or (N, H, W, C) with 1 or 3 channels, not {shape}")
    tensor = to_torch(array)
    stack = tensor[None, :, :, None] if len(shape) == 2 else tensor if len(shape) == 4 else tensor[None]

    def finish(result: torch.Tensor) -> Any:
        result = result.movedim(-3, -1) if result.ndim > 3 else result
        if len(shape) == 2 and result.shape[-1] == 1:
            result = result[..., 0]
        return from_torch(result if len(shape) == 4 else result[0])

    return _opened(stack, Layout.HWC, Layout.HWC, tensor, finish)


def _open_cupy(array: Any) -> InputImages:
    import cupy

    def to_cupy(result: torch.Tensor) -> Any:
        # DLPack has CuPy's current stream wait for torch's. It does not have torch keep the memory until that stream is
        # done with it.
        with torch.cuda.device(result.device):
            stream = cupy.cuda.get_current_stream().ptr  # 0: the default stream
            result.record_stream(torch.cuda.ExternalStream(stream) if stream else torch.cuda.default_stream())
            return cupy.from_dlpack(result)

    return _open_array(array, lambda array: torch.from_dlpack(_forwards(cupy.ascontiguousarray(array))), to_cupy)


def _open_pil(image: Any) -> InputImages:
    """A PIL image; gray ones stay gray, with 8 bits of 16, and others are seen as RGB."""
    from PIL import Image

    if image.mode in ("I", "F"):  # convert("RGB") would clip these, mostly to a white or black picture
        raise TransformError(f"a PIL image of mode {image.mode!r} has no fixed range: pass an array scaled as you need")
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode == "La":
        image = image.convert("LA")  # which alone leads on
    mode = "L" if image.mode in ("1", "L") else "RGB"
    pixels = torch.from_numpy(np.array(image if image.mode == mode else image.convert(mode)))

    def finish(result: torch.Tensor) -> Any:
        result = result[0]
        if result.ndim == 4:  # several images of this one
            return tuple(finish(view[None]) for view in result)
        if result.ndim != 3:  # a Lambda's, which are no images
            return result
        if result.dtype != torch.uint8:
            return result.contiguous()  # a PIL image cannot hold it
        return Image.fromarray(result[0].numpy() if len(result) == 1 else result.permute(1, 2, 0).numpy())

    stack = pixels[None, :, :, None] if mode == "L" else pixels[None]
    return _opened(stack, Layout.HWC, Layout.CHW, pixels, finish)


def _opened(
    stack: torch.Tensor,
    layout: Layout,
    float_layout: Layout,
    given: torch.Tensor,
    finish: Callable[[torch.Tensor], Any],
) -> InputImages:
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
    is_double = given.dtype == torch.float64
    target_type = None if is_uint8 or is_double else _TYPES.get(given.dtype, Type.FLOAT32)
    return InputImages(_packed(stack), channels, layout, float_layout, target_type, is_double, finish)


def _packed(stack: torch.Tensor) -> torch.Tensor:
    """(N, H, W, 3) uint8 or float32, contiguous; for planes on the CPU in a fraction of the time that torch takes."""
    _, height, width, channels = stack.shape
    of_planes = stack.stride(2) == 1 and (height == 1 or stack.stride(1) == width)
    if stack.is_contiguous() or stack.device.type != "cpu" or channels != 3 or not of_planes or stack.is_neg():
        return stack.contiguous()
    packed = empty(stack.shape, stack.dtype, stack.device)
    size = stack.element_size()
    library.cuaug_interleave(
        BEST_ISA,
        threads_for(2 * packed.nbytes),
        stack.data_ptr(),
        len(stack),
        stack.stride(0) * size,
        stack.stride(3) * size,
        height * width,
        size,
        packed.data_ptr(),
    )
    return packed
