"""`decode`: encoded images in, tensors out, without a loader."""

from __future__ import annotations

import dataclasses
import functools
import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.arguments import thread_count
from cuaug._runtime.fork import renew_after_fork
from cuaug._runtime.limits import check_bytes
from cuaug._runtime.migration_hints import suggest_arguments
from cuaug.codec import MessageLog, read_header, thread_decoder
from cuaug.codec.decode_options import DecodeOptions, open_options
from cuaug.errors import ArgumentError, DecodeError, SourceError, TransformError
from cuaug.images.image_types import tensor_fault
from cuaug.pipeline.iteration import OnError
from cuaug.pipeline.pipeline import Pipeline
from cuaug.pipeline.resolve_device import resolve_device
from cuaug.pipeline.shared import BlackLast, black_image, call_config, is_plain, makes_one_size, shared_pipeline
from cuaug.plan import Layout, Plan, Where
from cuaug.remote.urls import is_url
from cuaug.sampling import RankSlice
from cuaug.sampling.rng import SampleRNG
from cuaug.sources.file_bytes import error_reason, is_fd_limit_error, read_bytes
from cuaug.transforms import Compose, Transform
from cuaug.transforms.execute import draw_seed

__all__ = ["EncodedInput", "decode"]

#: One image: a path, or the bytes of a file.
EncodedInput: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | NDArray[np.uint8] | torch.Tensor
Region: TypeAlias = Sequence[int]
_ROWS = (Sequence, np.ndarray, torch.Tensor)
Chain: TypeAlias = Sequence[Transform] | Transform
Mode: TypeAlias = Literal["RGB", "L", "RGBA", "unchanged"]


@overload
def decode(
    paths_or_bytes: EncodedInput,
    transforms: None = None,
    *,
    region: Region | None = None,
    device: str | torch.device | None = None,
    mode: Mode = "RGB",
    threads: int | None = None,
    decode: DecodeOptions | None = None,
) -> torch.Tensor: ...


@overload
def decode(
    paths_or_bytes: list[Any] | tuple[Any, ...],
    transforms: None = None,
    *,
    region: Region | Sequence[Region] | None = None,
    device: str | torch.device | None = None,
    mode: Mode = "RGB",
    threads: int | None = None,
    decode: DecodeOptions | None = None,
    errors: list[DecodeError] | None = None,
) -> list[torch.Tensor]: ...


@overload
def decode(
    paths_or_bytes: EncodedInput | list[Any] | tuple[Any, ...],
    transforms: Chain,
    *,
    region: Region | Sequence[Region] | None = None,
    device: str | torch.device | None = None,
    mode: Mode = "RGB",
    threads: int | None = None,
    decode: DecodeOptions | None = None,
    errors: list[DecodeError] | None = None,
) -> torch.Tensor: ...  # as nearly always; see `Batch.images`


