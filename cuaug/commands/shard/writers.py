"""The files of a set of shards, and the manifest, which knows each by size and SHA-256.

    train-00000.tar                a shard
    train-00000.tar.cuaug-index    its index
    train.manifest.json            the manifest
    .cuaug-0123456789abcdef        a file while it is written; a killed run leaves it

A new file has a random name until it is complete and on disk. The manifest has its entry by then. So a file that has
one of these names and no entry is not of the set: it is refused, never replaced. Links are refused in any case.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cuaug._runtime.disk import Directory, UntrustedError
from cuaug._runtime.limits import DEFAULT_MAX_BYTES
from cuaug.errors import ArgumentError, SourceError
from cuaug.sampling.orders import ShuffledOrder
from cuaug.sources import Source, optional_method
from cuaug.sources.shards.shard_index import is_string_list

__all__ = ["HashedFile", "Manifest", "SetFiles", "ShardNames", "describe_source", "open_files", "read_manifest"]

_CHUNK_BYTES = 1 << 20
_VERSION = 2
# Types in JSON of the fields of a shard's entry.
_SHARD_FIELDS = {
    "name": str,
    "bytes": int,
    "sha256": str,
    "samples": int,
    "images": list,
    "labels": list,
    "unmarked": int,
    "skipped": list,
}


class ShardNames:
    """The names of a set's files, from a pattern such as "out/train-{:05d}.tar".

    Attributes:
        folder: of the files.
        manifest: its name.

    Raises:
        LoaderError: the pattern is remote, has no place for the number, or its folder is missing.
    """

    def __init__(self, pattern: str) -> None:
        if "://" in pattern:
            raise ArgumentError(f"OUT: {pattern!r} is remote: write to a local folder, then upload the files")
        match = re.fullmatch(r"((?:.*/)?)([^{}/]*)\{:(0\d+)d?\}([^{}/]*\.tar)", pattern, re.DOTALL)
        if match is None or "{" in match[1] or "}" in match[1]:
            raise ArgumentError(
                f"OUT is {pattern!r}: expected a file name with {{:05d}} for the shard's number, and .tar at its end, "
                "such as out/train-{:05d}.tar (pyarrow and Ray Data write Parquet files)"
            )
        self._pattern, self.folder = pattern, Path(match[1])
        self._before, self._digits, self._after = match.groups()[1:]
        if not self.folder.is_dir():
            raise ArgumentError(f"OUT: there is no folder {str(self.folder)!r}; make it first")
        stem = self._before.rstrip("-_.") or "shards"
        self.manifest = f"{stem}.manifest.json"

    def shard(self, number: int) -> str:
        return f"{self._before}{number:{self._digits}}{self._after}"

    def all_of(self, count: int) -> str:
        """The pattern of all shards, which sources expand.

        Raises:
            LoaderError: the numbers need more digits, so that names would not sort.
        """
        first, last = f"{0:{self._digits}}", f"{count - 1:{self._digits}}"
        if len(first) != len(last):
            raise ArgumentError(f"OUT is {self._pattern!r}, which has too few digits for {count} shards")
        numbers = f"{{{first}..{last}}}" if count > 1 else first
        return re.sub(r"\{.*\}", numbers, self._pattern)


class HashedFile:
    """A new file, which can only be written from its beginning to its end.

    Attributes:
        size: bytes written.
    """

    def __init__(self, name: str, file: BinaryIO) -> None:
        self._name, self._file = name, file
        self.size, self._digest = 0, hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def sync(self) -> dict[str, Any]:
        """Writes the complete file to disk; returns its entry in the manifest."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return {"name": self._name, "bytes": self.size, "sha256": self._digest.hexdigest()}


