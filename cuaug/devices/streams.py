"""CUDA streams that nobody else gets.

`torch.cuda.Stream()` makes none: it hands out one of 32, in turns. The 33rd that a process asks for, be it for a
training step's side stream or to capture a graph, is one that a loader may be decoding on.
"""

from __future__ import annotations

import torch

__all__ = ["give_back", "take"]

# By the device's number. A stream is never destroyed: torch's allocator keeps memory by the stream that used it.
_unused: dict[int, list[torch.cuda.ExternalStream]] = {}


def take(device: torch.device) -> torch.cuda.ExternalStream:
    """A stream for the caller alone, until it is given back.

    It waits for no other, not even the default stream. Its priority is 0, the lowest that there is, which is also the
    default stream's: no stream can stand back behind that. Training goes first where it runs on a stream of priority
    -1 (docs/cuda.md).
    """
    assert device.index is not None
    try:
        return _unused.setdefault(device.index, []).pop()
    except IndexError:
        pass
    from cupy.cuda import Device, runtime

    with Device(device.index):
        made = runtime.streamCreateWithFlags(runtime.streamNonBlocking)
    return torch.cuda.ExternalStream(made, device=device)


def give_back(stream: torch.cuda.ExternalStream) -> None:
    """For another caller, whose work comes after what is still queued on it."""
    _unused.setdefault(stream.device.index, []).append(stream)
