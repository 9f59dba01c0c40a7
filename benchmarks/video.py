"""Clips per second from video files to float32 batches, cuaug beside torchcodec, decord2 and PyAV.

A clip has 16 frames, at stride 4 or 1; RandomResizedCrop(112), flip and normalize follow. Videos of 340 x 256 and
1280 x 720 have key frames every 32 or 250 frames. All contenders load the same clips, drawn once: at random places, or
in the middle of each video ("uniform"). Each has two threads or two worker processes.

Each contender runs in a process of its own, which waits while the others take their turns. A turn is one epoch, after
an untimed one. CPU time includes worker processes; other programs disturb it less than the clock.

    python benchmarks/video.py --out benchmarks/results/video.json
"""

from __future__ import annotations

import importlib
import multiprocessing
import random
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peers.clips import CLIP_CONTENDERS, ClipContender, ClipTask
from report import circumstances, in_turns, options, processor_seconds, ratios, spread, write_json
from synthetic_videos import FRAMES, write_videos

#: height, width, bits per second, clips of a turn
SIZES = {"340x256": (256, 340, 400_000, 48), "1280x720": (720, 1280, 2_000_000, 24)}
KEY_DISTANCES = (32, 250)
SAMPLINGS = {"random, stride 4": (4, False), "random, stride 1": (1, False), "uniform, stride 4": (4, True)}
OWN = "cuaug"