@suggest_arguments({})
def decode(
    paths_or_bytes: Any,
    transforms: Chain | None = None,
    *,
    region: Any = None,
    device: str | torch.device | None = None,
    mode: Mode = "RGB",
    threads: int | None = None,
    decode: DecodeOptions | None = None,
    errors: list[DecodeError] | None = None,
) -> Any:
    """Decode images, and transform them if asked to.

        image = cuaug.decode("cat.jpg")  # (3, H, W) uint8
        batch = cuaug.decode(requests, [T.Resize(256), T.CenterCrop(224), T.Normalize(mean, std)])  # (N, 3, 224, 224)
        crops = cuaug.decode(paths, region=(0, 0, 64, 64))  # N tensors (3, 64, 64)

    Pixels are those of a `Loader`. Random transforms draw from torch's generator, or from that of the `Compose`.

    Args:
        paths_or_bytes: one image, or a list of images: paths, or files in memory as bytes, bytearray, memoryview, or
            uint8 arrays or tensors of one dimension.
        transforms: a chain of `cuaug.transforms`.
        region: (top, left, height, width) in pixels of the displayed image, or a list with one region per image.
            Transforms see nothing beyond it. It gives the pixels of decoding all and cropping. On the CPU a JPEG's
            blocks outside it are not decoded where its restart markers allow that.
        device: as for `Loader`; None: CUAUG_DEVICE, else CUDA if it works, else the CPU.
        mode: "RGB", "L", "RGBA" or "unchanged", as in `DecodeOptions`. Others than "RGB" decode the whole image.
        threads: threads that read and decode; None: one per CPU of this process. They live until the process ends.
        decode: `cuaug.DecodeOptions`. `index_bytes` does not apply.
        errors: a list that receives a `DecodeError` for each damaged image of a list, whose `index` is its position.
            The result has the other images, in order: none if all are damaged. None: the first error is raised.

    Returns:
        One image: a tensor (3, H, W), uint8 or the chain's dtype; (C, H, W) in other modes. A list: a list of such
        tensors; one tensor (N, C, H, W) with a chain that makes one size of images of any size. With `T.Patches`,
        `T.Tiles` or `T.PadToLargest`: a pair (tensor, `cuaug.batch.Packing`).

    Raises:
        DecodeError: an image cannot be read or decoded, and `errors` is None. `index` is its position in the list,
            `path` its path.
        TransformError: a region reaches outside its image, or the chain does not fit an image.
        ArgumentError, DeviceError: an argument is invalid.
    """
    is_one = not isinstance(paths_or_bytes, (list, tuple))
    options = _with_mode(open_options(decode), mode)
    inputs = _Inputs([paths_or_bytes] if is_one else paths_or_bytes, options.mode)
    threads = thread_count(threads)
    chosen = _device(device, os.environ.get("CUAUG_DEVICE"))
    regions = None if region is None else _Regions(region, len(inputs) - 1, is_one)
    if errors is not None and is_one:
        raise ArgumentError("errors is for a list of images; the error of one image is raised")
    if is_one and transforms is None and chosen.type == "cpu" and options.mode == "RGB":
        return _decode_here(inputs.read(0)[0], regions, options)

    chain = transforms if isinstance(transforms, Compose) else Compose(_as_list(transforms))
    stack = transforms is not None and (not is_plain(chain) or (not is_one and makes_one_size(chain)))
    seed, epoch = draw_seed(chain.generator)
    whole = chain if regions is None else Compose([regions, chain])
    # The memory format of decoders, which takes a copy less.
    layout = Layout.HWC if transforms is None else Layout.CHW
    if chain.packing is not None:
        packing = chain.packing.format
        stack, inputs.black_multiple_of = True, max(packing.patch * packing.merge, 1)
    on_error: OnError = "raise" if errors is None else "skip"
    config = call_config(inputs, whole, options, chosen, stack=stack, layout=layout, on_error=on_error)
    pipeline = shared_pipeline(chosen, threads, options).with_config(config)
    order = BlackLast(epoch, seed, np.arange(len(inputs)))
    images = _run(pipeline, order, is_one, errors, apart=not stack and options.mode == "unchanged")
    if not is_one or chain.packing is not None:
        return images
    return tuple(views[0] for views in images) if isinstance(images, tuple) else images[0]


def _run(pipeline: Pipeline, order: BlackLast, is_one: bool, errors: list[DecodeError] | None, *, apart: bool) -> Any:
    """The images of a batch, or with `apart` of batches of one, whose channels may differ."""
    count = len(order) - 1  # all but the black image
    batches = np.arange(count).reshape(-1, 1 if apart else count)
    jobs = [
        pipeline.start(order, RankSlice(batch, np.ones(len(batch), dtype=bool), len(batch), count)) for batch in batches
    ]
    images: list[Any] = []
    try:
        for job in jobs:
            job.wait()
            job.check()
            failures = job.failures()
            if errors is None and failures:
                raise failures[0].at(failures[0].path, None) if is_one else failures[0]
            if errors is not None:
                errors += failures
            batch = job.take()
            images.append(batch.images if batch.packing is None else (batch.images, batch.packing))
    except BaseException:
        for job in jobs:
            job.cancel()
        raise
    return [image for batch in images for image in batch] if apart else images[0]


def _with_mode(options: DecodeOptions, mode: Mode) -> DecodeOptions:
    """The options with the mode, which one of the two arguments may set."""
    if mode == "RGB" or mode == options.mode:
        return options
    if options.mode != "RGB":
        raise ArgumentError(f"mode={mode!r} contradicts DecodeOptions(mode={options.mode!r}): give one of them")
    return dataclasses.replace(options, mode=mode)


def _decode_here(image: str | bytes, regions: _Regions | None, options: DecodeOptions) -> torch.Tensor:
    """Decodes one image in the calling thread: passing it to another would take longer for small images."""
    path = image if isinstance(image, str) else None
    decoder = thread_decoder(options.fancy_upsampling)
    try:
        data = read_bytes(image, options.max_bytes) if isinstance(image, str) else image
        check_bytes(len(data), options.max_bytes)
        header = read_header(data, apply_exif=options.apply_exif, max_pixels=options.max_pixels, lossy=options.lossy)
        region = None if regions is None else regions.of(0, header.height, header.width)
        pixels = decoder.decode_new(header, region)
    except OSError as error:
        if is_fd_limit_error(error):
            raise SourceError(f"cannot open {path!r}: {error_reason(error)}") from error
        raise DecodeError(error_reason(error), path=path) from error
    except MemoryError as error:
        raise DecodeError(f"not enough memory: {error}", path=path) from error
    except DecodeError as error:
        raise error.at(path, None) from error.__cause__
    MessageLog().warn("an image in memory" if path is None else repr(path), decoder.lines)
    return torch.from_numpy(pixels).permute(2, 0, 1)


