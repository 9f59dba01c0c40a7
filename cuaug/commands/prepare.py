"""`cuaug prepare` adds restart markers to JPEGs without loss, so that crops of them decode alone."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import shutil
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TextIO

from cuaug._runtime.cpus import allowed_cpus
from cuaug._runtime.disk import Directory, UntrustedError
from cuaug.codec import file_format
from cuaug.codec.jpegtran import check_jpegtran, with_restarts
from cuaug.commands.progress_bar import Progress
from cuaug.errors import LoaderError, SourceError
from cuaug.sources.file_bytes import open_regular
from cuaug.sources.shards.shard_index import SUFFIX
from cuaug.sources.shards.tar import members

__all__ = ["Prepared", "prepare", "prepare_files", "with_restarts"]

_MAX_TASKS = 1000
_PROGRESS_SECONDS = 10.0
_COPY_BYTES = 1 << 20


@dataclass
class Prepared:
    """The outcome for some files.

    Attributes:
        images: number of JPEGs that were given restart markers.
        bytes_before, bytes_after: bytes of these JPEGs.
        unchanged: (name, reason) of JPEGs and tars that were copied unchanged.
        copied: number of other files, neither JPEG nor tar.
        existing: number of files that were there before.
        unreadable: (name, reason) of files that could not be read.
    """

    images: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    unchanged: list[tuple[str, str]] = field(default_factory=list)
    copied: int = 0
    existing: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Prepared) -> None:
        """Add the numbers of other files."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        change = 100 * (self.bytes_after / self.bytes_before - 1) if self.bytes_before else 0.0
        size = f"{abs(change):.1f} % {'larger' if change > 0 else 'smaller'} than before"
        return (
            f"{self.images} JPEGs with restart markers, {size}; {len(self.unchanged)} copied unchanged, "
            f"{self.copied} other files copied, {self.existing} files already there, {len(self.unreadable)} unreadable"
        )


def prepare_files(source: Path, target: Path, *, threads: int, jpegtran: str = "jpegtran") -> Iterator[Prepared]:
    """Write a folder, an image or a tar anew, under the same names; yield each file's outcome in order.

    JPEGs, also those in tars, get restart markers. Other files are copied, and links as the files they lead to; shard
    indexes are left out. Existing target files stay, so that an interrupted run can continue. A new file has its
    original's permissions and times and belongs to the current user. Set-user-ID, set-group-ID and sticky bits, file
    capabilities and other extended attributes are not copied.

    Raises:
        OSError: a folder cannot be read, a file cannot be written, jpegtran cannot be run, or a symbolic link has the
            name of a folder or file to write.
    """
    if target.resolve().is_relative_to(source.resolve()) or source.resolve().is_relative_to(target.resolve()):
        raise OSError(f"{target} and {source}: one lies in the other; choose a folder outside")
    check_jpegtran(jpegtran)
    with Directory(target, make_mode=0o777, trusted=False) as root:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="cuaug-prepare")
        pairs = _list_files(source, root)
        try:
            while batch := list(itertools.islice(pairs, _MAX_TASKS)):
                yield from pool.map(lambda pair: _prepare_file(pair[0], root, pair[1], jpegtran), batch)
        finally:
            pool.shutdown(cancel_futures=True)


def _list_files(source: Path, root: Directory) -> Iterator[tuple[Path, Path]]:
    """Yield (file to read, path below the target of the file to write), and make the target folders."""
    if not source.is_dir():
        yield source, Path(source.name)
        return
    for folder, folders, names in os.walk(source, onerror=_raise, followlinks=True):
        source_folder = Path(folder)
        folders.sort()
        ancestors = [path for path in (source_folder, *source_folder.parents) if path.is_relative_to(source)]
        for link in (source_folder / name for name in folders if (source_folder / name).is_symlink()):
            if any(path.resolve().is_relative_to(link.resolve()) for path in ancestors):
                raise OSError(f"{link} is a link to a folder that contains it")
        target_folder = source_folder.relative_to(source)
        root.descend(target_folder.parts, make_mode=0o777).close()
        files = (name for name in sorted(names) if not name.endswith(SUFFIX))
        yield from ((source_folder / name, target_folder / name) for name in files)


def _count_files(source: Path) -> int:
    """The number of files that `_list_files` yields, about: for the progress bar."""
    return sum(
        sum(not name.endswith(SUFFIX) for name in names) for *_, names in os.walk(source, followlinks=False)
    ) or int(source.is_file())


def _raise(error: OSError) -> None:
    raise error


def _prepare_file(source: Path, root: Directory, target: Path, jpegtran: str) -> Prepared:
    try:
        with root.descend(target.parts[:-1]) as folder:
            if folder.has_file(target.name):
                return Prepared(existing=1)
            with _SourceFile(source) as file:
                return _write_target(file, source, folder, target.name, jpegtran)
    except _ReadError as error:
        return Prepared(unreadable=[(str(source), str(error))])
    except UntrustedError:
        raise
    except OSError as error:
        raise OSError(f"{os.path.join(root.path, target)}: {error}") from error


