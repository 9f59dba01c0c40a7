"""Files as other users plant them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NOBODY = 65_534


def chown_to_nobody(path: str | Path) -> None:
    """Makes a file, a directory or a symbolic link another user's. Only root can: the test is skipped for others."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
