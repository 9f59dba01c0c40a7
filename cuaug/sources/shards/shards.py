"""Base of sources whose samples lie in several large files (shards): file patterns, sample lookup, byte ranges."""

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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.fork import PerProcess
from cuaug.errors import ArgumentError, SourceError
from cuaug.remote import Buffer, ObjectStore, Part, ReadAhead, RemoteOptions
from cuaug.remote.urls import check as check_urls
from cuaug.remote.urls import is_http, is_url
from cuaug.sources.file_bytes import open_regular
from cuaug.sources.labels import Decoders, parse_label_fields
from cuaug.sources.shards.remote_shards import RemoteShards
from cuaug.sources.shards.shard_index import Index, IndexFormat, Stamp, load_indexes
from cuaug.sources.source import ReprMixin, cache_key, cached_method, fingerprint, relative_paths

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class OpenShards(NamedTuple):
    """Shards with their indexes.

    Attributes:
        remote: reads their bytes, if they are URLs.
    """

    paths: list[str]
    indexes: list[Index]
    remote: RemoteShards | None


def open_shards(
    index_format: IndexFormat, shards: Paths, extensions: tuple[str, ...], options: RemoteOptions | None
) -> OpenShards:
    """Lists shards as `expand_paths` does, and loads their indexes.

    Raises:
        LoaderError: a shard is missing or cannot be indexed, or local files and URLs are mixed.
    """
    names = [shards] if isinstance(shards, (str, os.PathLike)) else list(shards)
    are_urls = {is_url(os.fspath(name)) and not os.path.exists(name) for name in names}
    if are_urls == {True, False}:
        raise ArgumentError("shards holds local files and URLs: copy or mount some, or concatenate two sources")
    if are_urls != {True}:
        paths = expand_paths(names, *extensions)
        return OpenShards(paths, load_indexes(index_format, paths), None)
    options = options or RemoteOptions()
    urls = [url for name in names for url in expand_braces(os.fspath(name))]
    store = options.make_store()
    check_urls(urls)
    urls = [match for url in urls for match in match_urls(url, store)]
    remote = RemoteShards(store, options.make_reader(store), options.readahead_bytes)
    return OpenShards(urls, remote.open(index_format, urls), remote)


def match_urls(pattern: str, store: ObjectStore, extension: str = "") -> list[str]:
    """The URLs that match a pattern; a URL without `*` is a file, or a folder if it lacks the extension.

    Raises:
        LoaderError: there is none, or the server has no lists of files.
    """
    path = pattern.partition("?")[0] if is_http(pattern) else pattern  # signatures are in the query
    if "*" not in path:
        if path.endswith(extension):
            return [pattern]
        pattern = f"{pattern.rstrip('/')}/*{extension}"
    try:
        urls = store.glob(pattern)
    except OSError as error:
        raise SourceError(str(error)) from error
    if not urls:
        raise SourceError(f"there is no file {pattern!r}")
    return urls


def expand_paths(shards: Paths, *extensions: str) -> list[str]:
    """Lists the files of a path, a pattern, a folder, or a list of these.

    Braces expand as in a shell: {000..127} and {train,extra}. Then *, ? and [...] match existing files, in sorted
    order. A folder stands for its files with these extensions. A name that exists is taken literally.

    Raises:
        LoaderError: a name matches no file.

    >>> list(expand_braces("{a,b}-{08..10}.tar"))
    ['a-08.tar', 'a-09.tar', 'a-10.tar', 'b-08.tar', 'b-09.tar', 'b-10.tar']
    """
    names = [shards] if isinstance(shards, (str, os.PathLike)) else list(shards)
    paths: list[str] = []
    for shard in names:
        name = os.fspath(shard)
        for pattern in [name] if os.path.exists(name) else expand_braces(name):
            matches = _match_files(pattern, extensions)
            if not matches:
                origin = "" if pattern == name else f" (from {name!r})"
                within = f"*{' or *'.join(extensions)} in the folder " if os.path.isdir(pattern) else ""
                raise SourceError(f"there is no file {within}{pattern!r}{origin}")
            paths += matches
    if not paths:
        raise ArgumentError("shards is an empty list: there is nothing to load")
    return paths


