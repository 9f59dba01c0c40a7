"""Cost of reading: the same photos through `cuaug.Loader` from every kind of source.

The chain is RandomResizedCrop(224), flip and normalization on two threads, as in end_to_end.py; only the source
differs. All sources hold the same bytes, except "dataset PIL", which decodes in the Dataset.

Ratios compare a source's epoch with that of `Files` in the same repetition: 1.10 means 10 % longer. They are given for
wall time and for the CPU time of all threads, which other work on the machine disturbs less. "read us" is the CPU time
of `read` alone, including the file, on one thread. The sources take turns, in a rotating order.

    python benchmarks/sources.py --out benchmarks/results/sources.json
"""

from __future__ import annotations

import argparse
import io
import struct
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from end_to_end import check
from peers import Contender, Task
from report import circumstances, spread, write_json
from suites import prepare

import cuaug
from cuaug import sources
from cuaug import transforms as T
from cuaug.sources.shards.tfrecord import masked_crc

SIZE = "500x375"


class Timing(NamedTuple):
    """Seconds per image.

    Attributes:
        wall: wall time of an epoch.
        cpu: CPU time of an epoch.
        read: CPU time of reading alone.
    """

    wall: float
    cpu: float
    read: float


class FromSource(Contender):
    """cuaug's loader on one source."""

    package = "cuaug"

    def __init__(self, task: Task, source: sources.Source) -> None:
        super().__init__(task)
        self.loader = cuaug.Loader(
            source,
            transforms=[T.RandomResizedCrop(task.size), T.RandomHorizontalFlip(), T.Normalize(task.mean, task.std)],
            batch_size=task.batch_size,
            shuffle=True,
            seed=task.seed,
            last_batch="drop",
            device="cpu",
            threads=task.threads,
        )

    def epoch(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return iter(self.loader)

    def close(self) -> None:
        self.loader.close()


class Photos(torch.utils.data.Dataset):
    """A Dataset in the style of users."""

    def __init__(self, samples: tuple[tuple[str, int], ...], load: Callable[[str], Any]) -> None:
        self.samples, self.load = samples, load

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.samples[index]
        return self.load(path), label


def read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def open_pillow(path: str) -> Any:
    from PIL import Image

    return Image.open(path)


# --- the same photos in other containers, written once under the data folder -----------------------------------------


def write_once(path: Path, write: Callable[[Path], None]) -> Path:
    """Writes `path` if missing, under a temporary name until complete; returns it."""
    if not path.exists():
        partial = path.with_name(f"partial-{path.name}")
        write(partial)
        partial.rename(path)
    return path


def write_tar(samples: tuple[tuple[str, int], ...], path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for file, label in samples:
            for name, data in ((f"{label:05d}.jpg", read_bytes(file)), (f"{label:05d}.cls", str(label).encode())):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


def write_tfrecord(samples: tuple[tuple[str, int], ...], path: Path) -> None:
    def varint(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + varint(value // 128)

    def block(number: int, content: bytes) -> bytes:
        return varint(8 * number + 2) + varint(len(content)) + content

    def entry(name: str, kind: int, value: bytes) -> bytes:
        return block(1, block(1, name.encode()) + block(2, block(kind, block(1, value))))

    with open(path, "wb") as out:
        for file, label in samples:
            fields = entry("image/encoded", 1, read_bytes(file)) + entry("image/class/label", 3, varint(label))
            record = block(1, fields)
            length = struct.pack("<Q", len(record))
            for part in (length, record):
                out.write(part + masked_crc(part))


def write_lmdb(samples: tuple[tuple[str, int], ...], path: Path) -> None:
    import lmdb

    with lmdb.open(str(path), map_size=1 << 34) as environment, environment.begin(write=True) as transaction:
        for file, label in samples:
            transaction.put(f"{label:05d}".encode(), read_bytes(file))


def write_hdf5(samples: tuple[tuple[str, int], ...], path: Path) -> None:
    import h5py
    import numpy as np

    with h5py.File(path, "w") as file:
        images = file.create_dataset("images", (len(samples),), dtype=h5py.vlen_dtype(np.uint8))
        for i, (name, _) in enumerate(samples):
            images[i] = np.frombuffer(read_bytes(name), np.uint8)
        file["labels"] = [label for _, label in samples]


def make_list(samples: tuple[tuple[str, int], ...], path: Path) -> None:
    path.write_text("".join(f"{Path(file).absolute()} {label}\n" for file, label in samples))


def contenders(task: Task, folder: Path) -> dict[str, Callable[[], sources.Source]]:
    """{name: function that opens the source}"""
    samples = task.samples
    name = f"{SIZE}-{len(samples)}"
    folder.mkdir(parents=True, exist_ok=True)

    def container(ending: str, write: Callable[[tuple[tuple[str, int], ...], Path], None]) -> Path:
        return write_once(folder / f"{name}{ending}", lambda path: write(samples, path))

    return {
        "files": lambda: sources.Files.from_entries(samples),
        "dataset paths": lambda: sources.FromDataset(Photos(samples, str)),
        "dataset bytes": lambda: sources.FromDataset(Photos(samples, read_bytes)),
        "list": lambda: sources.ListFile(container(".txt", make_list), root=Path.cwd()),
        "tar": lambda: sources.TarShards(container(".tar", write_tar)),
        "tfrecord": lambda: sources.TFRecord(container(".tfrecord", write_tfrecord)),
        "lmdb": lambda: sources.Lmdb(container(".lmdb", write_lmdb)),
        "hdf5": lambda: sources.Hdf5(container(".h5", write_hdf5)),
        "dataset PIL": lambda: sources.FromDataset(Photos(samples, open_pillow)),
    }


def measure(contender: FromSource, epochs: int) -> Timing:
    """Times whole epochs after a warm-up epoch, then an epoch of reading alone."""
    for _ in contender.epoch():
        pass
    start, cpu_start = time.perf_counter(), time.process_time()
    images = sum(len(batch) for _ in range(epochs) for batch, _ in contender.epoch())
    wall, cpu = (time.perf_counter() - start) / images, (time.process_time() - cpu_start) / images
    source = contender.loader.source
    start = time.thread_time()
    for i in range(len(source)):
        data, _ = source.read(i)
        if isinstance(data, str):
            read_bytes(data)
    return Timing(wall, cpu, (time.thread_time() - start) / len(source))


def summarize(timings: dict[str, list[Timing]]) -> dict[str, Any]:
    """Medians and ranges, and each source's time relative to `Files`, formed per repetition."""
    summary: dict[str, Any] = {}
    for name, values in timings.items():
        pairs = list(zip(values, timings["files"], strict=True))
        by_wall = [here.wall / files.wall for here, files in pairs]
        by_cpu = [here.cpu / files.cpu for here, files in pairs]
        summary[name] = {
            "images_per_second": spread([1 / timing.wall for timing in values]),
            "processor_ms_per_image": spread([1000 * timing.cpu for timing in values]),
            "read_us_per_image": spread([1e6 * timing.read for timing in values]),
            "time_to_files": spread(by_wall) | {"all": [round(ratio, 3) for ratio in by_wall]},
            "processor_time_to_files": spread(by_cpu) | {"all": [round(ratio, 3) for ratio in by_cpu]},
        }
    return summary


def table(summary: dict[str, Any]) -> str:
    heads = f"{'time, files = 1':>18}{'min - max':>14}{'CPU time':>18}{'min - max':>14}"
    lines = [f"  {'':15}{'images/s':>10}{'read us':>9}{heads}"]
    for name, row in summary.items():
        line = f"  {name:15}{row['images_per_second']['median']:10.0f}{row['read_us_per_image']['median']:9.0f}"
        for ratio in (row["time_to_files"], row["processor_time_to_files"]):
            line += f"{ratio['median']:18.3f}{ratio['min']:8.2f} -{ratio['max']:4.2f}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="folder of the photos; made if missing")
    parser.add_argument("--only", nargs="+", help="time only these sources, and files")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--epochs", type=int, default=1, help="timed epochs per repetition")
    parser.add_argument("--limit", type=int, default=2048, help="use this many files")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    args = parser.parse_args()

    result: dict[str, Any] = circumstances(["torch", "numpy", "lmdb", "h5py", "pillow"])
    result["settings"] = {key: value for key, value in vars(args).items() if key not in ("data", "out")}
    print(f"{result['machine']['cpu']}, {result['machine']['cores']} cores, commit {result['commit']}")
    task = prepare(args.data, SIZE, args.batch_size, args.threads, args.limit)
    makers = contenders(task, args.data / "containers")
    selected = {name: make for name, make in makers.items() if args.only is None or name in ("files", *args.only)}
    running: dict[str, FromSource] = {}
    timings: dict[str, list[Timing]] = {name: [] for name in selected}
    try:
        for name, make in selected.items():
            running[name] = FromSource(task, make())
            running[name].name = name  # type: ignore[misc]
            check(running[name])
        for repetition in range(args.repetitions):
            first = repetition % len(running)
            for name in [*running, *running][first : first + len(running)]:
                timings[name].append(measure(running[name], args.epochs))
            rates = ", ".join(f"{name} {1 / values[-1].wall:.0f}" for name, values in timings.items())
            print(f"  {repetition + 1}/{args.repetitions}: {rates}", flush=True)
    finally:
        for contender in running.values():
            contender.close()
    result["files"] = len(task.samples)
    result["sources"] = summarize(timings)
    print(table(result["sources"]))
    if args.out:
        write_json(args.out, result)
        print(f"\nwritten to {args.out}")


if __name__ == "__main__":
    main()
