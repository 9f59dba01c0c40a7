"""Boxes, masks and keypoints, moved by the plan that moves their images.

values.py    arrays, tensors and lists: read as NumPy arrays, handed back in kind
fields.py    the three kinds: what each may look like, and how it is written again
finding.py   where in a sample's label they are
elsewhere.py what they are called elsewhere, which is refused
masks.py     masks through the kernels
targets.py   `Targets`: those of a batch
joining.py   those of several images put together, in a mosaic or pasted on each other
"""

from cuaug.targets.parse import holds_targets
from cuaug.targets.targets import Targets

__all__ = ["Targets", "holds_targets"]
