"""TFRecord files of tf.train.Example messages, read without TensorFlow."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cuaug.errors import DecodeError, LoaderError
from cuaug.limits import DEFAULT_MAX_BYTES
from cuaug.sources._example import parse_features, values
from cuaug.sources._extras import need
from cuaug.sources._fingerprint import fingerprint, once, relative
from cuaug.sources._index import Index, Kind, check_spans, indexes, is_text
from cuaug.sources._labels import Decoders, as_text, decoded, fields_of
from cuaug.sources._shards import Paths, Shards, expand

__all__ = ["TFRecord", "masked_crc"]

_LENGTH, _CRC = 8, 4  # a record: its length, the length's checksum, the data, the data's checksum
_LOOKED_AT = 8  # how many records of a file tell which features there are


class TFRecord(Shards):
    """tf.train.Example messages in TFRecord files. Needs `pip install "cuaug[tfrecord]"`.

    Any record is read at once, by an index that is made when a file is first opened (which reads the records' lengths
    and checksums), and kept beside it, or in CUAUG_CACHE_DIR or ~/.cache/cuaug where that cannot be written.

    Args:
        shards: a path, a pattern such as "train-*-of-01024" or "train-{00000..01023}-of-01024", a folder of .tfrecord
            files, or a list of these. They are not compressed.
        image: the feature that holds the encoded image.
        label: the feature that is the label; a list of features for a dict label; None: a sample's label is its index.
            A list of one number is that number, a longer one an array (int64 or float32); bytes are a string in UTF-8,
            several a list of strings.
        decoders: {feature: what makes a label of its bytes}, where they are no text. It may raise ValueError, and must
            pickle if the source is to.
        verify: compare each record with its checksum (CRC-32C) as it is read.

    Raises:
        LoaderError: no such file, one that is damaged, cut short or compressed, or whose first records have no such
            feature.
    """

    def __init__(
        self,
        shards: Paths,
        image: str = "image/encoded",
        label: str | Sequence[str] | None = "image/class/label",
        *,
        decoders: Decoders | None = None,
        verify: bool = False,
    ) -> None:
        for module in ("google.protobuf", "google_crc32c"):  # and not once an epoch has begun
            need(module, "tfrecord")
        paths = expand(shards, ".tfrecord", ".tfrecords")
        found = indexes(_KIND, paths)
        counts = [len(index.arrays["offset"]) for index in found]
        if not sum(counts):
            raise LoaderError(f"there is nothing to load: no record in {', '.join(map(repr, paths[:3]))}")
        super().__init__(paths, found, counts)
        self.image = image
        self.fields, self._is_dict = fields_of(label)
        self.verify = verify
        self._decoders = dict(decoders or {})
        self._offsets = [index.arrays["offset"] for index in found]
        self._sizes = [index.arrays["size"] for index in found]
        self._digests = [index.notes["digest"] for index in found]
        # The first records of each file tell, before an epoch begins, that a name is wrong.
        first = sorted({name for index in found for name in index.notes["features"]})
        for name in [image, *self.fields]:
            if name not in first:
                raise LoaderError(
                    f"the first {_LOOKED_AT} records of {paths[0]!r}{' ...' if len(paths) > 1 else ''} have no feature "
                    f"{name!r}; there are {', '.join(map(repr, first[:20]))}"
                )

    def read(self, index: int) -> tuple[bytes, Any]:
        """(encoded image, label).

        Raises:
            DecodeError: the record is damaged, or lacks the image or a label.
            OSError: the file cannot be read, or is no longer the one that was indexed.
        """
        record = self._record(index)
        images = _feature(record, self.image)
        if not isinstance(images, list) or len(images) != 1:
            kind = "bytes" if isinstance(images, list) else images.dtype
            raise DecodeError(
                f"feature {self.image!r} is not one image in bytes: it has {len(images)} values of {kind}"
            )
        return images[0], self._label(record, index)

    def encoded_size(self, index: int) -> int:
        """Bytes of the record, of which the image is the most."""
        shard, row = self._place(index)
        return int(self._sizes[shard][row])

    def label(self, index: int) -> Any:
        """The label alone, as `read` gives it."""
        return self._label(self._record(index), index) if self.fields else index

    def path(self, index: int) -> str:
        """file[number of the record in it]"""
        shard, row = self._place(index)
        return f"{self.paths[shard]}[{row}]"

    @once
    def fingerprint(self) -> str:
        """A digest of the files' names, the records' lengths and checksums, and which features are used."""
        return fingerprint("tfrecord", relative(self.paths), self._digests, [self.image, *self.fields], self._is_dict)

    def _record(self, index: int) -> Any:
        """The record's features, by their names."""
        shard, row = self._place(index)
        offset, size = int(self._offsets[shard][row]), int(self._sizes[shard][row])
        data = self._bytes(shard, offset, size + _CRC if self.verify else size)
        if self.verify:
            data, crc = data[:size], data[size:]
            if masked_crc(data) != crc:
                raise DecodeError("the record is damaged: it does not fit its checksum")
        try:
            return parse_features(data)
        except ValueError as error:
            raise DecodeError(f"the record is damaged, or no tf.train.Example: {error}") from error

    def _label(self, record: Any, index: int) -> Any:
        made = {name: self._value(name, _feature(record, name)) for name in self.fields}
        return made if self._is_dict else made[self.fields[0]] if self.fields else index

    def _value(self, name: str, given: Any) -> Any:
        if isinstance(given, list):
            given = [decoded(name, data, self._decoders.get(name, as_text)) for data in given]
        return given[0] if len(given) == 1 else given


