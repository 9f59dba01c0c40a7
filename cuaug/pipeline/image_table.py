"""`ImageTable`: the images of some samples as one table, which planning, staging and decoding read.

A JPEG that native code has read and parsed is a row, and nothing else. Every other image is an object, too: a file of
another format, pixels, a clip, an image of a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cuaug.cache import DeviceImage
from cuaug.codec import IMAGE, DecodedImage, EncodedImage, FileView, ResidentJpeg, find_jpegs, jpeg_in_table
from cuaug.pipeline.clip_reader import EncodedClip
from cuaug.pipeline.pending import PendingCacheEntry

if TYPE_CHECKING:
    from cuaug.pipeline.native_work import FileReads

__all__ = ["ImageTable", "Item"]

#: A sample that can be planned.
Item = EncodedImage | DecodedImage | PendingCacheEntry | DeviceImage | ResidentJpeg | EncodedClip


class ImageTable:
    """The images of N samples.

    Attributes:
        rows: (N,) `IMAGE`. A row without an image has the height 0. The region is for the reader of the table to set.
        files: (N,) address of the `FileRow` (kernels/cpu/batch_work.h) of each file that native code has read; else 0.
        objects: by row, the images that are objects.
    """

    def __init__(self, count: int) -> None:
        self.rows: NDArray[Any] = np.zeros(count, dtype=IMAGE)
        self.files: NDArray[np.int64] = np.zeros(count, dtype=np.int64)
        self.objects: dict[int, Item] = {}
        self._reads: FileReads | None = None
        self._numbers: NDArray[np.int64] = np.arange(count)  # of the files in `_reads`

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def positions(self) -> NDArray[np.int64]:
        """Of the rows with an image."""
        return self.rows["height"].nonzero()[0]

    def size(self, i: int) -> tuple[int, int] | None:
        """(height, width) of the image, if the row has one."""
        height, width = int(self.rows["height"][i]), int(self.rows["width"][i])
        return (height, width) if height else None

    def add(self, i: int, item: Item) -> None:
        """Adds an image as an object."""
        self.objects[i] = item
        if isinstance(item, EncodedImage):
            self.rows[i] = (*item.file_row(), 0, 0, 0, 0)
        else:
            self.rows[i] = 0
            self.rows[i]["height"], self.rows[i]["width"] = item.height, item.width
        self.files[i] = 0

    def add_jpegs(
        self, reads: FileReads, is_read: NDArray[np.bool_], *, apply_exif: bool, max_pixels: int
    ) -> NDArray[np.bool_]:
        """Adds the JPEGs that need nothing but their header.

        Args:
            reads: of the N files.
            is_read: (N,) whether native code has read the file, or knows it.

        Returns:
            (N,) whether it is one of these.
        """
        files, rows = reads.files, self.rows
        header = files["origin"]["header"]
        sides = [header[name] for name in ("height", "width", "components", "orientation")]
        found = find_jpegs(*sides, apply_exif=apply_exif, max_pixels=max_pixels)
        added = is_read & found.is_jpeg
        rows["data"], rows["size"] = files["data"], files["size"]
        rows["height"], rows["width"], rows["orientation"] = found.heights, found.widths, found.orientations
        rows["restart_interval"], rows["is_jpeg"] = header["restart_interval"], 1
        rows[~added] = 0
        self._reads, self.files = reads, np.where(added, reads.addresses, 0)
        return added

    def remove(self, i: int) -> None:
        """Removes an image that cannot be used."""
        self.objects.pop(i, None)
        self.rows[i] = 0

    def item(self, i: int) -> Item:
        """The image of a row, as an object from now on."""
        if i not in self.objects:
            self.objects[i] = jpeg_in_table(self.rows[i], FileView(self._reads, int(self._numbers[i])))
        return self.objects[i]

    def select(self, positions: NDArray[np.int64]) -> ImageTable:
        """The images at these positions, which ascend."""
        if len(positions) == len(self):
            return self
        table = ImageTable(0)
        table.rows, table.files, table._numbers = self.rows[positions], self.files[positions], self._numbers[positions]
        table._reads = self._reads
        table.objects = {i: self.objects[k] for i, k in enumerate(positions.tolist()) if k in self.objects}
        return table
