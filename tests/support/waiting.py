"""Tests wait for a state, not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], seconds: float = 600.0) -> bool:
    """Whether a condition holds at last. The limit is for a hang, which a busy machine does not reach."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True
