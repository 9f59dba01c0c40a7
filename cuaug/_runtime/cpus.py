"""CPUs and memory of this process, and the threads that use them.

- Limits of its control groups (containers).
- CPUs for the worker threads of one rank: near its GPU, shared with the other ranks of the machine. Linux tells the
  NUMA nodes, the cores and each GPU's node in sysfs. Threads are not bound where it does not, nor where the process may
  use only some of the CPUs: then a user, Slurm or a container has chosen its CPUs already.
- The number of threads that share the images of a batch outside a loader.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

__all__ = [
    "Placement",
    "allowed_cpus",
    "available_memory",
    "bind_thread",
    "disable_intraop_threads",
    "local_ranks",
    "own_memory",
    "own_placement",
    "quota",
    "share_for_cpu",
    "share_for_gpu",
    "threads_for",
]


def local_ranks() -> int:
    """Number of processes that torchrun started on this machine; 1 without torchrun."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(ranks)) if ranks.isdecimal() else 1


def allowed_cpus() -> tuple[int, str]:
    """Number of CPUs this process may use, and the limit's name: affinity or control group quota."""
    if hasattr(os, "sched_getaffinity"):
        cpus = len(os.sched_getaffinity(0))
        because = "the CPUs that this process may use" if cpus < (os.cpu_count() or 1) else "the machine's CPUs"
    else:
        cpus, because = os.cpu_count() or 1, "the machine's CPUs"
    limit = quota()
    if limit is not None and limit < cpus:
        return max(1, round(limit)), f"the control group's quota of {limit:g} CPUs"
    return cpus, because


def quota(root: Path = Path("/")) -> float | None:
    """CPU quota of this process's control groups, in CPUs; None: no limit.

    Args:
        root: the folder of `proc` and `sys`.
    """
    limits: list[float] = []
    for group, version in _groups(root, "cpu"):
        names = ["cpu.max"] if version == 2 else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        words = " ".join(_text(group / name) for name in names).split()
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
            limits.append(int(words[0]) / int(words[1]))  # else "max" or -1: no limit
    return min(limits, default=None)


def own_memory() -> int:
    """`available_memory` divided by `local_ranks`, in bytes."""
    return available_memory() // local_ranks()


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still allocate: the smaller of system memory and control group limits.

    Args:
        root: the folder of `proc` and `sys`.
    """
    try:
        fields = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError):  # not Linux
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([available, *_free_in_groups(root)])


def _free_in_groups(root: Path) -> Iterator[int]:
    """Free bytes within each memory limit. Inactive file pages count as free: the system evicts them first."""
    for group, version in _groups(root, "memory"):
        if version == 2:
            limit_file, used_file, inactive = "memory.max", "memory.current", "inactive_file"
        else:
            limit_file, used_file, inactive = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        limit = _number(group / limit_file)
        if limit is not None:  # not "max"
            used = (_number(group / used_file) or 0) - (_number(group / "memory.stat", inactive) or 0)
            yield max(0, limit - max(0, used))


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """(folder, cgroup version) of this process's control group and its parents; each may set a limit.

    In a container the parents may be invisible, apart from the root.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, version = root / "sys/fs/cgroup", 2
        elif controller in controllers.split(","):
            top, version = root / "sys/fs/cgroup" / controllers, 1
        else:
            continue
        inner = Path(path.strip("/"))
        for group in (inner, *inner.parents):
            yield top / group, version


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # no such group: another system, or the path is valid outside the container only
        return ""


def _number(path: Path, name: str = "") -> int | None:
    """The number in a file, or in its line that starts with `name`; None if there is none."""
    lines = [line for line in _text(path).splitlines() if line.split(" ")[0] == name or not name]
    text = lines[0].removeprefix(name).strip() if lines else ""
    return int(text) if text.isdecimal() else None


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
    """The CPUs by core, in the order of each core's first CPU; neighbors often share a cache."""
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


_thread = threading.local()

# Starting and ending a thread takes about 100 us; reading and writing this much memory takes longer.
_BYTES_PER_THREAD = 1 << 21


def disable_intraop_threads() -> None:
    """Makes `threads_for` return 1 on the calling thread: a loader's thread pool uses the cores already."""
    _thread.single = True


def threads_for(size: int) -> int:
    """Threads for reading and writing `size` bytes: torch's number, fewer for little work.

    It is 1 in a DataLoader's worker, whose torch has one thread, and in a loader's thread.
    """
    return 1 if hasattr(_thread, "single") else max(1, min(torch.get_num_threads(), size // _BYTES_PER_THREAD))
