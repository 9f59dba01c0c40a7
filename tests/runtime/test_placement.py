"""CPUs near each rank's GPU, on pretended machines, and threads that are bound to them."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug import Loader
from cuaug._runtime import cpus as placement
from cuaug._runtime.cpus import Placement, own_placement, share_for_cpu, share_for_gpu
from cuaug.pipeline import resolve_device as device_module
from cuaug.pipeline.config import choose
from cuaug.pipeline.thread_pool import ThreadPool
from tests.support.loader.further_pictures import Memory

pytestmark = pytest.mark.cpu_only

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="binds threads on Linux only")


@dataclass(frozen=True)
class Machine:
    """A pretended machine: its nodes have consecutive cores; second hyperthreads have the later CPU numbers, as on x86.

    Attributes:
        cores: number of cores of each node; 0: memory only.
        threads: hyperthreads per core.
        gpus: the node of each GPU; -1: unknown.
    """

    cores: tuple[int, ...]
    threads: int = 2
    gpus: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.cores)

    @property
    def online(self) -> frozenset[int]:
        return frozenset(range(self.total * self.threads))

    @property
    def addresses(self) -> list[str]:
        """As CUDA writes them; sysfs has lower case."""
        return [f"0000:{0xA0 + number:02X}:00.0" for number in range(len(self.gpus))]

    def core_of(self, cpu: int) -> int:
        return cpu % self.total

    def node_cpus(self, node: int) -> list[int]:
        first = sum(self.cores[:node])
        return [cpu for cpu in sorted(self.online) if first <= self.core_of(cpu) < first + self.cores[node]]

    def write(self, root: Path) -> Path:
        write(root / "sys/devices/system/cpu/online", f"0-{len(self.online) - 1}\n")
        for cpu in self.online:
            siblings = ",".join(str(other) for other in self.online if self.core_of(other) == self.core_of(cpu))
            write(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings + "\n")
        for node in range(len(self.cores)):
            write(root / f"sys/devices/system/node/node{node}/cpulist", ",".join(map(str, self.node_cpus(node))) + "\n")
        for node, address in zip(self.gpus, self.addresses, strict=True):
            write(root / f"sys/bus/pci/devices/{address.lower()}/numa_node", f"{node}\n")
        return root


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


TWO_SOCKETS = Machine((32, 32), gpus=(0, 0, 0, 0, 1, 1, 1, 1))
EIGHT_NODES = Machine((16,) * 8, gpus=(3, 3, 1, 1, 7, 7, 5, 5))  # a DGX A100
ONE_NODE = Machine((8,), gpus=(0, 0))

machines = st.builds(
    lambda cores, threads, gpus: Machine(tuple(cores), threads, tuple(gpu % len(cores) for gpu in gpus)),
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.integers(1, 2),
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
)


def check_shares(machine: Machine, shares: list[frozenset[int]], whole: set[int]) -> None:
    """The shares are whole cores that differ by at most one, have no CPU in common, and are all of `whole`."""
    assert sum(map(len, shares)) == len(frozenset().union(*shares)), "disjoint"
    assert set().union(*shares) == whole
    assert all(cpu in share for share in shares for cpu in whole if machine.core_of(cpu) in map(machine.core_of, share))
    sizes = [len(share) // machine.threads for share in shares]
    assert max(sizes) - min(sizes) <= 1


@given(machines)
def test_ranks_near_a_node_share_its_cores(tmp_path_factory, machine):
    root, ranks = machine.write(tmp_path_factory.mktemp("machine")), range(len(machine.gpus))
    shares = [share_for_gpu(rank, machine.addresses, rank, root).cpus for rank in ranks]
    for node in set(machine.gpus):
        near = [shares[rank] for rank in ranks if machine.gpus[rank] == node]
        check_shares(machine, near, set(machine.node_cpus(node)))


@given(machines, st.integers(1, 20))
def test_ranks_without_gpus_share_all_cores(tmp_path_factory, machine, ranks):
    root = machine.write(tmp_path_factory.mktemp("machine"))
    shares = [share_for_cpu(rank, ranks, root).cpus for rank in range(ranks)]
    check_shares(machine, shares, set(machine.online))


@pytest.mark.parametrize(
    "machine, gpu, cpus, where",
    [
        (TWO_SOCKETS, 0, {*range(8), *range(64, 72)}, "16 of node 0's 64 CPUs, near GPU 0 and shared by 4 ranks"),
        (
            TWO_SOCKETS,
            5,
            {*range(40, 48), *range(104, 112)},
            "16 of node 1's 64 CPUs, near GPU 5 and shared by 4 ranks",
        ),
        (
            EIGHT_NODES,
            3,
            {*range(24, 32), *range(152, 160)},
            "16 of node 1's 32 CPUs, near GPU 3 and shared by 2 ranks",
        ),
    ],
)
def test_known_machines(tmp_path, machine, gpu, cpus, where):
    assert share_for_gpu(gpu, machine.addresses, gpu, machine.write(tmp_path)) == (cpus, where)


def test_a_rank_alone_takes_its_whole_node(tmp_path):
    found = share_for_gpu(0, [TWO_SOCKETS.addresses[5]], 5, TWO_SOCKETS.write(tmp_path))
    assert found == (set(TWO_SOCKETS.node_cpus(1)), "node 1's 64 CPUs, near GPU 5")


def test_words_for_ranks_without_gpus(tmp_path):
    root = TWO_SOCKETS.write(tmp_path)
    assert share_for_cpu(6, 8, root).where == "16 of the machine's 128 CPUs, on node 1"
    assert share_for_cpu(1, 3, root).where == "42 of the machine's 128 CPUs, on nodes 0, 1"


def test_memory_nodes_have_no_cpus_to_share(tmp_path):
    root = Machine((4, 0, 4, 0), gpus=(0, 2)).write(tmp_path)
    assert share_for_gpu(1, Machine((), gpus=(0, 2)).addresses, 1, root).cpus == {4, 5, 6, 7, 12, 13, 14, 15}
    assert share_for_gpu(0, Machine((), gpus=(0,)).addresses, 0, Machine((4, 0), gpus=(0,)).write(tmp_path)) is None


@pytest.mark.parametrize(
    "name, text",
    [
        ("sys/devices/system/node/node1/cpulist", "40-"),
        ("sys/devices/system/node/node1/cpulist", "0-63"),  # twice
        ("sys/devices/system/node/node1/cpulist", ""),
        ("sys/devices/system/cpu/online", "?"),
        ("sys/bus/pci/devices/0000:a6:00.0/numa_node", "-1\n"),
        ("sys/bus/pci/devices/0000:a6:00.0/numa_node", "9\n"),
        ("sys/bus/pci/devices/0000:a6:00.0/numa_node", "one"),
    ],
)
def test_broken_files_bind_nothing(tmp_path, name, text):
    """On no rank, also where only one rank's GPU is unknown: all ranks decide alike."""
    root, addresses = TWO_SOCKETS.write(tmp_path), TWO_SOCKETS.addresses
    (root / name).write_text(text)
    assert [share_for_gpu(rank, addresses, rank, root) for rank in range(8)] == [None] * 8


