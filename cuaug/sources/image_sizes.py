"""`sizes`: the heights and widths of a source's images, from their headers.

They are kept as `.sizes-<digest>.cuaug-index` where the JPEG index lies: in the images' folder, or else in
CUAUG_CACHE_DIR or the user's cache directory. The file holds for one `cache_key`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.arguments import function, thread_count
from cuaug._runtime.c_headers import read_struct, struct_dtype
from cuaug._runtime.cpus import allowed_cpus
from cuaug._runtime.disk import Directory, UntrustedError, cache_directory, warn_once
from cuaug._runtime.limits import check_bytes
from cuaug._runtime.native import address, library
from cuaug._runtime.threads import map_in_threads
from cuaug.codec import read_header, read_multichannel
from cuaug.codec.decode_options import DecodeOptions, open_options
from cuaug.codec.image import find_jpegs
from cuaug.errors import ArgumentError, DecodeError, SourceError
from cuaug.remote.urls import is_url
from cuaug.sources.file_bytes import FilePaths, FileRanges, encode_paths, error_reason, is_fd_limit_error, read_bytes
from cuaug.sources.jpeg_index_file import index_folder
from cuaug.sources.open import open_source
from cuaug.sources.shards.shard_index import SUFFIX
from cuaug.sources.source import Source, locate, optional_method

log = logging.getLogger("cuaug")

_PLACE = struct_dtype(read_struct("cpu/first_headers.h", "HeaderPlace"))
_SAMPLES_PER_TASK = 512
_TASKS_PER_THREAD = 8
_LOG_SECONDS = 10.0
_DIGEST_BYTES = 32


def sizes(
    source: Any,
    *,
    decode: DecodeOptions | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    error_callback: Callable[[DecodeError], object] | None = None,
) -> NDArray[np.int64]:
    """Read the heights and widths of all images, without decoding them.

    Native code reads the beginnings of JPEGs, in files and in tars: mostly 4 kB each. Of PNGs and WebPs it reads the
    headers of their chunks, unless they have EXIF, animation or 16 bits. Other files are read whole, and so is every
    sample of a source that names no files: remote ones are downloaded. A JPEG, PNG or WebP with damaged pixels has the
    size that its header claims. Sizes in annotations are not used, because the images may have others.

    The sizes are kept on disk for the next run, beside the JPEG index, if the source has a `cache_key`. That notices
    changed files as caches do: by the sizes and modification times of up to 1,000 of them.

    Args:
        source: a source, or what `Loader` takes as files.
        decode: the Loader's `decode`: its `apply_exif`, `max_pixels`, `max_bytes`, `lossy` and `mode` count here.
        threads: None: one per CPU.
        progress: called from time to time with the number of samples so far, and that of all. The log, at INFO, has
            the same every ten seconds.
        error_callback: called with the error of each image without a size.

    Returns:
        (N, 2) heights and widths in pixels, as displayed: after the EXIF orientation. (0, 0): the image cannot be read;
        one warning in the log counts these images, and names the first. They are read again in the next run.

    Raises:
        LoaderError: the source has clips, or no samples by index; or too many files are open.
    """
    source, options = open_source(source), open_options(decode)
    callback, count = function("error_callback", error_callback), len(source)
    if getattr(source, "clip_sampler", None) is not None or optional_method(source, "start_stream") is not None:
        raise ArgumentError(f"source: sizes are of images that are read by index, unlike those of {source!r:.200}")
    kept = _KeptSizes.of(source, options) if count else None
    found = np.zeros((count, 2), np.int64) if kept is None else kept.load()
    unknown = np.flatnonzero(found[:, 0] == 0)
    errors: list[DecodeError] = []
    for rows, measured, failed in _measure_all(source, unknown, options, thread_count(threads), progress, count):
        found[rows] = measured
        errors += failed
    if kept is not None and len(errors) < len(unknown):
        kept.store(found)
    if errors:
        log.warning("%d of %d images have no size; the first: %s", len(errors), count, errors[0])
    for error in errors if callback is not None else ():
        callback(error)
    return found


def _measure_all(
    source: Source,
    indices: NDArray[np.int64],
    options: DecodeOptions,
    threads: int | None,
    progress: Callable[[int, int], object] | None,
    count: int,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], list[DecodeError]]]:
    """Yields the indices of some samples, their sizes and errors, in order."""
    progress, done, logged = function("progress", progress), count - len(indices), time.monotonic()
    tasks = [indices[start : start + _SAMPLES_PER_TASK] for start in range(0, len(indices), _SAMPLES_PER_TASK)]
    threads = threads or allowed_cpus()[0]
    for first in range(0, len(tasks), _TASKS_PER_THREAD * threads):
        group = tasks[first : first + _TASKS_PER_THREAD * threads]
        for rows, result in zip(group, map_in_threads(partial(_measure, source, options), group, threads), strict=True):
            yield rows, *result
            done += len(rows)
            if progress is not None:
                progress(done, count)
            if time.monotonic() - logged > _LOG_SECONDS:
                logged = time.monotonic()
                log.info("read the sizes of %d of %d images", done, count)


def _measure(
    source: Source, options: DecodeOptions, indices: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[DecodeError]]:
    """(n, 2) the sizes of some samples, zeros for those of the errors."""
    headers = _first_headers(source, indices, options.max_bytes)
    jpegs = find_jpegs(*headers[:, :4].T, apply_exif=options.apply_exif, max_pixels=options.max_pixels)
    found = np.stack([jpegs.heights, jpegs.widths], axis=1).astype(np.int64)
    found[~jpegs.is_jpeg] = 0
    errors = []
    for k in np.flatnonzero(~jpegs.is_jpeg).tolist():
        index = int(indices[k])
        try:
            found[k] = _read_size(source, index, options)
        except DecodeError as error:
            errors.append(error)
        except OSError as error:
            if is_fd_limit_error(error):
                raise SourceError(f"sample {index} cannot be opened: {error_reason(error)}") from error
            errors.append(DecodeError(error_reason(error)))
        else:
            continue
        path = optional_method(source, "path")
        errors[-1] = errors[-1].at(errors[-1].path if path is None else os.fspath(path(index)), index)
    return found, errors


def _first_headers(source: Source, indices: NDArray[np.int64], max_bytes: int) -> NDArray[np.int32]:
    """(n, 5) as `jpeg_headers`, from the beginnings of files; zeros for samples that `read` has to read."""
    headers = np.zeros((len(indices), 5), np.int32)
    found = None
    with contextlib.suppress(Exception):  # `read` raises it again, and names the sample
        found = locate(source, indices)
    places = np.zeros(len(indices), _PLACE)
    if isinstance(found, FileRanges):
        number, places["begin"], places["size"] = np.moveaxis(found.table[:, 0, :3], -1, 0)
        places["file"] = np.where(number < 0, 0, address(found.states) + number * found.states.strides[0])
    elif isinstance(found, FilePaths):
        paths = [path if type(path) is str else "" for path in found.paths]
        places["path"], _names = encode_paths(paths)  # keeps their memory
    else:
        return headers
    if library.cuaug_first_headers(address(places), len(places), max_bytes, address(headers)):
        raise MemoryError("no memory to read the headers of files")
    return headers


def _read_size(source: Source, index: int, options: DecodeOptions) -> tuple[int, int]:
    """The size of a sample that the source reads."""
    encoded_size = optional_method(source, "encoded_size")
    if encoded_size is not None:
        check_bytes(encoded_size(index), options.max_bytes)
    data, _ = source.read(index)
    if isinstance(data, np.ndarray) and data.ndim > 1:
        return data.shape[0], data.shape[1]
    if isinstance(data, (str, os.PathLike)):
        data = read_bytes(data, options.max_bytes)
    check_bytes(memoryview(data).nbytes, options.max_bytes)
    limits: dict[str, Any] = {name: getattr(options, name) for name in ("apply_exif", "max_pixels", "lossy")}
    if options.mode != "RGB":
        height, width = read_multichannel(bytes(data), options.mode, **limits).shape[:2]
        return height, width
    image = read_header(bytes(data), **limits)
    return image.height, image.width


class _KeptSizes:
    """The file of a source's sizes.

    Args:
        folder: of the images, or its URL.
        key: of the images and options that the sizes belong to.
        count: number of samples.
    """

    def __init__(self, folder: str, key: str, kind: str, count: int) -> None:
        self._folder, self._key, self._count = folder, key, count
        digest = hashlib.sha256(f"{folder} {kind} {count}".encode("utf-8", "surrogatepass")).hexdigest()
        self._name = f".sizes-{digest[:16]}{SUFFIX}"

    @classmethod
    def of(cls, source: Any, options: DecodeOptions) -> _KeptSizes | None:
        """The file of a source; None: nothing identifies its images, or they have no folder."""
        folder, key = index_folder(source), optional_method(source, "cache_key")
        key = None if key is None else key()
        if folder is None or key is None:
            return None
        relevant = options.mode, options.lossy, options.apply_exif, options.max_pixels, options.max_bytes
        return cls(folder, f"{key} {relevant}", f"{type(source).__name__} {relevant}", len(source))

    def _digest(self, body: bytes) -> bytes:
        return hashlib.sha256(self._key.encode("utf-8", "surrogatepass") + b"\0" + body).digest()

    def _open(self, is_beside: bool) -> Directory:
        return Directory(self._folder, trusted=False) if is_beside else cache_directory("indexes", make=True)

    @property
    def _places(self) -> tuple[bool, ...]:
        """Whether a place is beside the images, for each place in turn."""
        return (False,) if is_url(self._folder) else (True, False)

    def load(self) -> NDArray[np.int64]:
        """(count, 2) the sizes; zeros where none are kept."""
        size = _DIGEST_BYTES + 8 * self._count
        for is_beside in self._places:
            try:
                with self._open(is_beside) as directory:
                    owners = (os.fstat(directory.fd).st_uid,) if is_beside else ()  # who could replace the images
                    data = directory.read(self._name, limit=size, owners=owners)
            except UntrustedError as error:
                warn_once(error, "these sizes of images are ignored")
                continue
            except OSError:  # mostly: no such file
                continue
            body = data[_DIGEST_BYTES:]
            if len(data) == size and data[:_DIGEST_BYTES] == self._digest(body):
                return np.frombuffer(body, "<i4").astype(np.int64).reshape(-1, 2)
        return np.zeros((self._count, 2), np.int64)

    def store(self, found: NDArray[np.int64]) -> None:
        """Keeps the sizes."""
        body = found.astype("<i4").tobytes()
        reason: OSError | None = None
        for is_beside in self._places:
            try:
                with (
                    self._open(is_beside) as directory,
                    directory.atomic_write(self._name, mode=0o644, is_durable=False) as file,
                ):
                    file.write(self._digest(body) + body)
                return
            except OSError as error:  # mostly: a read-only folder
                reason = error
        log.warning("cannot keep the sizes of the images of %s; each run reads them again: %s", self._folder, reason)
