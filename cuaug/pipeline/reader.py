"""Samples from their source or a cache: what can be decoded, or its pixels, and its label."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cuaug.cache import DecodedCache, DeviceImage, EncodedCache, shrunken_size
from cuaug.codec import CpuDecoder, DecodedImage, EncodedImage, read_header, read_jpeg_headers, read_other_header
from cuaug.devices.cpu import CpuExecutor
from cuaug.errors import DecodeError, LoaderError
from cuaug.limits import check_bytes
from cuaug.pipeline.config import SAMPLES_PER_TASK
from cuaug.plan import CompiledPlan, Layout, Plan, Type
from cuaug.profiling.recorder import Clock
from cuaug.sources import Source, optional_method
from cuaug.sources._bytes import cause_of, read_bytes, read_files, too_many_open

__all__ = ["Item", "PendingCacheEntry", "Reader", "shrinking"]

# What most sources give, which needs no look inside.
_AS_GIVEN = bytes, np.ndarray
# How many paths, of the samples read last, are kept for errors where the source itself cannot tell them.
_NOTED = 4096


class PendingCacheEntry:
    """A sample that goes into the decoded cache once it is decoded, and is planned at the size it has there.

    Whether it fits then or not, the same pixels are augmented.

    Attributes:
        index: the sample.
        encoded: what is decoded.
        height, width: in pixels, in the cache.
    """

    __slots__ = ("encoded", "height", "index", "width")

    def __init__(self, index: int, encoded: EncodedImage | DecodedImage, short_side: int | None) -> None:
        self.index, self.encoded = index, encoded
        self.height, self.width = shrunken_size(encoded.height, encoded.width, short_side)

    @property
    def shrinks(self) -> bool:
        return (self.height, self.width) != (self.encoded.height, self.encoded.width)

    def decode(self, decoder: CpuDecoder, cache: DecodedCache) -> NDArray[np.uint8]:
        """The pixels as they are cached, (height, width, 3) uint8; valid until the decoder's next `decode`."""
        pixels = decoder.decode(self.encoded)
        if self.shrinks:
            try:
                small = np.empty((self.height, self.width, 3), dtype=np.uint8)
                CpuExecutor(shrinking([self])).run(0, pixels, small.ctypes.data)
            except MemoryError as error:
                raise DecodeError(f"there is no memory to scale it down for the cache: {error}") from error
            pixels = small
        kept = cache.put(self.index, pixels)
        return pixels if kept is None else kept


#: A sample that can be decoded, or is.
Item = EncodedImage | DecodedImage | PendingCacheEntry | DeviceImage


def shrinking(samples: list[PendingCacheEntry]) -> CompiledPlan:
    """What scales decoded samples to the size that they have in the cache, as (height, width, 3) uint8."""
    plan = Plan([sample.encoded.height for sample in samples], [sample.encoded.width for sample in samples])
    plan.resize([sample.height for sample in samples], [sample.width for sample in samples])
    return plan.compile(Type.UINT8, Layout.HWC)


