"""`BackgroundProcess`: a program that compiles while training goes on. What it made is kept on disk.

Processes that start together may all compile. Each writes its own file and renames it into place, so a reader never
sees a partial one. A file ends with its digest; a damaged one is made again. Code that other users may have written is
not loaded (cuaug/_runtime/disk.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile

from cuaug._runtime.disk import UntrustedError, cache_directory, warn_once
from cuaug.errors import DeviceError

# A process that has not ended so long after it was asked to is killed.
_KILL_SECONDS = 1.0
_DIGEST_BYTES = hashlib.sha256().digest_size


class BackgroundProcess:
    """A process of this interpreter that runs a script, which prints code and its SHA-256 digest.

    It reads and writes files: a full pipe would stop it.

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
        """The code, once; None while the process runs.

        Raises:
            DeviceError: there is no whole code. The exit status does not tell: it is lost where SIGCHLD is ignored.
        """
        status = self._process.poll()
        if status is None:
            return None
        with self._output, self._errors:
            self._output.seek(0)
            self._errors.seek(0)
            code = _verified(self._output.read())
            if code is None:
                errors = self._errors.read().decode(errors="replace").strip()
                raise DeviceError(f"the compiling process made no code (status {status}): {errors[-2000:]}")
            return code

    def wait(self) -> None:
        self._process.wait()

    def kill(self) -> None:
        """Ends the process and what it has started. It may remove its temporary files."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_KILL_SECONDS)


def _verified(kept: bytes) -> bytes | None:
    """The code before its digest; None if it is damaged or empty."""
    code, digest = kept[:-_DIGEST_BYTES], kept[-_DIGEST_BYTES:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def read_code(name: str, max_bytes: int, warning: str) -> bytes | None:
    """Compiled code from CUAUG_CACHE_DIR or the user's cache directory; None if it is not there, or damaged.

    Args:
        warning: logged once where others may have written it.
    """
    try:
        with cache_directory(make=False) as directory:
            return _verified(directory.read(name, limit=max_bytes))
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