class _Inputs:
    """The images to decode as a source, and after them a black image."""

    def __init__(self, inputs: Sequence[Any], mode: str) -> None:
        if not inputs:
            raise ArgumentError("paths_or_bytes is empty: give at least one image")
        self._inputs = [_to_path_or_bytes(value, position) for position, value in enumerate(inputs)]
        self._mode = mode
        self.black_multiple_of = 1

    def __len__(self) -> int:
        return len(self._inputs) + 1

    def read(self, index: int) -> tuple[Any, None]:
        if index == len(self._inputs):
            return black_image(self._mode, self.black_multiple_of), None
        return self._inputs[index], None


_DECODED = "; it looks like a decoded image, which transforms take as it is: Compose([...])(image)"


def _to_path_or_bytes(value: Any, position: int) -> str | bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, (str, os.PathLike)):
        path = os.fsdecode(value)
        if is_url(path):
            raise ArgumentError(
                f"paths_or_bytes: input {position} is the URL {path!r:.200}: fetch it, and give its bytes"
            )
        return path
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, torch.Tensor) and (fault := tensor_fault(value)):
        raise ArgumentError(f"paths_or_bytes: input {position} must be a dense tensor, not {fault}")
    if isinstance(value, (np.ndarray, torch.Tensor)):
        if value.dtype in (np.uint8, torch.uint8) and value.ndim == 1:
            return (value.cpu().numpy() if isinstance(value, torch.Tensor) else value).tobytes()
        raise ArgumentError(
            f"paths_or_bytes: input {position} has the shape {tuple(value.shape)} and the dtype {value.dtype}; it "
            f"must hold the bytes of a file, (n,) uint8{_DECODED if value.ndim in (2, 3) else ''}"
        )
    hint = (
        _DECODED
        if hasattr(value, "getpixel")
        else "; give the bytes that read() returns"
        if hasattr(value, "read")
        else ""
    )
    raise ArgumentError(
        f"paths_or_bytes: input {position} must be a path, the bytes of a file, or a uint8 array or tensor of them, "
        f"not {value!r:.100}{hint}"
    )


class _Regions(Transform):
    """Crops each image to its region.

    Args:
        region: (top, left, height, width), or one per image.
        count: number of images.
        is_one: whether only one image is decoded.
    """

    def __init__(self, region: Any, count: int, is_one: bool) -> None:
        try:
            entries = _to_list(region)
            is_common = is_one or not any(isinstance(entry, _ROWS) for entry in entries)
            rows = [list(map(operator.index, _to_list(row))) for row in ([entries] if is_common else entries)]
        except TypeError:
            rows = []
        if not rows or any(len(row) != 4 for row in rows):
            raise ArgumentError(
                "region must be (top, left, height, width), four integers"
                + ("" if is_one else ", or a list with one such region per image")
                + f", not {region!r:.200}"
            )
        if not is_common and len(rows) != count:
            raise ArgumentError(
                f"region has {len(rows)} regions for {count} images: give one per image, or one for all"
            )
        self._rows = rows * count if is_common else rows  # Python integers: `of` checks them before NumPy sees them

    def of(self, position: int, height: int, width: int) -> tuple[int, int, int, int]:
        """(y0, x0, y1, x1) of an image's region; of the black image after them, all of it.

        Raises:
            TransformError: it is empty or reaches outside the image.
        """
        if position == len(self._rows):
            return 0, 0, height, width
        top, left, rows, columns = self._rows[position]
        if min(top, left) < 0 or min(rows, columns) < 1 or top + rows > height or left + columns > width:
            raise TransformError(
                f"region (top, left, height, width) = {(top, left, rows, columns)} is empty or reaches outside the "
                f"image of {height} x {width} pixels (height x width)"
            )
        return top, left, top + rows, left + columns

    def plan(self, plan: Plan, rng: SampleRNG, where: Where = None) -> None:
        rows = zip(rng.indices.tolist(), *map(np.ndarray.tolist, plan.sizes), strict=True)
        y0, x0, y1, x1 = np.array([self.of(*row) for row in rows], dtype=np.int64).T
        plan.crop(y0, x0, y1 - y0, x1 - x0)


def _to_list(row: Any) -> list[Any]:
    """The entries of a region or a list of regions.

    Raises:
        TypeError: it is something else, such as a set or bytes.
    """
    if isinstance(row, torch.Tensor) and tensor_fault(row) is None and row.ndim:
        return row.tolist()
    if isinstance(row, np.ndarray) and row.ndim:
        return row.tolist()
    if not isinstance(row, Sequence) or isinstance(row, (str, bytes, bytearray, memoryview)):
        raise TypeError
    return list(row)


def _as_list(transforms: Chain | None) -> list[Transform]:
    return [] if transforms is None else list(transforms) if isinstance(transforms, Iterable) else [transforms]


@functools.lru_cache(maxsize=16)
def _device(device: str | torch.device | None, environment: str | None) -> torch.device:
    """The device; asking CUDA each time would take longer than decoding."""
    return resolve_device(device)


def _forget() -> None:
    """In a forked child, whose parent has the device."""
    _device.cache_clear()


renew_after_fork(_forget)
