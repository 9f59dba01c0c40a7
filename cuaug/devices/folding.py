"""Runs of per-channel operations become one look-up table each, where that is exact and saves time.

It is exact where each value is one of 256 levels: in a run that begins with a table, or that is first in its program
while the pixels are still those of the source. The tables are made by running the operations, on the host, on all
levels; so they hold the very bits that the operations would have made.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.devices.host import HostProgram
from cuaug.plan import Filter, Layout, Plan, Tables, Type, operations
from cuaug.plan.layout import OP, Neighbourhood, OpCode

__all__ = ["folded"]

# What an operation of one channel costs, in hundreds of microseconds for 224 x 224 pixels on one core.
_COSTS = {OpCode.SCALE: 0.2, OpCode.POSTERIZE: 0.4, OpCode.SOLARIZE: 0.3, OpCode.LUT: 3.2, OpCode.GAMMA: 7.4}
_COST = np.full(len(OpCode), np.nan)
_COST[list(_COSTS)] = list(_COSTS.values())
_LEAST_SAVING = 1.0


def folded(tables: Tables) -> Tables:
    """The same results from fewer operations."""
    codes = tables.ops["code"]
    if not ((codes == OpCode.LUT) | (codes == OpCode.GAMMA)).any():
        return tables  # nothing else costs more than a table
    rows, ops = tables.rows.copy(), tables.ops.copy()
    begins, ends, costs = rows["op_begin"], rows["op_end"], _COST[codes]
    exact = _shows_levels(rows)
    found: dict[bytes, int] = {}
    first = len(tables.luts)
    made: list[NDArray[np.float32]] = []
    for place in zip(*np.nonzero(begins < ends), strict=True):
        begin, end = int(begins[place]), int(ends[place])
        program: list[Any] = []
        at = begin
        while at < end:
            stop = at
            if codes[at] == OpCode.LUT or (at == begin and exact[place]):
                while stop < end and not np.isnan(costs[stop]):
                    stop += 1
            if stop > at and costs[at:stop].sum() >= _COSTS[OpCode.LUT] + _LEAST_SAVING:
                limit = 255.0 / float(ops["a"][at, 0]) if codes[at] == OpCode.LUT else 255.0
                key = ops[at:stop].tobytes()
                if key not in found:
                    found[key] = first + len(made)
                    made.append(_table(tables, at, stop, limit))
                program.append(operations.look_up(1, limit, found[key])[0])
                at = stop
            else:
                program.append(ops[at].copy())
                at += 1
        if len(program) < end - begin:
            ops[begin : begin + len(program)] = np.array(program, dtype=OP)
            ends[place] = begin + len(program)
    if not made:
        return tables
    return dataclasses.replace(tables, rows=rows, ops=ops, luts=np.concatenate([tables.luts, np.stack(made)]))


def _shows_levels(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """(P, N): whether each pixel that the pass takes in is one of the source's, or a fill colour of whole levels."""
    plain = (rows["source_type"] == Type.UINT8) & (rows["neighbourhood"] == Neighbourhood.NONE)
    unscaled = (rows["warped"] == 0) & (rows["x"]["scale"] == 1.0) & (rows["y"]["scale"] == 1.0)
    unscaled &= (rows["x"]["offset"] == 0.0) & (rows["y"]["offset"] == 0.0)
    exact = plain & (unscaled | (rows["filter"] == Filter.NEAREST))
    for fill in (rows["fill_before"], rows["fill_after"]):
        exact &= ((fill == np.floor(fill)) & (fill >= 0) & (fill <= 255)).all(axis=-1)
    return exact


def _table(tables: Tables, begin: int, end: int, limit: float) -> NDArray[np.float32]:
    """(3, 256): what operations begin ... end - 1 make of each level."""
    ramp = np.broadcast_to(np.arange(256, dtype=np.float32)[:, None] * np.float32(limit / 255.0), (256, 3))
    rows = Plan([1], [256], source_type=Type.FLOAT32).tables(Type.FLOAT32, Layout.CHW).rows
    rows["op_begin"], rows["op_end"] = begin, end
    out = np.empty((3, 256), dtype=np.float32)
    program = HostProgram(dataclasses.replace(tables, rows=rows, statistics=0, target_type=Type.FLOAT32))
    program.run(0, np.ascontiguousarray(ramp)[None], out.ctypes.data)
    return out
