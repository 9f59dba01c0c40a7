"""Builds a set of shards; a killed run is resumed by running it again.

The manifest is on disk before a shard gets its name, so a shard that the manifest does not know is not of the set.
"""

from __future__ import annotations

import itertools
import tarfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from cuaug.commands.shard.shard_samples import EncodedSample, SampleEncoder
from cuaug.commands.shard.writers import HashedFile, Manifest, SetFiles, ShardNames, read_manifest
from cuaug.errors import DecodeError, SourceError
from cuaug.sources.shards.shard_index import SUFFIX
from cuaug.sources.shards.tar import make_index

__all__ = ["Builder"]

_MEASURED = 512  # samples; the mean of as many photos is within about 5 percent
_SAMPLES_PER_TASK = 8
_TASKS_PER_THREAD = 4
_BLOCK_BYTES = tarfile.BLOCKSIZE
_END_BYTES = 2 * _BLOCK_BYTES


class Builder:
    """Builds the shards of a set.

    Args:
        encoder: of the samples.
        names: the names of the files.
        files: the files.
        arguments: by name, those that decide the files' bytes.
        threads: number of threads that read and encode.
        skip_damaged: leave out samples that cannot be read, and list them in the manifest.
        on_sample: called with (index, error or None, reason why it has no restart markers or "") for each sample.

    Attributes:
        manifest: of the set.
        missing: numbers of the shards to be made.

    Raises:
        LoaderError: the set was begun with other arguments or is damaged, or another file has a name of the set.
    """

    def __init__(
        self,
        encoder: SampleEncoder,
        names: ShardNames,
        files: SetFiles,
        arguments: Mapping[str, Any],
        *,
        threads: int,
        skip_damaged: bool,
        on_sample: Callable[[int, DecodeError | None, str], None],
    ) -> None:
        self._encoder, self._names, self._files = encoder, names, files
        self._threads, self._skip_damaged, self._on_sample = threads, skip_damaged, on_sample
        begun = read_manifest(files, names, arguments)
        self.manifest = begun or Manifest(arguments, self._plan(arguments))
        self._order = self.manifest.order()
        with ThreadPoolExecutor(threads, thread_name_prefix="cuaug-shard") as pool:
            finished = list(pool.map(self._is_finished, map(names.shard, range(self.manifest.planned))))
        self.missing = [number for number, is_finished in enumerate(finished) if not is_finished]
        if begun is None:
            self._save()

    def _plan(self, arguments: Mapping[str, Any]) -> int:
        """The number of shards, from the mean stored size of evenly spaced samples."""
        count = arguments["SOURCE"][0]
        spaced = np.unique(np.linspace(0, count - 1, min(count, _MEASURED)).round().astype(np.int64))
        results = [sample for _, sample in self._encode(spaced)]
        sizes = [_stored_bytes(sample) for sample in results if isinstance(sample, EncodedSample)]
        if not sizes:
            raise SourceError(f"SOURCE: none of {len(spaced)} samples could be read; the first: {results[0]}")
        shards = min(count, max(1, round(count * sum(sizes) / len(sizes) / arguments["--size"])))
        self._names.all_of(shards)  # checks the number of digits
        return shards

    def _is_finished(self, name: str) -> bool:
        """Whether a shard exists, of the manifest's bytes."""
        entry = self.manifest.shards.get(name)
        if entry is None:
            self._files.check_free(name + SUFFIX)
        else:
            self._files.check(name + SUFFIX)
        if not self._files.is_finished(name, entry):
            return False
        self._make_index(name)  # unless there is one
        return True

    def _save(self) -> None:
        with self._files.create(self._names.manifest, replace=True) as file:
            file.write(self.manifest.to_json())
            file.sync()

    def make_shard(self, number: int) -> dict[str, Any]:
        """Makes a shard; returns its entry in the manifest.

        Raises:
            DecodeError: a sample cannot be read.
            LoaderError: a file has its name.
            OSError: the disk is full or fails.
        """
        name = self._names.shard(number)
        with self._files.create(name) as file:
            content = self._add_samples(number, file)
            self.manifest.add({**file.sync(), **content})
            self._save()
        self._make_index(name)
        return self.manifest.shards[name]

    def _add_samples(self, number: int, file: HashedFile) -> dict[str, Any]:
        """Writes a tar; returns the fields of its entry about the samples."""
        content: dict[str, Any] = {"samples": 0, "images": [], "labels": [], "unmarked": 0, "skipped": []}
        for index, sample in self._encode(self._order[self.manifest.span(number)]):
            if isinstance(sample, DecodeError):
                if not self._skip_damaged:
                    raise sample
                content["skipped"].append([index, sample.path, sample.cause])
                self._on_sample(index, sample, "")
                continue
            members = [("images", sample.extension, sample.image)]
            if sample.label is not None:
                members.append(("labels", *sample.label))
            for kind, extension, data in members:
                _add_member(file, f"{index:09d}.{extension}", data)
                if extension not in content[kind]:
                    content[kind].append(extension)
            content["unmarked"] += bool(sample.unmarked)
            content["samples"] += 1
            self._on_sample(index, None, sample.unmarked)
        file.write(bytes(-(file.size + _END_BYTES) % tarfile.RECORDSIZE + _END_BYTES))
        return content

    def _encode(self, indices: np.ndarray) -> Iterator[tuple[int, EncodedSample | DecodeError]]:
        """Yields (index, sample or its error), in order, encoded ahead by threads."""

        def try_encode(index: int) -> EncodedSample | DecodeError:
            try:
                return self._encoder(index)
            except DecodeError as error:
                return error

        def encode(task: list[int]) -> list[tuple[int, EncodedSample | DecodeError]]:
            return [(index, try_encode(index)) for index in task]

        starts = iter(range(0, len(indices), _SAMPLES_PER_TASK))
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="cuaug-shard")
        pending: deque[Future[list[tuple[int, EncodedSample | DecodeError]]]] = deque()
        try:
            while True:
                for start in itertools.islice(starts, _TASKS_PER_THREAD * self._threads - len(pending)):
                    pending.append(pool.submit(encode, indices[start : start + _SAMPLES_PER_TASK].tolist()))
                if not pending:
                    return
                yield from pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _make_index(self, name: str) -> None:
        """Makes a shard's index, which counts its samples as readers do."""
        path, expected = self._files.path(name), self.manifest.shards[name]["samples"]
        if (samples := make_index(path)) != expected:
            raise SourceError(f"{path!r} has {samples} samples, not {expected}: is the disk damaged?")

    def finish(self) -> None:
        """Completes the manifest, after all shards have been made.

        Raises:
            OSError: the disk is full or fails.
        """
        manifest, shards = self.manifest, list(self.manifest.shards.values())
        images = ";".join(sorted({image for entry in shards for image in entry["images"]}))
        labels = ";".join(dict.fromkeys(label for entry in shards for label in entry["labels"])) or None
        paths = self._names.all_of(len(shards))
        opens_with = f"cuaug.sources.TarShards({paths!r}, image={images!r}, label={labels!r})"
        if manifest.opens_with != opens_with:
            manifest.opens_with = opens_with
            self._save()


def _stored_bytes(sample: EncodedSample) -> int:
    """Bytes of a sample in a tar."""
    label = () if sample.label is None else (sample.label[1],)
    return sum(_BLOCK_BYTES + _padded(len(data)) for data in (sample.image, *label))


def _add_member(file: HashedFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)  # no owner and a modification time of 0: equal samples make equal files
    info.size = len(data)
    file.write(info.tobuf(tarfile.GNU_FORMAT))
    file.write(data)
    file.write(bytes(_padded(len(data)) - len(data)))


def _padded(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
