"""`Specializer`: kernels that are compiled for the passes of one chain, in the background.

The kernel that runs everything needs 127 registers per thread, one for RandomResizedCrop, flip and Normalize 80 or
fewer, so more blocks run at once. The signature of a launch (kernels/core/signature.h) is the set of values that its
samples' fields take. A `Specializer` unites the signatures of each pass over the batches. Once the union has not grown
for `STABLE_SAMPLES` samples, a kernel is compiled for it. Until it is ready, and for a launch with other values, the
kernels of `nvrtc.kernels` run.

A process of its own compiles, and `choose` polls it. A thread would not do: with NVRTC 12.9, 6 of 11 interpreters that
exited while a thread compiled crashed.
"""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import sys
import tempfile
from collections import Counter
from typing import Any

import torch

from cuaug._runtime.fork import fork_safe_lock, renew_after_fork
from cuaug._runtime.native import library
from cuaug.devices import nvrtc, nvrtc_program
from cuaug.devices.nvrtc import load_functions
from cuaug.errors import DeviceError

__all__ = ["MAX_COMPILATIONS", "STABLE_SAMPLES", "Specializer", "build_of"]

log = logging.getLogger("cuaug")

#: A pass is compiled once so many samples in a row have brought no new values; and at most so often.
STABLE_SAMPLES = 2048
MAX_COMPILATIONS = 4

# Device index and signature.
_Key = tuple[int, int]


class Specializer:
    """Chooses the kernels for the batches of one chain. For one thread at a time.

    CUAUG_SPECIALIZE=0 turns it off.

    Attributes:
        launches: number of launches by kernel, "specialized" or "full", since the last `take_launches`.
    """

    def __init__(self) -> None:
        self._enabled = os.environ.get("CUAUG_SPECIALIZE") != "0"
        self._passes: dict[tuple[int, int], _Pass] = {}
        self.launches: Counter[str] = Counter()

    def choose(self, device_index: int, number: int, signature: int, samples: int) -> Any | None:
        """A kernel for a launch of pass `number` with this signature, or None: the full kernels run it."""
        function = None
        if self._enabled:
            function = self._passes.setdefault((device_index, number), _Pass(device_index)).choose(signature, samples)
        self.launches["full" if function is None else "specialized"] += 1
        return function

    def take_launches(self) -> Counter[str]:
        """Returns `launches`, and counts from 0 again."""
        launches, self.launches = self.launches, Counter()
        return launches


class _Pass:
    """The signatures of one pass of a chain, and the kernel for them."""

    def __init__(self, device_index: int) -> None:
        self._device_index = device_index
        self._union = 0
        self._unchanged = 0  # samples since the union has grown
        self._requested: list[int] = []
        self._function: Any = None
        self._compiled = 0  # the signature of the function

    def choose(self, signature: int, samples: int) -> Any | None:
        self._unchanged = 0 if signature & ~self._union else self._unchanged + samples
        self._union |= signature
        is_new = self._union not in self._requested
        if is_new and self._unchanged >= STABLE_SAMPLES and len(self._requested) < MAX_COMPILATIONS:
            self._requested.append(self._union)
        if self._requested and self._compiled != self._requested[-1]:
            function = _kernel((self._device_index, self._requested[-1]))
            if function is not None:
                self._function, self._compiled = function, self._requested[-1]
        return None if signature & ~self._compiled else self._function


def build_of(signature: int) -> tuple[str, list[str]]:
    """The program for a signature, whose entry point has its name, and the macros of the build."""
    program = "resample" if library.cuaug_is_resample_signature(signature) else "augment"
    return program, [f"CUAUG_SIGNATURE={signature:#x}ull"]


class _Compilation:
    """A process that compiles a program. It reads and writes files, which `poll` closes: a full pipe would stop it."""

    def __init__(self, key: _Key, request: bytes) -> None:
        self.key = key
        self._code, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        with tempfile.TemporaryFile() as file:
            file.write(request)
            file.seek(0)
            command = [sys.executable or "", "-I", nvrtc_program.__file__]  # without one, an OSError
            # A session of its own: Ctrl-C is meant for the training.
            self._process = subprocess.Popen(
                command, stdin=file, stdout=self._code, stderr=self._errors, start_new_session=True
            )

    def poll(self) -> bytes | None:
        """The code; None while the process compiles.

        Raises:
            DeviceError: the process failed.
        """
        status = self._process.poll()
        if status is None:
            return None
        with self._code, self._errors:
            self._code.seek(0)
            self._errors.seek(0)
            if status:
                errors = self._errors.read().decode(errors="replace").strip()
                raise DeviceError(f"the compiling process ended with status {status}: {errors[-2000:]}")
            return self._code.read()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


# Shared by all specializers. Functions are never dropped: unloading would unload kernels that are still queued.
_functions: dict[_Key, Any] = {}
_code: dict[_Key, bytes] = {}  # compiled, not loaded
_running: _Compilation | None = None  # one at a time
_failed = False
_lock = fork_safe_lock()


def _kernel(key: _Key) -> Any | None:
    """The kernel for a signature on a device; None until it is compiled, in turn with others."""
    global _failed
    with _lock:
        if not _failed:
            try:
                _advance(key)
            except (DeviceError, OSError, RuntimeError) as error:
                _failed = True
                log.warning("no kernels are compiled for chains, so the slower full kernels run: %s", error)
        return _functions.get(key)


def _advance(key: _Key) -> None:
    """Takes the code of a compilation that has ended, starts the compilation for `key`, or loads its code."""
    global _running
    if key in _functions:
        return
    if _running is not None:
        finished, code = _running, _running.poll()
        if code is None:
            return
        _running = None
        _code[finished.key] = code
        nvrtc.write_cached(_architecture(finished.key), *build_of(finished.key[1]), code)
    program, defines = build_of(key[1])
    arch = _architecture(key)
    if key not in _code and (cached := nvrtc.read_cached(arch, program, defines)) is not None:
        _code[key] = cached
    if key in _code:
        (_functions[key],) = load_functions(_code.pop(key), [program], key[0])
        return
    options = nvrtc.options(nvrtc.code_target(arch), defines)
    limits = nvrtc.register_limits(program, defines)
    request = nvrtc_program.make_request(*nvrtc.sources(program), options, limits)
    _running = _Compilation(key, request)


def _architecture(key: _Key) -> str:
    major, minor = torch.cuda.get_device_capability(key[0])
    return f"{major}{minor}"


def _kill_running() -> None:
    """At exit nothing waits for a compilation."""
    if _running is not None:
        _running.kill()


def _renew() -> None:
    """In a forked child: the process belongs to the parent, and the parent's device is out of reach."""
    global _running
    _running = None
    _functions.clear()
    _code.clear()


atexit.register(_kill_running)
renew_after_fork(_renew)
