"""Reads the files that labels name: masks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from cuaug.codec import decode_mask, mask_array
from cuaug.errors import DecodeError, LoaderError
from cuaug.limits import check_pixels
from cuaug.sources._bytes import error_reason, is_fd_limit_error, read_bytes
from cuaug.targets.label_files import is_file, is_pil, read_masks
from cuaug.targets.names import TargetFormat, TargetNameError

__all__ = ["LabelReader"]

# Labels without files; most labels are class numbers.
_PLAIN_TYPES = frozenset({int, float, bool, type(None), np.ndarray, np.int64, torch.Tensor, list})
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".ppm", ".pgm", ".jp2")


class LabelReader:
    """Reads the masks that labels name by path, as class numbers.

    Args:
        max_pixels, max_bytes: limits on each file, as for the images.
    """

    def __init__(self, *, max_pixels: int, max_bytes: int) -> None:
        self._max_pixels, self._max_bytes = max_pixels, max_bytes

    def may_read(self, labels: Iterable[Any]) -> bool:
        """Whether any of these labels may name files."""
        return not _PLAIN_TYPES.issuperset(map(type, labels))

    def read(self, label: Any, format: TargetFormat) -> Any:
        """The label with arrays in place of mask files and PIL masks; the label itself if it names none.

        Raises:
            DecodeError: a file cannot be read, or is no mask. The error names it.
            TargetNameError: the label is the path of an image, which has no name that says what it is.
            LoaderError: too many files are open.
        """
        if type(label) in _PLAIN_TYPES:
            return label
        for value in label if isinstance(label, tuple) else (label,):
            _refuse_image_path(value)
        return read_masks(label, format, self._mask_values)

    def _mask_values(self, value: Any) -> Any:
        mask = self._read_mask(value)
        return mask.astype(np.int32) if mask.dtype == np.uint16 else mask  # torch computes little with uint16

    def _read_mask(self, value: Any) -> Any:
        path = os.fsdecode(value) if isinstance(value, (str, os.PathLike)) else None
        try:
            if is_pil(value):
                check_pixels(value.height, value.width, self._max_pixels)
                return mask_array(value)
            assert is_file(value)
            data = value if path is None else read_bytes(path, self._max_bytes)
            return decode_mask(data, self._max_pixels, path or "a mask")
        except ValueError as error:  # a DecodeError, or a mode of PIL
            raise DecodeError(f"its mask: {getattr(error, 'cause', error)}", path=path) from error
        except MemoryError as error:
            raise DecodeError(f"not enough memory for its mask: {error}", path=path) from error
        except OSError as error:
            if is_fd_limit_error(error):
                raise LoaderError(
                    f"cannot open the mask {path!r}: {error_reason(error)}; close files, or raise the limit (ulimit -n)"
                ) from error
            raise DecodeError(f"its mask: {error_reason(error)}", path=path) from error


def _refuse_image_path(label: Any) -> None:
    if not isinstance(label, (str, os.PathLike)):
        return
    path = os.fsdecode(label)
    if path.lower().endswith(_IMAGE_SUFFIXES) and os.path.isfile(path):
        raise TargetNameError(
            f"the label {path!r} is the path of an image: if it is the image's mask, pass {{'mask': path}} or use "
            "cuaug.sources.Pairs(images, masks); if it is only a name, pass {'path': path}"
        )
