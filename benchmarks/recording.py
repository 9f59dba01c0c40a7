"""What it costs a loader to measure itself: nanoseconds a sample, without a profile and while one is taken.

One thread does to a `Recorder` what a worker does to it for eight samples, in a task to read and parse and a task to
decode and augment, with nothing in between. "no clock" is the same loops with calls of an empty function instead.

    python benchmarks/recording.py --out benchmarks/results/recording.json
"""

from __future__ import annotations

from collections.abc import Callable

from report import circumstances, parse, print_spreads, spread, take_turns, write_json

from cuaug.pipeline.config import SAMPLES_PER_TASK, RuntimeConfig
from cuaug.profiling.profile import Profile
from cuaug.profiling.recorder import Recorder

TASKS = 2000


def measured(recorder: Recorder) -> None:
    """What is measured of eight samples, as in `cuaug.pipeline.job` and `host`."""
    with recorder.at(batch=1) as clock:
        for sample in range(SAMPLES_PER_TASK):
            clock.at("read", sample)
        clock.at("parse")
    with recorder.at(batch=1) as clock:
        for sample in range(SAMPLES_PER_TASK):
            clock.at("decode", sample)
            clock.at("augment", sample)


def nothing(*_: object) -> None: ...


def unmeasured(recorder: Recorder) -> None:
    for sample in range(SAMPLES_PER_TASK):
        nothing("read", sample)
    nothing("parse")
    for sample in range(SAMPLES_PER_TASK):
        nothing("decode", sample)
        nothing("augment", sample)


def many(work: Callable[[Recorder], None], *, profile: bool = False) -> Callable[[], None]:
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
        "no clock": (1, many(unmeasured)),
        "totals, always on": (1, many(measured)),
        "while a profile is taken": (1, many(measured, profile=True)),
    }
    times = take_turns(contenders, arguments.repetitions)
    nanoseconds = {
        name: spread([value * 1e6 / (TASKS * SAMPLES_PER_TASK) for value in values]) for name, values in times.items()
    }
    print("nanoseconds a sample: median, range")
    print_spreads(nanoseconds)
    if arguments.out:
        write_json(arguments.out, circumstances(["numpy", "torch"]) | {"nanoseconds_per_sample": nanoseconds})


if __name__ == "__main__":
    main()
