"""LMDB environments whose values are images."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from cuaug._runtime.extras import require_module
from cuaug._runtime.fork import fork_safe_lock, renew_after_fork
from cuaug.errors import ArgumentError, DecodeError, SourceError
from cuaug.sources.file_bytes import open_regular
from cuaug.sources.labels import to_label_sequence
from cuaug.sources.source import ReprMixin, cache_key, cached_method, fingerprint, relative_paths

Key = bytes | str
T = TypeVar("T")

_FINGERPRINT_VALUES, _FINGERPRINT_BYTES = 1000, 16 << 20


class Lmdb(ReprMixin):
    """The values of an LMDB environment. Needs `pip install ".[lmdb]"`.

    The environment is opened read-only, without locks and read-ahead: no process may write to it meanwhile. LMDB keeps
    no checksums, so only the decoder can notice damage to an image. LMDB maps the file into memory and trusts its
    pages: some damage ends the process with SIGBUS, SIGSEGV or a failed assertion, which no exception handler sees.
    Check untrusted environments before training: `cuaug check PATH` reads them in another process and names the samples
    that end it.

    Args:
        path: the environment's folder, or its single file.
        keys: keys of the samples, bytes or strings (UTF-8); None: all keys, in LMDB's order. Name them if the
            environment holds other values as well.
        labels: one per key, in the keys' order, or a mapping from all keys; None: a sample's label is its index.
        decode: function (key, value) -> (image, label) with bytes arguments, for values that hold more than an encoded
            image. The image is anything that `Source.read` may return. A ValueError damages one sample. The function
            must pickle if the source is to pickle.

    Raises:
        LoaderError: the environment is missing, damaged or truncated, has no key, or `labels` do not fit the keys.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keys: Iterable[Key] | None = None,
        labels: Iterable[Any] | Mapping[Any, Any] | None = None,
        decode: Callable[[bytes, bytes], tuple[Any, Any]] | None = None,
    ) -> None:
        self._path = os.fspath(path)
        self._decode = decode
        self._environment = _open_environment(self._path)
        self.keys = self._all_keys() if keys is None else list(map(_to_bytes, keys))
        if not self.keys:
            raise ArgumentError(f"keys is empty, or {self._path!r} has none: there is nothing to load")
        if decode is not None and labels is not None:
            raise ArgumentError("labels and decode exclude each other: decode returns the labels")
        self._labels = self._match_labels(labels) if labels is not None else range(len(self.keys))

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, index: int) -> tuple[Any, Any]:
        """Returns (value, label), or the result of `decode`.

        Raises:
            DecodeError: the key is missing, its page is damaged, or `decode` refuses the value.
        """
        key = self.keys[index]
        value = self._get(key, bytes)
        if value is None:
            raise DecodeError("there is no such key")
        if self._decode is None:
            return value, self._labels[index]
        try:
            return self._decode(key, value)
        except DecodeError:
            raise
        except ValueError as error:
            raise DecodeError(f"decode refuses the value: {error}") from error

    def encoded_size(self, index: int) -> int:
        """Bytes of the sample's value, without copying it; 0 if the key is missing.

        Raises:
            DecodeError: its page is damaged.
        """
        return self._get(self.keys[index], len) or 0

    def label(self, index: int) -> Any:
        """The label alone, as `read` returns it."""
        return self._labels[index] if self._decode is None else self.read(index)[1]

    def path(self, index: int) -> str:
        """environment[key], with a binary key in hexadecimal."""
        return f"{self._path}[{_name(self.keys[index])}]"

    @cached_method
    def fingerprint(self) -> str:
        """Digest of the keys and labels; with `decode`, of the first 16 MiB of up to 1,000 values instead of labels."""
        keys = self.keys[:: -(-len(self.keys) // _FINGERPRINT_VALUES)] if self._decode is not None else []
        values = map(self._value_or_none, keys)
        return fingerprint("lmdb", relative_paths([self._path]), self.keys, self._labels, values)

    def cache_key(self) -> str:
        """The file's folder, and a digest of its modification time."""
        return cache_key([_data_file(self._path)])

    def _get(self, key: bytes, use: Callable[[memoryview], T]) -> T | None:
        """Calls `use` on a value in LMDB's memory; None if the key is missing."""
        try:
            with self._open().begin(buffers=True) as transaction:
                value = transaction.get(key)
                return None if value is None else use(value)
        except (require_module("lmdb", "lmdb").Error, MemoryError) as error:
            raise DecodeError(f"LMDB cannot read it: {error or type(error).__name__}") from error

    def _value_or_none(self, key: bytes) -> bytes | None:
        try:
            return self._get(key, lambda value: bytes(value[:_FINGERPRINT_BYTES]))
        except DecodeError:  # `read` reports it; the fingerprint goes on
            return None

    def _all_keys(self) -> list[bytes]:
        environment, size = self._open(), os.path.getsize(_data_file(self._path))
        try:
            count = environment.stat()["entries"]
            with environment.begin() as transaction, transaction.cursor() as cursor:
                # A damaged tree may hold or claim any number of keys.
                keys = list(itertools.islice(cursor.iternext(values=False), min(count, size) + 1))
        except require_module("lmdb", "lmdb").Error as error:
            raise SourceError(f"the LMDB environment {self._path!r} is damaged: {error}") from error
        if len(keys) != count:
            raise SourceError(
                f"the LMDB environment {self._path!r} is damaged: its header claims {count} keys, its pages hold others"
            )
        return keys

    def _match_labels(self, labels: Iterable[Any] | Mapping[Any, Any]) -> Sequence[Any]:
        """Returns one label per key, in the keys' order."""
        if not isinstance(labels, Mapping):
            labels = to_label_sequence(labels)
            if len(labels) != len(self.keys):
                raise ArgumentError(f"labels has {len(labels)} entries for {len(self.keys)} keys of {self._path!r}")
            return labels
        label_by_key = {_to_bytes(key): label for key, label in labels.items()}
        missing = [key for key in self.keys if key not in label_by_key]
        if missing:
            raise ArgumentError(
                f"labels lack {len(missing)} of the {len(self.keys)} keys of {self._path!r}; the first is "
                f"{_name(missing[0])!r}"
            )
        return [label_by_key[key] for key in self.keys]

    def _open(self) -> Any:
        if self._environment is None:
            self._environment = _open_environment(self._path)
        return self._environment

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_environment": None}


def _to_bytes(key: Key) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):
        return key
    raise ArgumentError(f"keys must be bytes or strings, not {key!r:.100}")


def _name(key: bytes) -> str:
    try:
        name = key.decode()
    except UnicodeDecodeError:
        return key.hex()
    return name if name.isprintable() else key.hex()


# --- environments ----------------------------------------------------------------------------------------------------
#
# LMDB allows one open environment per file and process, so sources share it. A forked child keeps using the inherited
# one: without locks it is a plain read-only memory map. The child must not close it either, since lmdb may wait there
# for the parent's readers, which the child lacks.

_lock = fork_safe_lock()
_environments: dict[tuple[int, int], weakref.ref[Any]] = {}  # by (device, inode)
_inherited: list[Any] = []
renew_after_fork(lambda: _inherited.extend(reference() for reference in _environments.values()))


def _data_file(path: str) -> str:
    return os.path.join(path, "data.mdb") if os.path.isdir(path) else path


def _open_environment(path: str) -> Any:
    """Opens the environment at a path.

    Raises:
        LoaderError: the environment is missing or damaged.
    """
    lmdb = require_module("lmdb", "lmdb")
    file = _data_file(path)
    try:
        os.close(open_regular(file, os.O_RDONLY))  # LMDB would wait at a pipe
        status = os.stat(file)
        identity = status.st_dev, status.st_ino
        with _lock:
            environment = _environments[identity]() if identity in _environments else None
            if environment is None:
                environment = lmdb.open(
                    path, subdir=file != path, readonly=True, lock=False, readahead=False, max_spare_txns=64
                )
                _environments[identity] = weakref.ref(environment)
        pages, page_size = environment.info()["last_pgno"] + 1, environment.stat()["psize"]
    except OSError as error:
        raise SourceError(f"{path!r} is no LMDB environment: {error.strerror}: {file!r}") from error
    except lmdb.Error as error:
        raise SourceError(f"cannot open the LMDB environment {path!r}: {error}") from error
    if status.st_size < pages * page_size:  # reading beyond the end of a memory map ends the process
        raise SourceError(
            f"{path!r} is truncated: its {pages} pages take {pages * page_size} bytes, {file!r} has {status.st_size}"
        )
    return environment
