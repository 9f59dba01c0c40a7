"""`CpuExecutor`: runs plans on the CPU with the compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import BEST_ISA, ISAS, address, library
from cuaug.devices.cpu_functions import with_compiled_functions
from cuaug.plan import CompiledPlan, Type

_TYPE_BYTES = {Type.UINT8: 1, Type.FLOAT16: 2, Type.BFLOAT16: 2, Type.FLOAT32: 4}


class CpuExecutor:
    """Runs a compiled plan on the CPU, on the calling thread.

    Args:
        compiled: kept alive, read only. `compiled` then also has the addresses of compiled pixel functions.
        isa: "baseline", "avx2" or "avx512"; None takes the widest that this processor has. The bits are the same.
        tile: (rows, columns) of the output to compute at a time, as on a GPU; None for all. The bits are the same.
    """

    def __init__(self, compiled: CompiledPlan, *, isa: str | None = None, tile: tuple[int, int] | None = None) -> None:
        self.compiled = compiled = with_compiled_functions(compiled)
        self._rows = compiled.rows.ctypes.data
        self._ops = compiled.ops.ctypes.data
        self._luts = compiled.luts.ctypes.data
        self._passes, self._samples = compiled.rows.shape
        self._row_bytes = compiled.rows.itemsize
        self._isa = BEST_ISA if isa is None else min(ISAS[isa], BEST_ISA)
        self._tile = tile or (0, 0)
        self._others = [CpuExecutor(other, isa=isa, tile=tile) for other in compiled.others]
        if self._others:  # each group writes its planes behind those of the one before
            self._group_bytes = 3 * _TYPE_BYTES[compiled.target_type] * compiled.planes()

    def run(self, sample: int, source: NDArray[np.generic], target: int, *, y: int = 0, x: int = 0) -> None:
        """Runs every pass of one sample.

        Args:
            sample: its number in the batch.
            source: (H, W, 3) uint8 or float32, the plan's source type; packed pixels, any row stride.
            target: address of the finished image, of the plan's type, layout and size.
            y, x: position of `source` in the image, if only a region is decoded.
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

    def run_samples(
        self, samples: Sequence[tuple[int, int, int, int, int, int]], *, max_pixels: int, group_bytes: int = 0
    ) -> list[int]:
        """Runs every pass of several samples in one call, which takes the GIL once.

        Args:
            samples: (number in the batch, source address, source row stride in bytes, y, x, target address) of each.
            max_pixels: limit of each intermediate buffer of a sample, in pixels of three floats.
            group_bytes: of several groups of channels, from a source of one to that of the next.

        Returns:
            numbers of the samples that need larger buffers, or more memory than there is; the others are finished.
        """
        table = np.array(samples, dtype=np.int64)
        failed = self._run_table(table, max_pixels)
        for other in self._others:
            table[:, 1] += group_bytes
            table[:, 5] += self._group_bytes[table[:, 0]]
            failed |= other._run_table(table, max_pixels)
        return table[failed, 0].tolist()

    def _run_table(self, table: NDArray[np.int64], max_pixels: int) -> NDArray[np.bool_]:
        """As `run_samples`, for one group; which rows failed."""
        failed = np.zeros(len(table), dtype=np.bool_)
        library.cuaug_run_samples(
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
        return failed

    def run_stack(self, images: NDArray[np.generic], targets: NDArray[np.uint64], *, views: int, threads: int) -> None:
        """Runs every pass of all samples on several threads.

        Args:
            images: (N, H, W, 3) as for `run`, any image stride; each serves `views` consecutive samples.
            targets: (N * views,) addresses of the finished images.
            threads: the most threads that share the samples.
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