def _match_files(pattern: str, extensions: tuple[str, ...]) -> list[str]:
    if os.path.isdir(pattern):
        return sorted(os.path.join(pattern, file) for file in os.listdir(pattern) if file.endswith(extensions))
    return [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True))


def expand_braces(pattern: str) -> Iterator[str]:
    """Expands {a,b} and {1..9}; groups may be nested."""
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
                    choices = _expand_range(choices[0])
                for choice in choices:
                    for middle, after in itertools.product(expand_braces(choice), expand_braces(pattern[i + 1 :])):
                        yield pattern[:begin] + middle + after
                if choices:
                    return
    yield pattern


def _expand_range(text: str) -> list[str]:
    """Expands first..last, in either direction; empty for any other text."""
    match = re.fullmatch(r"(-?\d+)\.\.(-?\d+)", text)
    if match is None:
        return []
    # A leading zero on either end pads all numbers to the longer end.
    is_padded = any(re.match(r"-?0\d", end) for end in match.groups())
    width = max(map(len, match.groups())) if is_padded else 0
    first, last = map(int, match.groups())
    step = 1 if first <= last else -1
    return [f"{value:0{width}d}" for value in range(first, last + step, step)]


class ShardedSource(ReprMixin):
    """Base of a source whose samples lie in several files, each with an index.

    Args:
        kind: kind of the shards, for the fingerprint.
        shards: the files or URLs; `notes["digest"]` of an index identifies its samples.
        counts: number of samples in each file.
        image, label, decoders: as in `TarShards` and `TFRecord`.

    Attributes:
        shard_sizes: number of samples in each shard, without empty shards.
    """

    #: Labels come from the data, so the Loader opens no path in them.
    label_path_names: frozenset[str] = frozenset()

    def __init__(
        self,
        kind: str,
        shards: OpenShards,
        counts: Sequence[int],
        image: str,
        label: str | Sequence[str] | None,
        decoders: Decoders | None,
    ) -> None:
        if not sum(counts):
            raise SourceError(f"shards hold no sample: {', '.join(map(repr, shards.paths[:3]))}")
        self._kind, self.paths, self.image = kind, list(shards.paths), image
        self.fields, self._is_dict = parse_label_fields(label)
        self._decoders = dict(decoders or {})
        self._digests = [index.notes["digest"] for index in shards.indexes]
        self.shard_sizes = [count for count in counts if count]
        self._stamps = [index.stamp for index in shards.indexes]
        self._ends = list(itertools.accumulate(counts))
        self._end_array = np.array(self._ends)
        self._files = PerProcess(_OpenFiles)
        self._remote = shards.remote

    def __len__(self) -> int:
        return self._ends[-1]

    @cached_method
    def fingerprint(self) -> str:
        """Digest of the shards' names, their samples' digests from the indexes, and the selected fields."""
        fields = [self.image, *self.fields]
        return fingerprint(self._kind, relative_paths(self.paths), self._digests, fields, self._is_dict)

    def cache_key(self) -> str:
        """The shards' common folder, and a digest of the modification times, or versions, of up to 1,000 shards."""
        return cache_key(self.paths) if self._remote is None else cache_key(self.paths, self._remote.versions)

    def read_ahead(self, batches: Iterable[NDArray[np.int64]]) -> ReadAhead | None:
        """Requests the samples of these batches in advance, if the shards are remote: see `Source`."""
        return None if self._remote is None else self._remote.read_ahead(batches, self._spans)

    def remote_counts(self) -> dict[str, int]:
        """Counts of requests, and memory of read-aheads, as `Stats.remote`; empty for local files."""
        return {} if self._remote is None else self._remote.counts()

    def _spans(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The byte ranges of samples, headers included, in the form of `SpansOf`."""
        raise NotImplementedError

    def _begin(self, index: int, spans: int) -> list[Part | None]:
        """The bytes of a remote sample, one part for each of its `spans` ranges; Nones for a local sample."""
        return [None] * spans if self._remote is None else self._remote.sample(index, self._spans)

    def _shards_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The shard of each sample."""
        return np.searchsorted(self._end_array, indices, side="right")

    def _locate(self, index: int) -> tuple[int, int]:
        """Returns (shard, row in the shard) of a sample."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        shard = bisect.bisect_right(self._ends, index)
        return shard, index - (self._ends[shard - 1] if shard else 0)

    def _read_range(
        self,
        shard: int,
        offset: int,
        size: int,
        header: tuple[int, int] = (0, 0),
        part: Part | None = None,
    ) -> bytes:
        """Reads a byte range of a shard.

        Args:
            header: size and CRC-32 of the header before the range, to be verified; size 0: no header.
            part: the part that holds the range, from `_begin`; None: the range is read now.

        Raises:
            OSError: the range cannot be read, or the file has changed since it was indexed.
        """
        if self._remote is None:
            return self._files.get().read(self.paths[shard], self._stamps[shard], offset, size, header)
        begin, whole = offset - header[0], size + header[0]
        if part is None:
            part = Part(self._remote.read(shard, begin, whole), begin)
        data: Buffer = memoryview(part.data)[begin - part.offset :][:whole]
        if header[0] and zlib.crc32(data[: header[0]]) != header[1]:
            raise _changed_error(self.paths[shard])
        return bytes(data[header[0] :])

    def _open_shards(self, shards: Iterable[int]) -> dict[int, _OpenFile]:
        """Maps each shard that is open and verified to its file; other shards are left out."""
        files = self._files.get()
        opened = {shard: files.if_open(self.paths[shard]) for shard in set(shards)}
        return {shard: file for shard, file in opened.items() if file is not None}


class _OpenFile:
    """An open file descriptor, closed when its last reader releases this object."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.verified_state: tuple[int, int, int] | None = None
        weakref.finalize(self, os.close, fd).atexit = False  # threads may use it at exit

    def matches(self, stamp: Stamp) -> bool:
        """Whether the file has this stamp. Computes the stamp again only if size, mtime or ctime has changed."""
        status = os.fstat(self.fd)
        state = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        if state != self.verified_state:
            if Stamp.of(self.fd) != stamp:
                return False
            self.verified_state = state
        return True


class _OpenFiles:
    """Keeps the most recently used files open, up to a quarter of the process's limit."""

    def __init__(self) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._max_open = 1024 if limit == resource.RLIM_INFINITY else max(8, min(1024, limit // 4))
        self._files: OrderedDict[str, _OpenFile] = OrderedDict()
        self._all: weakref.WeakSet[_OpenFile] = weakref.WeakSet()  # those that a reader still uses, too
        self._lock = threading.Lock()

    def read(self, path: str, stamp: Stamp, offset: int, size: int, header: tuple[int, int]) -> bytes:
        file = self._open(path, stamp)  # this reference keeps it open while we read
        data = os.pread(file.fd, size, offset)
        while len(data) < size:
            more = os.pread(file.fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        # Check after reading: the file may be overwritten in place at any moment until the bytes are here.
        if len(data) < size or not file.matches(stamp):
            with self._lock:
                if self._files.get(path) is file:
                    del self._files[path]
            raise _changed_error(path)
        # Read the header after the data: both mostly share a page, so the header costs no disk access.
        if header[0] and zlib.crc32(os.pread(file.fd, header[0], offset - header[0])) != header[1]:
            raise OSError(
                f"{path!r} has changed since its index was made, but not its size and modification time: "
                "touch it, then open the dataset again"
            )
        return data

    def if_open(self, path: str) -> _OpenFile | None:
        """A file that is open, unless readers use too many for it to be kept."""
        with self._lock:
            file = self._files.get(path)
            if file is not None:
                self._files.move_to_end(path)
            return file if len(self._all) <= 2 * self._max_open else None

    def _open(self, path: str, stamp: Stamp) -> _OpenFile:
        with self._lock:
            file = self._files.get(path)
            if file is not None:
                self._files.move_to_end(path)
                return file
        file = _OpenFile(open_regular(path, os.O_RDONLY))
        if not file.matches(stamp):
            raise _changed_error(path)
        with self._lock:
            self._files[path] = file
            self._all.add(file)
            if len(self._files) > self._max_open:
                self._files.popitem(last=False)
        return file


def _changed_error(path: str) -> OSError:
    return OSError(f"{path!r} has changed since its index was made: open the dataset again")
