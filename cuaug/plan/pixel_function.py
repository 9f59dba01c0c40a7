"""`PixelFunction`: a function of one pixel that a user wrote, in the forms that the devices run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from cuaug._runtime.native import KERNEL_DIRECTORY
from cuaug.plan.layout import OP, OpCode

#: Numbers per sample that a function takes: the length of `Op::a`.
MAX_PARAMETERS: int = OP["a"].shape[0]


class Instruction(NamedTuple):
    """An instruction of kernels/core/pixel_function.h.

    Attributes:
        code: its number.
        operands: how many registers it reads.
    """

    code: int
    operands: int


def _parse_instructions() -> dict[str, Instruction]:
    header = (KERNEL_DIRECTORY / "core" / "pixel_function.h").read_text()
    block = re.sub(r"//.*|#.*", "", header.partition("enum class Instruction : uint32 {")[2].partition("}")[0])
    names = [(name, 0) for name in re.findall(r"\w+", block)]
    rows = re.findall(r"^(UNARY|BINARY)\((\w+),", (KERNEL_DIRECTORY / "instructions.def").read_text(), re.MULTILINE)
    names += [(name, 1 if kind == "UNARY" else 2) for kind, name in rows]
    return {name: Instruction(code, 3 if name == "SELECT" else operands) for code, (name, operands) in enumerate(names)}


def _parse_registers() -> int:
    found = re.search(r"REGISTERS = (\d+);", (KERNEL_DIRECTORY / "core" / "pixel_function.h").read_text())
    assert found
    return int(found[1])


INSTRUCTIONS = _parse_instructions()
#: Registers of the interpreter.
REGISTERS = _parse_registers()


@dataclass(frozen=True)
class PixelFunction:
    """A function of one pixel, compiled for the interpreter and written in C++.

    Attributes:
        number: 64 bits that tell functions apart; not 0.
        mixes_channels: an output channel depends on other input channels.
        is_positional: the result depends on the pixel's position.
        reads_neighbors: it reads other pixels of the image, so it needs a pass that copies the finished image so far.
        keeps_gray: three equal channels stay equal, so the function also acts on one channel alone.
        words: the instructions, of 32 bits each.
        source: a C++ function, `name`, for kernels/core/pixel_function.h.
    """

    number: int
    mixes_channels: bool
    is_positional: bool
    reads_neighbors: bool
    keeps_gray: bool
    words: bytes
    source: str

    @property
    def name(self) -> str:
        """Of the C++ function."""
        return f"pixel_function_{self.number:016x}"

    @property
    def code(self) -> int:
        """The operation code."""
        place, channels = "PLACED_" * self.is_positional, "COLOR" if self.mixes_channels else "LEVEL"
        return int(OpCode[f"FUNCTION_OF_{place}{channels}"])
