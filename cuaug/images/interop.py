"""Converts images to the kernels' layout, and results back.

A result has the kind, device and axes of its input:

    input                 axes                             dtype                      result
    torch tensor          (C, H, W), (N, C, H, W)          uint8, uint16, any float   tensor; channels-last stays so
    NumPy or CuPy array   (H, W), (H, W, C), (N, H, W, C)  uint8, uint16, any float   array; no bfloat16
    PIL image             1, L, LA, RGB, RGBA, I;16        uint8, uint16              PIL image; float results are a
                                                                                      tensor

Clips have one more axis: tensors (N, T, C, H, W) and arrays (N, T, H, W, C) hold N clips of T frames, a
tv_tensors.Video (T, C, H, W) holds one. A tv_tensors.Image or Video stays one.

C is 1 to 16. Tensors are on the CPU or a CUDA device; gradients are refused. Float images are in [0, 1], and kernels
compute in float32. uint16 images are scaled to [0, 1] and back; they stay floats where the chain normalizes them or
asks for a dtype. PIL images with a palette become RGB, or RGBA where it is transparent. Other PIL modes are refused:
"I" and "F" have no fixed range, and a conversion of CMYK or YCbCr is the user's choice.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch

from cuaug._runtime.cpus import threads_for
from cuaug._runtime.huge_pages import empty
from cuaug._runtime.native import BEST_ISA, library
from cuaug.errors import TransformError
from cuaug.images.image_types import is_clip, is_typed_image, is_video, tensor_fault, tv_tensor_kind
from cuaug.plan import MAX_CHANNELS, Layout, Type, count_groups

#: White of uint16 images.
UINT16_MAX = 65535.0

_TYPES = {
    torch.uint8: Type.UINT8,
    torch.float16: Type.FLOAT16,
    torch.bfloat16: Type.BFLOAT16,
    torch.float32: Type.FLOAT32,
}
_DTYPES = {value: key for key, value in _TYPES.items()}

Function = TypeVar("Function", bound=Callable[..., Any])


def disable_compile(function: Function) -> Function:
    """Makes `torch.compile` break its graph at a function.

    The compiler cannot trace NumPy and the kernels.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        # Not as a decorator: that imports the compiler, which takes a second.
        return torch.compiler.disable(function)(*args, **kwargs)

    return cast(Function, call)


def type_of(dtype: torch.dtype) -> Type:
    """The kernels' type for a torch dtype.

    Raises:
        TransformError: the dtype is not uint8, float16, bfloat16 or float32.
    """
    if not isinstance(dtype, torch.dtype) or dtype not in _TYPES:
        raise TransformError(f"dtype must be one of {', '.join(map(str, _TYPES))}, not {dtype!r}")
    return _TYPES[dtype]


def dtype_of(kind: Type) -> torch.dtype:
    """The torch dtype for a type of the kernels."""
    return _DTYPES[kind]


@dataclass(frozen=True)
class InputImages:
    """A stack of images ready for the kernels, and how to return the result.

    Attributes:
        groups: each group of three channels, (N, H, W, 3) uint8 or float32, contiguous, on the input's device.
        channels: 1 to 16, as in the input; gray images are spread to three equal channels.
        layout: memory layout of a uint8 result.
        float_layout: memory layout of a float result.
        target_type: type of the result unless the chain asks for another; None for uint8, uint16 and float64 input.
        is_double: the input is float64. The result, computed in float32, becomes float64 unless the chain asks for a
            type.
        is_uint16: the input is uint16, here scaled to [0, 1]. The result becomes uint16 in the same way.
        finish: makes the result from a tensor (N, C, H, W) in that layout.
        frames: the number of consecutive images that make a clip; they share their draws.
    """

    groups: list[torch.Tensor]
    channels: int
    layout: Layout
    float_layout: Layout
    target_type: Type | None
    is_double: bool
    is_uint16: bool
    finish: Callable[[torch.Tensor], Any]
    frames: int = 1

    @property
    def images(self) -> torch.Tensor:
        """The first group: all channels of RGB and gray images."""
        return self.groups[0]


def open_images(images: Any) -> InputImages:
    """Converts images to a stack; packed RGB is not copied.

    Raises:
        TransformError: not an image, or a shape or dtype that the table above lacks.
    """
    if isinstance(images, torch.Tensor) and (fault := tensor_fault(images)):
        raise TransformError(f"image must be a dense tensor, not {fault}")
    if is_clip(images):
        return _open_clips(images)
    if isinstance(images, torch.Tensor):
        kind = tv_tensor_kind(type(images))
        if kind not in (None, "Image", "Video"):
            raise TransformError(f"image: a tv_tensors.{kind} is a target: pass it after its image")
        opened = _open_tensor(images)
        return opened if kind is None else _keep_tv_tensor(opened, images)
    if isinstance(images, np.ndarray):
        return _open_array(images, _from_numpy, _to_numpy)
    if hasattr(images, "__cuda_array_interface__"):
        return _open_cupy(images)
    pillow = sys.modules.get("PIL.Image")  # imported already if the user has a PIL image
    if pillow is not None and isinstance(images, pillow.Image):
        return _open_pil(images)
    is_file = isinstance(images, (str, bytes, bytearray, os.PathLike)) or hasattr(images, "read")
    raise TransformError(
        f"image must be a torch tensor, a NumPy or CuPy array or a PIL image, not {type(images).__module__}."
        f"{type(images).__qualname__}"
        + (": cuaug.decode(path or bytes, chain) reads files and transforms them" if is_file else "")
    )


