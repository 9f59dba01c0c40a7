"""Which device a loader runs on."""

from __future__ import annotations

import logging
import os

import torch

from cuaug._runtime.distributed import own_gpu
from cuaug.codec import gpu_decodes
from cuaug.errors import DeviceError

__all__ = ["resolve_device"]

log = logging.getLogger("cuaug")


def resolve_device(device: str | torch.device | None) -> torch.device:
    """The device to use; None: that of CUAUG_DEVICE, or else CUDA where it truly works.

    Raises:
        DeviceError: not a device, or CUDA was asked for and does not work, with the reason.
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
        chosen = torch.device("cuda", own_gpu())  # before anything is tried: on any other GPU it would leave a context
    reason = cuda.availability_error(chosen)
    if not reason:
        works, reason = gpu_decodes(chosen.index)
        if works:
            return chosen
    if device is None:
        log.warning("using the CPU, although torch sees a GPU: %s (`python -m cuaug doctor` tells more)", reason)
        return torch.device("cpu")
    raise DeviceError(f"cannot use {device}: {reason} (`python -m cuaug doctor` tells more)")
