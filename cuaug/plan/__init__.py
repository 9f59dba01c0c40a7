"""Plans: what will be done to a batch, before any pixel is touched.

plan.py        `Plan`, which transforms write into
moves.py       its part that says where pixels come from: crops, flips, resizes, warps
filters.py     its part that looks at neighbourhoods: blurs, medians and JPEG
passes.py      what both share
rows.py        the rows that the library changes (planner/plan_builder.h), which begins passes where it must
geometry.py    windows: those that are drawn, and those that are read
points.py      boxes and keypoints, moved along with the pixels; bends.py where a field of displacements moves them
linear.py      products of small matrices, with the same bits on every processor
operations.py  pixel operations as rows of numbers
record.py      what was drawn, told and done again
tables.py      `CompiledPlan`, the finished plan, which devices run
layout.py      the rows of it, mirrored in kernels/plan.h
"""

from cuaug.plan import operations
from cuaug.plan.boxes_keypoints import BOX_FORMATS, BoxesKeypoints
from cuaug.plan.builder import Plan
from cuaug.plan.compiled_plan import CompiledPlan
from cuaug.plan.layout import Border, Filter, Layout, Type
from cuaug.plan.moves import MAX_SIDE
from cuaug.plan.trace import Replay, Trace, Where

__all__ = [
    "BOX_FORMATS",
    "MAX_SIDE",
    "Border",
    "BoxesKeypoints",
    "CompiledPlan",
    "Filter",
    "Layout",
    "Plan",
    "Replay",
    "Trace",
    "Type",
    "Where",
    "operations",
]
