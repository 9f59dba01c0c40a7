"""Contenders of the benchmarks: one class per loader, with the same task and interface.

    task.py       the task, and the interface of a contender
    ours.py       cuaug
    dali.py       DALI's CPU pipeline
    spdl.py       SPDL's pipeline of threads
    workers.py    a torch `DataLoader` with worker processes, for pillow.py, opencv.py and albumentations.py
    policy.py     parameters of ColorJitter, RandAugment and RandomErasing for Pillow and OpenCV

../README.md describes how each is set up.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from baseline import IMAGENET_MEAN, IMAGENET_STD, random_crop_box

from peers.albumentations import Albumentations
from peers.dali import Dali
from peers.opencv import OpenCV
from peers.ours import Cuaug
from peers.pillow import Pillow
from peers.spdl import Spdl
from peers.task import CHAINS, VIEWS, Contender, Task

__all__ = [
    "CHAINS", "CONTENDERS", "IMAGENET_MEAN", "IMAGENET_STD", "VIEWS", "Contender", "Task", "installed",
    "random_crop_box",
]  # fmt: skip

CONTENDERS: dict[str, type[Contender]] = {
    kind.name.lower(): kind for kind in (Cuaug, Dali, Pillow, OpenCV, Albumentations, Spdl)
}


def installed(kinds: dict[str, type[Contender]]) -> tuple[dict[str, type[Contender]], dict[str, str]]:
    """The contenders that can run here, and the reason for each that is left out; prints the reasons."""
    left_out = {name: reason for name, kind in kinds.items() if (reason := kind.missing())}
    for name, reason in left_out.items():
        print(f"  {name} is left out: {reason}", flush=True)
    return {name: kind for name, kind in kinds.items() if name not in left_out}, left_out