class SetFiles:
    """The files of a set, in an open folder."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        umask = os.umask(0o077)
        os.umask(umask)
        self._mode = 0o644 & ~umask

    def path(self, name: str) -> str:
        return os.path.join(self._directory.path, name)

    def open(self, name: str) -> BinaryIO | None:
        """Opens a file; None: there is none.

        Raises:
            LoaderError: it is a link or no regular file, has several names, or is writable by other users.
        """
        try:
            file = os.fdopen(self._directory.open(name, os.O_RDONLY), "rb")
        except FileNotFoundError:
            return None
        except UntrustedError as error:
            raise ArgumentError(f"OUT: {error}; remove it, or give another OUT") from error
        if os.fstat(file.fileno()).st_nlink > 1:
            file.close()
            raise ArgumentError(f"OUT: {self.path(name)!r} has several hard links; remove it, or give another OUT")
        return file

    def check(self, name: str) -> None:
        """Checks as `open` does."""
        if (file := self.open(name)) is not None:
            file.close()

    def check_free(self, name: str) -> None:
        """Checks that no file has this name.

        Raises:
            LoaderError: a file has it, which is not of this set.
        """
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=self._directory.fd, follow_symlinks=False)
            raise ArgumentError(f"OUT: {self.path(name)!r} exists and is not of this set: remove or rename it")

    def is_finished(self, name: str, entry: Mapping[str, Any] | None) -> bool:
        """Whether a file exists, as in its entry in the manifest; without an entry there must be none.

        Raises:
            LoaderError: a file has the name and other bytes, or no entry; also errors of `open`.
        """
        if entry is None:
            self.check_free(name)
        if entry is None or (file := self.open(name)) is None:
            return False
        with file:
            digest, size = hashlib.sha256(), 0
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
        if (size, digest.hexdigest()) != (entry["bytes"], entry["sha256"]):
            raise SourceError(
                f"{self.path(name)!r} has not the {entry['bytes']:,} bytes and the SHA-256 of the manifest: "
                "restore it, or remove it to make it again"
            )
        return True

    @contextlib.contextmanager
    def create(self, name: str, *, replace: bool = False) -> Iterator[HashedFile]:
        """Yields a new file, which gets its name at the end of the `with` block. Call its `sync` there.

        Args:
            replace: an old file may have the name.

        Raises:
            LoaderError: a file has the name.
            OSError: the disk is full or fails.
        """
        try:
            with self._directory.atomic_write(name, mode=self._mode) as file:
                yield HashedFile(name, file)
                if not replace:
                    self.check_free(name)
        except OSError as error:
            if error.filename is not None:
                raise
            raise OSError(error.errno, error.strerror, self.path(name)) from error


@contextlib.contextmanager
def open_files(folder: Path) -> Iterator[SetFiles]:
    """Opens the folder of a set, and locks it until the end of the `with` block or of the process.

    Raises:
        LoaderError: another process has the lock.
        OSError: the folder cannot be opened, or its file system has no locks.
    """
    with Directory(folder, trusted=False) as directory, directory.locked(".", wait=False) as lock:
        if lock is None:
            raise ArgumentError(
                f"OUT: another `cuaug shard` is writing into {directory.path!r}: wait until it has ended, or give "
                "another folder"
            )
        yield SetFiles(directory)


@dataclass
class Manifest:
    """What a set holds.

    Attributes:
        arguments: by name, those that decide the files' bytes.
        planned: number of shards, with as many samples each; counts differ by at most one.
        shards: entries of the shards by name, in order. A shard without a file is made again.
        opens_with: the Python expression that opens the finished set; None while shards are missing.
    """

    arguments: Mapping[str, Any]
    planned: int
    shards: dict[str, dict[str, Any]] = field(default_factory=dict)
    opens_with: str | None = None

    def order(self) -> np.ndarray:
        """(samples,) the samples in the order of the set."""
        samples, seed = self.arguments["SOURCE"][0], self.arguments["--shuffle"]
        return np.arange(samples) if seed is None else ShuffledOrder(samples).order(seed, 0)

    def span(self, shard: int) -> slice:
        """The places of a shard's samples in that order."""
        samples = self.arguments["SOURCE"][0]
        return slice(shard * samples // self.planned, (shard + 1) * samples // self.planned)

    def total(self, name: str) -> int:
        """The sum of a field of the shards."""
        return sum(entry[name] for entry in self.shards.values())

    def add(self, entry: dict[str, Any]) -> None:
        self.shards = dict(sorted({**self.shards, entry["name"]: entry}.items()))

    def to_json(self) -> bytes:
        totals = {name: self.total(name) for name in ("samples", "bytes", "unmarked")}
        values = {"version": _VERSION, **self.__dict__, **totals, "shards": list(self.shards.values())}
        return json.dumps(values, indent=1).encode()


def describe_source(source: Source) -> list[Any]:
    """Number of samples, fingerprint and cache key: they tell sources apart, and a source before and after a change."""
    methods = (optional_method(source, name) for name in ("fingerprint", "cache_key"))
    return [len(source), *(None if method is None else method() for method in methods)]


def read_manifest(files: SetFiles, names: ShardNames, arguments: Mapping[str, Any]) -> Manifest | None:
    """Reads the manifest of a set that was begun with these arguments; None: the set has not been begun.

    Raises:
        LoaderError: it is damaged, or of other arguments; also errors of `SetFiles.open`.
    """
    if (file := files.open(names.manifest)) is None:
        return None
    path = files.path(names.manifest)
    with file:
        try:
            values = json.loads(file.read(DEFAULT_MAX_BYTES))
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"{path!r} is damaged: {error}") from error
    _check_fields(path, values, {"version": int, "arguments": dict})
    _compare_arguments(path, values, arguments)
    _check_fields(path, values, {"planned": int, "shards": list})
    planned, samples = values["planned"], arguments["SOURCE"][0]
    if not 1 <= planned <= samples:
        raise ArgumentError(f"{path!r} is damaged: {planned} shards of {samples} samples")
    _check_entries(path, values["shards"], _SHARD_FIELDS, {names.shard(number) for number in range(planned)})
    shards = {entry["name"]: entry for entry in values["shards"]}
    return Manifest(arguments, planned, dict(sorted(shards.items())), values.get("opens_with"))


