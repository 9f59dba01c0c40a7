"""Builds a set of shards, alone or beside other processes; a killed run is resumed by running it again.

    train.partial/plan.json       the arguments; made once, and compared by every process
    train.partial/<shard>.tmp     a shard being written, locked by its process
    train.partial/<shard>.json    counts and digest of a shard
    train-00000.tar               a finished shard, with its index
    train.manifest.json           made last, when all shards are finished

A shard's record is on disk before the shard gets its name, so each finished shard has one. Processes of one rank may
work at once: each takes the shards that no other one writes.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cuaug.commands.shard.partial_files import PartialFile, claim_file, sync_folder
from cuaug.commands.shard.plan import Plan, ShardNames, read_json
from cuaug.commands.shard.samples import EncodedSample, SampleEncoder
from cuaug.commands.shard.writers import ParquetFormat, ShardWriter, TarFormat
from cuaug.errors import ArgumentError, DecodeError, SourceError
from cuaug.sources._index import SUFFIX, is_string_list
from cuaug.sources.checked import checksum_line
from cuaug.sources.tar_shards import make_index

__all__ = ["Builder"]

_MEASURED = 512  # samples; the mean of as many photos is within about 5 percent
_SAMPLES_PER_TASK = 8
_TASKS_PER_THREAD = 4
# Types of a record's fields in JSON.
_RECORD_FIELDS: Mapping[str, type] = {
    "name": str,
    "samples": int,
    "bytes": int,
    "sha256": str,
    "images": list,
    "labels": list,
    "unmarked": int,
    "skipped": list,
}


class Builder:
    """Builds the shards of one rank.

    Args:
        source: the samples.
        names: the files of the set.
        arguments: by name, those that decide the files' bytes.
        jpegtran: the program; used with --restart-markers.
        threads: number of threads that read and encode.
        skip_damaged: leave out samples that cannot be read, and list them in the manifest.
        on_sample: called with (index, error or None, reason why it has no restart markers or "") for each sample.
    """

    def __init__(
        self,
        source: Any,
        names: ShardNames,
        arguments: Mapping[str, Any],
        *,
        jpegtran: str,
        threads: int,
        skip_damaged: bool,
        on_sample: Callable[[int, DecodeError | None, str], None],
    ) -> None:
        self._source, self._names, self._arguments = source, names, arguments
        self._jpegtran = jpegtran if arguments["--restart-markers"] else None
        self._threads, self._skip_damaged, self._on_sample = threads, skip_damaged, on_sample
        self._is_tar = names.pattern.endswith(TarFormat.extension)

    def make_plan(self) -> Plan:
        """Reads the plan of these shards, or makes it.

        Raises:
            LoaderError: it is of other arguments, or a file of another set has the name of a shard.
        """
        path = self._names.plan
        if not path.exists():
            with _claimed(path) as file:
                if file is not None:  # else another process has made it meanwhile
                    _publish(file, path, self._new_plan().to_json())
        self.plan = Plan.read(path, self._arguments)
        self._format = TarFormat() if self._is_tar else ParquetFormat(schema=self.plan.schema)
        self._encoder = self._make_encoder(self._format)
        self._order = self.plan.order()
        return self.plan

    def _make_encoder(self, shard_format: TarFormat | ParquetFormat) -> SampleEncoder:
        return SampleEncoder(self._source, self._arguments["--short-side"], self._jpegtran, shard_format.encode_label)

    def _new_plan(self) -> Plan:
        """A plan from the mean stored size of evenly spaced samples, and Parquet columns from their labels."""
        count = len(self._source)
        spaced = np.unique(np.linspace(0, count - 1, min(count, _MEASURED)).round().astype(np.int64))
        formats: TarFormat | ParquetFormat = TarFormat() if self._is_tar else ParquetFormat()
        encoder = self._make_encoder(formats)
        results = [sample for _, sample in self._encode(encoder, spaced)]
        readable = [sample for sample in results if isinstance(sample, EncodedSample)]
        if not readable:
            raise SourceError(f"SOURCE: none of {len(spaced)} samples could be read; the first: {results[0]}")
        size = sum(map(formats.stored_bytes, readable)) / len(readable)
        shards = min(count, max(1, round(count * size / self._arguments["--size"])))
        self._names.all_of(shards)  # checks the number of digits
        for number in range(shards):
            if (path := self._names.shard(number)).exists():
                raise ArgumentError(f"OUT: {str(path)!r} exists and belongs to no unfinished set: remove or rename it")
        schema = None if self._is_tar else ParquetFormat(sample.label for sample in readable).to_json()
        return Plan(self._arguments, count, shards, schema)

    def record(self, shard: int) -> dict[str, Any] | None:
        """The record of a finished shard; None for others.

        Raises:
            LoaderError: the shard is not as it was made.
        """
        path = self._names.shard(shard)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return None
        # After the shard's status: its record was there before it.
        record = read_json(self._record_path(shard), _RECORD_FIELDS)
        if record is None:
            raise SourceError(f"{str(path)!r} is not of this set: remove it, and it is made again")
        if not is_string_list(record["images"]) or not is_string_list(record["labels"]):
            raise SourceError(f"{str(self._record_path(shard))!r} is damaged: its images or labels are no names")
        if record["bytes"] != size:
            raise SourceError(
                f"{str(path)!r} has {size:,} bytes, not {record['bytes']:,} as it was made: remove it to make it again"
            )
        return record

    def make_shard(self, shard: int, *, wait: bool) -> dict[str, Any] | None:
        """Makes a shard unless it is finished; returns its record, or None while another process writes it.

        Args:
            wait: wait for that process.

        Raises:
            DecodeError: a sample cannot be read.
            LoaderError: a label does not fit the others.
            OSError: the disk is full or fails.
        """
        path = self._names.shard(shard)
        file = claim_file(self._temporary(path), wait=wait)
        if file is None:
            return None
        with file:
            if (record := self.record(shard)) is not None:  # of another process, meanwhile
                file.discard()
                return record
            record, checksums = self._write(shard, file)
            if self._arguments["--checksums"]:
                with _claimed(self._checksums_path(shard), replace=True) as new:
                    new.write("".join(checksums).encode())
                    new.publish(self._checksums_path(shard))
            with _claimed(self._record_path(shard), replace=True) as new:
                _publish(new, self._record_path(shard), record)
            if self._is_tar:
                self._publish_index(file.temporary, path, record)
            file.publish(path)
        return record

    def _write(self, shard: int, file: PartialFile) -> tuple[dict[str, Any], list[str]]:
        """Writes a shard; returns its record, and its lines of the checksum file."""
        writer = self._format.open(file)
        try:
            further, checksums = self._add_samples(shard, writer)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        name = self._names.shard(shard).name
        return {"name": name, "bytes": file.size, "sha256": file.digest.hexdigest(), **further}, checksums

    def _add_samples(self, shard: int, writer: ShardWriter) -> tuple[dict[str, Any], list[str]]:
        """Adds the samples of a shard; returns the fields of its record about them, and its lines of checksums."""
        name = self._names.shard(shard).name
        images: set[str] = set()
        labels: dict[str, None] = {}
        skipped: list[list[Any]] = []
        unmarked, count = 0, 0
        checksums: list[str] = []
        for index, sample in self._encode(self._encoder, self._order[self.plan.span(shard)]):
            if isinstance(sample, DecodeError):
                if not self._skip_damaged:
                    raise sample
                skipped.append([index, sample.path, sample.cause])
                self._on_sample(index, sample, "")
                continue
            suffix = writer.add(f"{index:09d}", sample)
            if self._arguments["--checksums"]:
                checksums.append(checksum_line(f"{name}{suffix}", sample.image))
            images.add(sample.extension)
            labels.update(dict.fromkeys(self._format.label_fields(sample)))
            unmarked += bool(sample.unmarked)
            count += 1
            self._on_sample(index, None, sample.unmarked)
        further = {"images": sorted(images), "labels": list(labels), "unmarked": unmarked, "skipped": skipped}
        return {"samples": count, **further}, checksums

    def _encode(self, encoder: SampleEncoder, indices: np.ndarray) -> Iterator[tuple[int, EncodedSample | DecodeError]]:
        """Yields (index, sample or its error), in order, encoded ahead by threads."""

        def encode(task: list[int]) -> list[tuple[int, EncodedSample | DecodeError]]:
            return [(index, _try(encoder, index)) for index in task]

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

    def _publish_index(self, temporary: Path, path: Path, record: dict[str, Any]) -> None:
        """Makes a tar's index, which counts its samples as readers do, and gives it its name before the tar's."""
        samples = make_index(str(temporary))
        if samples != record["samples"]:
            raise SourceError(
                f"{str(temporary)!r} has {samples} samples, not {record['samples']}: is the disk damaged?"
            )
        index = Path(f"{temporary}{SUFFIX}")
        if index.exists():  # else the log says why it could not be kept
            fd = os.open(index, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            os.replace(index, f"{path}{SUFFIX}")
            sync_folder(path.parent)

    def finish(self) -> dict[str, Any] | None:
        """Writes the manifest if all ranks' shards are finished, and returns it; else None.

        Raises:
            OSError: the disk is full or fails.
        """
        records = [self.record(shard) for shard in range(self.plan.shards)]
        made = [record for record in records if record is not None]
        if len(made) < len(records):
            return None
        images = sorted({name for record in made for name in record["images"]})
        labels = list(dict.fromkeys(name for record in made for name in record["labels"]))
        manifest = {
            **self.plan.to_json(),
            "samples": sum(record["samples"] for record in made),
            "bytes": sum(record["bytes"] for record in made),
            "unmarked": sum(record["unmarked"] for record in made),
            "skipped": [entry for record in made for entry in record["skipped"]],
            "opens_with": self._format.opens_with(self._names.all_of(len(made)), images, labels),
            "shards": [{name: record[name] for name in ("name", "samples", "bytes", "sha256")} for record in made],
        }
        with _claimed(self._names.manifest, self._names.partial) as file:
            if file is not None:
                if self._arguments["--checksums"]:
                    with _claimed(self._names.checksums, self._names.partial, replace=True) as sums:
                        for shard in range(self.plan.shards):
                            sums.write(self._checksums_path(shard).read_bytes())
                        sums.publish(self._names.checksums)
                _publish(file, self._names.manifest, manifest)
        return manifest

    def _temporary(self, path: Path) -> Path:
        return self._names.partial / f"{path.name}.tmp"

    def _record_path(self, shard: int) -> Path:
        return self._names.partial / f"{self._names.shard(shard).name}.json"

    def _checksums_path(self, shard: int) -> Path:
        return self._names.partial / f"{self._names.shard(shard).name}.crc32"


def _try(encoder: SampleEncoder, index: int) -> EncodedSample | DecodeError:
    try:
        return encoder(index)
    except DecodeError as error:
        return error


class _claimed:
    """A new file for `_publish`, alone in this process; None if the target exists by then, unless it is replaced."""

    def __init__(self, target: Path, folder: Path | None = None, *, replace: bool = False) -> None:
        self._target, self._replace = target, replace
        self._file: Any = claim_file((folder or target.parent) / f"{target.name}.tmp", wait=True)

    def __enter__(self) -> Any:
        if not self._replace and self._target.exists():
            self._file.discard()
            self._file.close()
            return None
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _publish(file: PartialFile, target: Path, values: Any) -> None:
    file.write(json.dumps(values, indent=1).encode())
    file.publish(target)
