"""Where samples lie in files or in memory, for native code to read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FileRanges", "join_ranges"]


class FileRanges(NamedTuple):
    """Where N samples lie in files that are open, or in memory, for native code to read.

    Attributes:
        files: the open files, or bytes in memory; keep them until they are read.
        states: (files, 4) int64: descriptor, size, and times of modification and change in ns, as when last verified;
            of bytes in memory -1, size, address, 0.
        table: (N, K, 4) int64: number of the file, -1 if only the source's `read` can read it; offset and size in
            bytes; CRC-32 of the header before it. A sample's first range is its image, the others make its label.
        header_bytes: size of these headers; 0: not checked.
        make_label: (position, bytes of the label's ranges) -> label.
    """

    files: Sequence[Any]
    states: NDArray[np.int64]
    table: NDArray[np.int64]
    header_bytes: int
    make_label: Callable[[int, list[bytes]], Any]


def join_ranges(count: int, parts: Sequence[tuple[NDArray[np.int64], FileRanges]]) -> FileRanges:
    """The ranges of a batch whose samples come from several sources.

    Args:
        count: samples of the batch.
        parts: (positions in the batch, ranges of these samples) by source. Sources whose headers have another size than
            the first one's are left to `read`.
    """
    header_bytes = parts[0][1].header_bytes
    columns = max(ranges.table.shape[1] for _, ranges in parts)
    table = np.full((count, columns, 4), -1, np.int64)
    places: list[tuple[int, int]] = [(0, 0)] * count  # of each sample: its part, and its position there
    files: list[Any] = []
    for number, (positions, ranges) in enumerate(parts):
        own = ranges.table.copy()
        own[..., 0] = np.where((own[..., 0] < 0) | (ranges.header_bytes != header_bytes), -1, own[..., 0] + len(files))
        # A source with fewer labels than others reads nothing where its image is, in their places.
        padding = np.repeat(own[:, :1], columns - own.shape[1], axis=1)
        padding[..., 2] = 0
        table[positions] = np.concatenate([own, padding], axis=1)
        files += ranges.files
        for i, position in enumerate(positions.tolist()):
            places[position] = number, i

    def make_label(position: int, data: list[bytes]) -> Any:
        number, i = places[position]
        ranges = parts[number][1]
        return ranges.make_label(i, data[: ranges.table.shape[1] - 1])

    states = np.concatenate([ranges.states for _, ranges in parts])
    return FileRanges(files, states, table, header_bytes, make_label)
