"""`Expressions`: the single values that a pixel function computes, as a graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Node(NamedTuple):
    """One value of one pixel.

    Attributes:
        name: an instruction (kernels/core/pixel_function.h), or INPUT, a channel of the pixel.
        operands: numbers of the nodes that it reads.
        value: of CONSTANT its bits, of PARAMETER its place, of INPUT the channel, of NORMALS (call, channel), of TAP
            (distance, channel), the distance as in the instruction.
    """

    name: str
    operands: tuple[int, ...] = ()
    value: int | tuple[int, int] = 0


def distance_key(dy: int, dx: int) -> int:
    """The second word of TAP."""
    return (dy & 0xFFFF) | (dx & 0xFFFF) << 16


def distance(key: int) -> tuple[int, int]:
    """(dy, dx) of a `distance_key`."""
    dy, dx = key & 0xFFFF, key >> 16
    return dy - (dy >> 15 << 16), dx - (dx >> 15 << 16)


class Expressions:
    """Nodes in an order in which each comes after its operands. Equal nodes are one."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[Node, int] = {}

    def add(self, name: str, *operands: int, value: int | tuple[int, int] = 0) -> int:
        """The number of a node, which is made if it is new."""
        node = Node(name, operands, value)
        if (number := self._numbers.get(node)) is None:
            number = self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return number

    def constant(self, value: float) -> int:
        return self.add("CONSTANT", value=int(np.float32(value).view(np.uint32)))

    def reached(self, results: tuple[int, ...]) -> list[int]:
        """The nodes that the results need, in order."""
        needed, waiting = set(results), list(results)
        while waiting:
            new = set(self.nodes[waiting.pop()].operands) - needed
            needed |= new
            waiting += new
        return sorted(needed)

    def with_one_channel(self, results: tuple[int, ...]) -> tuple[int, ...]:
        """The results for a pixel whose channels, and their noise, all are those of channel 0."""
        new: dict[int, int] = {}
        for number in self.reached(results):
            node = self.nodes[number]
            value = node.value
            if node.name == "INPUT":
                value = 0
            elif isinstance(value, tuple):
                value = value[0], 0
            new[number] = self.add(node.name, *(new[operand] for operand in node.operands), value=value)
        return tuple(new[result] for result in results)
