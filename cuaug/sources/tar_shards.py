"""Tar files in WebDataset's layout: members that share a name up to its first dot are one sample."""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import DecodeError, LoaderError
from cuaug.sources._fingerprint import fingerprint, once, relative
from cuaug.sources._index import Index, Kind, check_spans, indexes, is_text
from cuaug.sources._labels import Decoders, by_extension, decoded, fields_of
from cuaug.sources._shards import Paths, Shards, expand
from cuaug.sources.files import EXTENSIONS

__all__ = ["TarShards", "members"]

_BLOCK = 512
# Members up to this size that are no images go into the fingerprint by what they hold, others by their size.
_HASHED_BYTES = 65_536
_IMAGE_FIELDS = tuple(ending.removeprefix(".") for ending in EXTENSIONS)
_META = re.compile(r"__[^/]*__($|/)")
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class TarShards(Shards):
    """Samples in tar files, as WebDataset has them: `0001.jpg`, `0001.cls`, `0002.jpg`, `0002.cls`, ....

    A member's name up to the first dot of its last part is the sample's key, what follows is the field. Samples are in
    the order in which their keys first come in the shard, shards in the order given. Any sample is read at once, by
    an index that is made when a shard is first opened (which reads its headers and small labels), and kept beside
    the shard, or in CUAUG_CACHE_DIR or ~/.cache/cuaug where that cannot be written.

    Args:
        shards: a path, a pattern such as "train-{000..127}.tar" or "train-*.tar", a folder of .tar files, or a list of
            these. They are not compressed.
        image: the field that is the image; alternatives are separated by semicolons, the first that is there counts.
        label: the field that is the label, likewise; a list of fields for a dict label, whose keys are as given here;
            None: a sample's label is its index. By extension cls (and class, count, index, id) is an integer, json
            what it says, txt a string, npy an array, and anything else bytes.
        decoders: {field or extension: what makes a label of bytes}, in place of these. It may raise ValueError, and
            must pickle if the source is to.

    Raises:
        LoaderError: no such shard, one that is damaged, cut short or compressed, or no sample has the field.
    """

    def __init__(
        self,
        shards: Paths,
        image: str = "jpg;jpeg;png;webp",
        label: str | Sequence[str] | None = "cls",
        *,
        decoders: Decoders | None = None,
    ) -> None:
        paths = expand(shards, ".tar")
        found = indexes(_KIND, paths)
        counts = [len(index.arrays["key_ends"]) for index in found]
        if not sum(counts):
            raise LoaderError(f"there is nothing to load: no sample in {', '.join(map(repr, paths[:3]))}")
        super().__init__(paths, found, counts)
        self.image = image
        self.fields, self._is_dict = fields_of(label)
        self._decoders = dict(decoders or {})
        self._keys = [_Keys(index) for index in found]
        self._columns = {name: [_Column(index, name) for index in found] for name in [image, *self.fields]}
        self._digests = [index.notes["digest"] for index in found]
        for name, columns in self._columns.items():
            if all(column.is_empty for column in columns):
                there = sorted({field for index in found for field in index.notes["fields"]})
                raise LoaderError(
                    f"no sample in {paths[0]!r}{' ...' if len(paths) > 1 else ''} has a field {name!r}; there are "
                    f"{', '.join(map(repr, there[:20]))}{' ...' if len(there) > 20 else ''}"
                )

    def read(self, index: int) -> tuple[bytes, Any]:
        """(encoded image, label).

        Raises:
            DecodeError: the sample lacks the image or a label, or the label is not what its extension says.
            OSError: the shard cannot be read, or is no longer the one that was indexed.
        """
        return self._field(self.image, *self._place(index))[1], self.label(index)

    def encoded_size(self, index: int) -> int:
        """The image's bytes; 0 where the sample has none."""
        shard, row = self._place(index)
        return int(self._columns[self.image][shard].sizes[row])

    def label(self, index: int) -> Any:
        """The label alone, as `read` gives it."""
        shard, row = self._place(index)
        values = {}
        for name in self.fields:
            field, data = self._field(name, shard, row)
            values[name] = decoded(field, data, by_extension(field, self._decoders))
        return values if self._is_dict else values[self.fields[0]] if self.fields else index

    def path(self, index: int) -> str:
        """shard.tar/member"""
        shard, row = self._place(index)
        field = self._columns[self.image][shard].field(row)
        return f"{self.paths[shard]}/{self._keys[shard][row]}" + (f".{field}" if field else "")

    @once
    def fingerprint(self) -> str:
        """A digest of the shards' names, their members' names and sizes, small labels, and which fields are used."""
        return fingerprint("tar", relative(self.paths), self._digests, [self.image, *self.fields], self._is_dict)

    def _field(self, name: str, shard: int, row: int) -> tuple[str, bytes]:
        """(which of the alternatives, its bytes)"""
        column = self._columns[name][shard]
        field = column.field(row)
        if not field:
            raise DecodeError(f"the sample has no field {name!r}")
        offset, size = int(column.offsets[row]), int(column.sizes[row])
        return field, self._bytes(shard, offset, size, (_BLOCK, int(column.headers[row])))


