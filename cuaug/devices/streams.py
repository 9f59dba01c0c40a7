"""CUDA streams that no other code in the process uses.

`torch.cuda.Stream()` hands out one of 32 streams in turn. The 33rd request, be it for a training step's side stream or
for a graph capture, may get the stream that a loader decodes on.
"""

from __future__ import annotations

import weakref

import torch

__all__ = ["acquire"]

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
    stream = torch.cuda.ExternalStream(handle, device=device)
    weakref.finalize(stream, unused.append, handle).atexit = False
    return stream


def _create(device_id: int) -> int:
    from cupy.cuda import Device, runtime

    with Device(device_id):
        return int(runtime.streamCreateWithFlags(runtime.streamNonBlocking))
