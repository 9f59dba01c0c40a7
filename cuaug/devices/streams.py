"""CUDA streams that no other code in the process uses.

`torch.cuda.Stream()` hands out one of 32 streams in turn. The 33rd request, be it for a training step's side stream or
for a graph capture, may get the stream that a loader decodes on.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch

__all__ = ["LaunchStream", "acquire"]


class LaunchStream(NamedTuple):
    """A stream as CuPy's launcher reads it."""

    ptr: int


# By device index. Streams are never destroyed: torch's allocator keeps memory by the stream that used it.
_unused: dict[int, list[int]] = {}


def acquire(device: torch.device) -> torch.cuda.ExternalStream:
    """A stream for the caller alone while it holds the object.

    A later caller gets the stream behind its queued work. It waits for no other stream, not even the default one. Its
    priority is 0, the lowest, as is the default stream's: a stream cannot rank below that. Training goes first on a
    stream of priority -1 (docs/cuda.md).
    """
    assert device.index is not None
    unused = _unused.setdefault(device.index, [])
    try:
        handle = unused.pop()
    except IndexError:
        handle = _create(device.index)
    stream: Any = torch.cuda.ExternalStream(handle, device=device)
    # No weak reference to the stream itself: torch 2.11 frees streams without clearing those, and the interpreter then
    # crashes at its exit.
    stream.lease = _Lease()
    weakref.finalize(stream.lease, unused.append, handle).atexit = False
    return stream


class _Lease:
    """Lives as long as the stream that holds it."""


def _create(device_id: int) -> int:
    from cupy.cuda import Device, runtime

    with Device(device_id):
        return int(runtime.streamCreateWithFlags(runtime.streamNonBlocking))
