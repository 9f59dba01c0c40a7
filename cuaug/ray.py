"""`Augment`: images in columns of batches, decoded and augmented. For Ray Data, which this module does not import.

dataset = ray.data.read_binary_files("s3://bucket/photos", include_paths=True)
settings = {"transforms": chain, "key": "path", "out": "image"}
dataset = dataset.map_batches(cuaug.ray.Augment, fn_constructor_kwargs=settings, concurrency=8, batch_size=64)
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.arguments import flag, integer, one_of, thread_count
from cuaug._runtime.fork import renew_after_fork
from cuaug.batch import Batch
from cuaug.codec.decode_options import DecodeOptions, open_options
from cuaug.errors import ArgumentError, DecodeError, TransformError
from cuaug.pipeline.iteration import OnError
from cuaug.pipeline.resolve_device import resolve_device
from cuaug.pipeline.shared import BlackLast, black_image, call_config, is_plain, makes_one_size, shared_pipeline
from cuaug.remote.urls import is_url
from cuaug.sampling import RankSlice
from cuaug.targets.names import TargetFormat, TargetNameError, is_instance_field, row_count
from cuaug.transforms import Compose, Transform
from cuaug.transforms.base import BatchFunction

__all__ = ["Augment", "draw_keys"]

log = logging.getLogger("cuaug")

Column = Any  # (n, ...) array, or a list of n values


class Augment:
    """Decodes and augments the images in a column, for `Dataset.map_batches` with Ray's default batch format.

    A row's random numbers depend only on the seed, the epoch and the row's key, not on its position, batch, worker or
    attempt. A retried task and a differently partitioned data set give the same bits. Rows with equal keys have equal
    draws. A row with the integer key k has the draws of sample k of a `cuaug.Loader` with this seed and epoch.

    Pass the class with `fn_constructor_kwargs` for actors, which keep their decoders, or an instance for tasks. An
    actor or task uses as many threads as Ray has given it CPUs, and a GPU if it has one (`num_gpus=1`).

    Args:
        transforms: a chain of `cuaug.transforms`. Transforms that mix images are refused: a batch's rows depend on the
            partitioning.
        image: the column of images. A value is the bytes of a file, a local path, uint8 pixels (H, W, 3), or a dict
            {"bytes", "path"} as in Hugging Face's data sets.
        key: the column of keys, integers or strings. `draw_keys` has the hash of strings.
        seed: any integer.
        epoch: any integer; another one gives other draws.
        out: the column of the augmented images, a new one; None: in place of `image`. The column `image` is left out
            unless it is the key. Further columns pass unchanged.
        targets: columns of boxes, masks, keypoints and labels that move with the images. Their names have the meaning
            of keys in `cuaug.targets.Targets`. If a transform drops boxes, these columns lose the same rows; a further
            column with a row per box is refused, unless `Compose(..., pass_through=)` names it.
        on_error: handling of rows whose image is null or cannot be read or decoded. "raise": raise a `DecodeError`.
            "skip": drop the row. "replace": augment a black image of 1024 x 1024 pixels in its place; the new column
            "valid" is False there. Each such row is logged with its path or key, and counted in `failed`.
        tensors: True for a torch tensor on the device in `out`, for use inside an actor of yours; False for NumPy.
        device: "cpu" or "cuda"; None: CUDA if it works, else the CPU.
        threads: threads that decode; None: the CPUs that Ray has assigned, else one per CPU of this process.
        decode: `cuaug.DecodeOptions`. `index_bytes` does not apply.

    The images are (N, C, H, W), uint8 or the chain's dtype. Of a chain that makes several sizes they are N arrays
    (C, H, W), in NumPy an object array.

    Attributes:
        failed: number of rows that were skipped or replaced by this object.

    Raises:
        ArgumentError: an argument is invalid, or a column is missing or holds something else.
        DecodeError: an image cannot be read or decoded. `path` is the row's path, or its key as "id=17".
        TransformError: the chain does not fit an image.
    """

    def __init__(
        self,
        transforms: Sequence[Transform | BatchFunction] | Transform | BatchFunction,
        *,
        image: str = "bytes",
        key: str = "id",
        seed: int = 0,
        epoch: int = 0,
        out: str | None = None,
        targets: Sequence[str] = (),
        on_error: OnError = "raise",
        tensors: bool = False,
        device: str | torch.device | None = None,
        threads: int | None = None,
        decode: DecodeOptions | None = None,
    ) -> None:
        if not isinstance(transforms, Compose):
            transforms = Compose(list(transforms) if isinstance(transforms, Sequence) else [transforms])
        if transforms.partners:
            raise ArgumentError(
                f"transforms: {transforms!r:.200} mixes images of one batch, and which rows share a batch depends on "
                "the partitioning; mix in the training step"
            )
        self.transforms = transforms
        self.image, self.key = image, key
        self.out = image if out is None else out
        self.seed, self.epoch = integer("seed", seed), integer("epoch", epoch)
        if isinstance(targets, str):
            raise ArgumentError(f"targets must be a list of columns, not {targets!r}")
        self.targets = tuple(targets)
        if image in self.targets:
            raise ArgumentError(f"targets: {image!r} is the column of images")
        self.on_error: OnError = one_of("on_error", on_error, get_args(OnError))
        if self.targets and self.on_error == "replace":
            raise ArgumentError("on_error='replace' has no targets for the black image: use 'skip' with targets")
        if self.on_error == "replace" and self.out == "valid":
            raise ArgumentError("on_error='replace' adds the column 'valid': give `out` another name")
        self.tensors = flag("tensors", tensors)
        self.device = device
        self.threads = thread_count(threads)
        self.decode = open_options(decode)
        self._stack = not is_plain(transforms) or makes_one_size(transforms)
        self.failed = 0

    def __call__(self, batch: Mapping[str, Column]) -> dict[str, Column]:
        """Augments a batch: a dict of columns with n rows each, as NumPy arrays or lists."""
        self._check(batch)
        count, keys = len(batch[self.image]), draw_keys(batch[self.key], self.key)
        labels: list[Any] = [None] * count
        if self.targets:
            columns = zip(*(batch[name] for name in self.targets), strict=True)
            labels = [dict(zip(self.targets, map(_dense, values), strict=True)) for values in columns]
        rows = _Rows(self.image, batch[self.image], labels, self.key, batch[self.key], self.decode.mode)
        found = self._run(rows, np.append(keys, -1))
        kept = found.indices.numpy() if self.on_error == "skip" else np.arange(count)
        moved = {*self.targets} if self.image == self.key != self.out else {self.image, *self.targets}
        result = {name: column for name, column in batch.items() if name not in moved}
        if "boxes" in self.targets:
            self._check_boxes(result, rows, kept, found.labels)
        if len(kept) < count:
            result = {name: _select(column, kept) for name, column in result.items()}
        for name in self.targets:
            result[name] = _merge([label[name] for label in found.labels]) if len(kept) else batch[name][:0]
        result[self.out] = found.images if self.tensors else _as_numpy(found.images)
        if self.on_error == "replace":
            result["valid"] = found.valid.numpy()
        return result

    def _check(self, batch: Mapping[str, Column]) -> None:
        if not isinstance(batch, Mapping):
            raise ArgumentError(f"the batch is a {type(batch).__name__}, not a dict of arrays: leave out batch_format")
        for name in (self.image, self.key, *self.targets):
            if name not in batch:
                raise ArgumentError(f"the batch has no column {name!r}; it has {', '.join(map(repr, batch))}")
            if row_count(batch[name]) is None:
                raise ArgumentError(
                    f"the column {name!r} holds {batch[name]!r:.100}, not a row per image: use map_batches, not map"
                )
            if len(batch[name]) != len(batch[self.image]):
                raise ArgumentError(
                    f"the column {name!r} has {len(batch[name])} rows and {self.image!r} has {len(batch[self.image])}"
                )
        if self.out != self.image and self.out in batch:
            raise ArgumentError(f"out is {self.out!r}, a column that the batch has already: give another name")
        if self.on_error == "replace" and "valid" in batch:
            raise ArgumentError("on_error='replace' adds the column 'valid', which the batch has already: rename it")

    def _check_boxes(self, further: Mapping[str, Column], rows: _Rows, kept: NDArray[np.int64], labels: Any) -> None:
        """Checks that no further column has a row per box where boxes were dropped."""
        target_format = TargetFormat(**self.transforms.target_format)
        for row, label in zip(kept.tolist(), labels, strict=True):
            count = row_count(rows.label(row)["boxes"])
            if count is None or count == row_count(label["boxes"]):
                continue
            for name, column in further.items():
                try:
                    has_boxes = is_instance_field(name, column[row], name, count, target_format)
                except TargetNameError:  # as many rows, under an unknown name
                    has_boxes = True
                if has_boxes:
                    raise ArgumentError(
                        f"the column {name!r} has {count} rows beside the {count} boxes of {rows.path(row)!r}, some of "
                        "which were dropped: list it in targets, or in Compose(..., pass_through=) if it stays"
                    )

    def _run(self, rows: _Rows, keys: NDArray[np.int64]) -> Batch:
        device, count = _device(self.device, os.environ.get("CUAUG_DEVICE")), len(rows) - 1
        config = call_config(rows, self.transforms, self.decode, device, stack=self._stack, on_error=self.on_error)
        threads = _assigned_cpus() if self.threads is None else self.threads
        pipeline = shared_pipeline(device, threads, self.decode).with_config(config)
        epoch = BlackLast(self.epoch, self.seed, np.arange(len(rows)), keys=keys)
        # Of an empty batch, the black image gives the shape.
        positions = np.arange(max(count, 1))
        job = pipeline.start(epoch, RankSlice(positions, positions < count, count, count))
        try:
            job.wait()
            job.check()
            for error in job.failures():
                self._report(error.at(error.path, None))
            found = job.take()
        except BaseException:
            job.cancel()
            raise
        if isinstance(found.images, tuple):
            raise TransformError(
                "transforms make views of several sizes, and a column holds one: use one chain for each"
            )
        return found

    def _report(self, error: DecodeError) -> None:
        if self.on_error == "raise":
            raise error
        self.failed += 1
        log.warning("%s: %s", "skipped" if self.on_error == "skip" else "replaced", error)

    def __repr__(self) -> str:
        return f"Augment({self.transforms!r}, image={self.image!r}, key={self.key!r}, seed={self.seed})"


def draw_keys(values: Column, name: str = "key") -> NDArray[np.int64]:
    """(n,) RNG keys of rows, from integers or strings.

    An integer is its own key, modulo 2**64. The key of a string is the first 8 bytes of the BLAKE2b hash (8-byte
    digest) of its UTF-8 bytes, as a little-endian signed integer; that of a bytes object is the hash of its bytes.

    Args:
        values: n integers, strings or bytes.
        name: the column, for errors.

    Raises:
        ArgumentError: a value is neither.
    """
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iu":
        return values.astype(np.int64)
    for row, value in enumerate(values):
        if _is_null(value):  # Ray makes the others of the block floats
            raise ArgumentError(f"the column {name!r} is null in row {row}: a key must be an integer or a string")
    keys = np.empty(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        if isinstance(value, (str, bytes)):
            try:
                data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
            except UnicodeEncodeError as error:
                raise ArgumentError(f"the column {name!r} has {value!r:.100} in row {row}, which is no text") from error
            keys[row] = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            keys[row] = (int(value) + (1 << 63)) % (1 << 64) - (1 << 63)
        else:
            raise ArgumentError(f"the column {name!r} must hold integers or strings, not {value!r:.100} (row {row})")
    return keys


class _Rows:
    """The rows of a batch as a source, and after them a black image."""

    def __init__(self, image: str, images: Column, labels: list[Any], key: str, keys: Column, mode: str) -> None:
        if isinstance(images, np.ndarray) and images.dtype.kind == "S":
            raise ArgumentError(
                f"the column {image!r} has the dtype {images.dtype}, which drops zero bytes at the end of a file: use "
                "an object array of bytes"
            )
        self._image, self._images, self._labels = image, images, labels
        self._key, self._keys, self._mode = key, keys, mode

    def __len__(self) -> int:
        return len(self._images) + 1

    def label(self, index: int) -> Any:
        return self._labels[index]

    def path(self, index: int) -> str:
        """The row's path, or its key, for errors."""
        if index == len(self._images):
            return "the black image"
        value = self._images[index]
        if isinstance(value, Mapping) and value.get("bytes") is None:
            value = value.get("path")
        return os.fsdecode(value) if isinstance(value, (str, os.PathLike)) else f"{self._key}={self._keys[index]}"

    def read(self, index: int) -> tuple[Any, Any]:
        if index == len(self._images):
            return black_image(self._mode), None
        value = self._images[index]
        if isinstance(value, Mapping):
            value = value.get("path") if value.get("bytes") is None else value["bytes"]
        for name, field in {self._image: value, **(self._labels[index] or {})}.items():
            if _is_null(field):
                raise DecodeError(f"the column {name!r} is null")
        if isinstance(value, (str, os.PathLike)) and is_url(os.fsdecode(value)):
            raise ArgumentError(
                f"the column {self._image!r} holds the URL {value!r:.200}: read files with ray.data.read_binary_files, "
                "or download them in an earlier map_batches"
            )
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype == np.uint8:
            value = value.tobytes()
        elif isinstance(value, (bytearray, memoryview)):
            value = bytes(value)
        if not isinstance(value, (bytes, str, os.PathLike, np.ndarray)):
            raise ArgumentError(
                f"the column {self._image!r} must hold files as bytes, local paths, uint8 arrays or dicts with "
                f"'bytes' and 'path', not {value!r:.100} ({self._key}={self._keys[index]})"
            )
        return value, self._labels[index]