@dataclass(frozen=True)
class Case:
    """One row of the result."""

    size: str
    key_distance: int
    sampling: str

    def __str__(self) -> str:
        return f"{self.size}, key frames every {self.key_distance}, {self.sampling}"

    def task(self, data: Path, videos: int, share: float) -> ClipTask:
        """The case's clips; missing videos are written first."""
        height, width, bitrate, count = SIZES[self.size]
        folder = data / f"videos-{self.size}-{self.key_distance}"
        paths = write_videos(folder, videos, height, width, key_distance=self.key_distance, bitrate=bitrate)
        stride, uniform = SAMPLINGS[self.sampling]
        task = ClipTask((), stride, uniform)
        last = FRAMES - (task.frames - 1) * stride - 1  # where a clip may begin at most
        count = max(1, round(count * share / task.batch_size)) * task.batch_size
        rng = random.Random(0)
        starts = [last // 2 if uniform else rng.randint(0, last) for _ in range(count)]
        return ClipTask(tuple((paths[i % videos], start) for i, start in enumerate(starts)), stride, uniform)


def check(contender: ClipContender) -> None:
    """Run one epoch and check its output.

    Raises:
        AssertionError: a clip is missing or repeated, or a batch has the wrong shape, dtype or values.
    """
    task, seen = contender.task, []
    for clips, labels in contender.epoch():
        if clips.shape != (task.batch_size, task.frames, 3, task.size, task.size) or clips.dtype != torch.float32:
            raise AssertionError(f"a batch is {tuple(clips.shape)} {clips.dtype}")
        if not (-1.5 < float(clips.mean()) < 1.5 and 0.2 < float(clips.std()) < 2):
            raise AssertionError(f"mean {float(clips.mean()):.2f}, standard deviation {float(clips.std()):.2f}")
        seen += labels.tolist()
    if sorted(seen) != list(range(len(task.clips))):
        raise AssertionError(f"{len(seen)} clips of {len(set(seen))}; expected {len(task.clips)} once each")


def serve(name: str, tasks: Any) -> None:
    """A contender's process: receives a task, warms up, and sends the clip's frames; times an epoch per request.

    Requests are a `ClipTask`, "turn", or None to end.
    """
    contender: ClipContender | None = None
    while (request := tasks.recv()) is not None:
        if isinstance(request, ClipTask):
            if contender is not None:
                contender.close()
            contender = CLIP_CONTENDERS[name](request)
            check(contender)
            tasks.send(contender.frames(0).numpy())
            continue
        assert contender is not None
        count, before, start = 0, processor_seconds(), time.perf_counter()
        for clips, _ in contender.epoch():
            count += len(clips)
        elapsed = time.perf_counter() - start
        tasks.send((count / elapsed, 1000 * (processor_seconds() - before) / count))
    if contender is not None:
        contender.close()


class Process:
    """The parent's end of a contender's process."""

    def __init__(self, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(name, theirs), name=name)
        self._process.start()
        theirs.close()

    def ask(self, request: Any) -> Any:
        """Send a request and wait for its answer.

        Raises:
            EOFError: the process ended; it has printed why.
        """
        self._pipe.send(request)
        return self._pipe.recv()

    def close(self) -> None:
        if self._process.is_alive():
            self._pipe.send(None)
        self._process.join()


def measure(task: ClipTask, processes: dict[str, Process], repetitions: int) -> dict[str, Any]:
    """Medians and ranges of each contender, and of cuaug's ratios to it per repetition.

    Raises:
        AssertionError: a contender decodes other frames than cuaug.
    """
    frames = {name: process.ask(task).astype("int16") for name, process in processes.items()}
    for name, theirs in frames.items():
        # Conversions to RGB differ a little; the next frame differs by more.
        difference = abs(theirs - frames[OWN]).mean()
        if not difference < min(3, abs(theirs[1:] - frames[OWN][:-1]).mean() / 2):
            raise AssertionError(f"{name}: the frames of clip {task.clips[0]} differ by {difference:.2f} levels")
    turns = in_turns(
        {name: partial(process.ask, "turn") for name, process in processes.items()}, repetitions, warm_up=0
    )
    own_rates, own_cpu = zip(*turns[OWN], strict=True)
    result: dict[str, Any] = {}
    for name, values in turns.items():
        rates, cpu = zip(*values, strict=True)
        result[name] = {"clips_per_second": spread(rates), "cpu_milliseconds_per_clip": spread(cpu)}
        if name != OWN:
            result[name] |= {"cuaug_to_this": ratios(own_rates, rates), "cuaug_to_this_by_cpu": ratios(cpu, own_cpu)}
    return result


def main() -> None:
    videos, share = (6, "of each size and key distance"), (1.0, "of the default number of clips in a turn")
    parser = options(__doc__, data="videos", videos=videos, share=share, repetitions=3)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    args = parser.parse_args()
    names, left_out = [], {}
    for name, kind in CLIP_CONTENDERS.items():
        try:
            importlib.import_module(kind.module)
            names.append(name)
        except (ImportError, RuntimeError, OSError) as error:  # torchcodec raises RuntimeError without FFmpeg
            left_out[name] = str(error).partition("\n")[0]
            print(f"{name} is left out: {left_out[name]}")
    if OWN not in names:
        raise SystemExit("PyAV is missing: pip install 'cuaug[video]'")
    result = circumstances(["torch", *(CLIP_CONTENDERS[name].package for name in names)])
    result["settings"] = {"frames": 16, "size": 112, "workers": 2, "videos": args.videos, "share": args.share}
    result["left_out"], result["cases"] = left_out, {}
    processes = {name: Process(name) for name in names}
    try:
        for case in (Case(s, k, p) for s in args.sizes for k in KEY_DISTANCES for p in SAMPLINGS):
            found = measure(case.task(args.data, args.videos, args.share), processes, args.repetitions)
            result["cases"][str(case)] = found
            print(case)
            for name, row in found.items():
                line = f"  {name:11}{row['clips_per_second']['median']:8.2f} clips/s"
                line += f"{row['cpu_milliseconds_per_clip']['median']:9.1f} CPU ms/clip"
                if name != OWN:
                    line += f"   cuaug: {row['cuaug_to_this']['median']:.2f} times"
                    line += f", by CPU {row['cuaug_to_this_by_cpu']['median']:.2f}"
                print(line, flush=True)
            write_json(args.out, result)
    finally:
        for process in processes.values():
            process.close()


if __name__ == "__main__":
    main()
