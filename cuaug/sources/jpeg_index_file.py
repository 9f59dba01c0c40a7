"""The file of a source's JPEG index: where it lies, and opening it.

It lies in the deepest folder that holds all of the source's files, as `.jpegs.cuaug-index`. If this user cannot write
there and there is none, it lies in CUAUG_CACHE_DIR or the user's cache directory, as does the index of URLs. The file
must be trusted (_runtime/disk.py), since its entries decide pixels.
"""

from __future__ import annotations

import hashlib
import logging
import os
from functools import partial
from typing import Any

from cuaug._runtime.cpus import own_memory
from cuaug._runtime.disk import Directory, UntrustedError, cache_directory, warn_once
from cuaug.codec.jpeg_index import IndexFile, memory_file
from cuaug.remote.urls import is_url
from cuaug.sources.shards.shard_index import SUFFIX
from cuaug.sources.source import common_folder, optional_method

log = logging.getLogger("cuaug")

#: Name of the index in the source's folder. Hidden, so that patterns such as photos/* do not match it.
JPEG_INDEX_NAME = f".jpegs{SUFFIX}"

_PATHS_CHECKED = 1000
# An index takes at most this part of the memory, so that it stays in the page cache, and of the disk's space.
_MEMORY_DIVISOR, _DISK_DIVISOR = 64, 10


def open_index_file(source: Any) -> IndexFile:
    """Opens the file of a source's JPEG index; makes it if missing.

    The index is in memory, and ends with the process, if the source has no `path(i)` or no place can be written.
    """
    folder = index_folder(source)
    in_memory = partial(memory_file, own_memory() // _MEMORY_DIVISOR)
    if folder is None:
        return in_memory()
    file = None if is_url(folder) else _open_beside(folder)
    file = file or _open_in_cache(folder)
    if file is None:
        return in_memory()
    log.info("the JPEG index of %s is %s", folder, file.path)
    disk = os.fstatvfs(file.fd)
    space = disk.f_bavail * disk.f_frsize + os.fstat(file.fd).st_size
    return file._replace(limit_bytes=min(_total_memory() // _MEMORY_DIVISOR, space // _DISK_DIVISOR))


def _total_memory() -> int:
    """The machine's memory. The available memory changes, and ranks that differ in the limit would fill the index."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def index_folder(source: Any) -> str | None:
    """The deepest folder of the samples, by up to 1,000 of their paths; None: they have none."""
    path = optional_method(source, "path")
    if path is None:
        return None
    count = len(source)
    folder = common_folder([path(i) for i in {*range(0, count, -(-count // _PATHS_CHECKED)), count - 1}])
    if is_url(folder):
        return folder
    while folder and not os.path.isdir(folder):  # of members in a tar
        folder = folder[: folder.rstrip("/").rfind("/") + 1]
    folder = os.path.realpath(folder) if folder else ""
    return folder if folder not in ("", "/") else None


def _open_beside(folder: str) -> IndexFile | None:
    path = os.path.join(folder, JPEG_INDEX_NAME)
    try:
        with Directory(folder, trusted=False) as directory:
            # The folder's owner could as well replace the images.
            owners = (os.fstat(directory.fd).st_uid,)
            try:
                return _open(directory, JPEG_INDEX_NAME, os.O_RDWR | os.O_CREAT, owners, path)
            except UntrustedError:
                raise
            except OSError:  # a read-only mount, or a folder of another user
                pass
            return _open(directory, JPEG_INDEX_NAME, os.O_RDONLY, owners, path)
    except UntrustedError as error:
        warn_once(error, "this JPEG index is ignored")
    except OSError:  # mostly: no such file
        pass
    return None


def _open_in_cache(folder: str) -> IndexFile | None:
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:32] + JPEG_INDEX_NAME
    try:
        with cache_directory("indexes", make=True) as directory:
            return _open(directory, name, os.O_RDWR | os.O_CREAT, (), os.path.join(directory.path, name))
    except UntrustedError as error:
        warn_once(error, "the JPEG index is not kept")
    except OSError as error:
        log.warning("cannot keep the JPEG index of %s; each run makes it again: %s", folder, error)
    return None


def _open(directory: Directory, name: str, flags: int, owners: tuple[int, ...], path: str) -> IndexFile:
    return IndexFile(directory.open(name, flags, owners=owners), flags != os.O_RDONLY, path)
