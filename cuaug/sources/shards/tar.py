"""Tar files in WebDataset's layout: members with the same name up to the first dot form one sample."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import DecodeError, SourceError
from cuaug.remote import Part, RemoteOptions
from cuaug.sources.file_bytes import FileRanges
from cuaug.sources.files import EXTENSIONS
from cuaug.sources.labels import Decoders, decode_field, decoder_for
from cuaug.sources.shards.shard_index import (
    Index,
    IndexFormat,
    check_spans,
    file_size,
    is_string_list,
    pread,
)
from cuaug.sources.shards.shards import Paths, ShardedSource, open_shards

_BLOCK_BYTES = 512
# The fingerprint hashes the content of labels up to this size, and the size of other members.
_MAX_HASHED_BYTES = 65_536
_IMAGE_FIELDS = tuple(ending.removeprefix(".") for ending in EXTENSIONS)
_META = re.compile(r"__[^/]*__($|/)")
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class TarShards(ShardedSource):
    """Samples in WebDataset's tar files: `0001.jpg`, `0001.cls`, `0002.jpg`, `0002.cls`, ....

    The file name up to its first dot, with the folder, is the sample's key; the rest is the field. Samples follow the
    order in which their keys first appear in the shard; shards keep the given order.

    An index gives random access to the samples. It is made when a shard is first opened, by reading the headers and
    small labels, and kept beside the shard; if that folder is read-only, in CUAUG_CACHE_DIR or ~/.cache/cuaug.

    Args:
        shards: a path, a pattern such as "train-{000..127}.tar" or "train-*.tar", a folder of .tar files, or a list of
            these. The files must be uncompressed.
        image: field with the image; semicolons separate alternatives, and the first present one counts.
        label: field with the label, in the same syntax; a list of fields for a dict label with these keys; None: a
            sample's label is its index. The extension selects the type: cls (also class, count, index, id) is an
            integer, json any JSON value, txt a string, npy an array, npz a dict of arrays and numbers, anything else
            bytes.
        decoders: {field or extension: function from bytes to a label}, to override these types. It may raise ValueError
            and must pickle if the source is to pickle.
        remote: how URLs are read, such as "s3://photos/train-{000..127}.tar". Only `*` matches names there.

    Raises:
        LoaderError: a shard is missing, damaged, truncated or compressed, or no sample has the field.
    """

    def __init__(
        self,
        shards: Paths,
        image: str = "jpg;jpeg;png;webp",
        label: str | Sequence[str] | None = "cls",
        *,
        decoders: Decoders | None = None,
        remote: RemoteOptions | None = None,
    ) -> None:
        opened = open_shards(_FORMAT, shards, (".tar",), remote)
        paths, indexes = opened.paths, opened.indexes
        counts = [len(index.arrays["key_ends"]) for index in indexes]
        super().__init__(_FORMAT.name, opened, counts, image, label, decoders)
        self._keys = [_Keys(index) for index in indexes]
        self._columns = {name: _Column(indexes, name) for name in [image, *self.fields]}
        for name, column in self._columns.items():
            if column.is_empty:
                available = sorted({field for index in indexes for field in index.notes["fields"]})
                raise SourceError(
                    f"no sample in {paths[0]!r}{' ...' if len(paths) > 1 else ''} has a field {name!r}; available: "
                    f"{', '.join(map(repr, available[:20]))}{' ...' if len(available) > 20 else ''}"
                )

    def read(self, index: int) -> tuple[bytes, Any]:
        """Returns (encoded image, label).

        Raises:
            DecodeError: the sample lacks the image or a label, or the label does not fit its extension.
            OSError: the shard cannot be read, or has changed since it was indexed.
        """
        parts = self._begin(index, 1 + len(self.fields))
        return self._read_field(self.image, index, parts[0])[1], self._label(index, parts[1:])

    def encoded_size(self, index: int) -> int:
        """Bytes of the encoded image; 0 if the sample has none."""
        return self._columns[self.image].sizes.item(index)

    def label(self, index: int) -> Any:
        """The label alone, as `read` returns it."""
        return self._label(index, [None] * len(self.fields))

    def _label(self, index: int, parts: Sequence[Part | None]) -> Any:
        members = (self._read_field(name, index, part) for name, part in zip(self.fields, parts, strict=True))
        return self._make_label(index, members)

    def _make_label(self, index: int, members: Iterable[tuple[str, bytes]]) -> Any:
        """The label of (field's alternative, bytes) of each field."""
        values = {
            name: decode_field(field, data, decoder_for(field, self._decoders))
            for name, (field, data) in zip(self.fields, members, strict=True)
        }
        return values if self._is_dict else values[self.fields[0]] if self.fields else index

    def locate(self, indices: NDArray[np.int64]) -> FileRanges | None:
        """Where samples lie, for native code to read as `read` does.

        None if labels need decoders of the user, or remote shards are read without reading ahead.

        A shard that is not open yet has no ranges: `read` opens it. Remote samples have ranges in memory once they have
        arrived: `read` waits for the others.
        """
        changed = type(self).read is not TarShards.read or type(self).label is not TarShards.label
        is_slow = self._remote is not None and not self._remote.reads_ahead
        if self._decoders or changed or is_slow:
            return None
        columns = [self._columns[name] for name in (self.image, *self.fields)]
        table = np.stack([column.places(indices) for column in columns], axis=1)
        files, states = (
            self._open_ranges(indices, table) if self._remote is None else self._ranges_in_memory(indices, table)
        )
        numbers = indices.tolist()

        def make_label(i: int, parts: list[bytes]) -> Any:
            fields = (column.field(numbers[i]) for column in columns[1:])
            return self._make_label(numbers[i], zip(fields, parts, strict=True))

        return FileRanges(files, np.array(states, dtype=np.int64).reshape(-1, 4), table, _BLOCK_BYTES, make_label)

    def _open_ranges(
        self, indices: NDArray[np.int64], table: NDArray[np.int64]
    ) -> tuple[list[Any], list[tuple[int, ...]]]:
        """Fills the files' numbers in; returns the files and their states."""
        shards, rows = np.unique(self._shards_of(indices), return_inverse=True)
        files = self._open_shards(shards.tolist())
        order = {shard: number for number, shard in enumerate(files)}
        numbers = np.array([order.get(shard, -1) for shard in shards.tolist()])
        table[..., 0] = np.where(table[..., 0] < 0, -1, numbers[rows][:, None])
        return list(files.values()), [(file.fd, *(file.verified_state or ())) for file in files.values()]

    def _ranges_in_memory(
        self, indices: NDArray[np.int64], table: NDArray[np.int64]
    ) -> tuple[list[Any], list[tuple[int, ...]]]:
        """Fills the numbers of bytes in memory in; returns them and their states."""
        assert self._remote is not None
        complete = np.flatnonzero((table[..., 0] >= 0).all(axis=1))
        table[..., 0] = -1
        order: dict[int, int] = {}
        data: list[NDArray[np.uint8]] = []
        for i, parts in zip(complete.tolist(), self._remote.arrived(indices[complete]), strict=True):
            for k, part in enumerate(parts or ()):
                number = order.setdefault(id(part.data), len(data))
                if number == len(data):
                    data.append(np.frombuffer(part.data, np.uint8))
                table[i, k, 0] = number
                table[i, k, 1] -= part.offset
        return data, [(-1, array.size, array.ctypes.data, 0) for array in data]

    def path(self, index: int) -> str:
        """shard.tar/member"""
        shard, row = self._locate(index)
        field = self._columns[self.image].field(index)
        return f"{self.paths[shard]}/{self._keys[shard][row]}" + (f".{field}" if field else "")

    def _spans(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        places = np.stack([self._columns[name].places(indices) for name in (self.image, *self.fields)], axis=1)
        shards = np.where(places[..., 0] < 0, -1, self._shards_of(indices)[:, None])
        return np.stack([shards, places[..., 1] - _BLOCK_BYTES, places[..., 2] + _BLOCK_BYTES], axis=-1)

    def _read_field(self, name: str, index: int, part: Part | None) -> tuple[str, bytes]:
        """Returns (the alternative that the sample has, its bytes)."""
        column, (shard, _) = self._columns[name], self._locate(index)
        field = column.field(index)
        if not field:
            raise DecodeError(f"the sample has no field {name!r}")
        offset, size, header = column.offsets.item(index), column.sizes.item(index), column.headers.item(index)
        return field, self._read_range(shard, offset, size, (_BLOCK_BYTES, header), part)


class _Keys:
    """The keys of a shard's samples."""

    def __init__(self, index: Index) -> None:
        # Views would keep the rest of the index in memory.
        self._text, self._ends = index.arrays["keys"].copy(), index.arrays["key_ends"].copy()

    def __getitem__(self, row: int) -> str:
        start = int(self._ends[row - 1]) if row else 0
        return os.fsdecode(self._text[start : int(self._ends[row])].tobytes())


class _Column:
    """Locations of one field in all samples.

    Attributes:
        offsets, sizes: (samples,) in bytes.
        headers: (samples,) CRC-32 of the tar header before the data.
    """

    def __init__(self, indexes: Sequence[Index], name: str) -> None:
        counts = [len(index.arrays["key_ends"]) for index in indexes]
        self.offsets, self.sizes = np.zeros(sum(counts), np.int64), np.zeros(sum(counts), np.int64)
        self.headers = np.zeros(sum(counts), np.uint32)
        self._alternative = np.full(sum(counts), -1, np.int16)
        self._names = [field.strip() for field in name.split(";")]
        for index, start in zip(indexes, itertools.accumulate(counts, initial=0), strict=False):
            arrays, fields = index.arrays, index.notes["fields"]
            for i, field in reversed(list(enumerate(self._names))):  # write the first alternative last
                if field in fields:
                    selected = arrays["member_field"] == fields.index(field)
                    rows = start + arrays["member_sample"][selected]
                    self.offsets[rows] = arrays["member_offset"][selected]
                    self.sizes[rows] = arrays["member_size"][selected]
                    self.headers[rows] = arrays["member_header"][selected]
                    self._alternative[rows] = i

    def places(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n, 4) 0, or -1 for samples without the field; offset, size, CRC-32 of the header."""
        present = np.minimum(self._alternative[indices], 0)
        return np.stack([present, self.offsets[indices], self.sizes[indices], self.headers[indices]], axis=-1)

    @property
    def is_empty(self) -> bool:
        return not (self._alternative >= 0).any()

    def field(self, index: int) -> str:
        """The alternative that a sample has, or ""."""
        i = self._alternative.item(index)
        return "" if i < 0 else self._names[i]


def _scan(path: str, file: BinaryIO) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Scans the headers of a shard, and its small labels for the fingerprint."""
    samples: dict[str, int] = {}
    fields: dict[str, int] = {}
    members_found: dict[tuple[int, int], tuple[int, int, int]] = {}
    digest = hashlib.sha256()
    for name, offset, size in _members(path, file):
        folder, slash, base = name.rpartition("/")
        key, dot, field = base.partition(".")
        if not key or not dot or _META.match(name):  # ._0001.jpg, README, __info__
            continue
        field = field.lower()
        location = samples.setdefault(folder + slash + key, len(samples)), fields.setdefault(field, len(fields))
        if location in members_found:
            raise SourceError(f"{path!r} has {name!r} twice: a sample has each field once")
        # A hard link's data follows the header of the member that it links to.
        members_found[location] = offset, size, zlib.crc32(pread(file, _BLOCK_BYTES, offset - _BLOCK_BYTES))
        digest.update(os.fsencode(f"{name}\0{size}\0"))
        if size <= _MAX_HASHED_BYTES and not field.endswith(_IMAGE_FIELDS):
            digest.update(pread(file, size, offset))
    keys = [os.fsencode(key) for key in samples]
    locations = np.array(list(members_found), np.int64).reshape(-1, 2)
    spans = np.array(list(members_found.values()), np.int64).reshape(-1, 3)
    return {"fields": list(fields), "digest": digest.hexdigest()}, {
        "keys": np.frombuffer(b"".join(keys), np.uint8),
        "key_ends": np.cumsum([len(key) for key in keys], dtype=np.int64),
        "member_sample": locations[:, 0],
        "member_field": locations[:, 1],
        "member_offset": spans[:, 0],
        "member_size": spans[:, 1],
        "member_header": spans[:, 2].astype(np.uint32),
    }


def _check(index: Index) -> None:
    """Raises ValueError if `_scan` cannot have made this index."""
    arrays, fields = index.arrays, index.notes["fields"]
    ends, samples, numbers = arrays["key_ends"], arrays["member_sample"], arrays["member_field"]
    if not is_string_list(fields) or len(set(fields)) != len(fields) or not isinstance(index.notes["digest"], str):
        raise ValueError("its notes have wrong types")
    if (np.diff(ends, prepend=0) <= 0).any() or (ends[-1] if len(ends) else 0) != len(arrays["keys"]):
        raise ValueError("its keys have wrong ends")
    if not len(samples) == len(numbers) == len(arrays["member_offset"]) == len(arrays["member_header"]):
        raise ValueError("its arrays have different lengths")
    if ((samples < 0) | (samples >= len(ends)) | (numbers < 0) | (numbers >= len(fields))).any():
        raise ValueError("a member belongs to no sample or field")
    check_spans(arrays["member_offset"], arrays["member_size"], _BLOCK_BYTES, index.stamp.size)


_FORMAT = IndexFormat(
    "tar",
    _scan,
    {
        "keys": "|u1",
        "key_ends": "<i8",
        "member_sample": "<i8",
        "member_field": "<i8",
        "member_offset": "<i8",
        "member_size": "<i8",
        "member_header": "<u4",
    },
    _check,
)


def _members(path: str, file: BinaryIO) -> Iterator[tuple[str, int, int]]:
    """Yields (name, offset of the data, size) of each file in the archive.

    tarfile parses the headers. It does not walk from one to the next, since it would stop silently at a damaged one.
    """
    start = file.read(8)
    for magic, name in _COMPRESSED.items():
        if start.startswith(magic):
            raise SourceError(f"{path!r} is compressed ({name}), which allows no random access: uncompress it")
    end = file_size(file)
    spans: dict[str, tuple[int, int]] = {}
    at = 0
    file.seek(at)
    try:
        archive = tarfile.TarFile(fileobj=file, mode="r", encoding="utf-8", errors="surrogateescape")
        while _has_header(path, file, at):
            member = tarfile.TarInfo.fromtarfile(archive)
            offset, size = member.offset_data, member.size
            if member.issparse():
                raise SourceError(f"{path!r} holds {member.name!r} as a sparse file, whose data are not contiguous")
            if member.islnk():
                if member.linkname not in spans:
                    raise SourceError(
                        f"{path!r} holds {member.name!r} as a link to {member.linkname!r}, which is missing"
                    )
                offset, size = spans[member.linkname]
            if size < 0 or archive.offset <= at or archive.offset > end:
                raise SourceError(f"{path!r} is damaged or truncated: {member.name!r}, from byte {at}, has no end")
            if member.isreg() or member.islnk():
                spans[member.name] = offset, size
                yield member.name, offset, size
            at = archive.offset
    # RecursionError: headers of headers. MemoryError: names that claim to exceed memory.
    except (tarfile.TarError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        cause = str(error) or type(error).__name__
        raise SourceError(f"{path!r} is not a tar file, or damaged at byte {at}: {cause}") from error


def _has_header(path: str, file: BinaryIO, at: int) -> bool:
    """Whether a header starts at this byte; if not, checks that the archive ends here."""
    file.seek(at)
    block = file.read(_BLOCK_BYTES)
    if len(block) < _BLOCK_BYTES:
        raise SourceError(f"{path!r} is truncated or not fully written: there is no end mark at byte {at}")
    if block != bytes(_BLOCK_BYTES):
        file.seek(at)
        return True
    while rest := file.read(1 << 20):
        if rest.strip(b"\0"):
            raise SourceError(f"{path!r} has data after its end mark at byte {at}: is it several archives in one?")
    return False