class Reader:
    """Reads samples, from a cache where they are in one.

    Args:
        opened: whether nvImageCodec opens JPEGs as they are read, as a GPU wants them; else, it does when it has to.
    """

    def __init__(
        self,
        source: Source,
        *,
        encoded: EncodedCache | None,
        decoded: DecodedCache | None,
        apply_exif: bool,
        max_pixels: int,
        max_bytes: int,
        opened: bool,
    ) -> None:
        self.source, self.decoded = source, decoded
        self._encoded = encoded
        self._apply_exif, self._max_pixels, self._opened = apply_exif, max_pixels, opened
        self._max_bytes = max_bytes
        self._picture_size = optional_method(source, "picture_size")
        self._encoded_size = optional_method(source, "encoded_size")
        self._noted = deque[tuple[int, str]](maxlen=_NOTED if optional_method(source, "path") is None else 0)

    def fetch(self, index: int) -> tuple[Any, Any]:
        """(what was read, label) of a sample; or (path, label), of a file that `read_files` reads.

        Raises:
            DecodeError: it cannot be read.
            LoaderError: the source gave something else, or no more files can be opened.
        """
        try:
            if self.decoded is not None and (pixels := self.decoded.get(index)) is not None:
                return pixels if isinstance(pixels, DeviceImage) else DecodedImage(pixels), self._label(index)
            if self._encoded is not None and (entry := self._encoded.get(index)) is not None:
                return entry
            if self._encoded_size is not None:
                check_bytes(self._encoded_size(index), self._max_bytes)
            given = self.source.read(index)
            if type(given) is not tuple or len(given) != 2 or type(given[0]) not in _AS_GIVEN:  # most are so
                given = _checked(given, index)
            data, label = given
            if type(data) is bytes:
                check_bytes(len(data), self._max_bytes)
            elif isinstance(data, (str, os.PathLike)):
                data = str(os.fsdecode(data))
                self._noted.append((index, data))
        except OSError as error:
            raise self._unread(error, index, None) from error
        except MemoryError as error:
            raise DecodeError(f"it finds no room in memory: {error}") from error
        except Exception as error:  # a source may raise anything, and of a million samples it is one
            if sys.version_info >= (3, 11):
                error.add_note(f"while reading sample {index}")
            raise
        return data, label

    def read_files(
        self, indices: Sequence[int], fetched: list[Any], clock: Clock, cancelled: Callable[[], bool]
    ) -> dict[int, DecodeError]:
        """Puts what is in the files of some samples in place of the paths that `fetch` gave, until `cancelled()`.

        Returns:
            by their places why some cannot be read; None is put there.

        Raises:
            LoaderError: no more files can be opened.
        """
        errors: dict[int, DecodeError] = {}
        places = [i for i, data in enumerate(fetched) if isinstance(data, str)]
        for begin in range(0, len(places), SAMPLES_PER_TASK):  # so many files are open at once
            if cancelled():
                break
            some = places[begin : begin + SAMPLES_PER_TASK]
            at = ctypes.c_int64()
            clock.among("read", [indices[i] for i in some], at)
            files = read_files([fetched[i] for i in some], at, self._max_bytes)
            for number, (i, data) in enumerate(zip(some, files, strict=True)):
                if data is None:
                    at.value = number
                    try:
                        data = read_bytes(fetched[i], self._max_bytes)
                    except DecodeError as error:
                        errors[i] = error.with_traceback(None)
                    except OSError as error:
                        errors[i] = self._unread(error, indices[i], fetched[i])
                        errors[i].__cause__ = error
                fetched[i] = data
        return errors

    def _unread(self, error: OSError, index: int, path: str | None) -> DecodeError:
        """What to say of an error that came while a sample was read, or the file at `path`.

        Raises:
            LoaderError: no more files can be opened.
        """
        if too_many_open(error):
            name = self.path(index) if path is None else path
            which = "" if name is None else f" {name!r}"
            raise LoaderError(
                f"cannot open{which} (sample {index}): {cause_of(error)}, which is no damage that on_error is for; "
                "close some, or raise the limit (ulimit -n)"
            ) from error
        elsewhere = f": {error.filename!r}" if path is None and error.filename else ""
        return DecodeError(cause_of(error) + elsewhere, path=path)

    def parse(
        self,
        indices: Sequence[int],
        fetched: Sequence[Any],
        labels: Sequence[Any],
        clock: Clock,
        errors: dict[int, DecodeError],
    ) -> list[Item | None]:
        """What was read of some samples, as the decoders take it; None where there is nothing.

        The headers of common JPEGs are read together, which is why there are several. What has a header goes into the
        cache of files.

        Args:
            fetched: what was read of each, or None.
            errors: is told, by their places, why some are no pictures, or too large ones.
        """
        files = [data if type(data) is bytes else b"" for data in fetched]
        headers = read_jpeg_headers(
            files, apply_exif=self._apply_exif, max_pixels=self._max_pixels, opened=self._opened
        )
        if self._encoded is None and self.decoded is None and self._picture_size is None and all(headers):
            return cast(list[Item | None], headers)
        items: list[Item | None] = []
        for i, (index, data, label, header) in enumerate(zip(indices, fetched, labels, headers, strict=True)):
            item: Item | None = None
            try:
                item = None if data is None else self._item(index, data, label, header, clock)
            except DecodeError as error:
                errors[i] = error.with_traceback(None)  # this frame is in it, which holds the error
            except MemoryError as error:
                errors[i] = DecodeError(f"it finds no room in memory: {error}")
            items.append(item)
        return items

    def _item(self, index: int, data: Any, label: Any, header: EncodedImage | None, clock: Clock) -> Item:
        item: EncodedImage | DecodedImage | None = header
        if item is None:
            clock.at("parse", index)
            if isinstance(data, (DecodedImage, DeviceImage)):
                return data
            if isinstance(data, np.ndarray) and data.ndim > 1:
                item = DecodedImage(data, max_pixels=self._max_pixels)
            else:
                if type(data) is not bytes:
                    check_bytes(memoryview(data).nbytes, self._max_bytes)
                read = read_other_header if type(data) is bytes else read_header  # bytes: `parse` has looked at them
                item = read(data, apply_exif=self._apply_exif, max_pixels=self._max_pixels)
        if self._picture_size is not None:
            self._check_size(index, item)
        if self._encoded is not None and isinstance(item, EncodedImage):
            self._encoded.put(index, data, label)
        return item if self.decoded is None else PendingCacheEntry(index, item, self.decoded.short_side)

    def _check_size(self, index: int, picture: EncodedImage | DecodedImage) -> None:
        """Refuses a picture that is not of the size that its label is of; where a side is 0, that is not known."""
        height, width = self._picture_size(index)
        if 0 not in (height, width) and (picture.height, picture.width) != (height, width):
            turned = (picture.width, picture.height) == (height, width) and self._apply_exif
            option = "decode=cuaug.DecodeOptions(apply_exif=False)"
            hint = f"; the annotations may ignore its EXIF orientation: {option}" if turned else ""
            raise DecodeError(
                f"the picture is {picture.height} x {picture.width} pixels (height x width), its annotations are of "
                f"{height} x {width}{hint}"
            )

    def path(self, index: int) -> str | None:
        """The sample's name, where the source knows one, or the path that it gave."""
        named = optional_method(self.source, "path")
        if named is not None:
            return os.fspath(named(index))
        return dict(self._noted.copy()).get(index)

    def _label(self, index: int) -> Any:
        """Of a sample whose pixels are cached: a source that can tell it without reading the picture has `label`."""
        label = optional_method(self.source, "label")
        return _checked(self.source.read(index), index)[1] if label is None else label(index)


def _checked(given: Any, index: int) -> tuple[Any, Any]:
    if isinstance(given, (tuple, list)) and len(given) == 2:
        if isinstance(given[0], (str, bytes, os.PathLike)):
            return given[0], given[1]
        with contextlib.suppress(TypeError, ValueError):
            memoryview(given[0])  # bytes, an array, or anything that lends them
            return given[0], given[1]
    raise LoaderError(
        f"a source's read(i) returns (path, encoded bytes or uint8 array, label); read({index}) gave {given!r:.200}"
    )
