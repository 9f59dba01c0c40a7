"""How many threads share the images of a batch that is in hand."""

from __future__ import annotations

import torch

__all__ = ["threads_for"]

# A thread takes some 100 us to begin and to end; to read and write this much memory takes more.
_BYTES_EACH = 1 << 21


def threads_for(size: int) -> int:
    """As many as torch's own operators take, so one in a DataLoader's worker; fewer for little work.

    Args:
        size: of the memory that is read and written, in bytes.
    """
    return max(1, min(torch.get_num_threads(), size // _BYTES_EACH))