def _compare_arguments(path: str, stored: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Checks that a set was begun with the same arguments; an error names the first that differs."""
    if stored["version"] != _VERSION:
        raise ArgumentError(
            f"{path!r} is of another version of cuaug: finish the set with that version, or give another OUT"
        )
    for name, value in arguments.items():
        before = stored["arguments"].get(name)
        if before != value:
            change = "is another source, or has changed," if name == "SOURCE" else f"is {value!r} now but {before!r}"
            raise ArgumentError(
                f"{name} {change} since these shards were begun ({path!r}): give what was given before, or another OUT"
            )


def _check_entries(path: str, entries: list[Any], fields: Mapping[str, type], names: set[str]) -> None:
    """Checks the entries of files, which have these names, each at most one."""
    for entry in entries:
        _check_fields(path, entry, fields)
        if entry["name"] not in names:
            raise ArgumentError(f"{path!r} is damaged: {entry['name']!r} is no file of this set, or there twice")
        names.remove(entry["name"])
        if not all(is_string_list(entry.get(name, [])) for name in ("images", "labels")):
            raise ArgumentError(f"{path!r} is damaged: the images or labels of {entry['name']!r} are no names")


def _check_fields(path: str, values: Any, fields: Mapping[str, type]) -> None:
    """Checks the types of a JSON object's fields; integers are sizes or counts."""
    for name, kind in fields.items():
        value = values.get(name) if isinstance(values, dict) else None
        if not isinstance(value, kind) or (isinstance(value, int) and not 0 <= value <= sys.maxsize):
            raise ArgumentError(f"{path!r} is damaged: {name!r} is missing, or no valid {kind.__name__}")
