"""The choice of a loader's device."""

from __future__ import annotations

import logging
import os

import torch

from cuaug._runtime.ranks import own_gpu
from cuaug.codec import gpu_decodes
from cuaug.errors import ArgumentError, DeviceError

__all__ = ["resolve_device", "resolve_labels_device"]

log = logging.getLogger("cuaug")


def resolve_device(device: str | torch.device | None) -> torch.device:
    """The device to use; None: the device in CUAUG_DEVICE, else CUDA if it works.

    Raises:
        DeviceError: not a device, or the requested CUDA device does not work; the message has the reason.
    """
    name = "device"
    if device is None and (device := os.environ.get("CUAUG_DEVICE") or None):
        name = "the environment variable CUAUG_DEVICE"
    refusal = f"{name} is 'cpu', 'cuda' or 'cuda:<number>', not {device!r}"
    try:
        chosen = torch.device("cuda" if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise DeviceError(refusal) from error
    if chosen.type == "cpu" or (device is None and not torch.cuda.is_available()):
        return torch.device("cpu")
    if chosen.type != "cuda":
        raise DeviceError(refusal)
    from cuaug.devices import cuda

    if chosen.index is None and torch.cuda.is_available() and not cuda.fork_error():
        chosen = torch.device("cuda", own_gpu())  # before any trial, which would leave a context on another GPU
    reason = cuda.availability_error(chosen)
    if not reason:
        works, reason = gpu_decodes(chosen.index)
        if works:
            return chosen
    if device is None:
        log.warning("using the CPU, although torch sees a GPU: %s (run `python -m cuaug doctor`)", reason)
        return torch.device("cpu")
    remedy = "device=None takes the CPU where CUDA does not work"
    raise DeviceError(f"cannot use {device}: {reason}; {remedy} (run `python -m cuaug doctor`)")


def resolve_labels_device(labels_device: str | torch.device | None, device: torch.device) -> torch.device:
    """The device of a loader's labels: the loader's `device`, or the CPU.

    Raises:
        ArgumentError: it is neither.
    """
    cpu = torch.device("cpu")
    for allowed in (device, torch.device(device.type), cpu):
        if labels_device in (None, allowed, str(allowed)):
            return cpu if allowed == cpu else device
    raise ArgumentError(
        f"labels_device must be None, which is the loader's device ({device}), or 'cpu', not {labels_device!r}"
    )
