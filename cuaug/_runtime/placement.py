"""CPUs for the worker threads of one rank: near its GPU, shared with the other ranks of the machine.

Linux tells the NUMA nodes, the cores and each GPU's node in sysfs. Threads are not bound where it does not, nor where
the process may use only some of the CPUs: then a user, Slurm or a container has chosen its CPUs already.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cuaug._runtime.cpu_limits import local_ranks

__all__ = ["Placement", "bind_thread", "own_placement", "share_for_cpu", "share_for_gpu"]

log = logging.getLogger("cuaug")

_refusals = itertools.count()  # threads count at the same time


class Placement(NamedTuple):
    """The CPUs that a rank's worker threads run on.

    Attributes:
        cpus: their numbers; no other rank of the machine has any of them.
        where: them, in words.
    """

    cpus: frozenset[int]
    where: str


def own_placement(gpus: Sequence[str], gpu: int | None, root: Path = Path("/")) -> Placement | None:
    """This process's share of the CPUs; None where threads are not to be bound.

    Args:
        gpus: PCI addresses of the GPUs that torch sees, in its order; they need not be known for a CPU.
        gpu: index of the loader's GPU; None: the loader decodes on the CPU.
        root: the folder of `sys`.
    """
    ranks, local_rank = local_ranks(), os.environ.get("LOCAL_RANK", "")
    rank = int(local_rank) if local_rank.isdecimal() else 0 if ranks == 1 else -1
    if not hasattr(os, "sched_setaffinity") or (ranks > 1 and not 0 <= rank < ranks):
        return None
    affinity = frozenset(os.sched_getaffinity(0))
    if affinity != _cpus(root / "sys/devices/system/cpu/online"):
        return None
    if gpu is None:
        return share_for_cpu(rank, ranks, root) if ranks > 1 else None
    if ranks == 1:
        return share_for_gpu(0, [gpus[gpu]], gpu, root)
    if gpu != rank or len(gpus) < ranks:  # the GPUs of the other ranks are unknown
        return None
    return share_for_gpu(rank, gpus[:ranks], gpu, root)


def share_for_gpu(rank: int, gpus: Sequence[str], gpu: int, root: Path) -> Placement | None:
    """The CPUs of the node near a rank's GPU, divided among the ranks whose GPUs are near the same node.

    Args:
        gpus: PCI address of each rank's GPU, such as "0000:c1:00.0".
        gpu: the number of this rank's GPU, for the text.

    Returns:
        None if there is one node only, or if the node of any of the GPUs is unknown.
    """
    nodes = _nodes(root)
    near = [_node_of(address, root) for address in gpus]
    if len(nodes) < 2 or not all(node in nodes for node in near):
        return None
    node = near[rank]
    cores, ranks = _cores(nodes[node], root), near.count(node)
    cpus = _share(cores, near[:rank].count(node), ranks)
    which = f"node {node}'s {len(nodes[node])} CPUs, near GPU {gpu}"
    return Placement(cpus, which if ranks == 1 else f"{len(cpus)} of {which} and shared by {ranks} ranks")


def share_for_cpu(rank: int, ranks: int, root: Path) -> Placement | None:
    """A rank's share of all CPUs, on as few nodes as possible. None if there is one node only."""
    nodes = _nodes(root)
    if len(nodes) < 2:
        return None
    cores = [core for node in sorted(nodes) for core in _cores(nodes[node], root)]
    cpus = _share(cores, rank, ranks)
    touched = [str(node) for node in sorted(nodes) if nodes[node] & cpus]
    total, names = sum(map(len, nodes.values())), ", ".join(touched)
    where = f"{len(cpus)} of the machine's {total} CPUs, on node{'s' * (len(touched) > 1)} {names}"
    return Placement(cpus, where)


def bind_thread(cpus: frozenset[int]) -> None:
    """Binds the calling thread to these CPUs. Where the system refuses, it warns once and the thread stays unbound."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:  # CPUs went offline, or the container changed
        if next(_refusals) == 0:
            log.warning("worker threads are not bound to CPUs %s: %s", sorted(cpus), error)


def _share(cores: Sequence[frozenset[int]], rank: int, ranks: int) -> frozenset[int]:
    """Part `rank` of `ranks` contiguous parts, whose sizes differ by at most one core."""
    first, end = (len(cores) * k // ranks for k in (rank, rank + 1))
    return frozenset[int]().union(*cores[first:end])


def _cores(cpus: frozenset[int], root: Path) -> list[frozenset[int]]:
    """The CPUs by core, in the order of each core's first CPU; neighbours often share a cache."""
    cores: list[frozenset[int]] = []
    left = set(cpus)
    for cpu in sorted(cpus):
        if cpu in left:
            siblings = _cpus(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
            cores.append((siblings & left) | {cpu})
            left -= cores[-1]
    return cores


def _nodes(root: Path) -> dict[int, frozenset[int]]:
    """The CPUs of each NUMA node that has some: nodes of memory alone are left out. Empty where sysfs tells none."""
    folder = root / "sys/devices/system/node"
    online = _cpus(root / "sys/devices/system/cpu/online")
    numbers = [name for path in folder.glob("node*") if (name := path.name.removeprefix("node")).isdecimal()]
    found = {int(number): _cpus(folder / f"node{number}/cpulist") & online for number in numbers}
    nodes: dict[int, frozenset[int]] = {number: cpus for number, cpus in found.items() if cpus}
    listed = [cpu for cpus in nodes.values() for cpu in cpus]
    return nodes if sorted(listed) == sorted(online) else {}  # a CPU of no node or of two: broken files


def _node_of(address: str, root: Path) -> int:
    """The NUMA node of a PCI device; -1 where the system does not tell."""
    domain, _, rest = address.lower().partition(":")
    try:
        return int((root / f"sys/bus/pci/devices/{int(domain, 16):04x}:{rest}/numa_node").read_text())
    except (OSError, ValueError):
        return -1


def _cpus(path: Path) -> frozenset[int]:
    """The numbers of a list such as "0-3,8-11"; empty where it cannot be read."""
    try:
        spans = [span.partition("-") for span in path.read_text().strip().split(",") if span]
        return frozenset(cpu for low, dash, high in spans for cpu in range(int(low), int(high if dash else low) + 1))
    except (OSError, ValueError):
        return frozenset()