def _open_clips(clips: Any) -> InputImages:
    """Opens all frames of all clips as a stack, clip by clip."""
    shape = clips.shape
    frames = clips.as_subclass(torch.Tensor) if isinstance(clips, torch.Tensor) else clips
    opened = open_images(frames.reshape(-1, *shape[-3:]))
    inner = opened.finish

    def finish(result: torch.Tensor) -> Any:
        made = inner(result)
        if len(shape) == 5:
            made = made.reshape(shape[0], -1, *made.shape[1:])
        return made.swapaxes(-5, -4) if result.ndim == 5 else made  # views before frames

    opened = replace(opened, frames=shape[-4], finish=finish)
    return _keep_tv_tensor(opened, clips) if is_video(clips) else opened


def _keep_tv_tensor(opened: InputImages, original: torch.Tensor) -> InputImages:
    """Results become tv_tensors of the class of the input, as in torchvision."""
    inner, least = opened.finish, 4 if is_video(original) else 3

    def finish(result: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = inner(result)
        # The output of a Lambda may be no image.
        return made.as_subclass(type(original)) if made.ndim >= least else made

    return replace(opened, finish=finish)


def _from_numpy(array: np.ndarray) -> torch.Tensor:
    # torch has no negative strides and no foreign byte order, and warns of read-only memory.
    array = _positive_strides(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _positive_strides(array: Any) -> Any:
    """Copies a contiguous array if an axis of length 1 has a negative stride."""
    return array if min(array.strides, default=0) >= 0 else array.copy()


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        raise TransformError("NumPy has no bfloat16: ask for another dtype, or pass a torch tensor")
    return tensor.numpy()


def _open_tensor(tensor: torch.Tensor) -> InputImages:
    if tensor.is_cuda:
        _refuse_graph_capture()
    tensor = tensor.detach()
    if tensor.ndim not in (3, 4) or not 0 < tensor.shape[-3] <= MAX_CHANNELS:
        raise TransformError(
            f"image: a tensor must be (C, H, W) or (N, C, H, W) with 1 to {MAX_CHANNELS} channels, not "
            f"{tuple(tensor.shape)}"
        )
    is_batch = tensor.ndim == 4
    stack = tensor if is_batch else tensor[None]
    last = is_batch and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)

    def finish(result: torch.Tensor) -> torch.Tensor:
        if last and result.ndim == 4:
            result = result.contiguous(memory_format=torch.channels_last)  # groups of channels are written as planes
        return result if is_batch else result[0]

    layout = Layout.HWC if last else Layout.CHW
    return _make_input(stack.permute(0, 2, 3, 1), layout, layout, tensor, finish)


def _refuse_graph_capture() -> None:
    """Raises inside a CUDA graph capture: each replay would repeat this call's parameters, from reused memory."""
    if torch.cuda.is_current_stream_capturing():
        raise TransformError(
            "image: transforms cannot run while a CUDA graph is captured, since its replays would repeat one call's "
            "random parameters: transform before the graph, copy the result into the graph's input, as Batch.copy_into "
            "does, and replay the graph"
        )


def _open_array(
    array: Any, to_torch: Callable[[Any], torch.Tensor], from_torch: Callable[[torch.Tensor], Any]
) -> InputImages:
    shape, dtype = tuple(array.shape), array.dtype
    if dtype not in (np.uint8, np.uint16) and not (dtype.kind == "f" and dtype.itemsize <= 8):
        raise TransformError(f"image: its dtype must be uint8, uint16 or floating point, not {dtype}")
    if len(shape) not in (2, 3, 4) or (len(shape) > 2 and not 0 < shape[-1] <= MAX_CHANNELS):
        raise TransformError(
            f"image: an array must be (H, W), (H, W, C) or (N, H, W, C) with 1 to {MAX_CHANNELS} channels, not {shape}"
        )
    tensor = to_torch(array)
    stack = tensor[None, :, :, None] if len(shape) == 2 else tensor if len(shape) == 4 else tensor[None]

    def finish(result: torch.Tensor) -> Any:
        result = result.movedim(-3, -1).contiguous() if result.ndim > 3 else result
        if len(shape) == 2 and result.shape[-1] == 1:
            result = result[..., 0]
        return from_torch(result if len(shape) == 4 else result[0])

    return _make_input(stack, Layout.HWC, Layout.HWC, tensor, finish)


def _open_cupy(array: Any) -> InputImages:
    import cupy

    _refuse_graph_capture()

    def to_cupy(result: torch.Tensor) -> Any:
        # DLPack makes CuPy's current stream wait for torch's. Nothing keeps torch from reusing the memory before CuPy's
        # stream is done with it, so the stream is recorded.
        with torch.cuda.device(result.device):
            stream = cupy.cuda.get_current_stream().ptr  # 0: the default stream
            result.record_stream(torch.cuda.ExternalStream(stream) if stream else torch.cuda.default_stream())
            return cupy.from_dlpack(result)

    def to_torch(array: Any) -> torch.Tensor:
        return torch.from_dlpack(_positive_strides(cupy.ascontiguousarray(array)))

    return _open_array(array, to_torch, to_cupy)


def to_tensor(image: Any) -> torch.Tensor:
    """A tensor (..., C, H, W) of the pixels of any input, without a change of values."""
    if isinstance(image, torch.Tensor):
        return image
    if isinstance(image, np.ndarray):
        pixels = _from_numpy(image)
    else:
        pixels = read_pil(image) if is_typed_image(image) else torch.from_dlpack(image)
    return pixels[None] if pixels.ndim == 2 else pixels.movedim(-1, -3)


def read_pil(image: Any) -> torch.Tensor:
    """The pixels of a PIL image, (H, W) or (H, W, C), uint8 or uint16.

    Raises:
        TransformError: the mode has no fixed range, or needs a conversion that is the user's choice.
    """
    if image.mode in ("I", "F"):  # convert("RGB") would clip these, mostly to white or black
        raise TransformError(
            f"image: a PIL image of mode {image.mode!r} has no fixed range: pass an array scaled as you need"
        )
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    kept = {"1": "L", "La": "LA", "RGBa": "RGBA", "RGBX": "RGB"}.get(image.mode, image.mode)
    if kept.startswith("I;16"):
        return torch.from_numpy(np.asarray(image).astype(np.uint16))
    if kept in ("L", "LA", "RGB", "RGBA"):
        return torch.from_numpy(np.array(image if image.mode == kept else image.convert(kept)))
    raise TransformError(f"image: a PIL image of mode {image.mode!r} must be converted first: image.convert('RGB')")


def _open_pil(image: Any) -> InputImages:
    from PIL import Image

    pixels = read_pil(image)

    def finish(result: torch.Tensor) -> Any:
        result = result[0]
        if result.ndim == 4:  # views
            return tuple(finish(view[None]) for view in result)
        if result.ndim != 3:  # not an image: the output of a Lambda
            return result
        if result.is_floating_point():
            return result.contiguous()  # PIL has no float RGB
        return Image.fromarray(result[0].numpy() if len(result) == 1 else result.permute(1, 2, 0).numpy())

    stack = pixels[None, :, :, None] if pixels.ndim == 2 else pixels[None]
    return _make_input(stack, Layout.HWC, Layout.CHW, pixels, finish)


def _make_input(
    stack: torch.Tensor,
    layout: Layout,
    float_layout: Layout,
    original: torch.Tensor,
    finish: Callable[[torch.Tensor], Any],
) -> InputImages:
    """`stack` is (N, H, W, C) with any strides."""
    is_uint8, is_uint16 = original.dtype == torch.uint8, original.dtype == torch.uint16
    if not is_uint8 and not is_uint16 and not original.dtype.is_floating_point:
        raise TransformError(f"image: its dtype must be uint8, uint16 or floating point, not {original.dtype}")
    if 0 in stack.shape:
        raise TransformError(f"image: images of shape {tuple(original.shape)} have no pixels")
    channels = stack.shape[-1]
    if channels == 1:
        stack = stack.expand(-1, -1, -1, 3)
    if not is_uint8:
        stack = stack.to(torch.float32)
    if is_uint16:
        stack = stack / UINT16_MAX
    is_double = original.dtype == torch.float64
    target_type = None if is_uint8 or is_uint16 or is_double else _TYPES.get(original.dtype, Type.FLOAT32)
    groups = [_pack(group) for group in split_channels(stack)]
    return InputImages(groups, channels, layout, float_layout, target_type, is_double, is_uint16, finish)


def split_channels(stack: torch.Tensor) -> list[torch.Tensor]:
    """(N, H, W, C) in groups of three channels; the last group repeats its last channel to have three."""
    channels = stack.shape[-1]
    if channels == 3:
        return [stack]
    last = torch.arange(3 * count_groups(channels)).clamp_(max=channels - 1).to(stack.device)
    return list(stack[..., last].split(3, dim=-1))


def to_uint16(images: torch.Tensor) -> torch.Tensor:
    """Floats in [0, 1] as uint16, rounded and saturated."""
    # Not at once: torch converts a float to uint16 on fewer devices.
    return (images * UINT16_MAX).round_().clamp_(0, UINT16_MAX).to(torch.int32).to(torch.uint16)


def _pack(stack: torch.Tensor) -> torch.Tensor:
    """A contiguous (N, H, W, 3) copy; planar images on the CPU take a fraction of torch's time."""
    _, height, width, channels = stack.shape
    is_planar = stack.stride(2) == 1 and (height == 1 or stack.stride(1) == width)
    if stack.is_contiguous() or stack.device.type != "cpu" or channels != 3 or not is_planar or stack.is_neg():
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
