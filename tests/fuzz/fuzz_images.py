"""Decodes damaged images and reports broken promises. It runs in its own process because it may crash.

    python -m tests.fuzz.fuzz_images --seed 7 --count 100000                                a campaign
    python -m tests.fuzz.fuzz_images --seed 7 --first 1234 --count 1 --keep damaged.bin     one case of it again

Promises for every damaged image:
- a header within the pixel limit, or a `DecodeError` whose cause is one line;
- pixels of the header's size, or a `DecodeError`; the same for a region;
- the same outcome for any previous memory content: no pixels of a neighbor appear;
- little time and memory;
- a sound image decoded next is unharmed.
Every tenth image also goes through a `Loader`, between sound images; its errors must name path and index.

The fuzzer writes each case to --mark before it starts, so the caller knows which one crashed. A hang ends the
process after --deadline seconds, with the tracebacks of all threads.
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
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cuaug import DecodeOptions, Loader
from cuaug import transforms as T
from cuaug.codec import CpuDecoder, read_header, read_multichannel
from cuaug.errors import DecodeError
from tests.fuzz.mutations import mutate
from tests.support.codec.memory import fill_fresh_memory, peak_bytes
from tests.support.codec.originals import ORIGINALS, PICTURES
from tests.tools.corpus import CORPUS, stored_images

# The seeds are files of the corpus, so that a case is the same whatever Pillow's version is.
SEEDS, PICTURE_SEEDS = stored_images(ORIGINALS), stored_images(PICTURES)
#: Inputs that once broke a promise, by name.
FOUND = {path.name: path.read_bytes() for path in sorted((CORPUS / "found" / "images").iterdir())}

MAX_PIXELS = 1 << 20
MAX_SECONDS = 2.0  # CPU time of one case, which does not depend on the machine's load
MAX_BYTES = 64 << 20  # above the previous peak, for one case; an image of MAX_PIXELS takes 3 to 20 MiB
LOADER_SHARE, LOADER_GROUP = 10, 40
WARM_UP = 200  # cases before memory is counted
ARM_EVERY = 20  # cases under one deadline: setting it costs more than a case
GOOD = [ORIGINALS[name] for name in ("jpeg 4:20", "png rgba", "webp rgb", "jpeg progressive", "jpeg cmyk adobe")]


@dataclass(frozen=True)
class Case:
    """One damaged image, and the numbers that make it again."""

    seed: int
    number: int
    original: str
    mutations: str
    data: bytes

    def __str__(self) -> str:
        return f"seed {self.seed}, case {self.number} ({self.original!r} after {self.mutations})"


def make_case(seed: int, number: int, originals: dict[str, bytes] = SEEDS) -> Case:
    """The damaged image of this number; the same in every run."""
    rng = random.Random(f"{seed} {number}")
    name, other = rng.choice(list(originals)), rng.choice(list(originals))
    data, mutations = mutate(rng, originals[name], originals[other])
    return Case(seed, number, name, mutations, data)


class Fuzzer:
    """Runs cases. `broken` lists broken promises, `counts` the outcomes.

    Args:
        decoder: the decoder under test.
    """

    def __init__(self, decoder: CpuDecoder | None = None) -> None:
        self.broken: list[str] = []
        self.counts = {"decoded": 0, "refused": 0, "through the loader": 0}
        self.slowest, self.largest = (0.0, ""), (0, "")
        self._decoder = CpuDecoder() if decoder is None else decoder
        self._good = [(data, CpuDecoder().decode(read_header(data)).copy()) for data in GOOD]

    def try_decoder(self, case: Case) -> None:
        start, before = time.process_time(), peak_bytes()
        try:
            first, again = self._outcomes(case, filled=0x11), self._outcomes(case, filled=0xEE)
        except Exception as error:
            self.broken.append(f"{case}: {type(error).__name__}: {error}")
            first = again = ["", ""]
        self.counts["refused" if isinstance(first[0], str) else "decoded"] += 1
        self._check_cost(case, time.process_time() - start, peak_bytes() - before)
        for name, a, b in zip(("image", "region"), first, again, strict=True):
            if not np.array_equal(a, b):
                self.broken.append(f"{case}: its {name} depends on uninitialized memory")
        data, expected = self._good[case.number % len(self._good)]
        if not np.array_equal(self._decoder.decode(read_header(data)), expected):
            self.broken.append(f"{case}: the sound image decoded next was harmed")

    def _outcomes(self, case: Case, filled: int) -> list[np.ndarray | str]:
        """Decode the image, and a region of it: the pixels, or the cause of the DecodeError.

        The decoder's memory and all memory from `malloc` are first filled with a byte.
        """
        fill_fresh_memory(filled)
        rng = random.Random(case.number)
        try:
            header = read_header(case.data, apply_exif=rng.random() < 0.8, max_pixels=MAX_PIXELS, lossy=True)
        except DecodeError as error:
            return [_cause(error)] * 2
        h, w = header.height, header.width
        assert h >= 1 and w >= 1 and h * w <= MAX_PIXELS, f"a header of {h} x {w} pixels was accepted"
        y0, x0 = rng.randrange(h), rng.randrange(w)
        y1, x1 = rng.randint(y0 + 1, h), rng.randint(x0 + 1, w)
        outcomes: list[np.ndarray | str] = []
        for region, shape in ((None, (h, w, 3)), ((y0, x0, y1, x1), (y1 - y0, x1 - x0, 3))):
            self._decoder._memory.array[: 3 * h * w].fill(filled)
            try:
                pixels = self._decoder.decode(header, region)
            except DecodeError as error:
                outcomes.append(_cause(error))
                continue
            assert pixels.dtype == np.uint8 and pixels.shape == shape, f"{pixels.shape} where {shape} was promised"
            outcomes.append(pixels.copy())
        return outcomes

    def try_picture(self, case: Case) -> None:
        """Decode in another mode than RGB: the same pixels again, or a DecodeError of one line."""
        start, before = time.process_time(), peak_bytes()
        rng = random.Random(case.number)
        mode = rng.choice(("unchanged", "unchanged", "L", "RGBA"))
        options = {"apply_exif": rng.random() < 0.8, "max_pixels": MAX_PIXELS, "lossy": rng.random() < 0.5}
        outcomes: list[np.ndarray | str] = []
        for filled in (0x11, 0xEE):
            fill_fresh_memory(filled)
            try:
                pixels = read_multichannel(case.data, mode, **options)
                height, width, channels = pixels.shape
                assert 1 <= height * width <= MAX_PIXELS and 1 <= channels <= 16 and pixels.flags.c_contiguous
                assert pixels.dtype in ((np.uint8, np.uint16, np.float32) if mode == "unchanged" else (np.uint8,))
                outcomes.append(pixels.view(np.uint8))
            except DecodeError as error:
                outcomes.append(_cause(error))
            except Exception as error:
                self.broken.append(f"{case}: {mode}: {type(error).__name__}: {error}")
                return
        self.counts["refused" if isinstance(outcomes[0], str) else "decoded"] += 1
        self._check_cost(case, time.process_time() - start, peak_bytes() - before)
        if not np.array_equal(*outcomes):
            self.broken.append(f"{case}: its pixels depend on uninitialized memory")

    def _check_cost(self, case: Case, seconds: float, size: int) -> None:
        self.slowest, self.largest = max(self.slowest, (seconds, str(case))), max(self.largest, (size, str(case)))
        if seconds > MAX_SECONDS:
            self.broken.append(f"{case}: took {seconds:.1f} s of processor time")
        if size > MAX_BYTES:
            self.broken.append(f"{case}: took {size >> 20} MiB of memory")

    def try_loader(self, cases: list[Case]) -> None:
        """Load sound and damaged files alternately; the sound ones must equal those of a load without damage."""
        self.counts["through the loader"] += len(cases)
        with tempfile.TemporaryDirectory() as folder:
            good = [_write(folder, f"good{i}", data) for i, data in enumerate(GOOD)]
            mixed = [
                path
                for i, case in enumerate(cases)
                for path in (good[i % len(good)], _write(folder, f"case{case.number}", case.data))
            ]
            alone = [path if i % 2 == 0 else good[0] for i, path in enumerate(mixed)]
            got, expected = _load(mixed), _load(alone)
            for i in range(0, len(mixed), 2):
                if i not in got or not np.array_equal(got[i], expected[i]):
                    self.broken.append(f"{cases[i // 2]}: its neighbor in the batch changed")
            lost = [i for i in range(len(mixed)) if i not in got]
            if lost:
                self._raises(mixed, lost[0], cases[lost[0] // 2])

    def _raises(self, paths: list[str], index: int, case: Case) -> None:
        """The first skipped file is named with its path and index if errors are raised."""
        try:
            with _loader(paths, on_error="raise") as loader:
                for _ in loader:
                    pass
            self.broken.append(f"{case}: skipped, but not raised")
        except DecodeError as error:
            if (error.path, error.index) != (paths[index], index) or not error.cause:
                self.broken.append(f"{case}: named wrongly: {error}")


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
        seed=0,
        decode=DecodeOptions(max_pixels=MAX_PIXELS, lossy=True),
    )


def _load(paths: list[str]) -> dict[int, np.ndarray]:
    """{index: pixels} of the samples that were not skipped."""
    with _loader(paths, on_error="skip") as loader:
        return {
            label: image.numpy()
            for images, labels in loader
            for label, image in zip(labels.tolist(), images, strict=True)
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pictures", action="store_true", help="damage PICTURES, decoded in other modes than RGB")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--mark", default=os.devnull, help="a file for the arguments that repeat the current case")
    parser.add_argument("--keep", help="a file for the last damaged image")
    parser.add_argument("--deadline", type=float, default=600.0)
    arguments = parser.parse_args()
    faulthandler.enable()
    logging.getLogger("cuaug").setLevel(logging.ERROR)  # no line for each damaged file
    warnings.simplefilter("ignore")  # Pillow's, likewise
    mark = os.open(arguments.mark, os.O_WRONLY | os.O_CREAT)
    fuzzer = Fuzzer()
    group: list[Case] = []
    baseline = peak_bytes()
    end = arguments.first + arguments.count
    for number in range(arguments.first, end):
        if number == arguments.first + WARM_UP:
            baseline = peak_bytes()
        case = make_case(arguments.seed, number, PICTURE_SEEDS if arguments.pictures else SEEDS)
        os.pwrite(mark, f"--seed {arguments.seed} --first {number} --count 1".ljust(60).encode(), 0)
        if arguments.keep:
            Path(arguments.keep).write_bytes(case.data)
        if number % ARM_EVERY == 0 or number == arguments.first:
            faulthandler.dump_traceback_later(arguments.deadline, exit=True)
        if arguments.pictures:
            fuzzer.try_picture(case)
            continue
        fuzzer.try_decoder(case)
        if number % LOADER_SHARE == 0:
            group.append(case)
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
