"""A process that reads ahead ends promptly, with its own exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.remote.test_shards import shards, uploaded
from tests.support.remote.servers import FAULTS
from tests.support.waiting import eventually

__all__ = ["shards", "uploaded"]

PROGRAM = """
import signal, sys, cuaug, cuaug.transforms as T
from cuaug.sources import RemoteOptions, TarShards
options = {"access_key_id": "a", "secret_access_key": "b", "endpoint": sys.argv[2], "region": "us-east-1"}
source = TarShards(sys.argv[1], remote=RemoteOptions(storage_options=options, timeout_seconds=600))
print("opened", flush=True)
input()
loader = cuaug.Loader(source, T.Resize((8, 8)), batch_size=8, device="cpu", threads=2)
batches = iter(loader)
next(batches)
print("read", flush=True)
input()
if sys.argv[3] == "error":
    raise KeyError("mine")
if sys.argv[3] == "interrupt":
    signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("end", "code"), [("exit", 0), ("error", 1), ("interrupt", -2)])
def test_a_process_ends_while_requests_are_under_way(s3, uploaded, end, code):
    """The last shard is requested ahead, and never comes."""
    s3.faults.share, s3.faults.kinds = 0.05, FAULTS
    command = [sys.executable, "-c", PROGRAM, uploaded, s3.endpoint, end]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    process = subprocess.Popen(command, env=environment, text=True, **pipes)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "opened\n"
    s3.faults.stuck_path = "train-03"
    print(file=process.stdin, flush=True)
    assert process.stdout.readline() == "read\n"
    assert eventually(lambda: s3.faults.stuck), "a request is under way"
    _, errors = process.communicate("\n", timeout=250)  # the request may take 300 seconds
    assert process.returncode == code, errors
    assert {"exit": "", "error": "KeyError: 'mine'", "interrupt": "KeyboardInterrupt"}[end] in errors
    assert "panicked" not in errors and "Fatal" not in errors
