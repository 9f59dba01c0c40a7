"""CUDA streams of loaders, with CUDA replaced."""

from __future__ import annotations

import weakref

import torch

from cuaug.devices import workspace


def test_released_streams_are_used_again(monkeypatch):
    made = []
    monkeypatch.setattr(workspace, "_unused", {})
    monkeypatch.setattr(workspace, "_create", lambda device_id: made.append(device_id) or 100 * device_id + len(made))

    class Stream:
        def __init__(self, handle, device):
            self.cuda_stream, self.device = handle, device

    monkeypatch.setattr(torch.cuda, "ExternalStream", Stream)
    devices = [torch.device("cuda", index) for index in (0, 1)]
    first, second, other = workspace.acquire(devices[0]), workspace.acquire(devices[0]), workspace.acquire(devices[1])
    assert [stream.cuda_stream for stream in (first, second, other)] == [1, 2, 103]
    assert not weakref.getweakrefcount(second), "torch does not clear weak references to its streams"
    del first, other
    third, fourth = workspace.acquire(devices[0]), workspace.acquire(devices[0])
    assert [third.cuda_stream, fourth.cuda_stream, workspace.acquire(devices[1]).cuda_stream] == [1, 4, 103]
