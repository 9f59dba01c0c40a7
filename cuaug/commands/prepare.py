"""Files made ready for training: `cuaug prepare` gives JPEGs restart markers, so that regions of them decode alone."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TextIO

from cuaug._runtime.cpu_limits import allowed_cpus
from cuaug.codec import file_format
from cuaug.codec.jpegtran import check_jpegtran, with_restarts
from cuaug.errors import LoaderError
from cuaug.sources._bytes import open_regular
from cuaug.sources._index import SUFFIX
from cuaug.sources.tar_shards import members

__all__ = ["Prepared", "prepare", "prepare_files", "with_restarts"]

_TASKS_AT_ONCE = 1000
_TELL_SECONDS = 10.0
_COPIED_AT_ONCE = 1 << 20


@dataclass
class Prepared:
    """What became of some files.

    Attributes:
        pictures: JPEGs that were given restart markers.
        before, after: bytes of these.
        kept: (name, why) of JPEGs and tars that stayed as they were.
        copied: files that are neither JPEG nor tar.
        there: files that had been there already.
        unread: (name, why) of files that could not be read.
    """

    pictures: int = 0
    before: int = 0
    after: int = 0
    kept: list[tuple[str, str]] = field(default_factory=list)
    copied: int = 0
    there: int = 0
    unread: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Prepared) -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        change = 100 * (self.after / self.before - 1) if self.before else 0.0
        size = f"{abs(change):.1f} % {'larger' if change > 0 else 'smaller'} than they were"
        return (
            f"{self.pictures} JPEGs with restart markers, {size}; {len(self.kept)} kept as they were, "
            f"{self.copied} other files copied, {self.there} files there already, {len(self.unread)} not readable"
        )


def prepare_files(source: Path, target: Path, *, threads: int, jpegtran: str = "jpegtran") -> Iterator[Prepared]:
    """Writes a folder, a picture or a tar anew, under the same names; yields what became of each file, in turn.

    JPEGs and those in tars are given restart markers; all else is copied, links as what they link to, but for the
    indexes of shards, which are made anew. Files that are there already are left alone, so that a run that was ended
    can go on. A new file has its original's permissions and times, and belongs to the user who runs this: set-user-ID,
    set-group-ID and sticky bits, file capabilities and other extended attributes are not copied.

    Raises:
        OSError: a folder cannot be read, a file not be written, or jpegtran cannot be run.
    """
    if target.resolve().is_relative_to(source.resolve()) or source.resolve().is_relative_to(target.resolve()):
        raise OSError(f"{target} and {source}: one lies in the other")
    check_jpegtran(jpegtran)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="cuaug-prepare")
    pairs = _pairs(source, target)
    try:
        while some := list(itertools.islice(pairs, _TASKS_AT_ONCE)):
            yield from pool.map(lambda pair: _prepare_file(pair[0], pair[1], jpegtran), some)
    finally:
        pool.shutdown(cancel_futures=True)


def _pairs(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """Each file to read, and where to write it. The folders are made."""
    if not source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        yield source, target / source.name
        return
    for folder, folders, names in os.walk(source, onerror=_refuse, followlinks=True):
        here = Path(folder)
        folders.sort()
        around = [each for each in (here, *here.parents) if each.is_relative_to(source)]
        for link in (here / name for name in folders if (here / name).is_symlink()):
            if any(each.resolve().is_relative_to(link.resolve()) for each in around):
                raise OSError(f"{link} is a link to a folder in which it lies itself")
        there = target / here.relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        yield from ((here / name, there / name) for name in sorted(names) if not name.endswith(SUFFIX))


def _refuse(error: OSError) -> None:
    raise error


def _prepare_file(source: Path, target: Path, jpegtran: str) -> Prepared:
    if target.exists():
        return Prepared(there=1)
    try:
        with _Source(source) as file:
            return _written(file, source, target, jpegtran)
    except _Unread as error:
        return Prepared(unread=[(str(source), str(error))])
    except OSError as error:
        raise OSError(f"{target}: {error}") from error


class _Unread(Exception):
    """A file cannot be read. An `OSError` is of one that cannot be written, which ends the run."""


class _Source(io.BufferedReader):
    """A file whose errors are `_Unread`."""

    def __init__(self, path: Path) -> None:
        with _reading():
            super().__init__(open(path, "rb", buffering=0, opener=open_regular))  # noqa: SIM115  (closed with this)

    def read(self, size: int | None = -1, /) -> bytes:
        with _reading():
            return super().read(size)


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (OSError, MemoryError) as error:
        raise _Unread(str(error) or "it has no room in memory") from error


def _written(file: _Source, source: Path, target: Path, jpegtran: str) -> Prepared:
    status = os.fstat(file.fileno())  # before it is read, which sets its time of access
    # Under another name until it is whole: one that no file of the folder has.
    handle, unfinished = tempfile.mkstemp(prefix=".cuaug-", dir=target.parent)
    os.close(handle)
    try:
        with open(unfinished, "w+b") as new:
            done = _prepare_open(file, source, new, jpegtran)
        # Permissions alone: the new file is another user's, who must not run it as with the owner's rights.
        os.chmod(unfinished, status.st_mode & 0o777)
        os.utime(unfinished, ns=(status.st_atime_ns, status.st_mtime_ns))
        with contextlib.suppress(OSError):  # mostly there is none; it would be of a file that lay here before
            os.unlink(f"{target}{SUFFIX}")
        os.replace(unfinished, target)
    except BaseException:
        with contextlib.suppress(OSError):  # where its folder was removed or its disk is gone, the first error tells
            os.unlink(unfinished)
        raise
    return done


def _prepare_open(file: _Source, source: Path, new: BinaryIO, jpegtran: str) -> Prepared:
    start = file.read(16)
    file.seek(0)
    done = Prepared()
    if source.suffix == ".tar":
        return _prepare_tar(file, source, new, jpegtran)
    if file_format(start) == "jpeg":
        new.write(_prepare_bytes(file.read(), str(source), jpegtran, done))
    else:
        done.copied = 1
        shutil.copyfileobj(file, new, _COPIED_AT_ONCE)
    return done


def _prepare_tar(file: _Source, source: Path, new: BinaryIO, jpegtran: str) -> Prepared:
    """It stays as it is unless all of it, and nothing else, comes out again: tarfile stops quietly at damage."""
    done = Prepared()
    try:
        names = _names(source, file)
        file.seek(0)
        with (
            tarfile.open(fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape") as old,
            tarfile.open(fileobj=new, mode="w", encoding="utf-8", errors="surrogateescape") as tar,
        ):
            for member in old:
                # A size among these would be believed more than the new one.
                member.pax_headers = {key: value for key, value in member.pax_headers.items() if key != "size"}
                if not member.isreg():
                    if not (member.isdir() or member.issym() or member.islnk()):
                        raise LoaderError(f"{member.name!r} is of a type that cannot be copied, {member.type!r}")
                    tar.addfile(member)
                    continue
                part = old.extractfile(member)
                assert part is not None  # of a regular member it is not
                data = _prepare_bytes(part.read(), f"{source}: {member.name}", jpegtran, done)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        new.seek(0)
        if _names(source, new) != names:
            raise LoaderError("it would not come out with the same members")
    except (LoaderError, tarfile.TarError) as error:
        for each in (file, new):
            each.seek(0)
        new.truncate()
        shutil.copyfileobj(file, new, _COPIED_AT_ONCE)
        return Prepared(kept=[(str(source), str(error))])
    return done


def _names(path: Path, file: BinaryIO) -> list[str]:
    return [name for name, _, _ in members(str(path), file)]


def _prepare_bytes(data: bytes, name: str, jpegtran: str, done: Prepared) -> bytes:
    if file_format(data) != "jpeg":
        return data
    try:
        written = with_restarts(data, jpegtran=jpegtran)
    except ValueError as error:
        done.kept.append((name, str(error)))
        return data
    done.pictures += 1
    done.before += len(data)
    done.after += len(written)
    return written


def prepare(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """The command: says what became of the files, and returns the exit status."""
    total, told = Prepared(), time.monotonic()
    try:
        threads = options.threads or allowed_cpus()[0]
        for done in prepare_files(options.source, options.target, threads=threads, jpegtran=options.jpegtran):
            for name, why in done.kept:
                print(f"cuaug prepare: {name} is kept as it was: {why}", file=errors)
            for name, why in done.unread:
                print(f"cuaug prepare: {name} cannot be read: {why}", file=errors)
            total.add(done)
            if time.monotonic() - told > _TELL_SECONDS:
                told = time.monotonic()
                print(f"so far: {total}", file=errors)
    except OSError as error:
        print(f"cuaug prepare: {error}", file=errors)
        return 1
    print(f"{options.target}: {total}", file=out)
    return 1 if total.unread else 0