def test_systems_that_tell_nothing(tmp_path):
    assert share_for_gpu(0, ["0000:01:00.0"], 0, tmp_path) is None and share_for_cpu(0, 2, tmp_path) is None
    root = ONE_NODE.write(tmp_path)
    assert share_for_gpu(1, ONE_NODE.addresses, 1, root) is None and share_for_cpu(0, 2, root) is None


def test_cores_of_unknown_siblings_are_single_cpus(tmp_path):
    root = Machine((3, 3), gpus=(0, 0)).write(tmp_path)
    for path in root.glob("sys/devices/system/cpu/*/topology/thread_siblings_list"):
        path.unlink()
    assert share_for_gpu(0, Machine((), gpus=(0, 0)).addresses, 0, root).cpus == {0, 1, 2}


@pytest.fixture
def process(monkeypatch, tmp_path):
    """`own_placement` of a process on TWO_SOCKETS."""
    root = TWO_SOCKETS.write(tmp_path)

    def place(gpu, *, rank="", ranks="", affinity=TWO_SOCKETS.online, addresses=TWO_SOCKETS.addresses):
        monkeypatch.setenv("LOCAL_RANK", rank)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(affinity))
        return own_placement(addresses, gpu, root)

    return place


@needs_affinity
def test_processes(process):
    assert process(5, rank="5", ranks="8").cpus == {*range(40, 48), *range(104, 112)}
    assert process(1, rank="1", ranks="2").cpus == {*range(16, 32), *range(80, 96)}, "two ranks, both near node 0"
    assert process(5).cpus == set(TWO_SOCKETS.node_cpus(1)), "one process"
    assert process(None, rank="1", ranks="2").cpus == set(TWO_SOCKETS.node_cpus(1))


