"""The overhead of a loader's own measurements: nanoseconds per sample, without and during a profile.

One thread calls a `Recorder` as a worker does for eight samples: a task that reads and parses, and a task that decodes
and augments, with no work in between. "no clock" runs the same loops with an empty function.

    python benchmarks/recording.py --out benchmarks/results/recording.json
"""

from __future__ import annotations

from collections.abc import Callable

from report import circumstances, parse, print_spreads, spread, take_turns, write_json

from cuaug.pipeline.config import SAMPLES_PER_TASK, RuntimeConfig
from cuaug.profiling.recorder import Recorder
from cuaug.profiling.timeline import Profile

TASKS = 2000


def measured(recorder: Recorder) -> None:
    """The measurements of eight samples, as in `cuaug.pipeline.job` and `cpu`."""
    with recorder.at(batch=1) as clock:
        for sample in range(SAMPLES_PER_TASK):
            clock.at("read", sample)
        clock.at("parse")
    with recorder.at(batch=1) as clock:
        for sample in range(SAMPLES_PER_TASK):
            clock.at("decode", sample)
            clock.at("augment", sample)


def no_op(*_: object) -> None: ...


def unmeasured(recorder: Recorder) -> None:
    for sample in range(SAMPLES_PER_TASK):
        no_op("read", sample)
    no_op("parse")
    for sample in range(SAMPLES_PER_TASK):
        no_op("decode", sample)
        no_op("augment", sample)


def repeated(work: Callable[[Recorder], None], *, profile: bool = False) -> Callable[[], None]:
    def run() -> None:
        recorder = Recorder(RuntimeConfig("cpu", 1, 2))
        if profile:
            with Profile(recorder):
                for _ in range(TASKS):
                    work(recorder)
        else:
            for _ in range(TASKS):
                work(recorder)

    return run


def main() -> None:
    arguments = parse(__doc__, repetitions=15)
    contenders = {
        "no clock": (1, repeated(unmeasured)),
        "totals, always on": (1, repeated(measured)),
        "while a profile is taken": (1, repeated(measured, profile=True)),
    }
    times = take_turns(contenders, arguments.repetitions)
    nanoseconds = {
        name: spread([value * 1e6 / (TASKS * SAMPLES_PER_TASK) for value in values]) for name, values in times.items()
    }
    print("nanoseconds per sample: median, range")
    print_spreads(nanoseconds)
    if arguments.out:
        write_json(arguments.out, circumstances(["numpy", "torch"]) | {"nanoseconds_per_sample": nanoseconds})


if __name__ == "__main__":
    main()
