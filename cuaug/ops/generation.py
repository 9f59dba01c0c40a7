"""Makes a `PixelFunction` of expressions: instructions for the interpreter, and C++.

Nothing of the user's text reaches the C++: names are numbers of nodes, and constants are printed from their bits.
"""

from __future__ import annotations

import hashlib
import struct

from cuaug.errors import TransformError
from cuaug.ops.expressions import Expressions, Node, distance
from cuaug.plan.pixel_function import INSTRUCTIONS, REGISTERS, PixelFunction

_MAX_NODES = 4096
_CHANNELS = (0, 1, 2)


def make_function(name: str, expressions: Expressions, results: tuple[int, ...]) -> PixelFunction:
    """Compiles a function whose three results are nodes of `expressions`.

    Args:
        name: of the user's function, for errors.

    Raises:
        TransformError: it holds more values at once than the interpreter has registers, or has too many steps.
    """
    order = expressions.reached(results)
    nodes = expressions.nodes
    if len(order) > _MAX_NODES:
        raise TransformError(
            f"{name}: it has {len(order)} steps, of at most {_MAX_NODES}: split it into two operations"
        )
    inputs = [_inputs(expressions, result) for result in results]
    words = _Interpreter(name, expressions, results).words()
    body = _body(nodes, order, results)
    number = int.from_bytes(hashlib.sha256(body.encode()).digest()[:8], "little") or 1
    is_alike = len(set(expressions.with_one_channel(results))) == 1
    head = f"DEVICE void pixel_function_{number:016x}(const Op& op, const Sample& sample, Place at, PixelBlock& v) {{\n"
    return PixelFunction(
        number,
        mixes_channels=any(found - {channel} for channel, found in zip(_CHANNELS, inputs, strict=True)),
        is_positional=any(nodes[i].name in ("ROW", "COLUMN", "NORMALS", "TAP") for i in order),
        reads_neighbors=any(nodes[i].name == "TAP" for i in order),
        keeps_gray=is_alike,
        words=words,
        source=f"{head}{body}}}\n",
    )


def _inputs(expressions: Expressions, result: int) -> set[int]:
    """The channels that a result depends on."""
    nodes = [expressions.nodes[number] for number in expressions.reached((result,))]
    found = [node.value for node in nodes if node.name in ("INPUT", "TAP")]
    return {value[1] if isinstance(value, tuple) else value for value in found}


def _keys(name: str, nodes: list[Node], order: list[int]) -> list[int]:
    """The calls of noise (NORMALS), or the distances of pixels (TAP), that values belong to, in order."""
    return list(dict.fromkeys(nodes[i].value[0] for i in order if nodes[i].name == name))  # type: ignore[index]


# --- the interpreter's instructions -----------------------------------------------------------------------------------


