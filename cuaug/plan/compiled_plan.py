"""`CompiledPlan`: a finished plan in the form that the kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.plan import geometry
from cuaug.plan.layout import OP, Filter, Layout, Neighbourhood, Type
from cuaug.plan.pixel_function import PixelFunction

__all__ = ["CompiledPlan"]


@dataclass(frozen=True)
class CompiledPlan:
    """A finished plan in the form that the kernels read; executors fill in addresses.

    Attributes:
        rows: (P, N) `SAMPLE` rows, P passes of N samples; `active` is 0 where a sample skips the pass.
        ops: (M,) `OP` rows; the program of each sample and pass is contiguous.
        luts: (T, 3, 256) float32 look-up tables, filter weights and displacement fields.
        statistics: number of 64-bit words that the passes measure; rows index them by `measure_at` and `measured_at`.
        target_type: type of the finished images.
        functions: the pixel functions that operations call.
    """

    rows: NDArray[Any]
    ops: NDArray[Any]
    luts: NDArray[np.float32]
    statistics: int
    target_type: Type
    functions: tuple[PixelFunction, ...] = ()

    @property
    def launches(self) -> int:
        """Number of kernel launches on a CUDA device, one per pass, for most batches.

        Samples of very different scale, or a large working set, take more (cuaug/devices/tiles.py and workspace.py).
        """
        return len(self.rows)

    def sizes(self) -> NDArray[np.int64]:
        """(2, N) heights and widths of the finished images."""
        return geometry.output_sizes(self.rows)

    def regions(self) -> NDArray[np.int64]:
        """(N, 4) y0, x0, y1, x1 of the source pixels to decode, ends excluded."""
        return geometry.regions(self.rows[0])

    def for_masks(self) -> CompiledPlan:
        """The same geometry for masks, (H, W, 3) uint8, by nearest neighbour.

        No value changes. Beyond a constant border masks are 0. Where the image is interpolated, its mask takes the
        pixel under the centre of the new one.
        """
        rows = self.rows.copy()
        interpolated = rows["filter"] != Filter.NEAREST
        for axis in (rows["y"], rows["x"]):
            # `nearest` in kernels/core/sampling.h samples at the new pixel's corner, as OpenCV does.
            axis["offset"] += np.where(interpolated, 0.5 * axis["scale"], 0.0)
            axis["taps"] = 1
        # For interpolation, `set_kernel_matrices` in kernels/planner/geometry.h has moved points by half a pixel.
        half = np.where(interpolated[..., None], rows["fixed_matrix"][..., 6:], 0) / 2
        for first in (0, 3):
            rows["fixed_matrix"][..., first : first + 3] += np.rint(half).astype(np.int64)
            rows["float_matrix"][..., first : first + 3] += (half * 2.0**-32).astype(np.float32)
        rows["filter"], rows["antialias"], rows["neighbourhood"] = Filter.NEAREST, 0, Neighbourhood.NONE
        rows["fill_before"] = rows["fill_after"] = 0.0
        rows["clamp"] = -1.0
        for field in ("op_begin", "op_end", "measure", "measured"):
            rows[field] = 0
        rows["source_type"][0] = Type.UINT8
        rows["target_type"][rows["active"].sum(axis=0) - 1, np.arange(rows.shape[1])] = Type.UINT8
        rows["target_layout"], rows["target_channels"] = Layout.HWC, 3
        return CompiledPlan(rows, np.zeros(1, dtype=OP), self.luts, 0, Type.UINT8)
