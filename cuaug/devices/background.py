"""`BackgroundProcess`: a program that compiles while training goes on."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from cuaug.errors import DeviceError

__all__ = ["BackgroundProcess"]


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
