"""Seconds to the first batch, as for a notebook, a resumed job or a test.

Each measurement is a new process. "from start" counts from launching the interpreter. "from construction" counts from
building the loader, after importing torch and the loader's module; later imports, such as cuaug's of nvImageCodec,
count as construction. "warm" counts from construction too, for a second loader of the same process: libraries are
loaded, and files cached by the system. "import" is the time of importing the loader's names after torch, in another new
process. cuaug's goals are 0.15 s for "warm" and 0.15 s for "import".

The chain is the classification chain of end_to_end.py, in batches of 128 at 500 x 375, with two threads or workers. The
`DataLoader` has spawned workers, as in the other benchmarks, and forked workers, which start sooner but must not be
forked from a process with threads or CUDA. Modules are compiled to bytecode first, as by pip.

    python benchmarks/first_batch.py --out benchmarks/results
    python benchmarks/first_batch.py --quick    # one start of cuaug alone, to try the program
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from peers import CONTENDERS, Contender, Task, installed
from peers.pillow import Pillow
from report import circumstances, in_turns, options, spread, write_json
from suites import prepare
from torch import Tensor
from torch.utils.data import DataLoader


class Forked(Pillow):
    """Forked workers, Linux's default until Python 3.14."""

    def __init__(self, task: Task) -> None:
        Contender.__init__(self, task)
        options: dict[str, Any] = {"num_workers": task.threads, "multiprocessing_context": "fork"}
        self.loader = DataLoader(self.dataset(task), task.batch_size, shuffle=True, drop_last=True, **options)

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.loader)


STARTERS: dict[str, type[Contender]] = {name: CONTENDERS[name] for name in ("cuaug", "dali", "pillow", "spdl")}
STARTERS["pillow, forked"] = Forked
#: The imports of a program that uses each loader. They do not import torch, which is imported before.
IMPORTS = {
    "cuaug": "from cuaug import Loader, transforms",
    "dali": "from nvidia.dali import fn, pipeline_def, types",
    "pillow": "from PIL import Image; from torch.utils.data import DataLoader",
    "spdl": "import spdl.io; from spdl.pipeline import PipelineBuilder",
}
IMPORTS["pillow, forked"] = IMPORTS["pillow"]
#: cuaug's goals, in seconds.
GOALS = {"warm": 0.15, "imports": 0.15}


class Seconds(NamedTuple):
    """Seconds to the first batch.

    Attributes:
        from_start: from the start of a new process.
        from_construction: from the construction of its loader.
        warm: from the construction of another loader, after the first one was closed.
        imports: for `IMPORTS`, after torch.
    """

    from_start: float
    from_construction: float
    warm: float
    imports: float


def child(name: str, task: Task) -> None:
    """Prints when two loaders were constructed and when their first batches arrived, on the clock of all processes."""
    kind = STARTERS[name]
    importlib.import_module(kind.module)
    moments = []
    for _ in range(2):
        begun = time.monotonic()
        contender = kind(task)
        batches = contender.epoch()
        images, _ = next(batches)
        moments.append((begun, time.monotonic()))
        if tuple(images.shape) != (task.batch_size, 3, task.size, task.size):
            raise AssertionError(f"{name}: {tuple(images.shape)}")
        del batches
        contender.close()
    print(json.dumps(moments), flush=True)


def measure(name: str, folder: Path, args: argparse.Namespace) -> Seconds:
    """The times of two new processes."""
    options = ["--data", str(folder), "--threads", str(args.threads), "--batch-size", str(args.batch_size)]
    launched = time.monotonic()
    (begun, done), (begun_again, done_again) = json.loads(_python(__file__, "--child", name, *options))
    program = f"import time, torch; start = time.perf_counter(); {IMPORTS[name]}; print(time.perf_counter() - start)"
    return Seconds(done - launched, done - begun, done_again - begun_again, float(_python("-c", program)))


def _python(*arguments: str) -> str:
    """The output of a new Python process."""
    # Container images may disable bytecode files; each process would then compile the checkout again.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def main() -> None:
    out = "write first_batch.json into this folder"
    parser = options(__doc__, data="photos", out=out, threads=2, batch_size=128, repetitions=5)
    parser.add_argument("--quick", action="store_true", help="one start of cuaug alone")
    parser.add_argument("--child", choices=list(STARTERS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        files = sorted(args.data.glob("*.jpg"))
        files = files[: len(files) // args.batch_size * args.batch_size]
        return child(args.child, Task(tuple((str(file), 0) for file in files), args.batch_size, threads=args.threads))

    task = prepare(args.data, "500x375", args.batch_size, args.threads, None, quick=args.quick)
    folder = Path(task.samples[0][0]).parent
    if args.quick:
        args.repetitions = 1
    kinds, _ = installed({"cuaug": STARTERS["cuaug"]} if args.quick else STARTERS)
    calls = {name: partial(measure, name, folder, args) for name in kinds}
    result: dict[str, Any] = circumstances(["torch", *(STARTERS[name].package for name in calls)])
    result["settings"] = {key: getattr(args, key) for key in ("threads", "batch_size", "repetitions", "quick")}
    result["goals"] = GOALS
    # The first turn compiles the modules.
    times = in_turns(calls, args.repetitions, show=lambda run: f"{run.from_start:.1f} ({run.warm:.2f})")
    print(f"  {'seconds to the first batch':28}{'from start':>12}{'from construction':>20}{'warm':>8}{'import':>10}")
    result["seconds"] = {}
    for name, runs in times.items():
        columns = zip(Seconds._fields, zip(*runs, strict=True), strict=True)
        result["seconds"][name] = row = {field: spread(column) for field, column in columns}
        print(f"  {name:28}" + "".join(f"{row[f]['median']:{w}.2f}" for f, w in zip(row, (12, 20, 8, 10), strict=True)))
    for field, goal in GOALS.items():
        median = result["seconds"]["cuaug"][field]["median"]
        print(f"  goal for cuaug, {field}: {goal} s, {'met' if median <= goal else 'missed'} ({median:.3f} s)")
    write_json(args.out, result, "first_batch.json")


if __name__ == "__main__":
    main()
