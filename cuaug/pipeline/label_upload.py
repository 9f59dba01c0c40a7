"""Uploads the tensors in a batch's labels, by one asynchronous copy from pinned memory."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["upload_labels"]

_ALIGN = 64  # bytes; any dtype, and vectorized kernels


def upload_labels(labels: Any, device: torch.device) -> tuple[Any, torch.Tensor | None]:
    """The labels with their dense CPU tensors on a device; all else stays as it is.

    The copy is queued on the current stream. torch reuses the pinned memory only after it.

    Returns:
        The labels, and the device memory that their tensors share; None if there are none.
    """
    leaves, spec = tree_flatten(labels)
    rows = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and _is_dense_on_cpu(leaf)]
    if not rows:
        return labels, None
    *starts, size = itertools.accumulate((-(-leaves[i].nbytes // _ALIGN) * _ALIGN for i in rows), initial=0)
    pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    for i, start in zip(rows, starts, strict=True):
        _like(leaves[i], pinned, start).copy_(leaves[i].detach().as_subclass(torch.Tensor))
    memory = pinned.to(device, non_blocking=True)
    for i, start in zip(rows, starts, strict=True):
        given, uploaded = leaves[i], _like(leaves[i], memory, start)
        if type(given) is not torch.Tensor:  # a tv_tensor has attributes of its own
            uploaded = uploaded.as_subclass(type(given))
            vars(uploaded).update(vars(given))
        leaves[i] = uploaded
    return tree_unflatten(leaves, spec), memory


def _is_dense_on_cpu(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout == torch.strided and not tensor.is_quantized


def _like(tensor: torch.Tensor, memory: torch.Tensor, start: int) -> torch.Tensor:
    """The memory from a byte on, with a tensor's dtype and shape."""
    return memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
