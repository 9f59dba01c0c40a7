"""The CUDA kernels compile for every supported architecture, without spilling registers. Needs no GPU."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys

import pytest

from cuaug.devices import nvrtc
from cuaug.errors import DeviceError
from cuaug.plan.layout import AXIS, GRID, OP, SAMPLE

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)

pytest.importorskip("cupy")


def usage(log: str) -> dict[str, tuple[int, int]]:
    """By kernel: (registers a thread, bytes spilled), as the log reports them."""
    reports = re.split(r"Compiling entry function '(\w+)'", log)[1:]
    found = {}
    for name, report in zip(reports[::2], reports[1::2], strict=True):
        (spills,) = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
        (registers,) = re.findall(r"Used (\d+) registers", report)
        found[name] = int(registers), sum(map(int, spills))
    return found


def test_structs_are_as_large_as_the_host_writes_them(monkeypatch):
    structs = {"Axis": AXIS, "Grid": GRID, "Sample": SAMPLE, "Op": OP}
    lines = ['#include "plan.h"']
    lines += [f"static_assert(sizeof({name}) == {dtype.itemsize});" for name, dtype in structs.items()]
    lines += [f"static_assert(alignof({name}) == {dtype.alignment});" for name, dtype in structs.items()]
    headers = nvrtc.sources()[1]
    monkeypatch.setattr(nvrtc, "sources", lambda: ("\n".join(lines), headers))
    nvrtc.compile(90)
    lines.append(f"static_assert(sizeof(Sample) == {SAMPLE.itemsize + 1});")
    with pytest.raises(DeviceError, match="static assertion failed"):
        nvrtc.compile(90)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_compiles_without_spills(arch, record_property):
    cubin, log = nvrtc.compile(arch)
    assert cubin[:4] == b"\x7fELF" and b"augment" in cubin
    record_property("cubin_bytes", len(cubin))
    kernels = usage(log)
    record_property("usage", kernels)
    most = {"augment": 128, "resample": 80}  # so that 4 and 6 blocks of 128 threads run on a multiprocessor at once
    assert kernels.keys() == most.keys(), log
    for name, (registers, spilled) in kernels.items():
        assert registers <= most[name] and spilled == 0, log


def test_usage_reads_spills():
    report = "0 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads\nptxas info : Used 255 registers, 4 bytes"
    assert usage(f"ptxas info : Compiling entry function 'one' for 'sm_90'\n{report}") == {"one": (255, 24)}
    assert usage("") == {}


def test_a_mistake_in_the_kernels_is_reported_with_the_log(monkeypatch):
    text, headers = nvrtc.sources()
    monkeypatch.setattr(nvrtc, "sources", lambda: (text, headers | {"store.h": "#pragma once\nint oops = nonsense;"}))
    with pytest.raises(DeviceError, match=r'identifier "nonsense" is undefined'):
        nvrtc.compile(80)


def test_no_header_of_the_system_is_needed():
    text, headers = nvrtc.sources()
    own = re.findall(r'#include "([^"]+)"', "".join([text, *headers.values()]))
    assert set(own) <= set(headers)
    assert "augment.h" in headers and "host.h" not in headers


@pytest.mark.parametrize("fits", [True, False])
def test_what_is_kept_on_disk(monkeypatch, tmp_path, fits):
    """A file that all may read whom the umask lets; and where the disk is full, nothing."""
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(nvrtc, "compile", lambda arch: (b"machine code", ""))
    if not fits:
        monkeypatch.setattr(os, "replace", _refused)
    assert nvrtc.cached(80) == b"machine code"
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o666 & ~_umask()] * fits
    if fits:
        monkeypatch.setattr(nvrtc, "compile", None)
        assert nvrtc.cached(80) == b"machine code"


def _refused(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _umask() -> int:
    os.umask(mask := os.umask(0))
    return mask


def test_importing_the_module_imports_no_cupy():
    code = "import sys, cuaug.devices.nvrtc; sys.exit('cupy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
