"""What a loader needs of a source, and what it makes use of where a source has it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["Source", "optional_method"]


@runtime_checkable
class Source(Protocol):
    """Samples by number: anything with `len(source)` and `source.read(i)`.

    `read` is called from several threads at once, in forked processes and, after pickling, in spawned ones. What it
    raises as an OSError or a DecodeError is that one sample's fault, and `on_error` says what becomes of it, unless it
    is that too many files are open; anything else ends the iteration, with a note of which sample it was (from Python
    3.11 on).

    A source may have more, and the loader uses what there is:

    - `encoded_size(i) -> int`: the bytes that `read(i)` would give, where that is known without reading them; a sample
      above `Loader(max_bytes=)` is then not read.
    - `label(i)`: the label alone, where that costs less than `read(i)`.
    - `path(i) -> str`: names sample i in errors.
    - `picture_size(i) -> (height, width)`: of the picture that the label is of, in pixels as displayed; where it is of
      another size the sample is a DecodeError.
    - `classes`: the names of the labels 0, 1, ....
    - `shard_sizes`: how many samples each shard holds, shards in the order of their samples, for `ShardSampler`.
    - `fingerprint() -> str | None`: a digest of which samples there are and of their labels, wherever they lie; a state
      is refused by a loader whose source has another. None: nothing tells them from others.
    - `cache_key() -> str | None`: what tells the pictures from others of the same names and labels, such as their
      folder and when they were written; a cache is refused by a loader whose source has another. Where a source has no
      such method, the fingerprint is enough. None: nothing tells them.
    """

    def __len__(self) -> int: ...

    def read(self, index: int) -> tuple[Any, Any]:
        """(image, label) of one sample; index is in 0 ... len - 1.

        The image is a path, encoded bytes (anything that lends them), or decoded pixels: a uint8 array of shape
        (H, W, 3), (H, W, 1) or (H, W). The label is a number, an array or a list of numbers, a string, or a dict or
        tuple of these: see `cuaug.collate`.
        """
        ...


def optional_method(source: Source, name: str) -> Any:
    """A method that a source may have, or None; an attribute of that name that is none is the source's own business."""
    found = getattr(source, name, None)
    return found if callable(found) else None
