"""An LMDB environment whose values are images."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from cuaug._runtime.fork import fork_safe_lock, renew_after_fork
from cuaug.errors import DecodeError, LoaderError
from cuaug.sources._bytes import open_regular
from cuaug.sources._extras import need
from cuaug.sources._fingerprint import cache_key, fingerprint, once, relative
from cuaug.sources._labels import by_place
from cuaug.sources._repr import ReprMixin

__all__ = ["Lmdb"]

Key = bytes | str
T = TypeVar("T")

_LOOKED_AT = 1000


class Lmdb(ReprMixin):
    """The values of an LMDB environment. Needs `pip install "cuaug[lmdb]"`.

    It is opened read-only, without locks and without read-ahead: nobody may write to it meanwhile. LMDB keeps no
    checksums: damage to an image is the decoder's to find. LMDB maps the file into memory and trusts its pages: some
    damage to them ends the process with SIGBUS, SIGSEGV or a failed assertion, which no exception handler sees. Check
    environments from strangers before training: `cuaug check PATH` reads them in another process, and names the samples
    that end it.

    Args:
        path: the folder of the environment, or its single file.
        keys: of the samples, bytes or strings (UTF-8); None: all keys, in LMDB's order. Name them where the environment
            holds other things as well.
        labels: one per key, in the keys' order, or a mapping of all keys; None: a sample's label is its index.
        decode: (key, value) -> (image, label), both bytes, for values that are more than an encoded image; the image
            is what a source's may be. The labels are then its own. A ValueError that it raises is that sample's fault.
            It must pickle if the source is to.

    Raises:
        LoaderError: no environment, one that is damaged or cut short, no key, or labels that do not fit the keys.
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
        self._environment = _environment(self._path)
        self.keys = self._all_keys() if keys is None else list(map(_encoded, keys))
        if not self.keys:
            raise LoaderError(f"there is nothing to load: {self._path!r} has no keys, or none was named")
        if decode is not None and labels is not None:
            raise LoaderError("decode gives the labels: leave out either decode or labels")
        self._labels = self._in_order(labels) if labels is not None else range(len(self.keys))

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, index: int) -> tuple[Any, Any]:
        """(value, label), or what `decode` makes of the value.

        Raises:
            DecodeError: there is no such key, its page is damaged, or `decode` does not accept the value.
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
            raise DecodeError(f"decode does not accept the value: {error}") from error

    def encoded_size(self, index: int) -> int:
        """Bytes of the sample's value, which is not copied; 0 if there is no such key.

        Raises:
            DecodeError: its page is damaged.
        """
        return self._get(self.keys[index], len) or 0

    def label(self, index: int) -> Any:
        """The label alone, as `read` gives it."""
        return self._labels[index] if self._decode is None else self.read(index)[1]

    def path(self, index: int) -> str:
        """environment[key], the key in hexadecimal digits where it is no text."""
        return f"{self._path}[{_name(self.keys[index])}]"

    @once
    def fingerprint(self) -> str:
        """A digest of the keys and labels; where `decode` gives these, of up to 1,000 values throughout the keys."""
        some = self.keys[:: -(-len(self.keys) // _LOOKED_AT)] if self._decode is not None else []
        return fingerprint("lmdb", relative([self._path]), self.keys, self._labels, map(self._value_or_none, some))

    def cache_key(self) -> str:
        """The file's folder, and a digest of when it was written."""
        return cache_key([_file(self._path)])

    def _get(self, key: bytes, use: Callable[[memoryview], T]) -> T | None:
        """What `use` makes of a value, while it lies in LMDB's memory; None if there is no such key."""
        try:
            with self._opened().begin(buffers=True) as transaction:
                value = transaction.get(key)
                return None if value is None else use(value)
        except (need("lmdb", "lmdb").Error, MemoryError) as error:
            raise DecodeError(f"LMDB cannot read it: {error or type(error).__name__}") from error

    def _value_or_none(self, key: bytes) -> bytes | None:
        try:
            return self._get(key, bytes)
        except DecodeError:  # it costs its sample, and not the fingerprint
            return None

    def _all_keys(self) -> list[bytes]:
        environment, size = self._opened(), os.path.getsize(_file(self._path))
        try:
            count = environment.stat()["entries"]
            with environment.begin() as transaction, transaction.cursor() as cursor:
                # A damaged tree may have any number of keys, and its count, too.
                keys = list(itertools.islice(cursor.iternext(values=False), min(count, size) + 1))
        except need("lmdb", "lmdb").Error as error:
            raise LoaderError(f"the LMDB environment {self._path!r} is damaged: {error}") from error
        if len(keys) != count:
            raise LoaderError(
                f"the LMDB environment {self._path!r} is damaged: its pages do not hold the {count} keys that its "
                "header claims"
            )
        return keys

    def _in_order(self, labels: Iterable[Any] | Mapping[Any, Any]) -> Sequence[Any]:
        """One label per key."""
        if not isinstance(labels, Mapping):
            labels = by_place(labels)
            if len(labels) != len(self.keys):
                raise LoaderError(f"{self._path!r} has {len(self.keys)} keys but {len(labels)} labels")
            return labels
        known = {_encoded(key): label for key, label in labels.items()}
        missing = [key for key in self.keys if key not in known]
        if missing:
            raise LoaderError(
                f"{len(missing)} of the {len(self.keys)} keys of {self._path!r} have no label; the first is "
                f"{_name(missing[0])!r}"
            )
        return [known[key] for key in self.keys]

    def _opened(self) -> Any:
        if self._environment is None:
            self._environment = _environment(self._path)
        return self._environment

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_environment": None}


