"""`Specializer`: kernels that are compiled for the passes of one chain, in the background.

The kernel that runs everything needs 127 registers per thread, one for RandomResizedCrop, flip and Normalize 80 or
fewer, so more blocks run at once. The signature of a launch (kernels/core/signature.h) is the set of values that its
samples' fields take. Pixel functions, which users write, count as values too: they become part of the kernel. A
`Specializer` unites the values of each pass over the batches. Once the union has not grown for `STABLE_SAMPLES`
samples, a kernel is compiled for it. Until it is ready, and for a launch with other values, the kernels of
`nvrtc.kernels` run.

A process of its own compiles, and `choose` polls it. A thread would not do: with NVRTC 12.9, 6 of 11 interpreters that
exited while a thread compiled crashed.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

import torch

from cuaug._runtime.fork import fork_safe_lock, renew_after_fork
from cuaug._runtime.native import library
from cuaug._runtime.threads import call_at_exit
from cuaug.devices import nvrtc, nvrtc_program
from cuaug.devices.background import BackgroundProcess
from cuaug.devices.nvrtc import load_functions
from cuaug.errors import DeviceError
from cuaug.plan.pixel_function import PixelFunction

log = logging.getLogger("cuaug")

#: A pass is compiled once so many samples in a row have brought no new values; and at most so often.
STABLE_SAMPLES = 2048
MAX_COMPILATIONS = 4


class Values(NamedTuple):
    """What a kernel is compiled for.

    Attributes:
        signature: of kernels/core/signature.h.
        functions: the pixel functions that its operations call.
    """

    signature: int = 0
    functions: frozenset[PixelFunction] = frozenset()

    def __or__(self, other: Values) -> Values:
        return Values(self.signature | other.signature, self.functions | other.functions)

    def covers(self, other: Values) -> bool:
        return not other.signature & ~self.signature and other.functions <= self.functions

    def sorted_functions(self) -> list[PixelFunction]:
        return sorted(self.functions, key=lambda function: function.number)


# Device index and values.
_Key = tuple[int, Values]


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

    def choose(
        self,
        device_index: int,
        number: int,
        signature: int,
        samples: int,
        functions: Collection[PixelFunction] = (),
    ) -> Any | None:
        """A kernel for a launch of pass `number` with this signature, or None: the full kernels run it."""
        function = None
        if self._enabled:
            values = Values(signature, frozenset(functions))
            function = self._passes.setdefault((device_index, number), _Pass(device_index)).choose(values, samples)
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
        self._union = Values()
        self._unchanged = 0  # samples since the union has grown
        self._requested: list[Values] = []
        self._function: Any = None
        self._compiled = Values()  # of the function

    def choose(self, values: Values, samples: int) -> Any | None:
        self._unchanged = self._unchanged + samples if self._union.covers(values) else 0
        self._union |= values
        is_new = self._union not in self._requested
        if is_new and self._unchanged >= STABLE_SAMPLES and len(self._requested) < MAX_COMPILATIONS:
            self._requested.append(self._union)
        if self._requested and self._compiled != self._requested[-1]:
            function = _kernel((self._device_index, self._requested[-1]))
            if function is not None:
                self._function, self._compiled = function, self._requested[-1]
        return self._function if self._compiled.covers(values) else None


def build_of(signature: int, functions: Collection[PixelFunction] = ()) -> tuple[str, list[str]]:
    """The program for a signature and pixel functions, whose entry point has its name, and the macros of the build."""
    program = "resample" if library.cuaug_is_resample_signature(signature, True) else "augment"
    return program, [f"CUAUG_SIGNATURE={signature:#x}ull", *["CUAUG_PIXEL_FUNCTIONS"] * bool(functions)]


# Shared by all specializers. Functions are never dropped: unloading would unload kernels that are still queued.
_functions: dict[_Key, Any] = {}
_running: tuple[_Key, BackgroundProcess] | None = None  # one at a time
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
    """Loads the code of a compilation that has ended, or that of `key` from the disk; else starts its compilation."""
    global _running
    if key in _functions:
        return
    if _running is not None:
        finished, process = _running
        code = process.poll()
        if code is None:
            return
        _running = None
        program, defines = build_of(*finished[1])
        (_functions[finished],) = load_functions(code, [program], finished[0])  # first: else it is not kept
        nvrtc.write_cached(_architecture(finished), program, defines, code, finished[1].sorted_functions())
        if key in _functions:
            return
    program, defines = build_of(*key[1])
    functions = key[1].sorted_functions()
    arch = _architecture(key)
    if (cached := nvrtc.read_cached(arch, program, defines, functions)) is not None:
        (_functions[key],) = load_functions(cached, [program], key[0])
        return
    options = nvrtc.options(nvrtc.code_target(arch), defines)
    limits = nvrtc.register_limits(program, defines)
    request = nvrtc_program.make_request(*nvrtc.sources(program, functions), options, limits)
    _running = key, BackgroundProcess(nvrtc_program.__file__, request)


def _architecture(key: _Key) -> str:
    major, minor = torch.cuda.get_device_capability(key[0])
    return f"{major}{minor}"


def _kill_running() -> None:
    """At exit nothing waits for a compilation."""
    if _running is not None:
        _running[1].kill()


def _renew() -> None:
    """In a forked child: the process belongs to the parent, and the parent's device is out of reach."""
    global _running
    _running = None
    _functions.clear()


call_at_exit(_kill_running)
renew_after_fork(_renew)
