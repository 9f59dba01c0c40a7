"""Ranks and GPUs of processes: no rank touches another's GPU."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from cuaug import DeviceError, Loader, LoaderError
from cuaug._runtime.ranks import own_rank
from cuaug.devices import cuda
from cuaug.pipeline.resolve_device import resolve_device
from tests.support.loader.further_pictures import Memory

pytestmark = pytest.mark.cpu_only

# --- ranks -----------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)


def test_arguments_go_before_torchruns_environment(monkeypatch):
    monkeypatch.setenv("RANK", "2")
    assert own_rank() == (0, 1), "RANK alone is not torchrun's"
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert own_rank() == (2, 3)
    assert own_rank(0, 1) == (0, 1), "arguments go first"


def test_torch_distributed_goes_before_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert own_rank() == (0, 1)
        assert own_rank(1, 4) == (1, 4)
    finally:
        dist.destroy_process_group()
    assert own_rank() == (2, 3)


def test_a_loader_made_before_torch_distributed_is_refused(monkeypatch, tmp_path):
    """Each rank would load the whole epoch, or another rank's slice."""
    with Loader(Memory(4), rank=1, world_size=2, seed=0) as given, Loader(Memory(4), seed=0) as same:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with Loader(Memory(4), seed=0) as loader:
            assert len(list(loader)) == 2
            dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
            try:
                with pytest.raises(LoaderError, match=r"rank is 1 of 2 .* rank 0 of 1: make the Loader"):
                    iter(loader)
                assert len(list(given)) == 2 and len(list(same)) == 4
            finally:
                dist.destroy_process_group()


@pytest.mark.parametrize(
    ("rank", "world_size", "message"),
    [
        (0, None, "rank and world_size belong together: rank=0, world_size=None"),
        (None, 2, "rank and world_size belong together: rank=None, world_size=2"),
        (2, 2, r"rank must be one of 0 ... world_size - 1: rank=2, world_size=2"),
        (-1, 2, "rank=-1, world_size=2"),
        (0, 0, "rank=0, world_size=0"),
        (0.0, 2, "rank and world_size are integers: rank=0.0, world_size=2"),
        (0, 2.5, "rank and world_size are integers: rank=0, world_size=2.5"),
        ("0", "2", "rank and world_size are integers: rank='0', world_size='2'"),
    ],
)
def test_invalid_ranks_are_refused(rank, world_size, message):
    with pytest.raises(LoaderError, match=message):
        Loader(Memory(4), rank=rank, world_size=world_size)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("RANK", "one", "environment variable RANK must be an integer, not 'one'"),
        ("WORLD_SIZE", "", "environment variable WORLD_SIZE must be an integer, not ''"),
        ("RANK", "3", "rank=3, world_size=2"),
    ],
)
def test_invalid_environment_variables_are_refused(monkeypatch, name, value, message):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(name, value)
    with pytest.raises(LoaderError, match=message):
        own_rank()


# --- GPUs ------------------------------------------------------------------------------------------------------------


class Gpus:
    """`count` GPUs; `current` is torch's current device, `used` has the devices that were used."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, current: int = 0) -> None:
        self.used: set[int] = set()
        monkeypatch.delenv("CUAUG_DEVICE", raising=False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
        monkeypatch.setattr(cuda, "kernels", self.used.add)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: self.used.add(device.index) or "GPU")
        monkeypatch.setattr(
            "cuaug.pipeline.resolve_device.gpu_decodes", lambda index: (self.used.add(index) or True, "")
        )


@pytest.mark.parametrize(
    ("count", "current", "local_rank", "device", "want"),
    [
        (4, 0, None, None, 0),
        (4, 2, None, None, 2),
        (4, 2, None, "cuda", 2),
        (4, 0, "1", None, 1),
        (4, 0, "3", "cuda", 3),
        (4, 0, "3", torch.device("cuda"), 3),
        (4, 1, "1", None, 1),
        (4, 0, "1", "cuda:2", 2),
        (4, 0, "1", torch.device("cuda", 0), 0),
        (1, 0, "0", None, 0),
        (1, 0, "3", None, 0),
    ],
)
def test_only_the_gpu_of_local_rank_is_touched(monkeypatch, count, current, local_rank, device, want):
    """Also without torch.cuda.set_device, and where each process sees one GPU."""
    gpus = Gpus(monkeypatch, count, current)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert resolve_device(device) == torch.device("cuda", want)
    assert gpus.used == {want}


@pytest.mark.parametrize("local_rank", ["2", "-1"])
def test_a_local_rank_without_a_gpu_is_refused(monkeypatch, local_rank):
    gpus = Gpus(monkeypatch, 2)
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    for device in (None, "cuda"):
        with pytest.raises(DeviceError, match=f"LOCAL_RANK is {local_rank}, but there are 2 GPUs"):
            resolve_device(device)
    assert resolve_device("cuda:1") == torch.device("cuda", 1) and resolve_device("cpu") == torch.device("cpu")
    assert gpus.used == {1}


def test_a_missing_gpu_is_refused(monkeypatch):
    gpus = Gpus(monkeypatch, 2)
    with pytest.raises(DeviceError, match="there is no cuda:2: torch sees 2"):
        resolve_device("cuda:2")
    assert gpus.used == set()


def test_local_rank_is_ignored_without_a_gpu(monkeypatch):
    Gpus(monkeypatch, 0)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert resolve_device(None) == torch.device("cpu")
    for device in ("cuda", "cuda:1", torch.device("cuda")):
        with pytest.raises(DeviceError, match=r"cannot use cuda(:1)?: .*torch.*doctor"):
            Loader(Memory(3), device=device)


def test_cuaug_device_uses_local_rank_too(monkeypatch):
    gpus = Gpus(monkeypatch, 3)
    monkeypatch.setenv("CUAUG_DEVICE", "cuda")
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert resolve_device(None) == torch.device("cuda", 2)
    monkeypatch.setenv("CUAUG_DEVICE", "cuda:1")
    assert resolve_device(None) == torch.device("cuda", 1)
    assert gpus.used == {1, 2}


@pytest.mark.parametrize("name", ["gpu", "mps"])
def test_an_invalid_device_is_named_with_its_origin(monkeypatch, name):
    with pytest.raises(DeviceError, match=rf"^device is 'cpu', .*, not '{name}'$"):
        resolve_device(name)
    monkeypatch.setenv("CUAUG_DEVICE", name)
    with pytest.raises(DeviceError, match=rf"^the environment variable CUAUG_DEVICE is 'cpu', .*, not '{name}'$"):
        resolve_device(None)
