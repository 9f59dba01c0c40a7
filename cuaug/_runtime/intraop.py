"""How many threads share the images of a batch that is in hand."""

from __future__ import annotations

import threading

import torch

__all__ = ["disable_intraop_threads", "threads_for"]

_this = threading.local()

# A thread takes some 100 us to begin and to end; to read and write this much memory takes more.
_BYTES_EACH = 1 << 21


def disable_intraop_threads() -> None:
    """Marks the calling thread as one of several that share the work already: a loader's."""
    _this.is_one = True


def threads_for(size: int) -> int:
    """As many as torch's own operators take, so one in a DataLoader's worker; one in a loader's thread as well.

    For little work it is fewer.

    Args:
        size: of the memory that is read and written, in bytes.
    """
    return 1 if hasattr(_this, "is_one") else max(1, min(torch.get_num_threads(), size // _BYTES_EACH))