def _is_null(value: Any) -> bool:
    """Whether a value is None, or NaN, as Ray gives nulls in a column that it takes for numbers."""
    return value is None or (isinstance(value, (float, np.floating)) and bool(np.isnan(value)))


def _dense(value: Any) -> Any:
    """A target as one array, where Arrow's nested lists became arrays of arrays."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        with contextlib.suppress(ValueError, TypeError):  # rows of several lengths: the target's check names its row
            return np.array([row.tolist() if isinstance(row, np.ndarray) else row for row in value])
    return value


def _select(column: Column, rows: NDArray[np.int64]) -> Column:
    return column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows.tolist()]


def _merge(values: list[Any]) -> NDArray[Any]:
    """A column of targets: one array, or an object array of n arrays of different shapes."""
    values = [value.numpy() if isinstance(value, torch.Tensor) else value for value in values]
    if len({(value.shape, value.dtype) if isinstance(value, np.ndarray) else None for value in values}) == 1:
        return np.array(values)
    return _as_objects(values)


def _as_objects(values: Sequence[Any]) -> NDArray[Any]:
    column = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        column[row] = value
    return column


def _as_numpy(images: Any) -> NDArray[Any]:
    if isinstance(images, list):
        return _as_objects([_as_numpy(image) for image in images])
    if images.dtype == torch.bfloat16:
        raise ArgumentError("transforms make bfloat16, which NumPy lacks: use float16, or tensors=True")
    return images.cpu().numpy()


@functools.lru_cache(maxsize=16)
def _device(device: str | torch.device | None, environment: str | None) -> torch.device:
    """The device; asking CUDA for each batch takes long."""
    return resolve_device(device)


def _assigned_cpus() -> int | None:
    """The CPUs that Ray has assigned to this task or actor; None outside Ray, or if it has assigned none."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        return None
    cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 0)
    return max(1, int(cpus)) if cpus else None


renew_after_fork(_device.cache_clear)
