"""The CUDA kernels compile for every supported architecture, without spilling registers. Needs no GPU."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from cuaug.devices import nvrtc
from cuaug.errors import DeviceError
from cuaug.plan.layout import AXIS, GRID, OP, SAMPLE

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)

pytest.importorskip("cupy")


def usage(log: str) -> tuple[int, int]:
    """(registers a thread, bytes spilled) as the log reports them for the kernel `augment`."""
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    registers = re.findall(r"Used (\d+) registers", log)
    assert len(spills) == len(registers) == 1, f"the log does not report on one kernel:\n{log}"
    return int(registers[0]), sum(map(int, spills[0]))


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
    registers, spilled = usage(log)
    record_property("registers", registers)
    record_property("cubin_bytes", len(cubin))
    assert registers <= 128 and spilled == 0, log  # four blocks of 128 threads on a multiprocessor


def test_usage_reads_spills():
    log = "0 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads\nptxas info : Used 255 registers, 4 bytes"
    assert usage(log) == (255, 24)
    with pytest.raises(AssertionError, match="does not report"):
        usage("")


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


def test_importing_the_module_imports_no_cupy():
    code = "import sys, cuaug.devices.nvrtc; sys.exit('cupy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
