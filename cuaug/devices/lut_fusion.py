"""Fusion of per-channel point operations into one look-up table.

Runs are fused where that is exact and saves time. It is exact on uint8 levels: for a run that begins with a look-up
table, or a first run while the pixels are still the source's. The CPU runs the operations on all 256 levels, so the
table holds their very bits.

Passes of such operations alone from uint8 to uint8 stay as they are: cpu/uint8_path.h bakes their tables itself.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuaug.devices.cpu import CpuExecutor
from cuaug.plan import CompiledPlan, Filter, Layout, Plan, Type, operations
from cuaug.plan.layout import POINT_OPERATIONS, Neighborhood, OpCode

__all__ = ["fuse_luts"]

# Nanoseconds per pixel of each operation (kernels/ops.def); 0: not fused. With AVX-512 gamma costs as much as a table.
_COST = np.array([operation.cost for operation in POINT_OPERATIONS])
# A run without an operation that costs at least as much as a table is not worth one.
_IS_COSTLY = _COST[OpCode.LUT] <= _COST
# Nanoseconds to compute a table: too long for a small image.
_TABLE_COST = 8_000.0


def fuse_luts(compiled: CompiledPlan) -> CompiledPlan:
    """A plan with the same results and fewer operations."""
    fused = _fuse(compiled)
    return dataclasses.replace(fused, others=tuple(map(_fuse, fused.others))) if fused.others else fused


def _fuse(compiled: CompiledPlan) -> CompiledPlan:
    codes = compiled.ops["code"]
    if not _IS_COSTLY[codes].any():
        return compiled
    begins, ends, pixels = _find_runs(compiled)
    cost = np.concatenate([[0.0], np.cumsum(_COST[codes])])
    saving = (cost[ends] - cost[begins] - _COST[OpCode.LUT]) * pixels
    worth = saving > _TABLE_COST
    begins, ends = begins[worth], ends[worth]
    if len(begins) == 0:
        return compiled

    numbers: dict[bytes, int] = {}  # equal runs share a table
    number = np.array(
        [
            numbers.setdefault(compiled.ops[begin:end].tobytes(), len(numbers))
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
    )
    _, unique = np.unique(number, return_index=True)
    limits = np.full(len(begins), 255.0)
    np.divide(255.0, compiled.ops["a"][begins, 0], out=limits, where=codes[begins] == OpCode.LUT)
    tables = _compute_tables(compiled, begins[unique], ends[unique], limits[unique])

    ops, rows = compiled.ops.copy(), compiled.rows.copy()
    for limit in np.unique(limits):
        same = limits == limit
        ops[begins[same]] = operations.look_up(int(same.sum()), limit, len(compiled.luts) + number[same])
    depth = np.zeros(len(ops) + 1, dtype=np.int64)  # 1 within a run, from its second operation on
    np.add.at(depth, begins + 1, 1)
    np.add.at(depth, ends, -1)
    kept = np.cumsum(depth)[:-1] == 0
    new_index = np.concatenate([[0], np.cumsum(kept)])
    rows["op_begin"], rows["op_end"] = new_index[rows["op_begin"]], new_index[rows["op_end"]]
    luts = np.concatenate([compiled.luts, tables])
    return dataclasses.replace(compiled, rows=rows, ops=ops[kept], luts=luts)


def _find_runs(compiled: CompiledPlan) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(K,) begins, ends and pixel counts of runs that may become a table."""
    codes, rows = compiled.ops["code"], compiled.rows.reshape(-1)
    busy = np.flatnonzero(rows["op_end"] > rows["op_begin"])
    busy = busy[np.argsort(rows["op_begin"][busy])]
    firsts, lasts = rows["op_begin"][busy].astype(np.int64), rows["op_end"][busy].astype(np.int64)
    program = np.repeat(np.arange(len(busy)), lasts - firsts)
    exact = np.zeros(len(codes), dtype=bool)
    exact[firsts] = _reads_levels(rows)[busy]

    # Stretches of per-channel operations within a program; a run begins at the first exact operation of a stretch.
    fusible = _COST[codes] > 0.0
    continues = np.concatenate([[False], (program[1:] == program[:-1]) & fusible[1:] & fusible[:-1]])
    stretch = np.cumsum(~continues)
    may_begin = np.flatnonzero(fusible & (exact | (codes == OpCode.LUT)))
    _, first = np.unique(stretch[may_begin], return_index=True)
    begins = may_begin[first]
    ends = np.searchsorted(stretch, stretch[begins], side="right")
    own = program[begins]
    row = rows[busy[own]]
    whole_program = (begins == firsts[own]) & (ends == lasts[own])
    target = row["target"]
    packed = (target["type"] == Type.UINT8) & (target["layout"] == Layout.HWC) & (target["channels"] == 3)
    pixels = row["y"]["out"].astype(np.int64) * row["x"]["out"]
    return begins, ends, np.where(whole_program & packed, 0, pixels)


def _reads_levels(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether a pass reads nothing but uint8 levels: source pixels, and fill colors of whole levels."""
    plain = (rows["source_type"] == Type.UINT8) & (rows["neighborhood"] == Neighborhood.NONE)
    unscaled = (rows["warped"] == 0) & (rows["x"]["scale"] == 1.0) & (rows["y"]["scale"] == 1.0)
    unscaled &= (rows["x"]["offset"] == 0.0) & (rows["y"]["offset"] == 0.0)
    exact = plain & (unscaled | (rows["filter"] == Filter.NEAREST))
    for fill in (rows["before"]["fill"], rows["after"]["fill"]):
        exact &= ((fill == np.floor(fill)) & (fill >= 0) & (fill <= 255)).all(axis=-1)
    return exact


def _compute_tables(
    compiled: CompiledPlan, begins: NDArray[np.int64], ends: NDArray[np.int64], limits: NDArray[np.float64]
) -> NDArray[np.float32]:
    """(K, 3, 256) results of each run for all levels; `limits` is the value of white."""
    rows = Plan(np.ones(len(begins)), np.full(len(begins), 256), source_type=Type.FLOAT32).compile(Type.FLOAT32).rows
    rows["op_begin"], rows["op_end"] = begins, ends
    executor = CpuExecutor(dataclasses.replace(compiled, rows=rows, statistics=0, target_type=Type.FLOAT32))
    levels = np.arange(256, dtype=np.float32)[:, None].repeat(3, axis=1)[None]
    ramps = {limit: levels * np.float32(limit / 255.0) for limit in np.unique(limits).tolist()}
    tables = np.empty((len(begins), 3, 256), dtype=np.float32)
    for i, limit in enumerate(limits.tolist()):
        executor.run(i, ramps[limit], tables[i].ctypes.data)
    return tables