class _Keys:
    """The keys of a shard's samples."""

    def __init__(self, index: Index) -> None:
        # Copies, which do not keep the rest of the index in memory.
        self._text, self._ends = index.arrays["keys"].copy(), index.arrays["key_ends"].copy()

    def __getitem__(self, row: int) -> str:
        start = int(self._ends[row - 1]) if row else 0
        return os.fsdecode(self._text[start : int(self._ends[row])].tobytes())


class _Column:
    """Where one field of a shard's samples lies.

    Attributes:
        offsets, sizes: (samples,) in bytes.
        headers: (samples,) CRC-32 of the header before the data.
    """

    def __init__(self, index: Index, name: str) -> None:
        arrays, fields = index.arrays, index.notes["fields"]
        count = len(arrays["key_ends"])
        self.offsets, self.sizes = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.headers = np.zeros(count, np.uint32)
        self._which = np.full(count, -1, np.int16)
        self._names = [field for field in map(str.strip, name.split(";")) if field in fields]
        for i, field in reversed(list(enumerate(self._names))):  # the first of the alternatives is written last
            chosen = arrays["member_field"] == fields.index(field)
            rows = arrays["member_sample"][chosen]
            self.offsets[rows], self.sizes[rows] = arrays["member_offset"][chosen], arrays["member_size"][chosen]
            self.headers[rows] = arrays["member_header"][chosen]
            self._which[rows] = i

    @property
    def is_empty(self) -> bool:
        return not (self._which >= 0).any()

    def field(self, row: int) -> str:
        """Which of the alternatives a sample has; empty for none."""
        which = int(self._which[row])
        return "" if which < 0 else self._names[which]


