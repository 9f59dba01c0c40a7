"""CPU and memory limits from control groups (v1 and v2) and torchrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuaug._runtime.cpus import available_memory, local_ranks, quota


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    "cgroup, files, cpus",
    [
        pytest.param("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5, id="container"),
        pytest.param("0::/\n", {"cpu.max": "max 100000\n"}, None, id="no limit"),
        pytest.param("0::/\n", {}, None, id="root has no file"),
        pytest.param("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "400000 100000"}, 4.0, id="above"),
        pytest.param("0::/a/b\n", {"a/b/cpu.max": "200000 100000", "a/cpu.max": "400000 100000"}, 2.0, id="least"),
        pytest.param("0::/a/b\n", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "200000 100000"}, 2.0, id="less above"),
        pytest.param("0::/of/the/host\n", {"cpu.max": "300000 100000"}, 3.0, id="the host's path"),
        pytest.param(
            "4:memory:/x\n2:cpu,cpuacct:/x\n0::/\n",
            {"cpu,cpuacct/x/cpu.cfs_quota_us": "50000\n", "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n"},
            0.5,
            id="version 1",
        ),
        pytest.param(
            "1:cpu:/\n",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            None,
            id="version 1, no limit",
        ),
        pytest.param("", {}, None, id="another system"),
    ],
)
def test_cpu_quota_of_control_groups(tmp_path, cgroup, files, cpus):
    write(tmp_path / "proc/self/cgroup", cgroup)
    for name, text in files.items():
        write(tmp_path / "sys/fs/cgroup" / name, text)
    assert quota(tmp_path) == cpus


def test_the_smallest_memory_limit_counts(tmp_path):
    write(tmp_path / "proc/meminfo", "MemTotal: 900 kB\nMemFree: 10 kB\nMemAvailable:    500 kB\n")
    assert available_memory(tmp_path) == 500 << 10

    write(tmp_path / "proc/self/cgroup", "0::/slurm/job_7\n")
    write(tmp_path / "sys/fs/cgroup/slurm/job_7/memory.max", "max\n")
    assert available_memory(tmp_path) == 500 << 10
    write(tmp_path / "sys/fs/cgroup/slurm/memory.max", "1000\n")
    assert available_memory(tmp_path) == 1000, "the limit of an outer group holds inside"
    write(tmp_path / "sys/fs/cgroup/memory.max", "900\n")
    assert available_memory(tmp_path) == 900, "all that a container may see"

    write(tmp_path / "proc/self/cgroup", "12:cpu,cpuacct:/a\n4:memory:/docker/b\n")
    assert available_memory(tmp_path) == 500 << 10
    write(tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert available_memory(tmp_path) == 500 << 10
    write(tmp_path / "sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes", "800\n")
    assert available_memory(tmp_path) == 800
    write(tmp_path / "sys/fs/cgroup/memory/docker/b/memory.usage_in_bytes", "700\n")
    write(tmp_path / "sys/fs/cgroup/memory/docker/b/memory.stat", "inactive_file 1\ntotal_inactive_file 300\n")
    assert available_memory(tmp_path) == 400


def test_memory_in_use_is_not_available(tmp_path):
    write(tmp_path / "proc/meminfo", "MemAvailable:    500 kB\n")
    write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    write(tmp_path / "sys/fs/cgroup/a/b/memory.max", "16000\n")
    write(tmp_path / "sys/fs/cgroup/a/b/memory.current", "12000\n")
    assert available_memory(tmp_path) == 4000
    write(tmp_path / "sys/fs/cgroup/a/b/memory.stat", "anon 9000\ninactive_file 2500\nactive_file 500\n")
    assert available_memory(tmp_path) == 6500
    write(tmp_path / "sys/fs/cgroup/a/memory.max", "max\n")
    write(tmp_path / "sys/fs/cgroup/a/memory.current", "99999\n")
    assert available_memory(tmp_path) == 6500
    write(tmp_path / "sys/fs/cgroup/a/memory.max", "90000\n")
    assert available_memory(tmp_path) == 0


@pytest.mark.parametrize("output, ranks", [(None, 1), ("1", 1), ("8", 8), ("0", 1), ("", 1), ("many", 1), ("-2", 1)])
def test_local_ranks(monkeypatch, output, ranks):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if output is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", output)
    assert local_ranks() == ranks