class _Interpreter:
    """Writes instructions, and assigns registers: a value's register is free after its last use."""

    def __init__(self, name: str, expressions: Expressions, results: tuple[int, ...]) -> None:
        self._name, self._nodes, self._results = name, expressions.nodes, results
        self._order = expressions.reached(results)
        self._numbers = {self._nodes[number]: number for number in self._order}
        self._free = list(range(REGISTERS - 1, len(_CHANNELS) - 1, -1))
        self._registers: dict[int, int] = {}
        self._uses = {number: 0 for number in self._order}
        for number in self._order:
            for operand in self._nodes[number].operands:
                self._uses[operand] += 1
        for number in results:
            self._uses[number] += 1  # never freed
        self._words: list[int] = []

    def words(self) -> bytes:
        for number in self._order:
            if self._nodes[number].name == "INPUT":
                self._registers[number] = int(self._nodes[number].value)  # type: ignore[arg-type]
        for number in self._order:
            if self._nodes[number].operands:
                self._write(number)
        registers = [self._register(number) for number in self._results]
        self._add("END", *registers)
        return struct.pack(f"<{len(self._words)}I", *self._words)

    def _load_channels(self, name: str, key: int) -> None:
        """Draws noise or reads a pixel, into three registers; those of channels that nothing needs are free again."""
        registers = [self._take() for _ in _CHANNELS]
        self._add(name, *registers, second=key)
        for channel, register in zip(_CHANNELS, registers, strict=True):
            number = self._numbers.get(Node(name, (), (key, channel)))
            if number is None:
                self._free.append(register)
            else:
                self._registers[number] = register

    def _write(self, number: int) -> None:
        node = self._nodes[number]
        operands = [self._register(operand) for operand in node.operands]
        for operand in node.operands:
            self._uses[operand] -= 1
            if self._uses[operand] == 0:
                self._free.append(self._registers.pop(operand))
        first, second, third = (*operands, 0, 0)[:3]
        to = self._registers[number] = self._take()
        self._add(node.name, to, first, second, second=third)

    def _register(self, number: int) -> int:
        """The register of a value. Values that need no others are loaded before their first use."""
        node = self._nodes[number]
        if number not in self._registers and isinstance(node.value, tuple):
            self._load_channels(node.name, node.value[0])
        elif number not in self._registers:
            assert not isinstance(node.value, tuple)
            to = self._registers[number] = self._take()
            is_constant = node.name == "CONSTANT"
            self._add(node.name, to, 0 if is_constant else node.value, second=node.value if is_constant else 0)
        return self._registers[number]

    def _take(self) -> int:
        if not self._free:
            raise TransformError(
                f"{self._name}: it holds more than {REGISTERS} values at once: split it into two operations"
            )
        return self._free.pop()

    def _add(self, name: str, to: int, a: int = 0, b: int = 0, *, second: int = 0) -> None:
        self._words += [INSTRUCTIONS[name].code | to << 8 | a << 16 | b << 24, second]


# --- C++ -------------------------------------------------------------------------------------------------------------


def _body(nodes: list[Node], order: list[int], results: tuple[int, ...]) -> str:
    calls, taps = _keys("NORMALS", nodes, order), _keys("TAP", nodes, order)
    lines = [f"    float noise[{len(calls)}][3][PIXELS];"] if calls else []
    for place, call in enumerate(calls):
        channels = ", ".join(f"noise[{place}][{c}]" for c in _CHANNELS)
        lines.append(f"    run_NORMALS(op, at, {call}, {channels});")
    if taps:
        pairs = ", ".join(f"{{{dy}, {dx}}}" for dy, dx in map(distance, taps))
        lines.append(f"    float taps[{len(taps)}][3][PIXELS];")
        lines.append(f"    constexpr int DISTANCES[{len(taps)}][2] = {{{pairs}}};")
        lines.append(f"    UNROLL\n    for (int i = 0; i < {len(taps)}; ++i)")
        lines.append("        run_TAP(op, sample, at, DISTANCES[i][0], DISTANCES[i][1], taps[i]);")
    lines.append("    for (int p = 0; p < PIXELS; p += VEC_LANES) {")
    for number in order:
        kind = "auto" if nodes[number].operands else "Number"
        lines.append(f"        const {kind} t{number} = {_expression(nodes[number], calls, taps)};")
    lines += [f"        store_result(op, v, {c}, p, t{result});" for c, result in zip(_CHANNELS, results, strict=True)]
    return "\n".join([*lines, "    }\n"])


def _expression(node: Node, calls: list[int], taps: list[int]) -> str:
    value = node.value
    if isinstance(value, tuple):
        array, keys = ("noise", calls) if node.name == "NORMALS" else ("taps", taps)
        return f"load_vec({array}[{keys.index(value[0])}][{value[1]}] + p)"
    match node.name:
        case "INPUT":
            return f"load_input(op, v, {value}, p)"
        case "CONSTANT":
            return f"splat({struct.unpack('<f', struct.pack('<I', value))[0].hex()}f)"
        case "PARAMETER":
            return f"splat(op.a[{value}])"
        case "ROW" | "COLUMN":
            return f"run_{node.name}(at, p)"
    operands = ", ".join(f"t{operand}" for operand in node.operands)
    return f"run_{node.name}({operands})"
