"""Pictures made ready for training: `cuaug prepare` gives JPEGs restart markers, without loss.

A region of such a file decodes alone (`cuaug/codec/restarts.py`). jpegtran, which comes with libjpeg, writes the
entropy coding anew and leaves what it codes as it is; here it is told where, and every picture is compared with the one
before.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from PIL import Image

from cuaug.codec import JpegHeader, file_format, read_header
from cuaug.errors import DecodeError
from cuaug.pipeline.choices import allowed_cpus

__all__ = ["Prepared", "prepare", "prepare_files", "restart_interval", "with_restarts"]

_APART = 64
"""Pixels from one restart marker to the next, about. Each costs some four bytes, a hundredth of a picture or two, which
coding it optimally gives back; with more between them, regions hold more that is not needed."""
_TASKS_AT_ONCE = 1000
_TELL_SECONDS = 10.0


@dataclass
class Prepared:
    """What became of some files.

    Attributes:
        pictures: JPEGs that were given restart markers.
        before, after: bytes of these.
        kept: (name, why) of JPEGs that stayed as they were.
        copied: files that are neither JPEG nor tar.
        there: files that had been there already.
    """

    pictures: int = 0
    before: int = 0
    after: int = 0
    kept: list[tuple[str, str]] = field(default_factory=list)
    copied: int = 0
    there: int = 0

    def add(self, other: Prepared) -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        change = 100 * (self.after / self.before - 1) if self.before else 0.0
        size = f"{abs(change):.1f} % {'larger' if change > 0 else 'smaller'} than they were"
        return (
            f"{self.pictures} JPEGs with restart markers, {size}; {len(self.kept)} kept as they were, "
            f"{self.copied} other files copied, {self.there} files there already"
        )


def with_restarts(data: bytes, *, jpegtran: str = "jpegtran") -> bytes:
    """The same JPEG with restart markers, so that regions of it decode alone.

    Picture, EXIF, colour profile and comments stay; a progressive file becomes a sequential one, which decodes faster
    and is larger.

    Args:
        data: a JPEG, whole.
        jpegtran: the program, of libjpeg-turbo, libjpeg or MozJPEG.

    Raises:
        ValueError: says why it has to stay as it is: not a common JPEG, damaged, or jpegtran would change the picture.
        OSError: jpegtran cannot be run.
    """
    try:
        if not isinstance(read_header(data), JpegHeader):
            raise ValueError(
                "of another kind than regions are decoded of: CMYK, or with markers that encoders do not write"
            )
    except DecodeError as error:
        raise ValueError(error.cause) from error
    before = _decoded(data)
    command = [jpegtran, "-copy", "all", "-optimize", "-restart", f"{restart_interval(before)}B"]
    try:
        done = subprocess.run(command, input=data, capture_output=True)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{jpegtran} is not there; it comes with libjpeg-turbo: `apt install libjpeg-turbo-progs`, "
            "`conda install libjpeg-turbo` or `brew install jpeg-turbo`"
        ) from error
    if done.returncode < 0:  # an interruption, which the user sent to both
        raise OSError(f"{jpegtran} was ended by signal {-done.returncode}")
    if done.returncode:
        raise ValueError(f"{jpegtran}: {_last_line(done.stderr)}")
    after = _decoded(done.stdout)
    if before.tobytes() != after.tobytes() or before.getexif() != after.getexif():
        raise ValueError(f"{jpegtran} would change the picture")
    return done.stdout


def _decoded(data: bytes) -> Any:
    try:
        picture = Image.open(io.BytesIO(data))
        picture.load()
    except Exception as error:  # its parsers raise whatever a damaged file leads them to
        raise ValueError(f"damaged: {error}") from error
    return picture


def restart_interval(picture: Any) -> int:
    """How many MCUs from one restart marker to the next: a part of a row of them, so that intervals are rectangles."""
    factors = [across for _, across, _, _ in picture.layer]
    mcu = 8 * (max(factors) if len(factors) > 1 else 1)
    in_row = -(-picture.width // mcu)
    parts = [n for n in range(1, in_row + 1) if in_row % n == 0]
    return min(parts, key=lambda n: max(n * mcu / _APART, _APART / (n * mcu)))


def _last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it failed, and did not say why"


def prepare_files(source: Path, target: Path, *, threads: int, jpegtran: str = "jpegtran") -> Iterator[Prepared]:
    """Writes a folder, a picture or a tar anew, under the same names: what became of so many more files, in turn.

    JPEGs and those in tars are given restart markers; all else is copied. Files that are there already are left alone,
    so that a run that was ended can go on.

    Raises:
        OSError: a file cannot be read or written, or jpegtran cannot be run.
    """
    if target.resolve().is_relative_to(source.resolve()) or source.resolve().is_relative_to(target.resolve()):
        raise OSError(f"{target} and {source}: one lies in the other")
    pool = ThreadPoolExecutor(threads, thread_name_prefix="cuaug-prepare")
    pairs = _pairs(source, target)
    try:
        while some := list(itertools.islice(pairs, _TASKS_AT_ONCE)):
            yield from pool.map(lambda pair: _prepare_file(pair[0], pair[1], jpegtran), some)
    finally:
        pool.shutdown(cancel_futures=True)


def _pairs(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """Each file to read, and where to write it."""
    if not source.is_dir():
        yield source, target / source.name
        return
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            yield path, target / path.relative_to(source)


def _prepare_file(source: Path, target: Path, jpegtran: str) -> Prepared:
    if target.exists():
        return Prepared(there=1)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(target.name + ".part")
    done = Prepared()
    with source.open("rb") as file:
        start = file.read(16)
    if source.suffix == ".tar":
        with tarfile.open(source, "r:") as old, tarfile.open(unfinished, "w") as new:
            for member in old:
                data = old.extractfile(member) if member.isfile() else None
                if data is None:
                    new.addfile(member)
                    continue
                written = _prepare_bytes(data.read(), f"{source}: {member.name}", jpegtran, done)
                member.size = len(written)
                new.addfile(member, io.BytesIO(written))
    elif file_format(start) == "jpeg":
        unfinished.write_bytes(_prepare_bytes(source.read_bytes(), str(source), jpegtran, done))
        shutil.copystat(source, unfinished)
    else:
        shutil.copy2(source, unfinished)
        done.copied = 1
    unfinished.replace(target)
    return done


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
            total.add(done)
            if time.monotonic() - told > _TELL_SECONDS:
                told = time.monotonic()
                print(f"so far: {total}", file=errors)
    except (OSError, tarfile.TarError) as error:
        print(f"cuaug prepare: {error}", file=errors)
        return 1
    print(f"{options.target}: {total}", file=out)
    return 0
