"""Reads the files that labels name: masks, and further pictures of a sample."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug._runtime.limits import check_pixels
from cuaug.codec import (
    DecodedImage,
    EncodedImage,
    decode_mask,
    mask_array,
    pil_to_rgb8,
    read_header,
    thread_decoder,
)
from cuaug.errors import DecodeError, LoaderError
from cuaug.sources.file_bytes import error_reason, is_fd_limit_error, read_bytes
from cuaug.targets.label_files import KeyPath, is_file, is_pil, read_masks, take_pictures
from cuaug.targets.names import IMAGE_SUFFIXES, TargetFormat, TargetNameError

__all__ = ["LabelReader"]

# Labels without files; most labels are class numbers.
_PLAIN_TYPES = frozenset({int, float, bool, type(None), np.ndarray, np.int64, torch.Tensor, list})


class LabelReader:
    """Reads the masks that labels name by path, as class numbers, and further pictures, as RGB.

    Args:
        apply_exif: whether pictures are rotated by their EXIF orientation; masks never are.
        max_pixels, max_bytes: limits on each file, as for the images.
        lossy: whether pictures may lose depth, bands, pages or frames.
        path_names: the keys whose paths may be opened; None: all.
    """

    def __init__(
        self,
        *,
        apply_exif: bool,
        max_pixels: int,
        max_bytes: int,
        lossy: bool = False,
        path_names: frozenset[str] | None = None,
    ) -> None:
        self._lossy, self._path_names = lossy, path_names
        self._apply_exif, self._max_pixels, self._max_bytes = apply_exif, max_pixels, max_bytes

    def may_read(self, labels: Iterable[Any]) -> bool:
        """Whether any of these labels may name files."""
        return not _PLAIN_TYPES.issuperset(map(type, labels))

    def split(self, label: Any, format: TargetFormat) -> tuple[Any, dict[KeyPath, Any]]:
        """Reads the masks of a label, and takes its further pictures out.

        Returns:
            The label, with arrays in place of mask files and PIL masks, and without its pictures; the label itself if
            it has none. And the pictures, as they are.

        Raises:
            DecodeError: a file cannot be read, or is no mask. The error names it.
            TransformError: a value under "images" is no picture.
            TargetNameError: the label is the path of an image, which has no name that says what it is.
            LoaderError: too many files are open.
        """
        if type(label) in _PLAIN_TYPES:
            return label, {}
        for value in label if isinstance(label, tuple) else (label,):
            _refuse_image_path(value)
        return take_pictures(read_masks(label, format, self._mask_values), format)

    def decode(
        self, pictures: Mapping[KeyPath, Any], size: tuple[int, int], fancy_upsampling: bool
    ) -> dict[KeyPath, NDArray[np.uint8]]:
        """Decodes further pictures to (H, W, 3) uint8 each.

        Args:
            size: (height, width) of the sample's image, which its pictures share.

        Raises:
            DecodeError: a picture cannot be read, or has another size. The error names it.
            LoaderError: too many files are open.
        """
        return {path: self._decode(path, value, size, fancy_upsampling) for path, value in pictures.items()}

    def _decode(self, path: KeyPath, picture: Any, size: tuple[int, int], fancy_upsampling: bool) -> NDArray[np.uint8]:
        with self._named(".".join(map(str, path)), picture):
            item: EncodedImage | DecodedImage
            if is_file(picture):
                item = read_header(
                    self._bytes(path[-1], picture),
                    apply_exif=self._apply_exif,
                    max_pixels=self._max_pixels,
                    lossy=self._lossy,
                )
            else:
                array = pil_to_rgb8(picture) if is_pil(picture) else np.asarray(picture)
                channels_first = isinstance(picture, torch.Tensor) and picture.ndim == 3
                item = DecodedImage(np.moveaxis(array, 0, -1) if channels_first else array, max_pixels=self._max_pixels)
            if (item.height, item.width) != size:
                raise DecodeError(
                    f"it must have the size of its image, {size[0]} x {size[1]}, not {item.height} x {item.width} "
                    "(height x width): the same crop would show other places"
                )
            return thread_decoder(fancy_upsampling).decode(item).copy()  # the decoder reuses its memory

    def _mask_values(self, key: Any, value: Any) -> Any:
        mask = self._read_mask(key, value)
        return mask.astype(np.int32) if mask.dtype == np.uint16 else mask  # torch computes little with uint16

    def _read_mask(self, key: Any, value: Any) -> Any:
        with self._named("its mask", value):
            if is_pil(value):
                check_pixels(value.height, value.width, self._max_pixels)
                return mask_array(value)
            return decode_mask(
                self._bytes(key, value), self._max_pixels, "a mask" if type(value) is bytes else str(value)
            )

    def _bytes(self, key: Any, value: Any) -> bytes:
        if type(value) is not bytes and self._path_names is not None and key not in self._path_names:
            raise DecodeError(
                "paths in labels of this source are not opened, since its data may lead out of the data set: store the "
                "file itself, or read labels with a source of your own"
            )
        return value if type(value) is bytes else read_bytes(os.fsdecode(value), self._max_bytes)

    @contextlib.contextmanager
    def _named(self, name: str, value: Any) -> Iterator[None]:
        """Turns errors into a DecodeError of that name, and of the file."""
        path = os.fsdecode(value) if isinstance(value, (str, os.PathLike)) else None
        try:
            yield
        except ValueError as error:  # a DecodeError, or a mode of PIL
            raise DecodeError(f"{name}: {getattr(error, 'cause', error)}", path=path) from error
        except MemoryError as error:
            raise DecodeError(f"{name}: not enough memory: {error}", path=path) from error
        except OSError as error:
            if is_fd_limit_error(error):
                raise LoaderError(
                    f"cannot open {path!r}: {error_reason(error)}; close files, or raise the limit (ulimit -n)"
                ) from error
            raise DecodeError(f"{name}: {error_reason(error)}", path=path) from error


def _refuse_image_path(label: Any) -> None:
    if not isinstance(label, (str, os.PathLike)):
        return
    path = os.fsdecode(label)
    if path.lower().endswith(IMAGE_SUFFIXES) and os.path.isfile(path):
        raise TargetNameError(
            f"the label {path!r} is the path of an image: if it is the image's mask, pass {{'mask': path}} or use "
            "cuaug.sources.Pairs(images, masks); if it is only a name, pass {'path': path}"
        )
