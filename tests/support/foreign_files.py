"""Makes files that belong to another user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NOBODY = 65_534


def chown_to_nobody(path: str | Path) -> None:
    """Gives a file, directory or symbolic link to user `nobody`. Skips the test unless root runs it."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
