"""The number of threads that share the images of a batch outside a loader."""

from __future__ import annotations

import threading

import torch

__all__ = ["disable_intraop_threads", "threads_for"]

_thread = threading.local()

# Starting and ending a thread takes about 100 us; reading and writing this much memory takes longer.
_BYTES_PER_THREAD = 1 << 21


def disable_intraop_threads() -> None:
    """Makes `threads_for` return 1 on the calling thread: a loader's thread pool uses the cores already."""
    _thread.single = True


def threads_for(size: int) -> int:
    """Threads for reading and writing `size` bytes: torch's number, fewer for little work.

    It is 1 in a DataLoader's worker, whose torch has one thread, and in a loader's thread.
    """
    return 1 if hasattr(_thread, "single") else max(1, min(torch.get_num_threads(), size // _BYTES_PER_THREAD))
