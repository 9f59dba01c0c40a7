"""What happens when objects are gone, without Python: a Ctrl-C that came in a finaliser would be lost."""

from __future__ import annotations

import gc
import os
import sys
import time
import weakref

import pytest
import torch
from cuaug._runtime.finalizers import libc, when_gone

from cuaug import Loader
from cuaug.cache import DecodedCache
from cuaug.devices import streams
from cuaug.sources import TarShards
from tests.loader.pictures import Memory, png
from tests.sources.writers import write_tar


class Owner:
    """Equal to every other one, and not hashable."""

    def __eq__(self, other):
        return isinstance(other, Owner)


def is_open(file):
    try:
        os.fstat(file)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_what_is_asked_for_happens_once_and_for_each(in_a_cycle):
    owner, other, called = Owner(), Owner(), []
    file = os.open(os.devnull, os.O_RDONLY)
    when_gone(owner, called.append, 1)
    when_gone(owner, libc.close, file)
    when_gone(owner, called.append, 2)
    when_gone(other, called.append, 3)
    owner.myself = owner if in_a_cycle else None
    gc.collect()
    assert not called and is_open(file)
    del owner
    gc.collect()
    assert sorted(gone.number for gone in called) == [1, 2] and not is_open(file)
    del other
    assert [gone.number for gone in called][2:] == [3]


def loader_of_pictures(directory):
    return Loader(Memory(40), batch_size=8, device="cpu")


def loader_of_shards(directory):
    write_tar(directory / "a.tar", [(f"{i}.png", png(i)) for i in range(20)])
    return Loader(TarShards(directory / "a.tar", label=None), batch_size=8, device="cpu")


def loader_with_encoded_cache(directory):
    return Loader(Memory(40), batch_size=8, device="cpu", cache="encoded")


def loader_with_decoded_cache(directory):
    return Loader(Memory(40), batch_size=8, device="cpu", cache="decoded")


def loader_with_a_directory(directory):
    write_tar(directory / "a.tar", [(f"{i}.png", png(i)) for i in range(20)])
    cache = DecodedCache(limit_bytes=1 << 20, directory=directory / "cache")
    return Loader(TarShards(directory / "a.tar", label=None), batch_size=8, device="cpu", cache=cache)


@pytest.mark.parametrize(
    "made",
    [
        loader_of_pictures,
        loader_of_shards,
        loader_with_encoded_cache,
        loader_with_decoded_cache,
        loader_with_a_directory,
    ],
)
def test_nothing_in_python_runs_when_a_loader_is_let_go(tmp_path, made):
    loader = made(tmp_path)
    for _ in range(2):
        list(loader)
    while loader._pipeline.workers.activities():  # a thread that is not quite done with the last batch holds it
        time.sleep(0.001)
    gone, seen = weakref.ref(loader._pipeline), []
    gc.disable()
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_name) if event == "call" else None)
    try:
        del loader
    finally:
        sys.setprofile(None)
        gc.enable()
    assert gone() is None and not seen


def test_streams_that_are_let_go_are_used_again(monkeypatch):
    made = []
    monkeypatch.setattr(streams, "_unused", {})
    monkeypatch.setattr(streams, "_made", lambda device_id: made.append(device_id) or 100 * device_id + len(made))

    class Stream:
        def __init__(self, handle, device):
            self.cuda_stream, self.device = handle, device

    monkeypatch.setattr(torch.cuda, "ExternalStream", Stream)
    devices = [torch.device("cuda", index) for index in (0, 1)]
    first, second, other = streams.take(devices[0]), streams.take(devices[0]), streams.take(devices[1])
    assert [stream.cuda_stream for stream in (first, second, other)] == [1, 2, 103]
    del first, other
    third, fourth = streams.take(devices[0]), streams.take(devices[0])
    assert [third.cuda_stream, fourth.cuda_stream, streams.take(devices[1]).cuda_stream] == [1, 4, 103]