@needs_affinity
def test_processes_that_are_not_bound(process):
    assert process(5, rank="5", ranks="8", affinity=range(64)) is None, "the user has bound the process"
    assert process(5, rank="1", ranks="8") is None, "the GPUs of the other ranks are unknown"
    assert process(0, rank="0", ranks="8", addresses=TWO_SOCKETS.addresses[:1]) is None, (
        "each rank sees its own GPU only"
    )
    assert process(None) is None, "one process without a GPU"
    assert process(0, ranks="8") is None and process(0, rank="8", ranks="8") is None, "no such rank"


def test_threads_are_bound_if_each_has_a_cpu():
    place = Placement(frozenset(range(8)), "8 of node 1's 32 CPUs, near GPU 5 and shared by 4 ranks")
    runtime = choose("cuda", 256, 8, None, placement=place)
    assert runtime.cpus == place.cpus
    assert "threads=8 (as given; bound to 8 of node 1's 32 CPUs, near GPU 5 and shared by 4 ranks)" in str(runtime)
    runtime = choose("cuda", 256, 9, None, placement=place)
    assert runtime.cpus == frozenset() and runtime.threads_because == "as given"


@needs_affinity
def test_a_loader_binds_its_threads_only(monkeypatch):
    """To one CPU; the loop's thread, whose operators use all CPUs, stays as it is."""
    before, seen = os.sched_getaffinity(0), set()
    cpu = max(before)
    place = Placement(frozenset({cpu}), "one CPU")
    monkeypatch.setattr("cuaug.loader.resolve_placement", lambda device: place)

    class Source(Memory):
        def read(self, index):
            seen.add((threading.current_thread().name, frozenset(os.sched_getaffinity(0))))
            return super().read(index)

    with Loader(Source(20), batch_size=4, threads=1, seed=0) as loader:
        assert "bound to one CPU" in repr(loader)
        assert len(list(loader)) == 5
    assert seen == {("cuaug-worker-0", frozenset({cpu}))}
    assert os.sched_getaffinity(0) == before


@needs_affinity
def test_a_refusal_is_logged_once_and_work_goes_on(monkeypatch, caplog):
    def refuse(pid, cpus):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    monkeypatch.setattr(placement, "_refusals", itertools.count())
    pool, ran = ThreadPool(3, cpus=frozenset({7})), threading.Barrier(4)
    with caplog.at_level(logging.WARNING, "cuaug"):
        for _ in range(3):
            pool.submit(ran.wait)
        ran.wait(60)
    pool.close()
    assert [record.getMessage() for record in caplog.records] == [
        "worker threads are not bound to CPUs [7]: [Errno 22] Invalid argument"
    ]
    assert next(placement._refusals) == 3


def test_gpus_are_found_by_their_pci_addresses(monkeypatch):
    """Those of all GPUs that torch sees, in its order, as the other ranks' GPUs matter."""
    runtime = pytest.importorskip("cupy").cuda.runtime
    monkeypatch.setattr(runtime, "deviceGetPCIBusId", lambda number: f"0000:0{number}:00.0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    asked = []
    monkeypatch.setattr(device_module, "own_placement", lambda *arguments: asked.append(arguments))
    for device in ("cuda:2", "cpu"):
        device_module.resolve_placement(torch.device(device))
    assert asked == [(["0000:00:00.0", "0000:01:00.0", "0000:02:00.0"], 2), ([], None)]
