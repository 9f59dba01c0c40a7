"""Samples that keep their pixels when one setting changes: cuaug, DALI and a `DataLoader` in one run.

24 JPEGs go through RandomResizedCrop(64), horizontal flip, color jitter and normalizing, for two epochs. The reference
setting has batches of 4, two threads or workers, and files in order. Each row changes one setting and counts the
samples with the reference's pixels, bit for bit. Two rows are controls: nothing changed must keep all samples, another
seed must keep none.

Each library is seeded as its documentation says:

- cuaug: `seed=`.
- DALI's CPU pipeline: `seed=` of the pipeline, and seed + rank for ranks, as in DALI's ImageNet example. It resumes by
  `Pipeline.checkpoint()`.
- DataLoader: a seeded `generator=` and a `worker_init_fn` that seeds NumPy and `random` (PyTorch's note on
  reproducibility). Ranks get a `DistributedSampler` and seed + rank. Pillow augments (examples/baseline.py). It is
  torchdata's `StatefulDataLoader`, which resumes; the dataset saves its worker's generator, as its tutorial asks.

In the row "one file left out" cuaug gets a sampler without the file, since a source without it numbers later files
anew. The peers get a list without it and are compared by file.

    pip install ".[bench]"
    python benchmarks/reproducibility.py --out benchmarks/results/reproducibility.json

Exit status 1 if cuaug loses a sample in any row, or a control fails.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import multiprocessing
import random
import sys
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from baseline import IMAGENET_MEAN, IMAGENET_STD, PillowImages
from photos import write_photos
from report import circumstances, write_json

COUNT, EPOCHS, SIZE = 24, 2, 64
JITTER = (0.4, 0.4, 0.4)  # brightness, contrast, saturation
AFFECTED_FILE = 7  # left out or damaged
RESUME_AFTER = 3  # batches of the second epoch

Digests = dict[tuple[int, int], bytes]  # (epoch, file) -> SHA-256 of the sample's pixels


@dataclass(frozen=True)
class Setting:
    """Settings of a loader. The defaults are the reference."""

    files: tuple[str, ...]
    indices: tuple[int, ...] = field(default=tuple(range(COUNT)))  # of `files`, in loading order
    seed: int = 0
    batch_size: int = 4
    threads: int = 2
    prefetch: int = 2
    shuffle: bool = False
    ranks: int = 1


class Library(ABC):
    """One rank's loader with a setting. It resumes from `state` if given."""

    name: ClassVar[str]
    package: ClassVar[str]

    @abstractmethod
    def __init__(self, setting: Setting, rank: int = 0, state: Any = None) -> None: ...

    @abstractmethod
    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The next epoch, or the rest of it: (images, file indices) per batch."""

    @abstractmethod
    def state(self) -> Any:
        """State to resume from, after the last batch taken from `epoch`."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Stop threads and worker processes."""


class Cuaug(Library):
    name, package = "cuaug", "cuaug"

    def __init__(self, setting: Setting, rank: int = 0, state: Any = None) -> None:
        import cuaug
        from cuaug import transforms as T

        in_order = setting.indices == tuple(range(COUNT))
        self.loader = cuaug.Loader(
            setting.files,
            [
                T.RandomResizedCrop(SIZE),
                T.RandomHorizontalFlip(),
                T.ColorJitter(*JITTER),
                T.Normalize(IMAGENET_MEAN, IMAGENET_STD),
            ],
            batch_size=setting.batch_size,
            shuffle=setting.shuffle,
            sampler=None if in_order else setting.indices,
            seed=setting.seed,
            threads=setting.threads,
            prefetch=setting.prefetch,
            rank=rank,
            world_size=setting.ranks,
            on_error="skip",
            device="cpu",
        )
        if state is not None:
            self.loader.load_state_dict(state)

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.loader)

    def state(self) -> Any:
        return self.loader.state_dict()

    def close(self) -> None:
        self.loader.close()


