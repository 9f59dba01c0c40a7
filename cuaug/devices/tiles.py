"""The launches of a pass: which samples share one, and the tile of the output that a block computes.

A tile's scratch in shared memory grows with the scale of a resize, and a launch allocates the most that any of its
samples needs. Samples of very different scale are therefore launched apart, in up to three classes: one giant image
leaves the tiles of the others as they are. Most batches are of one class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.native import address, library
from cuaug.errors import DeviceError

__all__ = ["DEFAULT_SHARED_BYTES", "Launch", "plan_launches", "scratch_bytes"]

#: Shared memory of a block that every GPU grants without opting in.
DEFAULT_SHARED_BYTES = 48 << 10
# A block may take up to this on request. Every GPU from Ampere on grants 99 KiB or more, Turing 64.
_MAX_SHARED_BYTES = 100 << 10


class _Tile(NamedTuple):
    max_rows: int
    max_columns: int
    max_shared_bytes: int


# The tiles of each class, the preferred first; a class takes the samples that its last tile fits. Blocks take more
# shared memory before they have fewer columns than threads, and fewer columns before they have fewer than 8 rows.
_CLASSES = (
    (_Tile(32, 128, DEFAULT_SHARED_BYTES), _Tile(8, 128, DEFAULT_SHARED_BYTES)),
    (_Tile(8, 128, _MAX_SHARED_BYTES),),
    (
        *(_Tile(*size, _MAX_SHARED_BYTES) for size in ((8, 64), (8, 32), (8, 16), (4, 8), (1, 4), (1, 1))),
        _Tile(1, 1, 1 << 30),  # all that the GPU grants
    ),
)


class Launch(NamedTuple):
    """A kernel launch for some samples of a pass.

    Attributes:
        samples: (n,) numbers of the samples, ascending.
        down, across: number of tiles.
        rows, columns: of a tile, in output pixels.
        shared_bytes: dynamic shared memory per block.
    """

    samples: NDArray[np.int64]
    down: int
    across: int
    rows: int
    columns: int
    shared_bytes: int


def plan_launches(rows: NDArray[Any], limit: int, tile: tuple[int, int] | None = None) -> list[Launch]:
    """The launches of a pass, none for samples that skip it.

    Args:
        rows: (N,) `SAMPLE`, contiguous.
        limit: bytes of shared memory that the GPU grants a block.
        tile: (rows, most columns) for all samples; None chooses.

    Raises:
        DeviceError: one pixel of a sample needs more shared memory than the GPU grants.
    """
    rest = rows["active"].nonzero()[0]
    if not len(rest):
        return []
    heights, widths = rows["y"]["out"], rows["x"]["out"]
    height, width = int(heights[rest].max()), int(widths[rest].max())
    scratch: dict[tuple[int, int], NDArray[np.int64]] = {}

    def size(tile: _Tile) -> tuple[int, int]:
        # Equal tiles, instead of full ones and a narrow rest.
        return min(tile.max_rows, height), -(-width // -(-width // tile.max_columns))

    def needs(tile: _Tile, group: NDArray[np.int64]) -> NDArray[np.int64]:
        shape = size(tile)
        if shape not in scratch:
            scratch[shape] = scratch_bytes(rows, *shape)
        return scratch[shape][group]

    def first_fit(tiles: Sequence[_Tile], group: NDArray[np.int64]) -> tuple[_Tile | None, int]:
        for tile in tiles:
            shared_bytes = int(needs(tile, group).max(initial=0))
            if shared_bytes <= min(tile.max_shared_bytes, limit):
                return tile, shared_bytes
        return None, 0

    launches = []
    for tiles in ((_Tile(*tile, limit),),) if tile else _CLASSES:
        group = rest
        chosen, shared_bytes = first_fit(tiles, group)
        if chosen is None:
            group = rest[needs(tiles[-1], rest) <= min(tiles[-1].max_shared_bytes, limit)]
            chosen, shared_bytes = first_fit(tiles, group)
        if chosen is None or not len(group):
            continue
        tile_rows, tile_columns = size(chosen)
        down = -(-int(heights[group].max()) // tile_rows)
        across = -(-int(widths[group].max()) // tile_columns)
        launches.append(Launch(group, down, across, tile_rows, tile_columns, shared_bytes))
        rest = np.setdiff1d(rest, group, assume_unique=True) if len(group) < len(rest) else rest[:0]
        if not len(rest):
            return launches
    least = scratch_bytes(rows, *(tile or (1, 1)))[rest].max()
    raise DeviceError(
        f"a resize shrinks so much that one output pixel needs {least} bytes of shared memory; this GPU has {limit} "
        "for a block. Resize in two steps, or on the CPU"
    )


def scratch_bytes(rows: NDArray[Any], tile_rows: int, tile_columns: int) -> NDArray[np.int64]:
    """(N,) bytes of scratch that a tile of each sample needs, 0 for samples that skip the pass.

    Args:
        rows: (N,) `SAMPLE`, contiguous.
    """
    words = np.empty(len(rows), dtype=np.int64)
    library.cuaug_scratch_words(address(rows), len(rows), tile_rows, tile_columns, address(words))
    return 4 * words
