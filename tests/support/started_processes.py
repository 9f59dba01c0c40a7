"""The processes that a test starts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def started_processes(patch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A list of the processes that `subprocess.Popen` starts from here on; at the end they are killed."""
    processes: list[Any] = []

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            processes.append(self)

    patch.setattr(subprocess, "Popen", Popen)
    yield processes
    for process in processes:
        process.kill()
        process.wait()
