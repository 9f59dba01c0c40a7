"""Runs plans on the CPU with the compiled kernels: some samples, for worker threads, or a stack in hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import BEST_ISA, ISAS, address, library
from cuaug.plan import CompiledPlan

__all__ = ["CpuExecutor"]


class CpuExecutor:
    """The tables of a batch, ready to run on any thread.

    Args:
        tables: what to do; kept alive and not written to.
        isa: "baseline", "avx2" or "avx512"; None takes the widest that this processor has. All give the same bits.
        tile: (rows, columns) of the output computed at a time, as on a GPU; None for the whole image. Same bits.
    """

    def __init__(self, tables: CompiledPlan, *, isa: str | None = None, tile: tuple[int, int] | None = None) -> None:
        self.tables = tables
        self._rows = tables.rows.ctypes.data
        self._ops = tables.ops.ctypes.data
        self._luts = tables.luts.ctypes.data
        self._passes, self._samples = tables.rows.shape
        self._row_bytes = tables.rows.itemsize
        self._isa = BEST_ISA if isa is None else min(ISAS[isa], BEST_ISA)
        self._tile = tile or (0, 0)

    def run(self, sample: int, source: NDArray[np.generic], target: int, *, y: int = 0, x: int = 0) -> None:
        """Runs every pass of one sample.

        Args:
            sample: its number in the batch.
            source: (H, W, 3) uint8 or float32, as the plan was made for; pixels packed, rows any distance apart.
            target: address of the finished image, which has the type, layout and size that the tables give.
            y, x: where in the image `source` begins, if only a region was decoded.
        """
        status = library.cuaug_run(
            self._isa,
            self._rows + sample * self._row_bytes,
            self._samples,
            self._passes,
            self._ops,
            self._luts,
            None,
            address(source),
            source.strides[0],
            y,
            x,
            target,
            *self._tile,
        )
        if status:
            raise MemoryError(f"no memory for the intermediate image of sample {sample} of the batch")

    def run_some(self, some: Sequence[tuple[int, int, int, int, int, int]], *, max_pixels: int) -> list[int]:
        """As `run`, several samples in turn, in one call, which takes the GIL once.

        Args:
            some: of each the sample, its source's address and bytes from one row to the next, y, x and the target.
            max_pixels: limit for each buffer of a sample, as pixels of three floats.

        Returns:
            the numbers of samples that need larger buffers, or more memory than there is; the others are finished.
        """
        table = np.array(some, dtype=np.int64)
        failed = np.empty(len(table), dtype=np.uint8)
        failures = library.cuaug_run_samples(
            self._isa,
            address(table),
            len(table),
            self._rows,
            self._row_bytes,
            self._samples,
            self._passes,
            self._ops,
            self._luts,
            3 * max_pixels,
            address(failed),
        )
        return table[failed != 0, 0].tolist() if failures else []

    def run_stack(self, images: NDArray[np.generic], targets: NDArray[np.uint64], *, views: int, threads: int) -> None:
        """Runs every pass of all samples.

        Args:
            images: (N, H, W, 3) as for `run`, any distance apart; each is that of `views` samples.
            targets: (N * views,) addresses of the finished images.
            threads: at most this many share the samples.
        """
        status = library.cuaug_run_stack(
            self._isa,
            threads,
            self._rows,
            self._samples,
            self._passes,
            self._ops,
            self._luts,
            address(images),
            *images.strides[:2],
            views,
            address(targets),
            self._row_bytes,
        )
        if status:
            raise MemoryError(f"no memory for the intermediate images of a batch of {self._samples} samples")
