"""`BackgroundProcess`: a program that compiles while training goes on. What it made is kept on disk.

Processes that start together may all compile. Each writes its own file and renames it into place, so a reader never
sees a partial one. A file ends with its digest; a damaged one is made again. Code that other users may have written is
not loaded (cuaug/_runtime/disk.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import tempfile

from cuaug._runtime.disk import UntrustedError, cache_directory, warn_once
from cuaug.errors import DeviceError

__all__ = ["BackgroundProcess", "read_code", "write_code"]

_DIGEST_BYTES = hashlib.sha256().digest_size


class BackgroundProcess:
    """A process of this interpreter that runs a script. It reads and writes files: a full pipe would stop it.

    Args:
        script: path of the script, which imports nothing of cuaug.
        request: its standard input.

    Raises:
        OSError: the process does not start.
    """

    def __init__(self, script: str, request: bytes) -> None:
        self._output, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        with tempfile.TemporaryFile() as file:
            file.write(request)
            file.seek(0)
            command = [sys.executable or "", "-I", script]  # without one, an OSError
            # A session of its own: Ctrl-C is meant for the training.
            self._process = subprocess.Popen(
                command, stdin=file, stdout=self._output, stderr=self._errors, start_new_session=True
            )

    def poll(self) -> bytes | None:
        """The standard output, once; None while the process runs.

        Raises:
            DeviceError: the process failed.
        """
        status = self._process.poll()
        if status is None:
            return None
        with self._output, self._errors:
            self._output.seek(0)
            self._errors.seek(0)
            if status:
                errors = self._errors.read().decode(errors="replace").strip()
                raise DeviceError(f"the compiling process ended with status {status}: {errors[-2000:]}")
            return self._output.read()

    def wait(self) -> None:
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def read_code(name: str, max_bytes: int, warning: str) -> bytes | None:
    """Compiled code from CUAUG_CACHE_DIR or the user's cache directory; None if it is not there, or damaged.

    Args:
        warning: logged once where others may have written it.
    """
    try:
        with cache_directory(make=False) as directory:
            kept = directory.read(name, limit=max_bytes)
        code, digest = kept[:-_DIGEST_BYTES], kept[-_DIGEST_BYTES:]
        return code if hashlib.sha256(code).digest() == digest else None
    except UntrustedError as error:  # nothing else would reveal foreign machine code
        warn_once(error, warning)
    except OSError:  # usually: no such file
        pass
    return None


def write_code(name: str, code: bytes) -> None:
    """Keeps code for `read_code`."""
    with (  # without a writable, trusted disk every process compiles
        contextlib.suppress(OSError),
        cache_directory(make=True) as directory,
        directory.atomic_write(name, mode=0o644) as file,
    ):
        file.write(code + hashlib.sha256(code).digest())