def _encoded(key: Key) -> bytes:
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):
        return key
    raise LoaderError(f"a key is bytes or a string, not {key!r:.100}")


def _name(key: bytes) -> str:
    try:
        name = key.decode()
    except UnicodeDecodeError:
        return key.hex()
    return name if name.isprintable() else key.hex()


# --- environments ----------------------------------------------------------------------------------------------------
#
# LMDB allows one opening of an environment in a process, so sources of the same one share it. A forked child goes on
# with what it inherited: opened without locks it is only a read-only memory map, of which no thread leaves anything
# behind. The child must not close it either, since lmdb may wait there for readers of the parent that do not exist.

_lock = fork_safe_lock()
_open: dict[tuple[int, int], weakref.ref[Any]] = {}
_inherited: list[Any] = []
renew_after_fork(lambda: _inherited.extend(each() for each in _open.values()))


def _file(path: str) -> str:
    return os.path.join(path, "data.mdb") if os.path.isdir(path) else path


def _environment(path: str) -> Any:
    """The environment at a path, open.

    Raises:
        LoaderError: there is none, or it is damaged.
    """
    lmdb = need("lmdb", "lmdb")
    file = _file(path)
    try:
        os.close(open_regular(file, os.O_RDONLY))  # LMDB would wait at a pipe
        status = os.stat(file)
        identity = status.st_dev, status.st_ino
        with _lock:
            environment = _open[identity]() if identity in _open else None
            if environment is None:
                environment = lmdb.open(
                    path, subdir=file != path, readonly=True, lock=False, readahead=False, max_spare_txns=64
                )
                _open[identity] = weakref.ref(environment)
        pages, page_size = environment.info()["last_pgno"] + 1, environment.stat()["psize"]
    except OSError as error:
        raise LoaderError(f"{path!r} is no LMDB environment: {error.strerror}: {file!r}") from error
    except lmdb.Error as error:
        raise LoaderError(f"cannot open the LMDB environment {path!r}: {error}") from error
    if status.st_size < pages * page_size:  # reading beyond the end of a memory map ends the process
        raise LoaderError(
            f"{path!r} is cut short: its {pages} pages take {pages * page_size} bytes, {file!r} has {status.st_size}"
        )
    return environment
