"""The protocol of a source: samples by index. Read this page to write a source of your own."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

__all__ = ["ReadAhead", "Source", "label_path_names", "optional_method"]


@runtime_checkable
class Source(Protocol):
    """Samples by index: any object with `len(source)` and `source.read(i)`.

        class Scans:
            def __init__(self, paths, labels):
                self.paths, self.labels = paths, labels

            def __len__(self):
                return len(self.paths)

            def read(self, index):
                return self.paths[index], self.labels[index]

        loader = cuaug.Loader(Scans(paths, labels), transforms, batch_size=64)

    **Threads and processes.** The loader calls `read` from several threads at once. A source may also run in forked
    processes and, if it pickles, in spawned ones.

    **Errors.** An OSError or `DecodeError` from `read` damages one sample, and `on_error` decides what follows. Any
    other exception ends the iteration; from Python 3.11 on, a note names the sample. An OSError that says that too many
    files are open ends the iteration too.

    **Optional members.** The loader uses each of these if the source has it:

    - `encoded_size(i) -> int`: bytes of the encoded image, known without reading it. The loader then refuses a sample
      above `Loader(max_bytes=)` before reading it.
    - `label(i)`: the label alone. Define it if it costs less than `read(i)`.
    - `path(i) -> str`: name of sample i in error messages.
    - `file_ranges(indices) -> FileRanges`: where these samples lie in files that are open or in memory, so that native
      code reads them without Python; see `cuaug.sources._file_ranges.FileRanges`. `read` reads the samples that it
      leaves out or that native code cannot read, and raises their errors. It reads nothing itself.
    - `picture_size(i) -> (height, width)`: size of the image that the label describes, in pixels, as displayed. An
      image of another size is a `DecodeError`. (0, 0): unknown.
    - `label_path_names`: the keys in dict labels whose paths the Loader may open, for masks and further pictures; an
      empty set where labels come from data that nobody has checked. None: all.
    - `start_stream(seed, epoch, indices)`: for a source without samples by index. Each iteration calls it with the
      samples that it will read, in ascending order. See `FromIterable`.
    - `classes`: names of the labels 0, 1, ....
    - `shard_sizes`: samples in each shard, in sample order, for `ShardSampler`.
    - `read_ahead(batches) -> ReadAhead | None`: called when an iteration begins; `batches` can be iterated over any
      number of times, and gives the indices that each batch will read, as arrays. A slow source requests them in
      advance. Samples may also be read in another order, more often, or not at all. None: nothing to do.
    - `remote_counts() -> dict[str, int]`: counts of requests, for `Stats.remote`.
    - `fingerprint() -> str | None`: digest of the samples and their labels, independent of where they are stored. A
      loader refuses a state from a source with another fingerprint. None: unknown.
    - `cache_key() -> str | None`: digest that also tells apart images with equal names and labels, for example by
      folder and modification time. A loader refuses a cache filled from a source with another key. None: unknown.
      Without this method the fingerprint decides alone.
    """

    def __len__(self) -> int: ...

    def read(self, index: int) -> tuple[Any, Any]:
        """Returns (image, label) of one sample.

        Args:
            index: 0 ... len - 1.

        Returns:
            image: a path; encoded bytes (bytes or any buffer); or decoded pixels, uint8 of shape (H, W, 3), (H, W, 1)
                or (H, W).
            label: a number, an array or list of numbers, a string, or a dict or tuple of these: see `cuaug.collate`.
        """
        ...


class ReadAhead(Protocol):
    """An iteration's read-ahead, see `Source`."""

    def finish(self, batches: int) -> None:
        """Called when the first `batches` batches are complete: nothing of them will be read again."""

    def close(self) -> None:
        """Called when the iteration ends. Threads of the read-ahead must end."""


def optional_method(source: Source, name: str) -> Any:
    """Returns a source's method, or None if it has no callable of that name."""
    method = getattr(source, name, None)
    return method if callable(method) else None


def label_path_names(source: Any) -> frozenset[str] | None:
    """The keys whose paths may be opened in labels of a source, or of all sources within it; None: all."""
    inner = getattr(source, "sources", None)
    if not isinstance(inner, list):
        names = getattr(source, "label_path_names", None)
        return None if names is None else frozenset(names)
    limits = [names for names in map(label_path_names, inner) if names is not None]
    return frozenset.intersection(*limits) if limits else None
