"""Decodes damaged pictures, one after another, and reports what broke a promise. A process of its own: it may crash.

    python -m tests.codec.fuzzer --seed 7 --count 100000                                a campaign
    python -m tests.codec.fuzzer --seed 7 --first 1234 --count 1 --keep damaged.bin     one case of it again

Of every damaged picture it asks:
- a header or a `DecodeError` with its cause in a line; no header above the limit of pixels;
- pixels of the size that the header tells, or a `DecodeError`; the same for a region of it;
- the same outcome whatever was in memory before: nothing of a neighbour shows in a picture;
- little time and memory;
- a good picture decoded next is unharmed.
Of every tenth it asks the same of a `Loader`, with good pictures between, and that its errors tell path and index.
Before each case it writes the case's number to --mark, so that who started it can tell which one crashed it. A case
that hangs ends the process after --deadline seconds, with the tracebacks of all its threads.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cuaug import DecodeOptions, Loader
from cuaug import transforms as T
from cuaug.codec import CpuDecoder, read_header
from cuaug.errors import DecodeError
from tests.codec.memory import fill_fresh_memory, peak_bytes
from tests.codec.mutations import mutate
from tests.codec.originals import ORIGINALS

__all__ = ["Case", "Fuzzer", "case"]

MAX_PIXELS = 1 << 20
MOST_SECONDS = 2.0  # of processor time, for one case: a slow machine is not a slow decoder
MOST_BYTES = 64 << 20  # above the highest before, for one case; a picture of MAX_PIXELS takes 3 to 20 MiB
LOADER_SHARE, LOADER_GROUP = 10, 40
WARM_UP = 200  # cases before memory is counted
ARM_EVERY = 20  # cases under one deadline: setting it costs more than a case
GOOD = [ORIGINALS[name] for name in ("jpeg 4:20", "png rgba", "webp rgb", "jpeg progressive", "jpeg cmyk adobe")]


@dataclass(frozen=True)
class Case:
    """One damaged picture, and how to make it again."""

    seed: int
    number: int
    original: str
    mutations: str
    data: bytes

    def __str__(self) -> str:
        return f"seed {self.seed}, case {self.number} ({self.original!r} after {self.mutations})"


def case(seed: int, number: int) -> Case:
    """The damaged picture of this number, the same in every run (where Pillow encodes the originals alike)."""
    rng = random.Random(f"{seed} {number}")
    name, other = rng.choice(list(ORIGINALS)), rng.choice(list(ORIGINALS))
    data, mutations = mutate(rng, ORIGINALS[name], ORIGINALS[other])
    return Case(seed, number, name, mutations, data)


class Fuzzer:
    """Tries cases. `broken` says what went wrong, `counts` how they ended.

    Args:
        decoder: what decodes.
    """

    def __init__(self, decoder: CpuDecoder | None = None) -> None:
        self.broken: list[str] = []
        self.counts = {"pictures": 0, "refused": 0, "through the loader": 0}
        self.slowest, self.largest = (0.0, ""), (0, "")
        self._decoder = CpuDecoder() if decoder is None else decoder
        self._good = [(data, CpuDecoder().decode(read_header(data)).copy()) for data in GOOD]

    def try_decoder(self, what: Case) -> None:
        start, before = time.process_time(), peak_bytes()
        try:
            first, again = self._outcomes(what, filled=0x11), self._outcomes(what, filled=0xEE)
        except Exception as error:
            self.broken.append(f"{what}: {type(error).__name__}: {error}")
            first = again = ["", ""]
        seconds, size = time.process_time() - start, peak_bytes() - before
        self.slowest, self.largest = max(self.slowest, (seconds, str(what))), max(self.largest, (size, str(what)))
        self.counts["refused" if isinstance(first[0], str) else "pictures"] += 1
        if seconds > MOST_SECONDS:
            self.broken.append(f"{what}: took {seconds:.1f} s of processor time")
        if size > MOST_BYTES:
            self.broken.append(f"{what}: took {size >> 20} MiB of memory")
        for part, a, b in zip(("picture", "region"), first, again, strict=True):
            if not np.array_equal(a, b):
                self.broken.append(f"{what}: its {part} depends on what was in memory before")
        data, expected = self._good[what.number % len(self._good)]
        if not np.array_equal(self._decoder.decode(read_header(data)), expected):
            self.broken.append(f"{what}: the good picture decoded next was harmed")

    def _outcomes(self, what: Case, filled: int) -> list[np.ndarray | str]:
        """What becomes of the picture, and of a region of it: the pixels, or the cause of the DecodeError.

        The decoder's memory, and all that `malloc` hands out, is filled with a byte first.
        """
        fill_fresh_memory(filled)
        rng = random.Random(what.number)
        try:
            header = read_header(what.data, apply_exif=rng.random() < 0.8, max_pixels=MAX_PIXELS)
        except DecodeError as error:
            return [_cause(error)] * 2
        h, w = header.height, header.width
        assert h >= 1 and w >= 1 and h * w <= MAX_PIXELS, f"a header of {h} x {w} pixels was let through"
        y0, x0 = rng.randrange(h), rng.randrange(w)
        y1, x1 = rng.randint(y0 + 1, h), rng.randint(x0 + 1, w)
        outcomes: list[np.ndarray | str] = []
        for region, shape in ((None, (h, w, 3)), ((y0, x0, y1, x1), (y1 - y0, x1 - x0, 3))):
            self._decoder._slots[0].memory[: 3 * h * w].fill(filled)
            try:
                pixels = self._decoder.decode(header, region)
            except DecodeError as error:
                outcomes.append(_cause(error))
                continue
            assert pixels.dtype == np.uint8 and pixels.shape == shape, f"{pixels.shape} where {shape} was promised"
            outcomes.append(pixels.copy())
        return outcomes

    def try_loader(self, cases: list[Case]) -> None:
        """Good and damaged files in turns; the good ones come out as they do among good ones alone."""
        self.counts["through the loader"] += len(cases)
        with tempfile.TemporaryDirectory() as folder:
            good = [_write(folder, f"good{i}", data) for i, data in enumerate(GOOD)]
            mixed = [
                path
                for i, what in enumerate(cases)
                for path in (good[i % len(good)], _write(folder, f"case{what.number}", what.data))
            ]
            alone = [path if i % 2 == 0 else good[0] for i, path in enumerate(mixed)]
            got, expected = _load(mixed), _load(alone)
            for i in range(0, len(mixed), 2):
                if i not in got or not np.array_equal(got[i], expected[i]):
                    self.broken.append(f"{cases[i // 2]}: its neighbour in the batch changed")
            lost = [i for i in range(len(mixed)) if i not in got]
            if lost:
                self._raises(mixed, lost[0], cases[lost[0] // 2])

    def _raises(self, paths: list[str], index: int, what: Case) -> None:
        """The first file that was skipped is named with its path and index when errors are raised."""
        try:
            with _loader(paths, on_error="raise") as loader:
                for _ in loader:
                    pass
            self.broken.append(f"{what}: skipped, but not raised")
        except DecodeError as error:
            if (error.path, error.index) != (paths[index], index) or not error.cause:
                self.broken.append(f"{what}: named wrongly: {error}")


def _cause(error: DecodeError) -> str:
    assert error.cause and "\n" not in error.cause, f"no cause in one line: {error.cause!r}"
    return error.cause


def _write(folder: str, name: str, data: bytes) -> str:
    path = Path(folder, name)
    path.write_bytes(data)
    return str(path)


def _loader(paths: list[str], on_error: str) -> Loader:
    return Loader(
        paths,
        [T.RandomResizedCrop(24), T.RandomHorizontalFlip()],
        batch_size=16,
        threads=2,
        device="cpu",
        on_error=on_error,
        decode=DecodeOptions(max_pixels=MAX_PIXELS),
    )


def _load(paths: list[str]) -> dict[int, np.ndarray]:
    """Index -> pixels of those that were not skipped."""
    with _loader(paths, on_error="skip") as loader:
        return {
            label: image.numpy()
            for images, labels in loader
            for label, image in zip(labels.tolist(), images, strict=True)
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--mark", default=os.devnull, help="a file for the number of the case being tried")
    parser.add_argument("--keep", help="a file for the last damaged picture")
    parser.add_argument("--deadline", type=float, default=60.0)
    arguments = parser.parse_args()
    faulthandler.enable()
    logging.getLogger("cuaug").setLevel(logging.ERROR)  # not a line for each damaged file
    mark = os.open(arguments.mark, os.O_WRONLY | os.O_CREAT)
    fuzzer = Fuzzer()
    group: list[Case] = []
    baseline = peak_bytes()
    end = arguments.first + arguments.count
    for number in range(arguments.first, end):
        if number == arguments.first + WARM_UP:
            baseline = peak_bytes()
        what = case(arguments.seed, number)
        os.pwrite(mark, b"%20d" % number, 0)
        if arguments.keep:
            Path(arguments.keep).write_bytes(what.data)
        if number % ARM_EVERY == 0 or number == arguments.first:
            faulthandler.dump_traceback_later(arguments.deadline, exit=True)
        fuzzer.try_decoder(what)
        if number % LOADER_SHARE == 0:
            group.append(what)
        if len(group) == LOADER_GROUP or (group and number == end - 1):
            fuzzer.try_loader(group)
            group = []
    faulthandler.cancel_dump_traceback_later()
    report = {
        **fuzzer.counts,
        "broken": fuzzer.broken,
        "slowest": fuzzer.slowest,
        "largest": fuzzer.largest,
        "growth": peak_bytes() - baseline,
    }
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
