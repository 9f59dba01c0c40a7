"""Does a sample keep its pixels when something else changes? cuaug against DALI and a `DataLoader` in one run.

The same 24 JPEGs go through RandomResizedCrop(64), horizontal flip, colour jitter and normalising, for two epochs,
under a reference setting: batches of 4, two threads or workers, files in order. Then one thing at a time is changed,
and for each library it is counted how many of the samples still have, bit for bit, the pixels that they had in the
reference. The first two rows are controls: nothing changed must keep all of them, another seed none.

Each library is seeded as its documentation says:

- cuaug: `seed=`.
- DALI, the CPU pipeline: `seed=` of the pipeline, which seeds every operator that has no seed of its own; ranks get
  seed + rank, as in DALI's ImageNet example. Resumed by `Pipeline.checkpoint()`.
- DataLoader: PyTorch's note on reproducibility: `generator=` seeded, and a `worker_init_fn` that seeds NumPy and
  `random` from `torch.initial_seed()`; ranks get a `DistributedSampler` and seed + rank, so that they do not share
  draws. Pillow augments (examples/baseline.py), drawing from `random`. It is torchdata's `StatefulDataLoader`, the
  drop-in replacement that can be resumed, and the dataset saves its worker's generator, as torchdata's tutorial asks.

Where one file is left out, cuaug gets a sampler without it: a sample is its index in the source, and a source without
the file numbers those after it anew. The peers get a list without it and are compared by file.

    pip install ".[bench]"
    python benchmarks/reproducibility.py --out benchmarks/results/reproducibility.json

Exits with 1 if cuaug misses a sample in any row, or a control does not hold.
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
GONE = 7  # the file that is left out or damaged
RESUME_AFTER = 3  # batches of the second epoch

Seen = dict[tuple[int, int], bytes]  # (epoch, file) -> a digest of the sample's pixels


@dataclass(frozen=True)
class Setting:
    """How the files are loaded. The defaults are the reference."""

    files: tuple[str, ...]
    indices: tuple[int, ...] = field(default=tuple(range(COUNT)))  # which of them, and in which order
    seed: int = 0
    batch_size: int = 4
    threads: int = 2
    prefetch: int = 2
    shuffle: bool = False
    ranks: int = 1


class Library(ABC):
    """One rank's loader, made with a setting; where `state` is given, it goes on from there."""

    name: ClassVar[str]
    package: ClassVar[str]

    @abstractmethod
    def __init__(self, setting: Setting, rank: int = 0, state: Any = None) -> None: ...

    @abstractmethod
    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The next epoch, or what is left of it: (images, which files they are) per batch."""

    @abstractmethod
    def state(self) -> Any:
        """What to go on from after the last batch of `epoch` that was taken."""

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
        self.batch_size, self.count = setting.batch_size, len(setting.indices) // setting.ranks  # here without a rest

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
                pad_last_batch=True,  # an epoch is whole batches, so the next one begins with a batch
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
    """The Pillow dataset; what it draws from is part of its state."""

    def state_dict(self) -> dict[str, Any]:
        return {"random": random.getstate()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        random.setstate(state["random"])


def seed_worker(worker: int) -> None:
    """As in PyTorch's note on reproducibility."""
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


def add(seen: Seen, epoch: int, batches: Iterator[tuple[Tensor, Tensor]]) -> None:
    """Notes what the samples of some batches look like."""
    for images, files in batches:
        for image, file in zip(images, files.tolist(), strict=True):
            if (epoch, file) in seen:
                raise AssertionError(f"file {file} came twice in epoch {epoch}")
            seen[epoch, file] = hashlib.sha256(image.numpy().tobytes()).digest()


def load(library: type[Library], setting: Setting) -> Seen:
    """Both epochs, gathered over the ranks."""
    seen: Seen = {}
    for rank in range(setting.ranks):
        with closing(library(setting, rank)) as loader:
            for epoch in range(EPOCHS):
                add(seen, epoch, loader.epoch())
    return seen


def resume(library: type[Library], setting: Setting) -> Seen:
    """What comes after going on in the middle of the second epoch, in a loader made anew."""
    with closing(library(setting)) as loader:
        for _ in loader.epoch():
            pass
        for _ in islice(loader.epoch(), RESUME_AFTER):
            pass
        state = loader.state()
    seen: Seen = {}
    with closing(library(setting, state=state)) as loader:
        add(seen, 1, loader.epoch())
    return seen


def changes(setting: Setting, damaged: tuple[str, ...]) -> dict[str, Setting]:
    """What is changed, one thing at a time."""
    without = tuple(i for i in setting.indices if i != GONE)
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


def compare(reference: Seen, seen: Seen, wanted: list[tuple[int, int]]) -> dict[str, Any]:
    """How many of the wanted samples came with the reference's pixels."""
    return {"kept": sum(seen.get(key) == reference[key] for key in wanted), "of": len(wanted)}


def measure(library: type[Library], setting: Setting, damaged: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """A row per change: how many samples kept their pixels, or the error that stopped it."""
    reference = load(library, setting)
    every = [(epoch, file) for epoch in range(EPOCHS) for file in range(COUNT)]
    if sorted(reference) != every or len(set(reference.values())) != len(every):
        raise AssertionError(f"{library.name}: the reference is not {len(every)} different samples")
    rows: dict[str, dict[str, Any]] = {}
    for change, changed in changes(setting, damaged).items():
        lost = GONE if change.startswith("one file") else None
        try:
            rows[change] = compare(reference, load(library, changed), [key for key in every if key[1] != lost])
        except (RuntimeError, OSError) as error:  # DALI's names the file, Pillow's says what is wrong with it
            if library is Cuaug or "truncated" not in str(error):
                raise
            rows[change] = {"error": type(error).__name__}
    left = [(1, file) for file in range(RESUME_AFTER * setting.batch_size, COUNT)]
    rows["resumed in mid-epoch"] = compare(reference, resume(library, setting), left)
    return rows


def entry(row: dict[str, Any]) -> str:
    return "stops" if "error" in row else f"{row['kept']} of {row['of']}"


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Rows: what was changed; columns: the libraries."""
    changed = list(next(iter(results.values())))
    lines = [f"  {'changed':24}" + "".join(f"{name:>14}" for name in results)]
    lines += [f"  {row:24}" + "".join(f"{entry(rows[row]):>14}" for rows in results.values()) for row in changed]
    return "\n".join(lines)


def failures(results: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Where cuaug misses a sample, or a control does not hold."""
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

    logging.getLogger("cuaug").setLevel(logging.ERROR)  # the damaged file is ours
    warnings.filterwarnings("ignore", module="torchdata")  # three workers on two cores are meant
    multiprocessing.set_forkserver_preload(["baseline", "torchdata.stateful_dataloader"])
    result = circumstances(["torch", "numpy", "pillow", *(library.package for library in LIBRARIES)])
    with tempfile.TemporaryDirectory() as folder:
        root = write_photos(Path(folder) / "photos", COUNT, 120, 160)
        files = tuple(str(file) for file in sorted(root.glob("*.jpg")))
        truncated = Path(folder) / "truncated.jpg"
        data = Path(files[GONE]).read_bytes()
        truncated.write_bytes(data[: len(data) // 2])
        damaged = (*files[:GONE], str(truncated), *files[GONE + 1 :])
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
