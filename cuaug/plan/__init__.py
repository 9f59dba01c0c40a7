"""Plans: what will be done to a batch, before any pixel is touched.

geometry.py    how crops, pads, flips and resizes fold into one sampling step
operations.py  pixel operations as rows of numbers
filters.py     blurs, medians and JPEG: `Plan`'s part that looks at neighbourhoods
plan.py        `Plan`, which transforms write into, and `Tables`, which devices run
layout.py      the rows, mirrored in kernels/plan.h
"""

from cuaug.plan import operations
from cuaug.plan.layout import Border, Filter, Layout, Type
from cuaug.plan.plan import Plan
from cuaug.plan.points import BOX_FORMATS, Points
from cuaug.plan.record import Record, Script
from cuaug.plan.tables import Tables

__all__ = [
    "BOX_FORMATS",
    "Border",
    "Filter",
    "Layout",
    "Plan",
    "Points",
    "Record",
    "Script",
    "Tables",
    "Type",
    "operations",
]
