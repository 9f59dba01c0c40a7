"""What sources of several large files have in common: their names, which one a sample is in, and reading a part."""

from __future__ import annotations

import bisect
import glob
import itertools
import os
import re
import resource
import threading
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from cuaug.errors import LoaderError
from cuaug.sources._bytes import open_regular
from cuaug.sources._fingerprint import cache_key
from cuaug.sources._index import Index, Stamp
from cuaug.sources._per_process import PerProcess
from cuaug.sources._repr import ReprMixin
from cuaug.sources._urls import is_url

__all__ = ["Paths", "Shards", "expand"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def expand(shards: Paths, *endings: str) -> list[str]:
    """The files that are meant: a path, a pattern, a folder, or a list of these.

    Braces are expanded as a shell does, {000..127} and {train,extra}, then *, ? and [...] match files that exist, in
    the order of their names. Of a folder, its files with these endings are meant. A name that exists as it stands is
    that file, whatever it holds.

    Raises:
        LoaderError: nothing is there by such a name, or it is remote.

    >>> list(_braces("{a,b}-{08..10}.tar"))
    ['a-08.tar', 'a-09.tar', 'a-10.tar', 'b-08.tar', 'b-09.tar', 'b-10.tar']
    """
    given = [shards] if isinstance(shards, (str, os.PathLike)) else list(shards)
    found: list[str] = []
    for shard in given:
        name = os.fspath(shard)
        for each in [name] if os.path.exists(name) else _braces(name):
            here = _matches(each, endings)
            if not here and is_url(each):
                raise LoaderError(f"{each!r} is remote; shards are read from a disk: copy or mount it")
            if not here:
                of = "" if each == name else f" (of {name!r})"
                within = f"*{' or *'.join(endings)} in the folder " if os.path.isdir(each) else ""
                raise LoaderError(f"there is no file {within}{each!r}{of}")
            found += here
    if not found:
        raise LoaderError("there is nothing to load: the list of shards is empty")
    return found


def _matches(name: str, endings: tuple[str, ...]) -> list[str]:
    if os.path.isdir(name):
        return sorted(os.path.join(name, file) for file in os.listdir(name) if file.endswith(endings))
    return [name] if os.path.exists(name) else sorted(glob.glob(name, recursive=True))


def _braces(pattern: str) -> Iterator[str]:
    """What a pattern with {a,b} and {1..9} stands for; groups may lie inside others."""
    depth, begin, cuts = 0, 0, [0]
    for i, character in enumerate(pattern):
        if character == "{":
            if depth == 0:
                begin, cuts = i, [i]
            depth += 1
        elif character == "," and depth == 1:
            cuts.append(i)
        elif character == "}" and depth:
            depth -= 1
            if depth == 0:
                ends = [*cuts[1:], i]
                choices = [pattern[a + 1 : b] for a, b in zip(cuts, ends, strict=True)]
                if len(choices) == 1:
                    choices = _range(choices[0])
                for choice in choices:
                    for middle, after in itertools.product(_braces(choice), _braces(pattern[i + 1 :])):
                        yield pattern[:begin] + middle + after
                if choices:
                    return
    yield pattern


def _range(text: str) -> list[str]:
    """The numbers from the first to the last of first..last; none where this is something else."""
    match = re.fullmatch(r"(-?\d+)\.\.(-?\d+)", text)
    if match is None:
        return []
    # As many digits as the longer end, if one is written with leading zeros.
    padded = any(re.match(r"-?0\d", end) for end in match.groups())
    width = max(map(len, match.groups())) if padded else 0
    first, last = map(int, match.groups())
    step = 1 if first <= last else -1
    return [f"{value:0{width}d}" for value in range(first, last + step, step)]


class Shards(ReprMixin):
    """The base of a source whose samples lie in several files, each with an index.

    Args:
        paths: of the files.
        indexes: one per file.
        counts: how many samples each has.
    """

    def __init__(self, paths: Sequence[str], indexes: Sequence[Index], counts: Sequence[int]) -> None:
        self.paths = list(paths)
        #: How many samples each shard holds; shards without any are left out.
        self.shard_sizes = [count for count in counts if count]
        self._stamps = [index.stamp for index in indexes]
        self._ends = list(itertools.accumulate(counts))
        self._files = PerProcess(_OpenFiles)

    def __len__(self) -> int:
        return self._ends[-1]

    def cache_key(self) -> str:
        """The shards' common folder, and a digest of when up to 1,000 of them were written."""
        return cache_key(self.paths)

    def _place(self, index: int) -> tuple[int, int]:
        """(shard, number within it) of a sample."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        shard = bisect.bisect_right(self._ends, index)
        return shard, index - (self._ends[shard - 1] if shard else 0)

    def _bytes(self, shard: int, offset: int, size: int, header: tuple[int, int] = (0, 0)) -> bytes:
        """Some bytes of a shard.

        Args:
            header: size and CRC-32 of the bytes before these.

        Raises:
            OSError: they cannot be read, or the file is no longer the one that was indexed.
        """
        return self._files.get().read(self.paths[shard], self._stamps[shard], offset, size, header)


class _Descriptor:
    """A file that is open for `os.pread`, until the last reader lets go of this."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._fitted: tuple[int, int, int] | None = None
        weakref.finalize(self, os.close, number).atexit = False  # threads may use it at exit

    def fits(self, stamp: Stamp) -> bool:
        """Whether it is what the stamp is of.

        That is looked at again only where the system has noted a change: of the file, or of its name or mode alone.
        """
        status = os.fstat(self.number)
        now = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        if now != self._fitted:
            if Stamp.of(self.number) != stamp:
                return False
            self._fitted = now
        return True


class _OpenFiles:
    """Files that stay open after they were read from: those used last, up to a share of what a process may open."""

    def __init__(self) -> None:
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = 1024 if allowed == resource.RLIM_INFINITY else max(8, min(1024, allowed // 4))
        self._open: OrderedDict[str, _Descriptor] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: str, stamp: Stamp, offset: int, size: int, header: tuple[int, int]) -> bytes:
        descriptor = self._descriptor(path, stamp)  # a reference of our own: it stays open while we read
        data = os.pread(descriptor.number, size, offset)
        while len(data) < size:
            more = os.pread(descriptor.number, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        # Afterwards, since it may be written over, at the same inode, at any moment until the bytes are here.
        if len(data) < size or not descriptor.fits(stamp):
            with self._lock:
                if self._open.get(path) is descriptor:
                    del self._open[path]
            raise _changed(path)
        # After the data: mostly both share a page, so the header takes no access to the disk of its own.
        if header[0] and zlib.crc32(os.pread(descriptor.number, header[0], offset - header[0])) != header[1]:
            raise OSError(
                f"{path!r} has changed since its index was made, though its size and time of change have not: "
                "touch it, then open the data set anew"
            )
        return data

    def _descriptor(self, path: str, stamp: Stamp) -> _Descriptor:
        with self._lock:
            found = self._open.get(path)
            if found is not None:
                self._open.move_to_end(path)
                return found
        opened = _Descriptor(open_regular(path, os.O_RDONLY))
        if not opened.fits(stamp):
            raise _changed(path)
        with self._lock:
            self._open[path] = opened
            if len(self._open) > self._most:
                self._open.popitem(last=False)
        return opened


def _changed(path: str) -> OSError:
    return OSError(f"{path!r} has changed since its index was made: open the data set anew")
