"""The digest of a batch: which samples it has, and what was drawn for them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.plan import Trace
from cuaug.plan.trace import Step
from cuaug.sampling import Epoch, state

__all__ = ["batch_digest"]


def batch_digest(
    epoch: Epoch,
    indices: NDArray[np.int64],
    keys: NDArray[np.int64],
    traces: Sequence[tuple[Trace, int]],
    rows: NDArray[np.int64],
    own: int,
    later: Trace,
) -> str:
    """16 hex digits of the seed, the epoch, the samples and the parameters of their transforms.

    It is independent of how the samples were grouped into plans, and of the last digits of parameters, in which
    machines differ.

    Args:
        indices, keys: (n,) of the samples, and of the partners that they are mixed with.
        traces: each sample's trace of the first segment, and the number of samples in it.
        rows: (n,) each sample's row there.
        own: number of samples that are no partners; they come first.
        later: the trace of the later segments, in the samples' order.
    """
    digest = hashlib.blake2b(digest_size=8)
    digest.update(f"{state.VERSION} {epoch.seed % 2**64} {epoch.number}".encode())
    digest.update(np.stack([indices, keys]).astype("<i8").tobytes())
    tables: dict[int, NDArray[np.uint8]] = {}
    for trace, count in traces:
        if id(trace) not in tables:
            tables[id(trace)] = _table(trace, count)
    last = _table(later, own)
    for i, (trace, _) in enumerate(traces):
        digest.update(tables[id(trace)][rows[i]].tobytes())
        digest.update(last[i : i + 1].tobytes())
    names = [step.transform for trace in (traces[0][0] if traces else later, later) for step in trace.steps]
    digest.update(" ".join(names).encode())
    return digest.hexdigest()


def _table(trace: Trace, count: int) -> NDArray[np.uint8]:
    """(count, bytes) the parameters of each sample's steps."""
    columns = [column for step in trace.steps for column in _columns(step, count, trace.frames)]
    return np.concatenate([np.zeros((count, 0), dtype=np.uint8), *columns], axis=1)


def _columns(step: Step, count: int, frames: int) -> list[NDArray[np.uint8]]:
    rows = count * frames * step.views
    acts = np.ones(rows, dtype=bool) if step.where is None else step.where
    arrays = [acts, *(step.params[name] for name in sorted(step.params))]
    return [_bytes(array[:rows], count) for array in arrays]


def _bytes(array: NDArray[Any], count: int) -> NDArray[np.uint8]:
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # half precision: machines differ in a double's last digits
            array = array.astype("<f2") + np.float16(0)
    elif array.dtype.kind in "biu":
        array = array.astype("<i8")
    else:
        array = np.array([hashlib.blake2b(str(value).encode(), digest_size=8).digest() for value in array], dtype="S8")
    width = array.size // count if count else 0  # an empty batch leaves no number to infer it from
    return np.ascontiguousarray(array).reshape(count, width).view(np.uint8)
