"""The CUDA kernels compile for every supported architecture without register spills. Needs no GPU."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cuaug._runtime import disk
from cuaug._runtime.c_headers import KERNEL_DIRECTORY
from cuaug.devices import nvrtc
from cuaug.devices.nvrtc_program import _whole_elf
from cuaug.errors import DeviceError

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)

pytest.importorskip("cupy")


class Usage(NamedTuple):
    """Registers of a thread, and its local memory: bytes spilled, also by functions that it calls, and all bytes."""

    registers: int
    spilled: int
    stack: int


def usage(log: str) -> dict[str, Usage]:
    """The report of each kernel in the log."""
    reports = re.split(r"Compiling entry function '(\w+)'", log)[1:]
    found = {}
    for name, report in zip(reports[::2], reports[1::2], strict=True):
        stack, *_ = re.findall(
            r"(\d+) bytes stack frame", report
        )  # those of functions that the kernel calls may follow
        (registers,) = re.findall(r"Used (\d+) registers", report)
        found[name] = Usage(int(registers), sum(map(int, re.findall(r"(\d+) bytes spill", report))), int(stack))
    return found


#: By program: its kernels, and how many registers of a thread and bytes of stack each takes at most.
LIMITS = {
    "augment": (["augment"], 128, 208),  # 4 blocks of 128 threads; 192 bytes are registers of core/pixel_function.h
    "resample": (["resample"], 80, 0),  # 6 blocks
    "decode_jpeg": (["build_lookups", "color_jpeg", "decode_jpeg", "scan_jpeg"], 64, 0),  # with 512 threads
    "convert_yuv": (["convert_yuv"], 64, 0),
}
EVERYDAY = [(90, "decode_jpeg"), (90, "convert_yuv")]
OTHERS = set(itertools.product(ARCHITECTURES, LIMITS)) - set(EVERYDAY)
COMPILED = EVERYDAY + [pytest.param(*pair, marks=pytest.mark.long) for pair in sorted(OTHERS)]


@pytest.mark.parametrize(("arch", "program"), COMPILED)
def test_compiles_without_spills(arch, program, record_property):
    """As many blocks fit on a multiprocessor as its limits of registers allow."""
    kernels, registers, stack = LIMITS[program]
    cubin, log = nvrtc.compile(arch, program)
    assert cubin[:4] == b"\x7fELF" and program.encode() in cubin and len(cubin) == elf_end(cubin)
    record_property("cubin_bytes", len(cubin))
    found = usage(log)
    record_property("usage", str(found))
    assert sorted(found) == kernels, log
    for used in found.values():
        assert used.registers <= registers and used.spilled == 0 and used.stack <= stack, log


def test_a_mistake_in_the_kernels_is_reported_with_the_log(monkeypatch):
    text, headers = nvrtc.sources()
    monkeypatch.setattr(
        nvrtc, "sources", lambda *_: (text, headers | {"core/store.h": "#pragma once\nint oops = nonsense;"})
    )
    with pytest.raises(DeviceError, match=r'identifier "nonsense" is undefined'):
        nvrtc.compile(80)


# The architectures that NVRTC knows, by version of CUDA.
KNOWN = {
    (12, 8): (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 120),
    (13, 0): (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121),
}


@pytest.fixture
def known_to(monkeypatch):
    """Limits NVRTC to the architectures of a version."""
    real = nvrtc._nvrtc()

    class Limited:
        def __init__(self, version):
            self.version = version

        def getSupportedArchs(self):
            return KNOWN[self.version]

        def __getattr__(self, name):
            return getattr(real, name)

    return lambda version: monkeypatch.setattr(nvrtc, "_nvrtc", lambda: Limited(version))


@pytest.mark.parametrize(
    ("version", "arch", "target"),
    [
        ((12, 8), 90, "sm_90"),
        ((12, 8), "103", "sm_100"),  # B300; sm_101 is machine code for Thor only
        ((12, 8), "121", "sm_120"),  # GB10
        ((12, 8), 110, "compute_100"),  # Thor
        ((12, 8), 88, "compute_86"),
        ((12, 8), 130, "compute_120"),  # not made yet
        ((13, 0), 121, "sm_121"),
        ((13, 0), 122, "sm_121"),
        ((13, 0), 101, "compute_100"),
        ((13, 0), 87, "sm_87"),
    ],
)
def test_targets_that_the_gpu_runs(known_to, version, arch, target):
    known_to(version)
    assert nvrtc.code_target(arch) == target


def test_gpus_that_nvrtc_has_dropped_are_refused(known_to):
    known_to((13, 0))
    with pytest.raises(DeviceError, match=r"compute capability 7\.5 and newer, but this GPU has 7\.0: install"):
        nvrtc.code_target(70)


@pytest.fixture
def one_kernel(monkeypatch):
    """Replaces the kernels by a small one."""
    text = """extern "C" __global__ void augment(float* x, double* y) {
        x[0] = x[1] * x[2] + x[3], x[4] = x[5] / x[6], x[7] = sqrtf(x[8]);
        y[0] = y[1] * y[2] - y[3];
    }"""
    monkeypatch.setattr(nvrtc, "sources", lambda *_: (text, {}))


def test_options_keep_the_bits(one_kernel):
    """Each operation rounds once, to nearest; nothing is fused, approximated or flushed to zero."""
    assert "--fmad=false" in nvrtc.options("sm_90")
    loose = re.compile("fast|ftz|prec-|fmad=true|Ofast|dopt")
    assert not [option for option in nvrtc.options("sm_90") if loose.search(option)]
    assert float_operations(ptx()) == {
        *("mul.rn.f32", "add.rn.f32", "div.rn.f32", "sqrt.rn.f32"),
        *("mul.rn.f64", "sub.rn.f64"),
    }


def ptx() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "code_target", lambda arch: f"compute_{arch}")
        return nvrtc.compile(90)[0].decode()


def float_operations(ptx: str) -> set[str]:
    """The arithmetic instructions on floats in PTX."""
    names = "mul|add|sub|fma|mad|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh"
    return set(re.findall(rf"\b((?:{names})\.[a-z0-9.]*(?:f16|f16x2|bf16|bf16x2|f32|f64))\b", ptx))


@pytest.mark.long
def test_kernels_round_every_operation():
    rounded = re.compile(r"(mul|add|sub|div|sqrt|rcp)\.rn\.f(32|64)")
    found = float_operations(ptx())
    assert "mul.rn.f32" in found and not [name for name in found if not rounded.fullmatch(name)]


def elf_end(cubin: bytes) -> int:
    """The end of the last section, segment or table of an ELF file of 64 bits."""
    segments_at, sections_at = struct.unpack_from("<QQ", cubin, 0x20)
    segment_size, segments, section_size, sections = struct.unpack_from("<HHHH", cubin, 0x36)
    ends = [segments_at + segments * segment_size, sections_at + sections * section_size]
    for at in range(sections_at, ends[1], section_size):
        kind, offset, size = struct.unpack_from("<4xI16xQQ", cubin, at)
        ends.append(0 if kind == 8 else offset + size)  # SHT_NOBITS has no bytes in the file
    for at in range(segments_at, ends[0], segment_size):
        offset, size, alignment = struct.unpack_from("<8xQ16xQ8xQ", cubin, at)
        assert alignment in (0, 1, 2, 4, 8, 16, 32, 64, 128)  # the last one holds the file's last byte
        ends.append(offset + size)
    return max(ends)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_machine_code_is_a_whole_elf_file(one_kernel, arch, tmp_path):
    cubin, _ = nvrtc.compile(arch)
    assert len(cubin) == elf_end(cubin)
    assert _whole_elf(cubin) == _whole_elf(cubin[:-1]) == cubin, "with and without CuPy's mistake"
    with pytest.raises(RuntimeError, match="machine code: install CuPy"):
        _whole_elf(cubin[:-2])
    if readelf := shutil.which("readelf"):
        (tmp_path / "cubin").write_bytes(cubin)
        report = subprocess.run([readelf, "-hlS", tmp_path / "cubin"], capture_output=True, text=True)
        assert "Program Headers:" in report.stdout and "Error" not in report.stderr, report.stderr


def test_code_for_gpus_newer_than_nvrtc(known_to, one_kernel, monkeypatch, tmp_path):
    known_to((12, 8))
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path))
    machine_code, ptx = nvrtc.cached(103), nvrtc.cached(130)
    assert machine_code[:4] == b"\x7fELF" and machine_code == nvrtc.cached(100)
    assert b"\n.target sm_120\n" in ptx and b".entry augment(" in ptx
    names = sorted(re.sub("-[0-9a-f]{32}", "", path.name) for path in tmp_path.iterdir())
    assert names == ["augment-compute_120.ptx", "augment-sm_100.cubin"]


@pytest.fixture
def compiled(monkeypatch, tmp_path) -> list[int]:
    """Replaces the compiler: kernels of 100 kB, cached in tmp_path / "cache". Lists the architectures compiled."""
    compiles: list[int] = []

    def compile(arch: int, program: str, defines: Sequence[str], functions: Any) -> tuple[bytes, str]:
        compiles.append(arch)
        time.sleep(0.05)
        return bytes([arch]) * 100_000, ""

    monkeypatch.setattr(nvrtc, "compile", compile)
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "cache"))
    return compiles


def test_compiled_kernels_are_cached(compiled, tmp_path, monkeypatch):
    for arch in (80, 90, 80, 90):
        assert nvrtc.cached(arch) == bytes([arch]) * 100_000
    assert compiled == [80, 90] and len(list((tmp_path / "cache").iterdir())) == 2
    for number, changed in enumerate(("cuda/augment.cu", "core/signature.h")):
        kernels = Path(shutil.copytree(KERNEL_DIRECTORY, tmp_path / f"kernels{number}"))
        (kernels / changed).write_text((kernels / changed).read_text() + "//")
        monkeypatch.setattr(nvrtc, "KERNEL_DIRECTORY", kernels)
        nvrtc.cached(80)
    assert compiled == [80, 90, 80, 80], "other sources are compiled again"


def test_those_who_start_together_may_all_compile(compiled, tmp_path):
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(nvrtc.cached, [90] * 16)) == {bytes([90]) * 100_000}
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".cubin"]


@pytest.mark.parametrize("damage", [lambda code: b"", lambda code: code[:-1], lambda code: code[:-1] + b"?"])
def test_damaged_kernels_are_compiled_anew(compiled, tmp_path, damage):
    """As after a crash before the file has reached the disk."""
    nvrtc.cached(90)
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(damage(kept.read_bytes()))
    assert nvrtc.cached(90) == nvrtc.cached(90) == bytes([90]) * 100_000 and compiled == [90, 90]


@pytest.mark.parametrize("why", ["no folder", "no room"])
def test_without_a_cache_every_call_compiles(compiled, tmp_path, monkeypatch, why):
    cache = tmp_path / "cache"
    if why == "no folder":
        cache.write_bytes(b"")
    else:
        monkeypatch.setattr(os, "replace", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "no room")))
    for _ in range(2):
        assert nvrtc.cached(90) == bytes([90]) * 100_000
    assert compiled == [90, 90] and (why == "no folder" or not list(cache.iterdir()))


def test_compiled_kernels_that_others_planted_are_not_loaded(compiled, tmp_path, caplog, monkeypatch):
    """Their digest is right: an attacker writes that too. tests/runtime/test_disk.py has all kinds of foreign files."""
    monkeypatch.setattr(disk, "_warned", set())
    nvrtc.cached(90)
    (planted,) = (tmp_path / "cache").iterdir()
    planted.write_bytes(b"planted" + hashlib.sha256(b"planted").digest())
    assert nvrtc.cached(90) == b"planted", "the planted file has a valid digest"
    os.chmod(planted, 0o664)
    compiled.clear()
    for _ in range(2):
        assert nvrtc.cached(90) == bytes([90]) * 100_000
    assert compiled == [90], "a regular file of this user is replaced"
    assert [record.levelname for record in caplog.records] == ["WARNING"] and str(tmp_path / "cache") in caplog.text


def test_other_users_may_read_cached_kernels_but_not_write_them(compiled, tmp_path):
    before = os.umask(0)
    nvrtc.cached(90)
    os.umask(before)
    (kept,) = (tmp_path / "cache").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o644


def test_importing_the_module_imports_no_cupy():
    code = "import sys, cuaug.devices.nvrtc; sys.exit('cupy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
