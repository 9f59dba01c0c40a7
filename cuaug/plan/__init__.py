"""Plans: the operations of a batch, one program per sample.

builder.py          `Plan`, the builder that transforms write into; `CompiledPlan`, which devices execute
spatial.py          its padding and fields, and how warps by a displacement field move boxes and keypoints
filter_passes.py    its filters
pass_table.py       its rows, one per sample and pass, which the library edits
regions.py          windows and regions, computed by the library; products of small matrices
boxes_keypoints.py  boxes and keypoints that move with the pixels
channels.py         images of other channels than RGB and gray, in groups of three
operations.py       point operations as rows of numbers
pixel_function.py   functions of one pixel that users write, as devices run them
trace.py            the recorded parameters, and their replay
layout.py           NumPy mirrors of the structs in kernels/plan.h
state.py            `PlanState`: the batch at one point of a chain
"""

from cuaug.plan import operations
from cuaug.plan.boxes_keypoints import BOX_FORMATS, BoxesKeypoints
from cuaug.plan.builder import CompiledPlan, Plan
from cuaug.plan.channels import MAX_CHANNELS, count_groups, is_rgb_or_gray
from cuaug.plan.layout import Border, Filter, Layout, Type
from cuaug.plan.spatial import MAX_SIDE
from cuaug.plan.trace import Replay, Trace, Where

__all__ = [
    "BOX_FORMATS",
    "MAX_CHANNELS",
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
    "count_groups",
    "is_rgb_or_gray",
    "operations",
]
