"""CUDA streams that nobody else gets.

`torch.cuda.Stream()` makes none: it hands out one of 32, in turns. The 33rd that a process asks for, be it for a
training step's side stream or to capture a graph, is one that a loader may be decoding on.
"""

from __future__ import annotations

import weakref

import torch

__all__ = ["take"]

# By the device's number. A stream is never destroyed: torch's allocator keeps memory by the stream that used it.
_unused: dict[int, list[int]] = {}


def take(device: torch.device) -> torch.cuda.ExternalStream:
    """A stream for the caller alone, for as long as it keeps it; then another one's, behind what is still queued on it.

    It waits for no other, not even the default stream. Its priority is 0, the lowest that there is, which is also the
    default stream's: no stream can stand back behind that. Training goes first where it runs on a stream of priority
    -1 (docs/cuda.md).
    """
    assert device.index is not None
    unused = _unused.setdefault(device.index, [])
    try:
        handle = unused.pop()
    except IndexError:
        handle = _made(device.index)
    stream = torch.cuda.ExternalStream(handle, device=device)
    weakref.finalize(stream, unused.append, handle).atexit = False
    return stream


def _made(device_id: int) -> int:
    from cupy.cuda import Device, runtime

    with Device(device_id):
        return int(runtime.streamCreateWithFlags(runtime.streamNonBlocking))