class _ReadError(Exception):
    """A file cannot be read. An `OSError` means a file that cannot be written, which ends the run."""


class _SourceFile(io.BufferedReader):
    """A file that raises `_ReadError`."""

    def __init__(self, path: Path) -> None:
        with _as_read_error():
            super().__init__(open(path, "rb", buffering=0, opener=open_regular))  # noqa: SIM115  (closed with this)

    def read(self, size: int | None = -1, /) -> bytes:
        with _as_read_error():
            return super().read(size)


@contextlib.contextmanager
def _as_read_error() -> Iterator[None]:
    try:
        yield
    except (OSError, MemoryError) as error:
        raise _ReadError(str(error) or "it does not fit in memory") from error


def _write_target(file: _SourceFile, source: Path, folder: Directory, name: str, jpegtran: str) -> Prepared:
    status = os.fstat(file.fileno())  # before reading, which changes the access time
    # Permission bits alone: the new file belongs to the current user, so set-user-ID must not carry over.
    with folder.atomic_write(name, mode=status.st_mode & 0o777) as new:
        outcome = _prepare_open_file(file, source, new, jpegtran)
        new.flush()  # a later write would change the time
        os.utime(new.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
        folder.remove(name + SUFFIX)  # the index of an earlier file, if any, would count as valid
    return outcome


def _prepare_open_file(file: _SourceFile, source: Path, new: BinaryIO, jpegtran: str) -> Prepared:
    start = file.read(16)
    file.seek(0)
    outcome = Prepared()
    if source.suffix == ".tar":
        return _prepare_tar(file, source, new, jpegtran)
    if file_format(start) == "jpeg":
        new.write(_prepare_bytes(file.read(), str(source), jpegtran, outcome))
    else:
        outcome.copied = 1
        shutil.copyfileobj(file, new, _COPY_BYTES)
    return outcome


def _prepare_tar(file: _SourceFile, source: Path, new: BinaryIO, jpegtran: str) -> Prepared:
    """Prepare a tar's JPEGs; copy the tar unchanged if a member would be lost: tarfile stops silently at damage."""
    outcome = Prepared()
    try:
        names = _member_names(source, file)
        file.seek(0)
        with (
            tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape") as old,
            tarfile.open(fileobj=new, mode="w", encoding="utf-8", errors="surrogateescape") as tar,
        ):
            for member in old:
                # A PAX size would override the new size.
                member.pax_headers = {key: value for key, value in member.pax_headers.items() if key != "size"}
                if not member.isreg():
                    if not (member.isdir() or member.issym() or member.islnk()):
                        raise SourceError(f"{member.name!r} has a type that cannot be copied, {member.type!r}")
                    tar.addfile(member)
                    continue
                content = old.extractfile(member)
                assert content is not None  # the member is a regular file
                data = _prepare_bytes(content.read(), f"{source}: {member.name}", jpegtran, outcome)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        new.seek(0)
        if _member_names(source, new) != names:
            raise SourceError("the new tar would not have the same members")
    except (LoaderError, tarfile.TarError) as error:
        file.seek(0)
        new.seek(0)
        new.truncate()
        shutil.copyfileobj(file, new, _COPY_BYTES)
        return Prepared(unchanged=[(str(source), str(error))])
    return outcome


def _member_names(path: Path, file: BinaryIO) -> list[str]:
    return [name for name, _, _ in members(str(path), file)]


def _prepare_bytes(data: bytes, name: str, jpegtran: str, outcome: Prepared) -> bytes:
    if file_format(data) != "jpeg":
        return data
    try:
        prepared = with_restarts(data, jpegtran=jpegtran)
    except ValueError as error:
        outcome.unchanged.append((name, str(error)))
        return data
    outcome.images += 1
    outcome.bytes_before += len(data)
    outcome.bytes_after += len(prepared)
    return prepared


def prepare(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """Run the command: print the outcome and return the exit status."""
    total, last_report = Prepared(), time.monotonic()
    progress = Progress(errors, _count_files(options.source) if errors.isatty() else 0)
    try:
        threads = options.threads or allowed_cpus()[0]
        for outcome in prepare_files(options.source, options.target, threads=threads, jpegtran=options.jpegtran):
            if outcome.unchanged or outcome.unreadable:
                progress.clear()
            for name, reason in outcome.unchanged:
                print(f"cuaug prepare: {name} is copied unchanged: {reason}", file=errors)
            for name, reason in outcome.unreadable:
                print(f"cuaug prepare: {name} cannot be read: {reason}", file=errors)
            total.add(outcome)
            progress.advance(f"{total.images} JPEGs with restart markers")
            if not errors.isatty() and time.monotonic() - last_report > _PROGRESS_SECONDS:
                last_report = time.monotonic()
                print(f"so far: {total}", file=errors)
    except OSError as error:
        progress.clear()
        print(f"cuaug prepare: {error}", file=errors)
        return 1
    progress.clear()
    print(f"{options.target}: {total}", file=out)
    return 1 if total.unreadable else 0
