"""Plans: the operations of a batch, one program per sample.

builder.py               `Plan`, the builder that transforms write into; `CompiledPlan`, which devices execute
padding_displacement.py  `Plan`'s padding and displacement fields, and how the fields move boxes and keypoints
filter_passes.py         `Plan`'s filters
pass_table.py            `Plan`'s rows, one per sample and pass, which the library edits
regions.py               windows and regions, computed by the library; products of small matrices
boxes_keypoints.py       boxes and keypoints that move with the pixels
channels.py              images of other channels than RGB and gray, in groups of three
operations.py            point operations as rows of numbers
pixel_function.py        functions of one pixel that users write, as devices run them
trace.py                 the recorded parameters, and their replay
packing.py               how images of several sizes share one tensor
layout.py                NumPy mirrors of the structs in kernels/plan.h
state.py                 `PlanState`: the batch at one point of a chain
"""

from cuaug.plan import operations
from cuaug.plan.boxes_keypoints import BOX_FORMATS, BoxesKeypoints
from cuaug.plan.builder import CompiledPlan, Plan, add_groups
from cuaug.plan.channels import MAX_CHANNELS, count_groups, is_rgb_or_gray, output_layout
from cuaug.plan.layout import Border, Filter, Layout, Type
from cuaug.plan.packing import PackingFormat
from cuaug.plan.padding_displacement import MAX_SIDE
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
    "PackingFormat",
    "Plan",
    "Replay",
    "Trace",
    "Type",
    "Where",
    "add_groups",
    "count_groups",
    "is_rgb_or_gray",
    "operations",
    "output_layout",
]
