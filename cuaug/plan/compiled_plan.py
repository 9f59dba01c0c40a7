"""A finished plan, as the kernels read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.plan import geometry
from cuaug.plan.layout import OP, Filter, Layout, Neighbourhood, Type

__all__ = ["CompiledPlan"]


@dataclass(frozen=True)
class CompiledPlan:
    """A finished plan, as the kernels read it; the devices fill in addresses.

    Attributes:
        rows: (P, N) `SAMPLE` rows, P passes of N samples; `active` is 0 where a sample needs no such pass.
        ops: (M,) `OP` rows, each sample's program of each pass contiguous.
        luts: (T, 3, 256) float32 look-up tables.
        statistics: how many 64-bit words the passes measure together, for rows' `measure_at` and `measured_at`.
        target_type: the finished images' type.
    """

    rows: NDArray[Any]
    ops: NDArray[Any]
    luts: NDArray[np.float32]
    statistics: int
    target_type: Type

    @property
    def launches(self) -> int:
        """How many kernel launches run this plan on a CUDA device, whatever the number of samples."""
        return len(self.rows)

    def sizes(self) -> NDArray[np.int64]:
        """(2, N): heights and widths of the finished images."""
        return geometry.sizes_made(self.rows)

    def regions(self) -> NDArray[np.int64]:
        """(N, 4): y0, x0, y1, x1 around the source pixels that will be read, the ends excluded."""
        return geometry.regions(self.rows[0])

    def for_masks(self) -> CompiledPlan:
        """The same passes for masks that lie over the images: whole pixels move, and no value changes.

        They make (H, W, 3) uint8 of (H, W, 3) uint8, with 0 beyond a constant border. Where an image is resampled
        smoothly, its mask shows the pixel that lies under the centre of the new one.
        """
        rows = self.rows.copy()
        smooth = rows["filter"] != Filter.NEAREST
        for axis in (rows["y"], rows["x"]):
            # `nearest` in kernels/core/sampling.h takes what lies under the new pixel's corner, as OpenCV does.
            axis["offset"] += np.where(smooth, 0.5 * axis["scale"], 0.0)
            axis["taps"] = 1
        rows["filter"], rows["antialias"], rows["neighbourhood"] = Filter.NEAREST, 0, Neighbourhood.NONE
        rows["fill_before"] = rows["fill_after"] = 0.0
        rows["clamp"] = -1.0
        for nothing in ("op_begin", "op_end", "measure", "measured"):
            rows[nothing] = 0
        rows["source_type"][0] = Type.UINT8
        rows["target_type"][rows["active"].sum(axis=0) - 1, np.arange(rows.shape[1])] = Type.UINT8
        rows["target_layout"], rows["target_channels"] = Layout.HWC, 3
        return CompiledPlan(rows, np.zeros(1, dtype=OP), self.luts, 0, Type.UINT8)
