"""The native work of a batch, without Python: reading files, decoding and augmenting samples, staging for a GPU.

A batch enters the interpreter once after each kind of work, however many samples and threads it has. The structs are
those of kernels/cpu/batch_work.h and of the headers that it includes.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.c_headers import read_struct, struct_dtype
from cuaug._runtime.native import BEST_ISA, address, library
from cuaug.codec import (
    MAX_FULL_SCANS,
    MAX_SCANS,
    DecodedImage,
    DecoderPaths,
    DeviceJpegs,
    JpegIndex,
    JpegLaunch,
    empty_launch,
    jpeg_headers,
    load_codec,
    split_lines,
)
from cuaug.errors import DecodeError, LoaderError
from cuaug.pipeline.image_table import ImageTable
from cuaug.pipeline.thread_pool import NativeWork
from cuaug.plan import CompiledPlan
from cuaug.profiling.recorder import Recorder
from cuaug.sources.file_bytes import FileRanges, encode_paths, error_reason, is_fd_limit_error, read_bytes

__all__ = ["FileReads", "JpegStaging", "SampleRuns", "Times"]

_READ, _RUN, _STAGE = 1, 2, 3  # kinds of work
_TEXT_BYTES = 1024
_CHANGED = "the file has changed while it was loaded"

_struct = partial(read_struct, "cpu/batch_work.h")
_BatchWork, _PlanTables = _struct("BatchWork"), _struct("PlanTables")
_ReadWork, _StagingWork = _struct("ReadWork", _BatchWork), _struct("StagingWork", _BatchWork)
_RunWork = _struct("RunWork", _BatchWork, _PlanTables)
_REGION = read_struct("jpeg/decode_region.h", "EncodedRegion")
_IDENTITY, _HEADER = read_struct("jpeg/index_file.h", "FileKey"), read_struct("jpeg/headers.h", "JpegHeader")
_ORIGIN = read_struct("jpeg/device_jpeg.h", "FileOrigin", _IDENTITY, _HEADER)
_FILE_ROW, _SAMPLE_ROW = _struct("FileRow", _ORIGIN), _struct("SampleRow", _REGION)
_FILE, _SAMPLE = struct_dtype(_FILE_ROW), struct_dtype(_SAMPLE_ROW)


class Times:
    """When each sample of some native work was at its two stages.

    Args:
        batch: number of the batch.
        cancelled: (1,) not zero once the batch is no longer wanted.
        samples: (n,) numbers of the samples in the source.
        stages: names of the two stages.
    """

    def __init__(
        self, batch: int, cancelled: NDArray[np.int64], samples: NDArray[np.int64], stages: tuple[str, str]
    ) -> None:
        self._batch, self._stages = batch, stages
        self._cancelled = cancelled
        count = len(samples)
        self._memory = memory = np.zeros(2 + 5 * count, dtype=np.int64)
        self._totals, self._samples, self._table = memory[:2], memory[2 : 2 + count], memory[2 + count :].reshape(-1, 4)
        self._samples[:] = samples

    @property
    def common(self) -> Any:
        """The `BatchWork` for the native work; this object keeps its memory."""
        totals = address(self._memory)
        samples = totals + self._totals.nbytes
        times = samples + self._samples.nbytes
        return _BatchWork(self._batch, address(self._cancelled), samples, times, totals)

    def record(self, recorder: Recorder, thread_name: str) -> None:
        """Adds the times to the totals, and to a profile."""
        recorder.add(dict(zip(self._stages, self._totals.tolist(), strict=True)))
        if (listener := recorder.listener) is None:
            return
        for sample, (thread, begin, middle, end) in zip(self._samples.tolist(), self._table.tolist(), strict=True):
            if end:  # else it was cancelled
                lane = f"{thread_name}-{thread}"
                if middle > begin:  # else the sample skipped the stage
                    listener.on_stage(lane, self._stages[0], begin, middle, self._batch, sample)
                if end > middle:
                    listener.on_stage(lane, self._stages[1], middle, end, self._batch, sample)


class FileReads:
    """Reads files or ranges of files, and parses the headers of JPEGs.

    Args:
        data: n samples; those of type str are paths.
        ranges: of the n samples, if they are ranges and no paths.
        max_bytes: larger files are not read.
        max_pixels: for the limit of work in a JPEG's scans.
        index: JPEGs that it knows are not read, for `JpegStaging` to read what it needs of them; None: all are read.

    Attributes:
        files: (n,) `FileRow` (kernels/cpu/batch_work.h) of each image's file.
        addresses: (n,) of these.
    """

    def __init__(
        self,
        data: Sequence[Any],
        ranges: FileRanges | None,
        times: Times,
        max_bytes: int,
        max_pixels: int,
        index: JpegIndex | None = None,
    ) -> None:
        self._data, self._ranges, self._times, self._index = data, ranges, times, index
        self._max_bytes, self._max_pixels = max_bytes, max_pixels
        self._chunks: list[NDArray[np.uint8]] = []
        per_sample = 1 if ranges is None else ranges.table.shape[1]
        rows = self._rows = np.zeros((len(data), per_sample), dtype=_FILE)
        self.files: NDArray[Any] = rows[:, 0]
        first = address(rows)
        self.addresses: NDArray[np.int64] = np.arange(first, first + rows.nbytes, rows.strides[0])
        if ranges is None:
            paths = [value if type(value) is str else "" for value in data]
            rows["path"][:, 0], self._names = encode_paths(paths)
        else:
            number, rows["begin"], rows["size"], rows["header_crc"] = np.moveaxis(ranges.table, -1, 0)
            rows["file"] = np.where(number < 0, 0, address(ranges.states) + number * ranges.states.strides[0])
        self._memory = library.cuaug_file_memory_new()
        if self._memory is None:
            raise MemoryError("no memory to read files")
        weakref.finalize(self, library.cuaug_file_memory_delete, self._memory).atexit = False
        self._table = _ReadWork(
            times.common, first, per_sample, 0 if ranges is None else ranges.header_bytes, self._memory,
            min(max_bytes, sys.maxsize), MAX_SCANS, min(MAX_FULL_SCANS * max_pixels, sys.maxsize),
            None if index is None else index.open_handle,
        )  # fmt: skip

    @property
    def work(self) -> NativeWork:
        return NativeWork(_READ, self._table, len(self._data), self)

    def finish(self) -> tuple[NDArray[np.bool_], dict[int, Any]]:
        """Which files were read, or are known, once the work has ended; and the labels of ranges, by position."""
        memory, rows, labels = self._memory, self._rows, dict[int, Any]()
        self._chunks = [_release(memory, chunk) for chunk in range(library.cuaug_file_memory_chunks(memory))]
        is_read = ((rows["data"] != 0) | (rows["is_known"] != 0)).all(axis=1)
        if self._ranges is not None:
            for i in np.flatnonzero(is_read).tolist():
                try:
                    labels[i] = self._ranges.make_label(i, [self._slice(row).tobytes() for row in rows[i, 1:]])
                except (DecodeError, MemoryError):  # the source's `read` raises it again
                    is_read[i] = False
        return is_read, labels

    def _slice(self, row: Any) -> NDArray[np.uint8]:
        offset = int(row["offset"])
        return self._chunks[row["chunk"]][offset : offset + int(row["size"])]

    def read(self, i: int) -> bytes | NDArray[np.uint8]:
        """The bytes of a file: of memory that several files share; or one that is known is read only now.

        Raises:
            DecodeError: it cannot be read, or has changed.
            LoaderError: too many files are open.
        """
        row = self.files[i]
        if row["data"]:
            return self._slice(row)
        try:
            if self._ranges is None:
                data = read_bytes(self._data[i], self._max_bytes)
            else:
                number, begin, size, _ = self._ranges.table[i, 0].tolist()
                descriptor, *state = self._ranges.states[number].tolist()
                data, status = os.pread(descriptor, size, begin), os.fstat(descriptor)
                if state != [status.st_size, status.st_mtime_ns, status.st_ctime_ns]:  # another sample may lie there
                    raise DecodeError(_CHANGED)
        except OSError as error:
            if is_fd_limit_error(error):
                raise LoaderError(
                    f"cannot open {self._data[i]!r}: {error_reason(error)}; the sample is not damaged, so on_error "
                    "does not apply: close files, or raise the limit (ulimit -n)"
                ) from error
            raise DecodeError(error_reason(error)) from error
        header = jpeg_headers([data], self._max_pixels)[0]  # batches are planned by it
        if len(data) != row["size"] or tuple(header.tolist()) != row["origin"]["header"].item():
            raise DecodeError(_CHANGED)
        return data


class SampleRuns:
    """Decodes samples, and runs their rows of a compiled plan.

    Args:
        images: encoded or decoded ones.
        positions: of those that are decoded here.
        regions: (n, 4) y0, x0, y1, x1 of each image, which its rows read.
        plan: the tables, with `views` rows for each image.
        targets: (n * views,) addresses of the finished images.
        max_pixels: limit of each intermediate buffer of a sample, in pixels of three floats.

    Attributes:
        positions: as given.
        statuses: by position in `positions`, once the work has ended: 0 if nvImageCodec could not decode it, 1 if it
            was decoded, 2 if only a JPEG crop was, 3 if it came decoded, 4 without a decoder.
    """

    def __init__(
        self,
        images: ImageTable,
        positions: Sequence[int],
        regions: NDArray[np.int64],
        plan: CompiledPlan,
        targets: NDArray[np.uint64],
        times: Times,
        *,
        views: int,
        index: JpegIndex | None,
        fancy_upsampling: bool,
        max_pixels: int,
    ) -> None:
        self.positions, count = positions, len(positions)
        rows = self._rows = np.zeros(count, dtype=_SAMPLE)
        rows["image"], rows["sample"] = images.rows[positions], positions
        for name, values in zip(("y0", "x0", "y1", "x1"), regions[positions].T, strict=True):
            rows["image"][name] = values
        for k, i in enumerate(positions) if images.objects else ():
            item = images.objects.get(i)
            if type(item) is DecodedImage:
                y0, x0, _, _ = regions[i].tolist()
                pitch = item.array.strides[0]
                rows[k]["pixels"], rows[k]["pitch"] = address(item.array) + y0 * pitch + 3 * x0, pitch
        self._text = np.empty((count, _TEXT_BYTES), dtype=np.uint8)
        options = DecoderPaths(fancy_upsampling=fancy_upsampling).options.encode()
        self._kept = images, plan, targets, times, index, options
        passes, samples = plan.rows.shape
        tables = _PlanTables(
            plan.rows.ctypes.data, plan.rows.itemsize, samples, passes, plan.ops.ctypes.data, plan.luts.ctypes.data,
            targets.ctypes.data,
        )  # fmt: skip
        handle = None if index is None else index.handle_for(rows["image"])
        self._table = _RunWork(
            times.common, address(self._rows), load_codec(), options, fancy_upsampling,
            handle, BEST_ISA, views, 3 * max_pixels, tables, address(self._text),
            _TEXT_BYTES,
        )  # fmt: skip

    @property
    def work(self) -> NativeWork:
        return NativeWork(_RUN, self._table, len(self._rows), self)

    @property
    def statuses(self) -> NDArray[np.int64]:
        return self._rows["status"]

    @property
    def lacking_memory(self) -> list[int]:
        """Items of which a pass needs more memory than is allowed, or than there is."""
        return self._rows["sample"][self._rows["lacks_memory"] != 0].tolist()

    def lines(self) -> dict[int, list[str]]:
        """What the image libraries printed, by item."""
        lengths = self._rows["text_length"]
        printed = np.flatnonzero(lengths).tolist()
        return {self.positions[i]: split_lines(self._text[i, : lengths[i]].tobytes()) for i in printed}


class JpegStaging:
    """Adds n JPEGs to those that our kernels decode, and prepares these.

    Args:
        rows: (N,) `IMAGE` of the batch; keep the files meanwhile.
        files: (N,) address of the `FileRow` of each; 0: without one.
        numbers: (n,) the rows to add.
        is_added: (N,) becomes True for those that the kernels decode; the others another decoder has to.
        index: entry points of JPEGs without restart markers.

    Attributes:
        times: when each was added.
    """

    def __init__(
        self,
        jpegs: DeviceJpegs,
        rows: NDArray[Any],
        files: NDArray[np.int64],
        numbers: NDArray[np.int64],
        is_added: NDArray[np.bool_],
        times: Times,
        index: JpegIndex | None,
    ) -> None:
        self.times, self._numbers = times, numbers
        self._kept, self._launch = (jpegs, rows, files, is_added, index), empty_launch()
        self._table = _StagingWork(
            times.common, jpegs.handle, address(files), address(rows), address(numbers),
            None if index is None else index.handle, address(is_added), address(self._launch),
        )  # fmt: skip

    @property
    def work(self) -> NativeWork:
        return NativeWork(_STAGE, self._table, len(self._numbers), self)

    def launch(self) -> JpegLaunch:
        """The prepared batch, once the work has ended."""
        return JpegLaunch.of(self._launch)


def _release(memory: int, chunk: int) -> NDArray[np.uint8]:
    """A chunk of a FileMemory as an array, which frees it."""
    place = library.cuaug_file_memory_release(memory, chunk, ctypes.byref(size := ctypes.c_int64()))
    array = np.frombuffer(memoryview((ctypes.c_uint8 * size.value).from_address(place)), dtype=np.uint8)
    weakref.finalize(array, library.cuaug_free_chunk, place, size.value).atexit = False  # threads may use it at exit
    return array
