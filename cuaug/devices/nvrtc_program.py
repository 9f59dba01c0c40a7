"""Compiles one program with NVRTC. As a script it does so in a process of its own, without importing cuaug or torch.

    python -I nvrtc_program.py < REQUEST > CODE

`make_request` makes REQUEST. CODE is machine code or PTX, then its SHA-256 digest; errors go to stderr.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_NAME = "cuda/program.cu"


def compile_program(
    nvrtc: Any, text: str, headers: Mapping[str, str], options: Sequence[str], register_limits: Sequence[int]
) -> tuple[bytes, str]:
    """Machine code (a cubin) or PTX, and the compiler's log.

    Args:
        nvrtc: CuPy's binding.
        register_limits: of a thread; the first that spills no register to memory is taken, else the last.

    Raises:
        RuntimeError: the program does not compile, or CuPy returns a part of the code; the message ends with the log.
    """
    for limit in register_limits:
        code, log = _compile(nvrtc, text, headers, [*options, f"--maxrregcount={limit}"])
        # One report for each function, such as those that a kernel calls. PTX has none.
        reports = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
        if reports and set(reports) == {("0", "0")}:
            break
    return code, log


def _compile(nvrtc: Any, text: str, headers: Mapping[str, str], options: list[str]) -> tuple[bytes, str]:
    program = nvrtc.createProgram(
        text, _NAME, [header.encode() for header in headers.values()], [name.encode() for name in headers]
    )
    try:
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError as error:
            raise RuntimeError(f"{error}\n{nvrtc.getProgramLog(program)}") from error
        is_cubin = any("=sm_" in option for option in options)
        code = _whole_elf(nvrtc.getCUBIN(program)) if is_cubin else nvrtc.getPTX(program)
        return code, nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)


def _whole_elf(cubin: bytes) -> bytes:
    """The cubin with its last byte, which CuPy's `getCUBIN` cuts off as if it ended a string (14.2)."""
    program_headers, section_headers = struct.unpack_from("<2Q", cubin, 32)
    program_header, programs, section_header, sections = struct.unpack_from("<4H", cubin, 54)
    program_end = program_headers + program_header * programs
    end = max(program_end, section_headers + section_header * sections)
    if len(cubin) == end - 1 == program_end - 1:
        return cubin + b"\0"  # the high byte of the last segment's alignment
    if len(cubin) < end:
        raise RuntimeError(f"CuPy returned {len(cubin)} of {end} bytes of machine code: install CuPy 14.2")
    return cubin


def make_request(
    text: str, headers: Mapping[str, str], options: Sequence[str], register_limits: Sequence[int]
) -> bytes:
    """The input of the script, for `compile_program`; it imports CuPy from this process's `sys.path`."""
    return pickle.dumps((sys.path, text, dict(headers), list(options), list(register_limits)))


def _main() -> None:
    os.nice(10)  # training goes first
    sys.path[:], *program = pickle.load(sys.stdin.buffer)
    from cupy.cuda import nvrtc

    code, _ = compile_program(nvrtc, *program)
    sys.stdout.buffer.write(code + hashlib.sha256(code).digest())


if __name__ == "__main__":
    _main()