def _scan(path: str, file: BinaryIO) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Reads the headers of a shard, and its small labels for the fingerprint."""
    samples: dict[str, int] = {}
    fields: dict[str, int] = {}
    rows: dict[tuple[int, int], tuple[int, int, int]] = {}
    digest = hashlib.sha256()
    for name, offset, size in members(path, file):
        folder, slash, base = name.rpartition("/")
        key, dot, field = base.partition(".")
        if not key or not dot or _META.match(name):  # such as ._0001.jpg, README and __info__
            continue
        field = field.lower()
        place = samples.setdefault(folder + slash + key, len(samples)), fields.setdefault(field, len(fields))
        if place in rows:
            raise LoaderError(f"{path!r} has {name!r} twice: a sample has each field once")
        # A hard link's data has the header of the member that it links to.
        rows[place] = offset, size, zlib.crc32(os.pread(file.fileno(), _BLOCK, offset - _BLOCK))
        digest.update(os.fsencode(f"{name}\0{size}\0"))
        if size <= _HASHED_BYTES and not field.endswith(_IMAGE_FIELDS):
            digest.update(os.pread(file.fileno(), size, offset))
    keys = [os.fsencode(key) for key in samples]
    places = np.array(list(rows), np.int64).reshape(-1, 2)
    spans = np.array(list(rows.values()), np.int64).reshape(-1, 3)
    return {"fields": list(fields), "digest": digest.hexdigest()}, {
        "keys": np.frombuffer(b"".join(keys), np.uint8),
        "key_ends": np.cumsum([len(key) for key in keys], dtype=np.int64),
        "member_sample": places[:, 0],
        "member_field": places[:, 1],
        "member_offset": spans[:, 0],
        "member_size": spans[:, 1],
        "member_header": spans[:, 2].astype(np.uint32),
    }


def _check(index: Index) -> None:
    """Raises ValueError unless an index is such as `_scan` makes."""
    arrays, fields = index.arrays, index.notes["fields"]
    ends, samples, numbers = arrays["key_ends"], arrays["member_sample"], arrays["member_field"]
    if not is_text(fields) or len(set(fields)) != len(fields) or not isinstance(index.notes["digest"], str):
        raise ValueError("its notes have other types")
    if (np.diff(ends, prepend=0) <= 0).any() or (ends[-1] if len(ends) else 0) != len(arrays["keys"]):
        raise ValueError("its keys do not end where they should")
    if not len(samples) == len(numbers) == len(arrays["member_offset"]) == len(arrays["member_header"]):
        raise ValueError("its arrays have different lengths")
    if ((samples < 0) | (samples >= len(ends)) | (numbers < 0) | (numbers >= len(fields))).any():
        raise ValueError("a member belongs to no sample or field")
    check_spans(arrays["member_offset"], arrays["member_size"], _BLOCK, index.stamp.size)


_KIND = Kind(
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


def members(path: str, file: BinaryIO) -> Iterator[tuple[str, int, int]]:
    """(name, offset of the data, size) of each file in the archive.

    The headers are tarfile's to read, the way from one to the next is not: it would stop quietly at a damaged one.
    """
    start = file.read(8)
    for magic, name in _COMPRESSED.items():
        if start.startswith(magic):
            raise LoaderError(f"{path!r} is compressed ({name}), which allows no random access: uncompress it")
    end = os.fstat(file.fileno()).st_size
    spans: dict[str, tuple[int, int]] = {}
    at = 0
    file.seek(at)
    try:
        archive = tarfile.TarFile(fileobj=file, mode="r", encoding="utf-8", errors="surrogateescape")
        while _has_header(path, file, at):
            member = tarfile.TarInfo.fromtarfile(archive)
            offset, size = member.offset_data, member.size
            if member.issparse():
                raise LoaderError(f"{path!r} holds {member.name!r} as a sparse file, which does not lie in one piece")
            if member.islnk():
                if member.linkname not in spans:
                    raise LoaderError(f"{path!r} holds {member.name!r} as a link to {member.linkname!r}, not there")
                offset, size = spans[member.linkname]
            if size < 0 or archive.offset <= at or archive.offset > end:
                raise LoaderError(f"{path!r} is damaged or cut short: {member.name!r}, from byte {at}, has no end")
            if member.isreg() or member.islnk():
                spans[member.name] = offset, size
                yield member.name, offset, size
            at = archive.offset
    # The last two: headers of headers, and names that claim to be longer than there is memory.
    except (tarfile.TarError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        cause = str(error) or type(error).__name__
        raise LoaderError(f"{path!r} is not a tar file, or damaged at byte {at}: {cause}") from error


def _has_header(path: str, file: BinaryIO, at: int) -> bool:
    """Whether a header stands here; if not, it is the end of the archive, with nothing after it."""
    file.seek(at)
    block = file.read(_BLOCK)
    if len(block) < _BLOCK:
        raise LoaderError(f"{path!r} is cut short, or not yet written to its end: no end mark stands at byte {at}")
    if block != bytes(_BLOCK):
        file.seek(at)
        return True
    while rest := file.read(1 << 20):
        if rest.strip(b"\0"):
            raise LoaderError(f"{path!r} has data after its end mark at byte {at}: is it several archives in one?")
    return False