def _feature(record: Any, name: str) -> Any:
    if name not in record:
        raise DecodeError(f"the record has no feature {name!r}, but {', '.join(map(repr, sorted(record)[:20]))}")
    try:
        return values(record[name])
    except ValueError as error:
        raise DecodeError(f"feature {name!r} is damaged: {error}") from error


def masked_crc(data: bytes) -> bytes:
    """CRC-32C as TFRecord stores it: masked, so that a checksum of data with checksums in it stays a good one."""
    crc = need("google_crc32c", "tfrecord").value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _scan(path: str, file: BinaryIO) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Reads each record's length and checksums; of the first records, the names of their features."""
    number, end = file.fileno(), os.fstat(file.fileno()).st_size
    offsets: list[int] = []
    sizes: list[int] = []
    digest = hashlib.sha256()
    at = 0
    while at < end:
        header = os.pread(number, _LENGTH + _CRC, at)
        if len(header) < _LENGTH + _CRC:
            raise LoaderError(f"{path!r} is cut short: it ends within the header of record {len(sizes)}, at byte {at}")
        if masked_crc(header[:_LENGTH]) != header[_LENGTH:]:
            what = "is compressed (gzip), which allows no random access: uncompress it"
            if header[:2] != b"\x1f\x8b":
                what = f"is not a TFRecord file, or damaged: the length of record {len(sizes)}, at byte {at}, is wrong"
            raise LoaderError(f"{path!r} {what}")
        (size,) = struct.unpack_from("<Q", header)
        start = at + _LENGTH + _CRC
        at = start + size + _CRC
        if at > end:
            raise LoaderError(f"{path!r} is cut short: record {len(sizes)} ends at byte {at}, the file at {end}")
        offsets.append(start)
        sizes.append(size)
        digest.update(header)
        digest.update(os.pread(number, _CRC, start + size))
    names = _names(number, offsets[:_LOOKED_AT], sizes[:_LOOKED_AT])
    if sizes and not names:
        raise LoaderError(f"the first records of {path!r} are no tf.train.Example")
    return {"features": names, "digest": digest.hexdigest()}, {
        "offset": np.array(offsets, np.int64),
        "size": np.array(sizes, np.int64),
    }


def _names(number: int, offsets: list[int], sizes: list[int]) -> list[str]:
    """The features that some records have; a damaged or too large one is its reader's matter."""
    names: set[str] = set()
    for offset, size in zip(offsets, sizes, strict=True):
        if size <= DEFAULT_MAX_BYTES:
            with contextlib.suppress(ValueError):
                names.update(parse_features(os.pread(number, size, offset)))
    return sorted(names)


def _check(index: Index) -> None:
    """Raises ValueError unless an index is such as `_scan` makes."""
    check_spans(index.arrays["offset"], index.arrays["size"], _LENGTH + _CRC, index.stamp.size - _CRC)
    if not is_text(index.notes["features"]) or not isinstance(index.notes["digest"], str):
        raise ValueError("its notes have other types")


_KIND = Kind("tfrecord", _scan, {"offset": "<i8", "size": "<i8"}, _check)
