"""Runs of per-channel operations become one look-up table each, where that is exact and saves time.

It is exact where each value is one of 256 levels: in a run that begins with a table, or that is first in its program
while the pixels are still those of the source. The tables are made by running the operations, on the host, on all
levels; so they hold the very bits that the operations would have made.

Passes of such operations alone, from bytes to bytes, are left as they are: cpu/uint8_path.h does the same.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.devices.cpu import CpuExecutor
from cuaug.plan import CompiledPlan, Filter, Layout, Plan, Type, operations
from cuaug.plan.layout import POINT_OPERATIONS, Neighbourhood, OpCode

__all__ = ["fuse_luts"]

# Nanoseconds per pixel and channel operation; 0: not fused. With AVX-512 gamma costs as much as a table.
_COST = np.array([operation.cost for operation in POINT_OPERATIONS])
# Only these cost at least as much as a table.
_MAY_BE_WORTH = _COST[OpCode.LUT] <= _COST
# Making a table, in nanoseconds: a small image is done before that.
_TABLE_COST = 8_000.0


def fuse_luts(tables: CompiledPlan) -> CompiledPlan:
    """The same results from fewer operations."""
    codes = tables.ops["code"]
    if not _MAY_BE_WORTH[codes].any():
        return tables
    begins, ends, pixels = _runs(tables)
    cost = np.concatenate([[0.0], np.cumsum(_COST[codes])])
    saving = (cost[ends] - cost[begins] - _COST[OpCode.LUT]) * pixels
    worth = saving > _TABLE_COST
    begins, ends = begins[worth], ends[worth]
    if len(begins) == 0:
        return tables

    found: dict[bytes, int] = {}
    number = np.array(
        [
            found.setdefault(tables.ops[begin:end].tobytes(), len(found))
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
    )
    _, one_of_each = np.unique(number, return_index=True)
    limits = np.full(len(begins), 255.0)
    np.divide(255.0, tables.ops["a"][begins, 0], out=limits, where=codes[begins] == OpCode.LUT)
    made = _made(tables, begins[one_of_each], ends[one_of_each], limits[one_of_each])

    ops, rows = tables.ops.copy(), tables.rows.copy()
    for limit in np.unique(limits):
        of = limits == limit
        ops[begins[of]] = operations.look_up(int(of.sum()), limit, len(tables.luts) + number[of])
    depth = np.zeros(len(ops) + 1, dtype=np.int64)  # within a run: 1 from its second operation on
    np.add.at(depth, begins + 1, 1)
    np.add.at(depth, ends, -1)
    kept = np.cumsum(depth)[:-1] == 0
    before = np.concatenate([[0], np.cumsum(kept)])
    rows["op_begin"], rows["op_end"] = before[rows["op_begin"]], before[rows["op_end"]]
    return dataclasses.replace(tables, rows=rows, ops=ops[kept], luts=np.concatenate([tables.luts, made]))


def _runs(tables: CompiledPlan) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(K,) where each run that may become a table begins and ends, and how many pixels would gain by that."""
    codes, rows = tables.ops["code"], tables.rows.reshape(-1)
    busy = np.flatnonzero(rows["op_end"] > rows["op_begin"])
    busy = busy[np.argsort(rows["op_begin"][busy])]
    firsts, lasts = rows["op_begin"][busy].astype(np.int64), rows["op_end"][busy].astype(np.int64)
    program = np.repeat(np.arange(len(busy)), lasts - firsts)
    exact = np.zeros(len(codes), dtype=bool)
    exact[firsts] = _shows_levels(rows)[busy]

    # Stretches of per-channel operations within one program; each one's run is what begins with its first exact place.
    foldable = _COST[codes] > 0.0
    same = np.concatenate([[False], (program[1:] == program[:-1]) & foldable[1:] & foldable[:-1]])
    stretch = np.cumsum(~same)
    may_begin = np.flatnonzero(foldable & (exact | (codes == OpCode.LUT)))
    _, first = np.unique(stretch[may_begin], return_index=True)
    begins = may_begin[first]
    ends = np.searchsorted(stretch, stretch[begins], side="right")
    own = program[begins]
    row = rows[busy[own]]
    alone = (begins == firsts[own]) & (ends == lasts[own])
    packed = (row["target_type"] == Type.UINT8) & (row["target_layout"] == Layout.HWC) & (row["target_channels"] == 3)
    pixels = row["y"]["out"].astype(np.int64) * row["x"]["out"]
    return begins, ends, np.where(alone & packed, 0, pixels)


def _shows_levels(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each pixel that the pass takes in is one of the source's, or a fill colour of whole levels."""
    plain = (rows["source_type"] == Type.UINT8) & (rows["neighbourhood"] == Neighbourhood.NONE)
    unscaled = (rows["warped"] == 0) & (rows["x"]["scale"] == 1.0) & (rows["y"]["scale"] == 1.0)
    unscaled &= (rows["x"]["offset"] == 0.0) & (rows["y"]["offset"] == 0.0)
    exact = plain & (unscaled | (rows["filter"] == Filter.NEAREST))
    for fill in (rows["fill_before"], rows["fill_after"]):
        exact &= ((fill == np.floor(fill)) & (fill >= 0) & (fill <= 255)).all(axis=-1)
    return exact


def _made(
    tables: CompiledPlan, begins: NDArray[np.int64], ends: NDArray[np.int64], limits: NDArray[np.float64]
) -> NDArray[np.float32]:
    """(K, 3, 256): what operations begins ... ends - 1 make of each level, where white is at `limits`."""
    rows = Plan(np.ones(len(begins)), np.full(len(begins), 256), source_type=Type.FLOAT32).compile(Type.FLOAT32).rows
    rows["op_begin"], rows["op_end"] = begins, ends
    program = CpuExecutor(dataclasses.replace(tables, rows=rows, statistics=0, target_type=Type.FLOAT32))
    levels = np.arange(256, dtype=np.float32)[:, None].repeat(3, axis=1)[None]
    ramps = {limit: levels * np.float32(limit / 255.0) for limit in np.unique(limits).tolist()}
    made = np.empty((len(begins), 3, 256), dtype=np.float32)
    for i, limit in enumerate(limits.tolist()):
        program.run(i, ramps[limit], made[i].ctypes.data)
    return made