class Dali(Library):
    name, package = "DALI", "nvidia-dali-cuda120"

    def __init__(self, setting: Setting, rank: int = 0, state: Any = None) -> None:
        from nvidia.dali import fn, pipeline_def, types

        checkpoint, self.position = (None, 0) if state is None else state
        self.batch_size, self.count = (
            setting.batch_size,
            len(setting.indices) // setting.ranks,
        )  # divides evenly in every row

        @pipeline_def(
            batch_size=setting.batch_size,
            num_threads=setting.threads,
            device_id=None,
            seed=setting.seed + rank,
            prefetch_queue_depth=setting.prefetch,
            enable_checkpointing=True,
            checkpoint=checkpoint,
        )
        def chain():  # type: ignore[no-untyped-def]
            encoded, label = fn.readers.file(
                files=[setting.files[i] for i in setting.indices],
                labels=list(setting.indices),
                random_shuffle=setting.shuffle,
                shard_id=rank,
                num_shards=setting.ranks,
                pad_last_batch=True,  # epochs are whole batches, so the next one starts with a batch
            )
            image = fn.decoders.image_random_crop(encoded, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
            image = fn.resize(image, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=True)
            brightness, contrast, saturation = (fn.random.uniform(range=[1 - v, 1 + v]) for v in JITTER)
            image = fn.color_twist(image, brightness=brightness, contrast=contrast, saturation=saturation)
            image = fn.crop_mirror_normalize(
                image,
                dtype=types.FLOAT,
                output_layout="CHW",
                mean=[255 * value for value in IMAGENET_MEAN],
                std=[255 * value for value in IMAGENET_STD],
                mirror=fn.random.coin_flip(),
            )
            return image, label

        self.pipeline = chain()
        self.pipeline.build()

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        while (left := self.count - self.position * self.batch_size) > 0:
            images, labels = (torch.from_numpy(output.as_array().copy()) for output in self.pipeline.run())
            self.position += 1
            yield images[:left], labels[:left].flatten()
        self.position = 0

    def state(self) -> Any:
        return self.pipeline.checkpoint(), self.position


class Images(PillowImages):
    """The Pillow dataset, with the state of `random`, from which it draws."""

    def state_dict(self) -> dict[str, Any]:
        return {"random": random.getstate()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        random.setstate(state["random"])


def seed_worker(worker: int) -> None:
    """Seed NumPy and `random`, as in PyTorch's note on reproducibility."""
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


class DataLoader(Library):
    name, package = "DataLoader", "torchdata"

    def __init__(self, setting: Setting, rank: int = 0, state: Any = None) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader

        images = Images([(setting.files[i], i) for i in setting.indices], SIZE, jitter=JITTER)
        self.sampler = None
        if setting.ranks > 1:
            self.sampler = DistributedSampler(images, setting.ranks, rank, shuffle=setting.shuffle, seed=setting.seed)
        self.epochs = 0
        self.loader = StatefulDataLoader(
            images,
            setting.batch_size,
            shuffle=setting.shuffle if self.sampler is None else None,
            sampler=self.sampler,
            num_workers=setting.threads,
            prefetch_factor=setting.prefetch,
            worker_init_fn=seed_worker,
            multiprocessing_context="forkserver",
            generator=torch.Generator().manual_seed(setting.seed + rank),
        )
        if state is not None:
            self.loader.load_state_dict(state)

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.sampler is not None:
            self.sampler.set_epoch(self.epochs)
        self.epochs += 1
        return iter(self.loader)

    def state(self) -> Any:
        return self.loader.state_dict()


LIBRARIES: tuple[type[Library], ...] = (Cuaug, Dali, DataLoader)


def add_digests(digests: Digests, epoch: int, batches: Iterator[tuple[Tensor, Tensor]]) -> None:
    """Add the digests of these batches' samples."""
    for images, files in batches:
        for image, file in zip(images, files.tolist(), strict=True):
            if (epoch, file) in digests:
                raise AssertionError(f"file {file} came twice in epoch {epoch}")
            digests[epoch, file] = hashlib.sha256(image.numpy().tobytes()).digest()


def load(library: type[Library], setting: Setting) -> Digests:
    """Digests of both epochs, gathered over the ranks."""
    digests: Digests = {}
    for rank in range(setting.ranks):
        with closing(library(setting, rank)) as loader:
            for epoch in range(EPOCHS):
                add_digests(digests, epoch, loader.epoch())
    return digests


def resume(library: type[Library], setting: Setting) -> Digests:
    """Digests of the second epoch's rest, loaded by a new loader from the first one's state."""
    with closing(library(setting)) as loader:
        for _ in loader.epoch():
            pass
        for _ in islice(loader.epoch(), RESUME_AFTER):
            pass
        state = loader.state()
    digests: Digests = {}
    with closing(library(setting, state=state)) as loader:
        add_digests(digests, 1, loader.epoch())
    return digests


def changes(setting: Setting, damaged: tuple[str, ...]) -> dict[str, Setting]:
    """Row -> setting: the reference with one change."""
    without = tuple(i for i in setting.indices if i != AFFECTED_FILE)
    return {
        "nothing (control)": setting,
        "the seed (control)": replace(setting, seed=1),
        "batches of 1": replace(setting, batch_size=1),
        "batches of 7": replace(setting, batch_size=7),
        "1 thread or worker": replace(setting, threads=1),
        "3 threads or workers": replace(setting, threads=3),
        "prefetch 1": replace(setting, prefetch=1),
        "prefetch 4": replace(setting, prefetch=4),
        "shuffled": replace(setting, shuffle=True),
        "reverse order": replace(setting, indices=setting.indices[::-1]),
        "2 ranks": replace(setting, ranks=2),
        "3 ranks": replace(setting, ranks=3),
        "one file left out": replace(setting, indices=without),
        "one file damaged": replace(setting, files=damaged),
    }


def compare(reference: Digests, digests: Digests, keys: list[tuple[int, int]]) -> dict[str, Any]:
    """How many of the samples `keys` have the reference's pixels."""
    return {"kept": sum(digests.get(key) == reference[key] for key in keys), "of": len(keys)}


def measure(library: type[Library], setting: Setting, damaged: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """A row per change: the number of samples that kept their pixels, or the error that stopped loading."""
    reference = load(library, setting)
    keys = [(epoch, file) for epoch in range(EPOCHS) for file in range(COUNT)]
    if sorted(reference) != keys or len(set(reference.values())) != len(keys):
        raise AssertionError(f"{library.name}: expected {len(keys)} different samples in the reference")
    rows: dict[str, dict[str, Any]] = {}
    for change, changed in changes(setting, damaged).items():
        excluded = AFFECTED_FILE if change.startswith("one file") else None
        try:
            rows[change] = compare(reference, load(library, changed), [key for key in keys if key[1] != excluded])
        except (RuntimeError, OSError) as error:  # DALI and Pillow stop at the damaged file
            if library is Cuaug or "truncated" not in str(error):
                raise
            rows[change] = {"error": type(error).__name__}
    rest = [(1, file) for file in range(RESUME_AFTER * setting.batch_size, COUNT)]
    rows["resumed in mid-epoch"] = compare(reference, resume(library, setting), rest)
    return rows


def entry(row: dict[str, Any]) -> str:
    return "stops" if "error" in row else f"{row['kept']} of {row['of']}"


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """A table with a row per change and a column per library."""
    changes = list(next(iter(results.values())))
    lines = [f"  {'changed':24}" + "".join(f"{name:>14}" for name in results)]
    lines += [f"  {row:24}" + "".join(f"{entry(rows[row]):>14}" for rows in results.values()) for row in changes]
    return "\n".join(lines)


def failures(results: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Rows in which cuaug loses a sample or a control fails."""
    failed = []
    for name, rows in results.items():
        for change, row in rows.items():
            if "seed" in change:
                wrong = row["kept"] != 0
            elif "control" in change or name == Cuaug.name:
                wrong = row["kept"] != row["of"]
            else:
                wrong = False
            if wrong:
                failed.append(f"{name}, {change}: {entry(row)}")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()

    logging.getLogger("cuaug").setLevel(logging.ERROR)  # the damaged file is deliberate
    warnings.filterwarnings("ignore", module="torchdata")  # three workers on two cores are deliberate
    multiprocessing.set_forkserver_preload(["baseline", "torchdata.stateful_dataloader"])
    result = circumstances(["torch", "numpy", "pillow", *(library.package for library in LIBRARIES)])
    with tempfile.TemporaryDirectory() as folder:
        root = write_photos(Path(folder) / "photos", COUNT, 120, 160)
        files = tuple(str(file) for file in sorted(root.glob("*.jpg")))
        truncated = Path(folder) / "truncated.jpg"
        data = Path(files[AFFECTED_FILE]).read_bytes()
        truncated.write_bytes(data[: len(data) // 2])
        damaged = (*files[:AFFECTED_FILE], str(truncated), *files[AFFECTED_FILE + 1 :])
        results = {library.name: measure(library, Setting(files), damaged) for library in LIBRARIES}
    result["changed"] = results
    print(f"samples that keep their pixels, of {COUNT} files in {EPOCHS} epochs\n")
    print(table(results))
    if args.out:
        write_json(args.out, result)
        print(f"\nwritten to {args.out}")
    failed = failures(results)
    if failed:
        sys.exit("\n".join(["", *failed]))


if __name__ == "__main__":
    main()
