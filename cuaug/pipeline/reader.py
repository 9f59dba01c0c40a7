"""Reads samples from a source or a cache, and parses their headers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.fork import fork_safe_lock
from cuaug._runtime.limits import check_bytes
from cuaug.cache import DecodedCache, DeviceImage, EncodedCache
from cuaug.codec import (
    DecodedImage,
    EncodedImage,
    EncodedJpeg,
    FileView,
    JpegIndex,
    MultiChannelImage,
    ResidentJpeg,
    read_header,
    read_jpeg_headers,
    read_multichannel,
)
from cuaug.codec.decode_options import DecodeOptions
from cuaug.errors import ArgumentError, DecodeError, LoaderError, SourceError
from cuaug.pipeline.clip_reader import ClipReader
from cuaug.pipeline.image_table import ImageTable, Item
from cuaug.pipeline.label_reader import LabelReader
from cuaug.pipeline.native_work import FileReads, Times
from cuaug.pipeline.pending import PendingCacheEntry
from cuaug.profiling.recorder import Clock
from cuaug.sampling.clip_sampler import ClipSampler
from cuaug.sources import Source, label_path_names, optional_method
from cuaug.sources.file_bytes import FilePaths, FileRanges, error_reason, is_fd_limit_error, read_bytes
from cuaug.sources.source import ReadAhead
from cuaug.sources.videos import ClipRequest
from cuaug.targets.label_files import KeyPath
from cuaug.targets.names import TargetFormat
from cuaug.transforms import Compose
from cuaug.transforms.pictures import refuse_pictures

__all__ = ["UNREAD", "Reader"]

# Data that needs no further check.
_COMMON_TYPES = str, bytes, np.ndarray, ClipRequest
#: The data of a sample that `Reader.locate` did not find, and `Reader.fetch` has not read yet.
UNREAD = object()
# The reader keeps the paths of the last samples, for errors, if the source cannot name them.
_MAX_RECENT_PATHS = 4096


class Reader:
    """Reads samples from a cache, or from the source.

    Args:
        options: images of another `mode` than 8-bit RGB are decoded whole, when they are read.
        on_gpu: whether a GPU decodes the images.

    Attributes:
        labels: reads the files that labels name.
        decoded: the cache of pixels.
        device_cache: the cache of JPEGs in the GPU's memory.
    """

    def __init__(
        self,
        source: Source,
        options: DecodeOptions,
        cache: EncodedCache | DecodedCache | None = None,
        *,
        on_gpu: bool,
    ) -> None:
        self.source = source
        self.decoded = cache if isinstance(cache, DecodedCache) else None
        self.device_cache = cache if isinstance(cache, EncodedCache) else None
        self._apply_exif, self._max_pixels = options.apply_exif, options.max_pixels
        self._max_bytes, self._lossy, self._mode = options.max_bytes, options.lossy, options.mode
        if options.mode != "RGB":
            _check_mode(options.mode, source, is_cached=self.decoded is not None, on_gpu=on_gpu)
        self.labels = LabelReader(
            apply_exif=options.apply_exif,
            max_pixels=options.max_pixels,
            max_bytes=options.max_bytes,
            lossy=options.lossy,
            path_names=label_path_names(source),
        )
        #: Chooses the frames of clips, if the source has clips.
        self.clip_sampler: ClipSampler | None = getattr(source, "clip_sampler", None)
        self._clips = ClipReader(options, self.decoded)
        self._picture_size = optional_method(source, "picture_size")
        self._encoded_size = optional_method(source, "encoded_size")
        self._locate = optional_method(source, "locate") if self.decoded is None else None
        has_path = optional_method(source, "path") is not None
        self._recent_paths = deque[tuple[int, str]](maxlen=0 if has_path else _MAX_RECENT_PATHS)
        self._recent_lock = fork_safe_lock()  # without the GIL, a copy fails while another thread appends

    @property
    def origin_of_decoded(self) -> str:
        """The origin of samples that arrive decoded, as a key of `Stats.decoded_by`."""
        return "source" if self.decoded is None else "cache"

    def locate(self, indices: NDArray[np.int64]) -> tuple[list[Any], list[Any], FileRanges | None]:
        """Where n samples are: data, labels, and ranges of files. Reads nothing.

        Data and labels are as `fetch` gives them: paths, or JPEGs in the GPU's memory. `UNREAD` stands for the data of
        those that are ranges, or that `fetch` has to read.
        """
        data: list[Any] = [UNREAD] * len(indices)
        labels: list[Any] = [None] * len(indices)
        rows = list(range(len(indices)))
        if self.device_cache is not None:
            for k, entry in enumerate(self.device_cache.get_each(indices.tolist())):
                if entry is not None:
                    data[k], labels[k] = entry
            rows = [k for k in rows if data[k] is UNREAD]
        found = self._find(indices[rows])
        if isinstance(found, FileRanges):
            return data, labels, found if self.device_cache is None else None
        if found is None:
            return data, labels, None
        if len(rows) == len(indices):
            return [*found.paths], [*found.labels], None
        for k, path, label in zip(rows, *found, strict=True):
            data[k], labels[k] = path, label
        return data, labels, None

    def _find(self, indices: NDArray[np.int64]) -> FilePaths | FileRanges | None:
        """What the source's `locate` gives; None if `fetch` has to read the samples."""
        if self._locate is not None and len(indices):
            with contextlib.suppress(Exception):  # `fetch` raises it again, and names the sample
                found: FilePaths | FileRanges | None = self._locate(indices)
                if not isinstance(found, FilePaths) or set(map(type, found.paths)) == {str}:
                    return found
        return None

    def fetch(self, index: int) -> tuple[Any, Any]:
        """Reads a sample as (data, label), or as (path, label) for `file_reads`.

        Raises:
            DecodeError: the sample cannot be read.
            LoaderError: the source returned something else, or too many files are open.
        """
        try:
            if self.clip_sampler is None:
                if self.decoded is not None and (pixels := self.decoded.get(index)) is not None:
                    return pixels if isinstance(pixels, DeviceImage) else DecodedImage(pixels), self._label(index)
                if self.device_cache is not None and (entry := self.device_cache.get(index)) is not None:
                    return entry
            if self._encoded_size is not None:
                check_bytes(self._encoded_size(index), self._max_bytes)
            result = self.source.read(index)
            if type(result) is not tuple or len(result) != 2 or type(result[0]) not in _COMMON_TYPES:
                result = _check_result(result, index)
            data, label = result
            if type(data) is bytes:
                check_bytes(len(data), self._max_bytes)
            elif isinstance(data, (str, os.PathLike)):
                data = data if type(data) is str else str(os.fsdecode(data))
                with self._recent_lock:
                    self._recent_paths.append((index, data))
        except OSError as error:
            raise self._read_error(error, index, None) from error
        except MemoryError as error:
            raise DecodeError(f"not enough memory: {error}") from error
        except Exception as error:  # a user's source may raise anything: name the sample
            if sys.version_info >= (3, 11):
                error.add_note(f"while reading sample {index}")
            raise
        return data, label

    def read_ahead(self, batches: Iterable[NDArray[np.int64]]) -> ReadAhead | None:
        """Tells the source which samples the batches will read; None if it does nothing with that."""
        method = optional_method(self.source, "read_ahead")
        return None if method is None else method(batches)

    def uncached(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the samples that no cache holds."""
        cache = self.device_cache or self.decoded
        return indices if cache is None else indices[[cache.get(index) is None for index in indices.tolist()]]

    @property
    def locates(self) -> bool:
        """Whether `locate` may find samples."""
        return self._locate is not None or self.device_cache is not None

    def file_reads(
        self, data: Sequence[Any], ranges: FileRanges | None, times: Times, known_files: JpegIndex | None
    ) -> FileReads | None:
        """Native work that reads the ranges or the paths in `data`, and parses JPEGs; None if there are none.

        JPEGs that the index `known_files` knows are not read.
        """
        if ranges is None and not any(type(value) is str for value in data):
            return None
        return FileReads(data, ranges, times, self._max_bytes, self._max_pixels, known_files)

    def _read_file(self, index: int, path: str) -> bytes:
        """Reads a file that `file_reads` left over, or raises the reason."""
        try:
            return read_bytes(path, self._max_bytes)
        except OSError as error:
            raise self._read_error(error, index, path) from error

    def _read_error(self, error: OSError, index: int, path: str | None) -> DecodeError:
        """The error for a sample, or its file, that cannot be read.

        Raises:
            LoaderError: too many files are open.
        """
        if is_fd_limit_error(error):
            name = self.path(index) if path is None else path
            file = "" if name is None else f" {name!r}"
            raise LoaderError(
                f"cannot open{file} (sample {index}): {error_reason(error)}; the sample is not damaged, so on_error "
                "does not apply: close files, or raise the limit (ulimit -n)"
            ) from error
        other_file = f": {error.filename!r}" if path is None and error.filename else ""
        return DecodeError(error_reason(error) + other_file, path=path)

    def add_jpegs(self, images: ImageTable, reads: FileReads, is_read: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Adds the JPEGs that need no more than their header, and returns which they are; as `ImageTable.add_jpegs`."""
        if self._mode != "RGB":
            return np.zeros(len(images), dtype=np.bool_)
        return images.add_jpegs(reads, is_read, apply_exif=self._apply_exif, max_pixels=self._max_pixels)

    @property
    def takes_whole_files(self) -> bool:
        """Whether JPEGs of `add_jpegs` need `make_items`, too: for a cache, or to check their sizes."""
        return self.device_cache is not None or self.decoded is not None or self._picture_size is not None

    def make_items(
        self,
        indices: Sequence[int],
        data: Sequence[Any],
        labels: Sequence[Any],
        jpegs: Sequence[Item | None],
        clock: Clock,
        draws: NDArray[np.float64] | None = None,
    ) -> tuple[list[Item | None], dict[int, DecodeError]]:
        """Makes the items of some samples; None for a sample without data. The GPU's cache gets their labels.

        Args:
            data: each sample's data, or the path of a file that could not be read at once, or None.
            jpegs: the JPEGs that native code has parsed, else None.
            draws: (n, T) random numbers that choose the frames of clips, if the source has clips.

        Returns:
            The items, and the errors by position: a file cannot be read, is no image, or is too large.

        Raises:
            LoaderError: too many files are open.
        """
        items: list[Item | None] = []
        errors: dict[int, DecodeError] = {}
        jpegs = self._parse_jpegs(data, jpegs)
        for i, (index, value) in enumerate(zip(indices, data, strict=True)):
            item: Item | None = None
            try:
                if draws is not None and value is not None:
                    clock.at("read", index)
                    item = self._clips.read(index, value, draws[i])
                elif value is not None:
                    if type(value) is str:
                        clock.at("read", index)
                        value = self._read_file(index, value)
                    elif type(value) is FileView and jpegs[i] is None:
                        value = value.read()
                    item = self._make_item(index, value, labels[i], cast(EncodedImage | None, jpegs[i]), clock)
            except DecodeError as error:
                errors[i] = error.with_traceback(None)  # the traceback has this frame, which holds the error
            except OSError as error:
                errors[i] = self._read_error(error, index, value.path)
            except MemoryError as error:
                errors[i] = DecodeError(f"not enough memory: {error}")
            items.append(item)
        return items, errors

    def _parse_jpegs(self, data: Sequence[Any], jpegs: Sequence[Item | None]) -> Sequence[Item | None]:
        """Parses the JPEGs among bytes in one call."""
        new = [i for i, value in enumerate(data) if type(value) is bytes and jpegs[i] is None]
        if self._mode != "RGB" or not new:
            return jpegs
        parsed = read_jpeg_headers([data[i] for i in new], apply_exif=self._apply_exif, max_pixels=self._max_pixels)
        found = dict(zip(new, parsed, strict=True))
        return [found.get(i, jpeg) for i, jpeg in enumerate(jpegs)]

    def _make_item(self, index: int, data: Any, label: Any, jpeg: EncodedImage | None, clock: Clock) -> Item:
        item: EncodedImage | DecodedImage | None = jpeg
        if self._mode != "RGB":
            clock.at("decode", index)
            item = self._read_picture(data)
        else:
            clock.at("parse", index)
            if isinstance(data, (DecodedImage, DeviceImage, ResidentJpeg)):
                return data
            if item is None and isinstance(data, np.ndarray) and data.ndim > 1:
                item = DecodedImage(data, max_pixels=self._max_pixels)
            elif item is None:
                check_bytes(memoryview(data).nbytes, self._max_bytes)
                data = data if type(data) is bytes else bytes(data)
                item = read_header(data, apply_exif=self._apply_exif, max_pixels=self._max_pixels, lossy=self._lossy)
        if self._picture_size is not None:
            self._check_size(index, item)
        if self.device_cache is not None and isinstance(item, EncodedJpeg):
            self.device_cache.put_label(index, memoryview(data).nbytes, label)
        return item if self.decoded is None else PendingCacheEntry(index, item, self.decoded.short_side)

    def _read_picture(self, data: Any) -> MultiChannelImage:
        """Decodes a whole file, or takes an array, in another mode than "RGB"."""
        if not (isinstance(data, np.ndarray) and data.ndim > 1):
            data = data if type(data) is bytes else bytes(data)
            check_bytes(len(data), self._max_bytes)
            data = read_multichannel(
                data, self._mode, apply_exif=self._apply_exif, max_pixels=self._max_pixels, lossy=self._lossy
            )
        return MultiChannelImage(data, self._mode, max_pixels=self._max_pixels)

    def _check_size(self, index: int, image: EncodedImage | DecodedImage) -> None:
        """Checks the image's size against its annotations'; a side of 0 is unknown."""
        height, width = self._picture_size(index)
        if 0 not in (height, width) and (image.height, image.width) != (height, width):
            turned = (image.width, image.height) == (height, width) and self._apply_exif
            hint = "; they may be for the image without its EXIF orientation: try apply_exif=False" if turned else ""
            raise DecodeError(
                f"the image is {image.height} x {image.width} pixels (height x width), but its annotations are of "
                f"{height} x {width}{hint}"
            )

    def read_label(
        self, label: Any, size: tuple[int, int], chain: Compose, fancy_upsampling: bool
    ) -> tuple[Any, dict[KeyPath, NDArray[np.uint8]]]:
        """Reads the masks of a label, and decodes its further pictures.

        Args:
            size: (height, width) of the sample's image.

        Returns:
            The label without its pictures; the label itself if it names no files. And the pictures, (H, W, 3) each.

        Raises:
            DecodeError: a file cannot be read, or has another size than the image.
            TransformError: the chain does not take pictures, or a value is no picture.
            LoaderError: the cache scales images down, or too many files are open.
        """
        label, pictures = self.labels.split(label, TargetFormat(**chain.target_format))
        if not pictures:
            return label, {}
        refuse_pictures(chain.segments)
        self.refuse_shrunken_targets()
        return label, self.labels.decode(pictures, size, fancy_upsampling)

    def refuse_shrunken_targets(self) -> None:
        """Raises a LoaderError if the cache scales images down, so that targets and pictures have other sizes."""
        if self.decoded is not None and self.decoded.short_side is not None:
            raise ArgumentError(
                f"cache: short_side={self.decoded.short_side} scales images down, but not their boxes, masks, "
                "keypoints and further pictures; use a DecodedCache without short_side"
            )

    def paths(self, indices: list[int]) -> Callable[[], list[str | None]]:
        """A function that names these samples: from the source when it is called, or as they were read just now."""
        if optional_method(self.source, "path") is not None:
            return lambda: [self.path(index) for index in indices]
        recent = self._recent()
        paths = [recent.get(index) for index in indices]
        return lambda: paths

    def path(self, index: int) -> str | None:
        """The sample's name from the source, or its path if it was read recently."""
        path_of = optional_method(self.source, "path")
        if path_of is not None:
            return os.fspath(path_of(index))
        return self._recent().get(index)

    def _recent(self) -> dict[int, str]:
        with self._recent_lock:
            return dict(self._recent_paths)

    def _label(self, index: int) -> Any:
        """The label of a cached sample; a source with `label` need not read the image."""
        label = optional_method(self.source, "label")
        return _check_result(self.source.read(index), index)[1] if label is None else label(index)


def _check_mode(mode: str, source: Any, *, is_cached: bool, on_gpu: bool) -> None:
    """Checks that source, cache and device can make images of another mode than "RGB"."""
    if on_gpu:
        raise ArgumentError(f"mode={mode!r} decodes on the CPU: use device='cpu', or mode='RGB' on a GPU")
    if is_cached:
        raise ArgumentError(f"cache: decoded images are cached as RGB, not with mode={mode!r}: leave the cache out")
    pending = [source]
    while pending:
        inner = pending.pop()
        pending += getattr(inner, "sources", [])
        if (own := getattr(inner, "mode", mode)) != mode:
            raise ArgumentError(
                f"files: the images of {inner!r:.200} become {own} there, and the loader has mode={mode!r}: give "
                f"cuaug.sources.FromDataset(dataset, mode={mode!r})"
            )


def _check_result(result: Any, index: int) -> tuple[Any, Any]:
    if isinstance(result, (tuple, list)) and len(result) == 2:
        if isinstance(result[0], (str, bytes, os.PathLike)):
            return result[0], result[1]
        with contextlib.suppress(TypeError, ValueError):
            memoryview(result[0])  # any object with the buffer protocol
            return result[0], result[1]
    raise SourceError(
        f"source: read({index}) gave {result!r:.200}, not (data, label); data is a path, encoded bytes or a uint8 array"
    )
