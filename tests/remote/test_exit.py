"""A process that reads ahead ends promptly, with its own exit code."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.remote.servers import FAULTS
from tests.remote.test_shards import shards, uploaded

__all__ = ["shards", "uploaded"]

PROGRAM = """
import sys, cuaug, cuaug.transforms as T
from cuaug.sources import RemoteOptions, TarShards
options = {"key": "a", "secret": "b", "endpoint_url": sys.argv[2]}
source = TarShards(sys.argv[1], remote=RemoteOptions(storage_options=options, readahead_bytes=40_000))
loader = cuaug.Loader(source, T.Resize((8, 8)), batch_size=8, device="cpu", threads=2, shuffle=True)
batches = iter(loader)
next(batches)
print("read", flush=True)
if sys.argv[3] == "error":
    raise KeyError("mine")
if sys.argv[3] == "interrupt":
    for batch in batches:
        import os, signal
        os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("end", "code"), [("exit", 0), ("error", 1), ("interrupt", -2)])
def test_a_process_ends_while_requests_are_under_way(s3, uploaded, end, code):
    s3.faults.latency, s3.faults.share, s3.faults.kinds = 0.05, 0.05, FAULTS
    command = [sys.executable, "-c", PROGRAM, uploaded, s3.endpoint, end]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "read\n"
    begin = time.monotonic()
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - begin < 5, errors
    assert process.returncode == code, errors
    assert {"exit": "", "error": "KeyError: 'mine'", "interrupt": "KeyboardInterrupt"}[end] in errors
    assert "panicked" not in errors and "Fatal" not in errors
