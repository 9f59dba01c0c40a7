"""Encodes the samples of a source as the files of a shard: an image and a label."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from cuaug import functional as F
from cuaug._runtime.limits import DEFAULT_MAX_BYTES, DEFAULT_MAX_PIXELS, check_bytes
from cuaug._runtime.npy import encode_npz
from cuaug.cache.estimate import shrunken_size
from cuaug.codec import DecodedImage, file_format, read_header, thread_decoder
from cuaug.codec.jpegtran import with_restarts
from cuaug.errors import DecodeError
from cuaug.pipeline.label_reader import LabelReader
from cuaug.sources import Source, label_path_names, optional_method
from cuaug.sources.file_bytes import error_reason, is_fd_limit_error, read_bytes
from cuaug.sources.files import EXTENSIONS
from cuaug.sources.videos import ClipRequest
from cuaug.targets.names import TargetFormat
from cuaug.targets.parse import moves_with_image

__all__ = ["EncodedSample", "SampleEncoder"]

_EXTENSION = {"jpeg": "jpg", "png": "png", "webp": "webp", "tiff": "tiff"}
_JPEG_QUALITY = 95


@dataclass(frozen=True)
class EncodedSample:
    """A sample as it is stored.

    Attributes:
        extension: of the image, such as "jpg".
        image: the encoded image.
        label: the result of `_label_file`.
        unmarked: why restart markers could not be added; "" if they were, or were not asked for.
    """

    extension: str
    image: bytes
    label: tuple[str, bytes] | None
    unmarked: str = ""


class SampleEncoder:
    """Reads a sample, and changes its image as asked. Several threads may call it.

    Args:
        source: the samples.
        short_side: largest short side in pixels; None: images stay as they are.
        jpegtran: the program that adds restart markers to JPEGs; None: they stay as they are.
    """

    def __init__(self, source: Source, short_side: int | None, jpegtran: str | None) -> None:
        self._source, self._short_side, self._jpegtran = source, short_side, jpegtran
        self._labels = LabelReader(
            apply_exif=True,
            max_pixels=DEFAULT_MAX_PIXELS,
            max_bytes=DEFAULT_MAX_BYTES,
            path_names=label_path_names(source),
        )

    def __call__(self, index: int) -> EncodedSample:
        """Returns a sample.

        Raises:
            DecodeError: the sample cannot be read, scaled or stored; the error names it.
            OSError: jpegtran cannot be run, or too many files are open.
        """
        path: str | None = None
        try:
            path_of = optional_method(self._source, "path")
            path = None if path_of is None else os.fspath(path_of(index))
            data, value = self._read(index)
            extension, image = self._encode(data, path)
            label = _label_file(value)
        except DecodeError as error:
            raise error.at(path, index) from error
        except ValueError as error:
            raise DecodeError(str(error), path=path, index=index) from error
        if self._jpegtran is None or extension != "jpg":
            return EncodedSample(extension, image, label)
        try:
            return EncodedSample(extension, with_restarts(image, jpegtran=self._jpegtran), label)
        except ValueError as error:
            return EncodedSample(extension, image, label, str(error))

    def _read(self, index: int) -> tuple[Any, Any]:
        """The image, as bytes or (H, W, C) pixels, and its label."""
        try:
            size = optional_method(self._source, "encoded_size")
            if size is not None:
                check_bytes(size(index), DEFAULT_MAX_BYTES)
            data, label = self._source.read(index)
            if isinstance(data, (str, os.PathLike)):
                data = read_bytes(data, DEFAULT_MAX_BYTES)
        except OSError as error:
            if is_fd_limit_error(error):
                raise
            raise DecodeError(error_reason(error)) from error
        if isinstance(data, ClipRequest):
            raise DecodeError("it is a clip of a video, and shards hold images")
        if self._short_side is not None and moves_with_image(label):
            raise DecodeError("--short-side would move its boxes, masks or keypoints, and their label would stay")
        label, pictures = self._labels.split(label, TargetFormat())
        if pictures:
            raise DecodeError("it has several images, and a shard holds one per sample")
        return data, label

    def _encode(self, data: Any, path: str | None) -> tuple[str, bytes]:
        """Returns (extension, encoded image)."""
        if getattr(data, "ndim", 1) > 1:
            image = DecodedImage(data, max_pixels=DEFAULT_MAX_PIXELS)
            height, width = shrunken_size(image.height, image.width, self._short_side)
            pixels = image.array
            if (height, width) != pixels.shape[:2]:
                pixels = F.resize(pixels, (height, width))
            elif data.ndim == 2 or data.shape[2] == 1:  # as gray: a decoder repeats it
                pixels = pixels[:, :, 0]
            return "png", _save(pixels, "PNG")
        data = bytes(data)
        kind = file_format(data)
        if self._short_side is not None:
            header = read_header(data)
            size = shrunken_size(header.height, header.width, self._short_side)
            if size != (header.height, header.width):
                pixels = F.resize(thread_decoder(True).decode(header), size)
                return ("jpg", _save(pixels, "JPEG")) if kind == "jpeg" else ("png", _save(pixels, "PNG"))
        extension = _EXTENSION.get(kind) or os.path.splitext(path or "")[1].lower().removeprefix(".")
        if f".{extension}" not in EXTENSIONS:
            raise DecodeError(f"its bytes {data[:8]!r} begin no known image format, and its name tells none")
        return extension, data


def _save(pixels: np.ndarray, kind: str) -> bytes:
    file = io.BytesIO()
    # Level 1 is several times as fast as the default 6, and files are a tenth larger.
    options = {"quality": _JPEG_QUALITY} if kind == "JPEG" else {"compress_level": 1}
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, kind, **options)
    return file.getvalue()


def _label_file(label: Any) -> tuple[str, bytes] | None:
    """Returns (extension, bytes) of a label, in WebDataset's convention; None for no label.

    cls: an integer. txt: a string. npy: an array. npz: a dict that holds arrays. json: other dicts, lists and tuples,
    floats and booleans. bin: bytes. `TarShards` reads an equal label, but tuples come back as lists.

    Raises:
        ValueError: no file holds this label.
    """
    label = _to_plain(label)
    if label is None:
        return None
    if isinstance(label, np.ndarray):
        file = io.BytesIO()
        np.save(file, label, allow_pickle=False)
        return "npy", file.getvalue()
    if isinstance(label, int) and not isinstance(label, bool):
        if not -(2**63) <= label < 2**63:
            raise ValueError(f"its label {label} is beyond int64")
        return "cls", str(label).encode()
    if isinstance(label, str):
        return "txt", label.encode()
    if isinstance(label, bytes):
        return "bin", label
    if isinstance(label, Mapping) and not all(isinstance(key, str) for key in label):
        raise ValueError(f"the keys of its label must be strings, not {list(label)!r:.100}")
    if isinstance(label, Mapping):
        label = {key: _to_plain(value) for key, value in label.items()}
        if any(isinstance(value, np.ndarray) for value in label.values()):
            return "npz", encode_npz(label)
    try:
        return "json", json.dumps(label, default=_to_json).encode()
    except TypeError as error:
        raise ValueError(f"its label {label!r:.100} cannot be stored: {error}") from error


def _to_plain(value: Any) -> Any:
    """An array of a tensor, and a number of an array without dimensions."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return value


def _to_json(value: Any) -> Any:
    plain = _to_plain(value)
    if plain is value:
        raise TypeError(f"a {type(value).__name__} within it")
    return plain
