"""Boxes, masks and keypoints, moved by the plan that moves their images.

targets.py       `Targets`: the targets of a batch; masks through the kernels
parse.py         finds targets in a sample's label
names.py         the names that move, stay, belong to instances, or are refused
fields.py        boxes, keypoints and masks of one sample, from and to the user's arrays
label_files.py   masks and further pictures in labels, which a Loader reads
convert.py       converts targets when the chain is done
merge.py         merges targets of several images, for mosaics and pasted instances
clip_targets.py  targets of clips: boxes, masks and keypoints for each frame, with a leading axis of T frames
collate.py       the labels of a batch, collated
"""

from cuaug.targets.convert import TargetConversion
from cuaug.targets.names import TargetNameError
from cuaug.targets.parse import holds_targets
from cuaug.targets.targets import Targets

__all__ = ["TargetConversion", "TargetNameError", "Targets", "holds_targets"]
