"""Images as grids of square tiles with a thumbnail, as InternVL's and LLaVA's families of models take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import TransformError
from cuaug.plan import PackingFormat, Plan
from cuaug.transforms import parameters
from cuaug.transforms.base import Where
from cuaug.transforms.packing import PackingTransform
from cuaug.transforms.views import check_views

_MAX_SIDE = 4096  # a tile's values are counted in 32 bits
_MAX_TILES = 1024

Sizes = NDArray[np.int64]


class Tiles(PackingTransform):
    """Resize each image to a grid of square tiles that suits its proportions, and cut it; a thumbnail goes with it.

    The batch's images are (total, C, size, size): the tiles of all images, one image after the other, from left to
    right and from top to bottom. `Batch.packing` has the grids, and the bounds of each image with its thumbnail.
    `cuaug.decode` returns the pair (tiles, packing). A call on a tensor of images (N, C, H, W) gives
    (N, T, C, size, size), on a PIL image a tuple of its tiles. Only transforms that leave the images' size alone may
    follow.

        T.Compose([T.Tiles(448, max_tiles=12), T.Normalize(mean, std)], pillow=True)  # InternVL
        T.Compose([T.Tiles(336, grids=[(1, 2), (2, 1), (2, 2), (1, 3), (3, 1)], thumbnail="first"), ...])  # LLaVA-NeXT

    Without `grids`, the grid is the one of min_tiles to max_tiles tiles with the proportions nearest to the image's,
    and the image is stretched to it: InternVL's rule, `dynamic_preprocess`. Of equally near grids, a larger one is
    taken if the image has more than half its pixels. An image of one tile has no thumbnail, which would be the same
    picture.

    With `grids`, the grid is the one that shows the image in most of its own pixels; of these, the one with the least
    padding. The image keeps its proportions, in the middle of the grid, with 0 around it: LLaVA-NeXT's rule.

    Args:
        size: pixels per side of a tile, 1 to 4096.
        max_tiles: most tiles of an image, 1 to 1024; None: 12, or what `grids` says.
        min_tiles: fewest tiles of an image.
        grids: (rows, columns) of the grids to choose from.
        thumbnail: where the whole image, stretched to a tile, comes: "first" or "last" of the image's tiles. None: no
            thumbnail.
        pad: whether each image has as many tiles as the batch's largest: (N, most tiles, C, size, size). The rest is 0,
            and `Batch.packing.mask` says where.
        interpolation, antialias: as for `Resize`.

    Raises:
        TransformError: the input is a clip.
    """

    def __init__(
        self,
        size: int,
        max_tiles: int | None = None,
        min_tiles: int = 1,
        *,
        grids: Sequence[tuple[int, int]] | None = None,
        thumbnail: Literal["first", "last"] | None = "last",
        pad: bool = False,
        interpolation: parameters.Interpolation = "bicubic",
        antialias: bool | None = True,
    ) -> None:
        self.size = parameters.integer("size", size, 1, _MAX_SIDE)
        self.min_tiles = parameters.integer("min_tiles", min_tiles, 1, _MAX_TILES)
        self.max_tiles: int | None = None
        self.grids: list[tuple[int, int]] | None = None
        if grids is None:
            self.max_tiles = parameters.integer("max_tiles", 12 if max_tiles is None else max_tiles, 1, _MAX_TILES)
            self._grids = _grids_of(self.min_tiles, self.max_tiles)
        else:
            if max_tiles is not None or min_tiles != 1:
                raise TransformError("grids says how many tiles an image may have: leave out max_tiles and min_tiles")
            self.grids = [parameters.size("grids", grid) for grid in grids]
            if not self.grids or not all(1 <= rows * columns <= _MAX_TILES for rows, columns in self.grids):
                raise TransformError(
                    f"grids must be pairs (rows, columns) of at most {_MAX_TILES} tiles, not {grids!r}"
                )
            self._grids = np.array(self.grids, dtype=np.int64)
        if thumbnail is not None:
            parameters.one_of("thumbnail", thumbnail, ("first", "last"))
        self.thumbnail = thumbnail
        self.pad = parameters.flag("pad", pad)
        self.views = 1 if thumbnail is None else 2
        self.interpolation = interpolation
        self._filter, self.antialias = parameters.resize_filter(interpolation, antialias)
        self.format = PackingFormat(
            self.size,
            padded=self.pad,
            is_tiles=True,
            thumbnail=self.thumbnail,
            thumbnail_from=2 if grids is None else 1,
        )

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        super().write(plan, where)
        check_views(self, plan)
        heights, widths = plan.sizes
        if self.grids is None:
            rows, columns = self._grids[_nearest_grids(heights, widths, self._grids, self.size)].T
            top = left = np.zeros_like(heights)
            height, width = self.size * rows, self.size * columns
        else:
            rows, columns = self._grids[_largest_images(heights, widths, self._grids, self.size)].T
            height, width = _fitted(heights, widths, self.size * rows, self.size * columns)
            top, left = (self.size * rows - height) // 2, (self.size * columns - width) // 2
        is_tiles = np.arange(len(plan)) % self.views == (self.thumbnail == "first")
        resized = (np.where(is_tiles, side, self.size) for side in (height, width))
        plan.resize(*resized, filter=self._filter, antialias=self.antialias)
        if self.grids is not None:
            below, after = self.size * rows - height - top, self.size * columns - width - left
            plan.pad(left, top, after, below, where=None if is_tiles.all() else is_tiles)
        plan.packed_sizes = plan.sizes


def _grids_of(least: int, most: int) -> NDArray[np.int64]:
    """(G, 2) rows and columns of all grids of so many tiles, in InternVL's order."""
    grids = [(rows, columns) for columns in range(1, most + 1) for rows in range(1, most // columns + 1)]
    if least > most:
        raise TransformError(f"min_tiles must be at most max_tiles, not {least} and {most}")
    return np.array(sorted((grid for grid in grids if grid[0] * grid[1] >= least), key=np.prod), dtype=np.int64)


def _nearest_grids(heights: Sizes, widths: Sizes, grids: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """(N,) numbers of the grids, as `find_closest_aspect_ratio` of OpenGVLab's InternVL."""
    best, nearest = np.zeros(len(heights), dtype=np.int64), np.full(len(heights), np.inf)
    for number, (rows, columns) in enumerate(grids.tolist()):
        distance = np.abs(widths / heights - columns / rows)
        is_large = heights * widths > 0.5 * size * size * rows * columns
        best = np.where((distance < nearest) | ((distance == nearest) & is_large), number, best)
        nearest = np.minimum(nearest, distance)
    return best


def _largest_images(heights: Sizes, widths: Sizes, grids: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """(N,) numbers of the grids, as `select_best_resolution` of LLaVA-NeXT."""
    best = np.zeros(len(heights), dtype=np.int64)
    most, least = np.zeros_like(best), np.full_like(best, np.iinfo(np.int64).max)
    for number, (rows, columns) in enumerate((size * grids).tolist()):
        scale = np.minimum(columns / widths, rows / heights)
        shown = np.minimum((widths * scale).astype(np.int64) * (heights * scale).astype(np.int64), heights * widths)
        wasted = rows * columns - shown
        is_better = (shown > most) | ((shown == most) & (wasted < least))
        best = np.where(is_better, number, best)
        most, least = np.where(is_better, shown, most), np.where(is_better, wasted, least)
    return best


def _fitted(heights: Sizes, widths: Sizes, rows: Sizes, columns: Sizes) -> tuple[Sizes, Sizes]:
    """The largest sizes of the same proportions within rows x columns pixels, rounded up as LLaVA-NeXT does."""
    across, down = columns / widths, rows / heights
    height = np.where(across < down, np.minimum(np.ceil(heights * across).astype(np.int64), rows), rows)
    width = np.where(across < down, columns, np.minimum(np.ceil(widths * down).astype(np.int64), columns))
    return height, width
