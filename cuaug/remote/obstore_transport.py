"""S3, Google Cloud Storage and Azure through obstore, which reads without the GIL.

One request costs 0.15 ms of CPU time. Each response shows the object's version, so no further request is needed.
"""

from __future__ import annotations

import ctypes
import datetime
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cuaug._runtime.extras import require_module
from cuaug._runtime.fork import fork_safe_lock, renew_after_fork
from cuaug.errors import ArgumentError
from cuaug.remote.transport import BUSY, NO_RANGES, ChangedObjectError, RemoteObject, TransientError

T = TypeVar("T")

_STATUS = re.compile(r"status code: (\d{3})")
# Of S3, for a bucket in another region.
_LOST = "redirect without LOCATION"
# botocore renews credentials that expire; obstore asks again after this time.
_CREDENTIALS_FOR = datetime.timedelta(minutes=5)

# The process in which obstore has threads. They do not come along into a forked child.
_used_in: int | None = None


class ObstoreTransport:
    """Reads through obstore.

    Args:
        options: obstore's options of the store.
        timeout_seconds: limit of one request.
    """

    def __init__(self, options: Mapping[str, Any], timeout_seconds: float) -> None:
        self._options, self._timeout_seconds = options, timeout_seconds
        self._stores: dict[tuple[str, str], Any] = {}  # by protocol and bucket
        self._lock = fork_safe_lock()
        renew_after_fork(self._keep)

    def _keep(self) -> None:
        """Keeps the parent's stores for ever: freeing one may wait for a thread that the child does not have."""
        for store in self._stores.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))

    def head(self, url: str) -> RemoteObject:
        store, path = self._open(url)
        return _describe(url, _call(url, lambda: _obstore().head(store, path)))

    def get(self, remote: RemoteObject, offset: int, size: int) -> memoryview:
        url = remote.url
        options: dict[str, Any] = {"range": (offset, offset + size)}
        if remote.version.startswith('"'):  # no If-Match names a weak ETag
            options["if_match"] = remote.version
        found, data = self._get(url, size + 1, options)
        if found != remote:
            raise ChangedObjectError(url)
        if len(data) > size:
            raise OSError(f"{url!r}: {NO_RANGES}")
        if len(data) != size:
            raise TransientError(f"{url!r}: {len(data)} bytes came of {size} from byte {offset} on")
        return data

    def fetch(self, url: str, limit: int) -> memoryview:
        found, data = self._get(url, limit, {})
        if len(data) < min(limit, found.size):
            raise TransientError(f"{url!r}: {len(data)} bytes came of {found.size}")
        return data[:limit]

    def list_below(self, folder: str) -> list[str]:
        store, prefix = self._open(folder)
        root = "/".join(folder.split("/", 3)[:3])
        pieces = _call(folder, lambda: list(_obstore().list(store, prefix.rstrip("/") or None)))
        return [f"{root}/{entry['path']}" for piece in pieces for entry in piece]

    def _get(self, url: str, limit: int, options: Mapping[str, Any]) -> tuple[RemoteObject, memoryview]:
        """One request; at least `limit` bytes, if so many come, and at most a piece of the network more."""
        store, path = self._open(url)
        result = _call(url, lambda: _obstore().get(store, path, options=options))
        # A chunk is smaller than that only at the end; of a longer body no more than a chunk is read.
        chunks = iter(result.stream(min_chunk_size=limit))
        return _describe(url, result.meta), memoryview(_call(url, lambda: next(chunks, b"")))

    def _open(self, url: str) -> tuple[Any, str]:
        """The store of a bucket, and the object's path in it.

        Raises:
            OSError: this process was forked from one that has used obstore.
            ArgumentError: obstore knows no such option.
        """
        global _used_in
        protocol, _, rest = url.partition("://")
        bucket, _, path = rest.partition("/")
        with self._lock:
            if _used_in not in (None, os.getpid()):
                raise OSError(
                    f"cannot read {url!r} in a forked process: obstore's threads are its parent's. Start processes by "
                    "multiprocessing's 'spawn' or 'forkserver', such as DataLoader(multiprocessing_context='spawn')"
                )
            _used_in = os.getpid()
            if (protocol, bucket) not in self._stores:
                self._stores[protocol, bucket] = self._make_store(protocol, bucket)
            return self._stores[protocol, bucket], path

    def _make_store(self, protocol: str, bucket: str) -> Any:
        stores, limit = require_module("obstore.store", "remote"), datetime.timedelta(seconds=self._timeout_seconds)
        make = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[protocol]
        client = {"timeout": limit, "connect_timeout": limit, "allow_http": True}
        options = {
            **(_s3_credentials(self._options) if protocol == "s3" else {}),
            **self._options,
            # We repeat requests ourselves: see object_store.py.
            "retry_config": {"max_retries": 0, "retry_timeout": datetime.timedelta(0)},
            "client_options": {**client, **self._options.get("client_options", {})},
        }
        try:
            return make(bucket, **options)
        except (_obstore().exceptions.BaseError, TypeError, ValueError) as error:
            raise ArgumentError(
                f"storage_options of {protocol}://{bucket}: {_first_line(error)} Its options are those of obstore's "
                f"{make.__name__}; {', '.join(map(repr, self._options)) or 'none'} were given: docs/remote_shards.md"
            ) from error


def _obstore() -> Any:
    require_module("obstore.exceptions", "remote")
    return require_module("obstore", "remote")


def _s3_credentials(options: Mapping[str, Any]) -> dict[str, Any]:
    """Credentials and region of botocore's configuration files, which obstore does not read, if botocore is there."""
    try:
        import botocore.session
    except ImportError:
        return {}
    session = botocore.session.get_session()
    region = options.get("region") or session.get_config_variable("region")
    found: dict[str, Any] = {} if region is None or "region" in options else {"region": region}
    own = {"skip_signature", "access_key_id", "credential_provider"} & options.keys()
    credentials = None if own else session.get_credentials()
    if credentials is None:
        return found

    def current() -> dict[str, Any]:
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.datetime.now(datetime.timezone.utc) + _CREDENTIALS_FOR,
        }

    return {**found, "credential_provider": current}


def _describe(url: str, meta: Any) -> RemoteObject:
    modified = meta["last_modified"]
    stamp = modified.isoformat() if modified.timestamp() else ""
    return RemoteObject(url, meta["size"], meta["e_tag"] or stamp)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _call(url: str, function: Callable[[], T]) -> T:
    """Calls a function of obstore.

    Raises:
        ChangedObjectError, TransientError, OSError: as transport.py says.
    """
    exceptions = _obstore().exceptions
    try:
        return function()
    except exceptions.PreconditionError as error:
        raise ChangedObjectError(url) from error
    except exceptions.NotSupportedError as error:
        raise OSError(f"{url!r}: {NO_RANGES}") from error
    except (exceptions.BaseError, OSError, ValueError) as error:
        first = _first_line(error)
        status = int(match[1]) if (match := _STATUS.search(first)) else 0
        is_final = not isinstance(error, exceptions.GenericError) or _LOST in first
        kind = OSError if is_final or (300 <= status < 500 and status not in BUSY) else TransientError
        raise kind(f"cannot read {url!r}: {first}") from error
