"""Our JPEG kernels on a GPU: Pillow's bits, then images/s beside nvImageCodec's engine. Two minutes at most.

Bits: `check_bits` (gpu_jpeg_bits.py). Figures, by CUDA events, as medians over repetitions; batches rotate over several
buffers, so caches are cold:
    kernels     the launches of a batch, together and apart
    upload      the copy of what the kernels need of the files, from pinned memory
    first_visits  the kernels of files without an index entry, which find the entry points first
    chain       from upload to a float16 batch of 224 x 224: RandomResizedCrop, flip, Normalize
    engine      nvImageCodec, whole images, from encoded bytes in memory
"whole" decodes whole images, "crops" the regions of RandomResizedCrop. Entry points are 16 pixels apart unless a name
ends otherwise.

    python benchmarks/gpu_jpeg.py --out benchmarks/results/gpu_jpeg.json
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gpu_decode import Batches
from gpu_jpeg_bits import check_bits
from gpu_kernels import CHAINS, FIRST, SIZE, Clock, specializer_for
from gpu_photos import origin, write_files
from numpy.typing import NDArray
from PIL import Image
from report import gpu_circumstances, options, write_json

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cuaug import transforms as T
from cuaug.codec import DecoderPaths, JpegIndex
from cuaug.codec.sniff import Region
from cuaug.devices.cuda import CudaExecutor
from cuaug.devices.specialize import Specializer
from cuaug.devices.workspace import Workspace
from cuaug.plan import CompiledPlan, Layout, Plan, Type
from cuaug.sampling.rng import SampleRNG
from tests.support.cuda_jpegs import CudaJpegs

_WAIT_CYCLES = 50_000_000  # 30 ms or so
_POINT_BYTES = 10  # of an entry point in the index, of three components


class Case(NamedTuple):
    """Batches to measure.

    Attributes:
        size: key of `Photos.files`.
        batch: number of images.
        crops: decode the regions of RandomResizedCrop, not whole images.
        pixels: between entry points.
        buffers: number of batches in turn.
    """

    size: str
    batch: int
    crops: bool
    pixels: int = 16
    buffers: int = 8

    @property
    def name(self) -> str:
        suffix = "" if self.pixels == 16 else f"_{self.pixels}px"
        return f"{'crops' if self.crops else 'whole'}_{self.size}_{self.batch}{suffix}"


LARGE = Case("1920x1080", 64, crops=False, buffers=4)
CASES = [
    *(Case("500x375", batch, crops) for batch in (256, 64) for crops in (False, True)),
    *(Case("500x375", 256, crops, pixels) for pixels in (32, 64) for crops in (False, True)),
    LARGE,
    LARGE._replace(crops=True),
    *(Case("1920x1080", 256, crops, buffers=2) for crops in (False, True)),
]


class Photos:
    """The files of the benchmark by size, and their indexes.

    Args:
        tiny: an eighth of each side and a few files, and batches of a sixty-fourth: for dry runs.
    """

    def __init__(self, folder: Path, tiny: bool) -> None:
        self.tiny = tiny
        self.files: dict[str, list[bytes]] = {}
        for size, count in (("500x375", 1024), ("1920x1080", 256)):
            width, height = map(int, size.split("x"))
            if tiny:
                width, height, count = width // 8, height // 8, 8
            self.files[size] = [Path(path).read_bytes() for path in write_files(folder, count, height, width)]
        self._indexes: dict[tuple[int, int], JpegIndex] = {}

    def count_in(self, case: Case) -> int:
        """Images of a batch."""
        return case.batch // 64 if self.tiny else case.batch

    def of_batch(self, case: Case, number: int) -> list[bytes]:
        files, count = self.files[case.size], self.count_in(case)
        return [files[(number * count + i) % len(files)] for i in range(count)]

    def index_of(self, data: bytes, pixels: int) -> JpegIndex:
        """An index that places the entry points of files like this one so many pixels apart."""
        image: Any = Image.open(io.BytesIO(data))
        mcu = 8 * max(layer[2] for layer in image.layer)
        points = -(-image.height // mcu) * -(-image.width // pixels)
        share = points * _POINT_BYTES * 4 // 3 + 200  # a third more: sizes vary by 5 %; twice as many do not fit
        key = (pixels, share if pixels == 32 else 0)
        limit = {16: 1 << 40, 32: share << 20, 64: 1 << 20}[pixels]
        return self._indexes.setdefault(key, JpegIndex(limit, {16: 1, 32: 1 << 20, 64: 1 << 20}[pixels]))


class Chain:
    """RandomResizedCrop, flip and Normalize of a batch, to float16."""

    def __init__(self, sizes: Sequence[tuple[int, int]], number: int) -> None:
        plan = Plan(*np.array(sizes).T)
        first = number * len(sizes)
        T.Compose(CHAINS[FIRST]).plan(plan, SampleRNG(0, 0, np.arange(first, first + len(sizes))))
        self.compiled: CompiledPlan = plan.compile(Type.FLOAT16, Layout.CHW)
        self.regions: list[Region] = [tuple(region) for region in self.compiled.regions().tolist()]

    @cached_property
    def target(self) -> torch.Tensor:
        return torch.empty((len(self.regions), 3, SIZE, SIZE), dtype=torch.float16, device="cuda")

    @cached_property
    def workspace(self) -> Workspace:
        return Workspace(self.target.device)

    def run(self, addresses: NDArray[np.uint64], specializer: Specializer | None) -> None:
        """Queues the chain on the decoded regions."""
        y0, x0, _, x1 = np.array(self.regions, dtype=np.int64).T
        pitches = 3 * (x1 - x0)
        sources = addresses - (y0 * pitches + 3 * x0).astype(np.uint64)
        executor = CudaExecutor(self.compiled)
        executor.run(sources, self.target, pitches=pitches, workspace=self.workspace, specializer=specializer)


class Benchmark:
    """Measures, and stores each figure at once: an interrupted run keeps its results."""

    def __init__(self, photos: Photos, clock: Clock, store: Callable[[dict[str, Any]], None]) -> None:
        self._photos, self._clock, self._store = photos, clock, store
        self._rates: dict[str, Any] = {}
        self._cases: dict[str, Any] = {}

    def _milliseconds(self, works: Iterable[Callable[[], None]]) -> float:
        """Device time of a batch: the work of all batches is queued at once."""
        queued = list(works)
        return self._clock.milliseconds(lambda: [work() for work in queued]) / len(queued)

    def _record(self, group: str, name: str, images: int, milliseconds: float) -> None:
        """Enters a rate, in images/s; without a name, the group is one figure."""
        rate = round(1e3 * images / milliseconds)
        if name:
            self._rates.setdefault(group, {})[name] = rate
        else:
            self._rates[group] = rate
        print(f"  {group + ' ' + name:44} {milliseconds:9.3f} ms {rate:9} images/s", flush=True)
        self._store({"images_per_second": self._rates, "cases": self._cases})

    def _batches(self, case: Case, has_index: bool = True) -> Iterator[tuple[CudaJpegs, Chain]]:
        """The batches of a case, and the chains whose regions they decode."""
        for number in range(case.buffers):
            files = self._photos.of_batch(case, number)
            sizes = [Image.open(io.BytesIO(data)).size[::-1] for data in files]
            chain = Chain(sizes, number)
            indexes = [self._photos.index_of(data, case.pixels) for data in files] if has_index else None
            batch = CudaJpegs(files, chain.regions if case.crops else None, index=indexes)
            if not batch.is_added.all():
                raise SystemExit(f"{case.name}: the kernels refuse {np.count_nonzero(~batch.is_added)} files")
            batch.upload()
            yield batch, chain

    def kernels(self, case: Case) -> None:
        """The kernels and the upload of a case."""
        batches = [batch for batch, _ in self._batches(case)]
        images = self._photos.count_in(case)
        launches = [batch.prepared for batch in batches]
        row: dict[str, Any] = {
            "buffers": len(batches),
            "entry_points_apart": case.pixels,
            "megabytes": {
                name: round(sum(getattr(launch, f"{name}_bytes") for launch in launches) / len(launches) / 1e6, 2)
                for name in ("upload", "sample", "target", "lookup")
            },
        }
        self._cases[case.name] = row
        launch_all = self._milliseconds(batch.launch for batch in batches)
        row["kernels_ms"] = {"all": round(launch_all, 4)} | {
            name: round(self._milliseconds(partial(batch.launch, [name]) for batch in batches), 4)
            for name in batches[0].kernels
        }
        self._record("kernels", case.name, images, launch_all)
        upload = self._milliseconds(batch.upload for batch in batches)
        row["upload_ms"] = round(upload, 4)
        self._record("upload", case.name, images, upload)

    def chain(self, case: Case) -> None:
        """From upload to a batch, of a case with crops."""
        pairs = list(self._batches(case))
        batch, chain = pairs[0]
        batch.launch()
        specializer = specializer_for(lambda its: chain.run(batch.addresses, its))

        def run(batch: CudaJpegs, chain: Chain) -> None:
            batch.upload()
            batch.launch()
            chain.run(batch.addresses, specializer)

        milliseconds = self._milliseconds(partial(run, *pair) for pair in pairs)
        self._cases[f"chain of {case.name}"] = {"ms": round(milliseconds, 4), "launches": dict(specializer.launches)}
        self._record("chain", case.name, self._photos.count_in(case), milliseconds)

    def engine(self, case: Case, threads: int) -> None:
        """nvImageCodec's engine, with and without fancy upsampling."""
        batches = Batches(self._photos.files[case.size], self._photos.count_in(case))
        for fancy in (True, False):
            paths = DecoderPaths(fancy_upsampling=fancy)
            row = batches.decode(paths, threads, repetitions=3)
            name = case.name + ("" if fancy else "_plain")
            self._cases[f"engine {name}"] = row
            self._record("engine", name, batches.batch_size, row["batch_ms"]["median"])

    def first_visits(self, case: Case) -> None:
        """The kernels of files without an index entry: they find the entry points, then decode."""
        batches = [batch for batch, _ in self._batches(case, has_index=False)]
        everything = self._milliseconds(batch.launch for batch in batches)
        scan = self._milliseconds(partial(batch.launch, ["scan_jpeg"]) for batch in batches)
        self._cases[f"first visits of {case.name}"] = {
            "ms": round(everything, 4),
            "scan_jpeg_ms": round(scan, 4),
            "images": len(batches) * self._photos.count_in(case),
            "unsynchronized": sum(int(np.count_nonzero(batch.statuses())) for batch in batches),
        }
        group = ("first_visits", "") if case == CASES[0] else ("first_visits_of", case.name)
        self._record(*group, self._photos.count_in(case), everything)


def main() -> None:
    bits, threads = (2000, "files to compare with Pillow"), (6, "CPU threads of nvImageCodec")
    parser = options(__doc__, data="photos", bits=bits, repetitions=7, threads=threads)
    parser.add_argument("--tiny", action="store_true", help="small images and batches: figures mean nothing")
    args = parser.parse_args()
    result: dict[str, Any] = gpu_circumstances(["nvidia-nvjpeg-cu12", "pillow"])

    def store(found: dict[str, Any]) -> None:
        result.update(found)
        write_json(args.out, result)

    bits = check_bits(args.bits)
    store({"bit_exact": bits.pop("bit_exact"), "bits": bits, "photos": origin()})
    print(f"{result['device']}: bit_exact {result['bit_exact']}; {bits}", flush=True)
    # Batches rotate over several buffers, so nothing needs to flush the L2 cache.
    clock = Clock(args.repetitions, warm_up_seconds=0, flush_bytes=0, wait_cycles=_WAIT_CYCLES)
    benchmark = Benchmark(Photos(args.data, args.tiny), clock, store)
    first, crops = CASES[:2]
    for case in CASES[:2]:
        benchmark.kernels(case)
    benchmark.chain(crops)
    for case in (first, crops, LARGE):
        benchmark.first_visits(case)
    benchmark.engine(first, args.threads)
    for case in CASES[2:]:
        benchmark.kernels(case)
    if not result["bit_exact"]:
        raise SystemExit("the kernels do not give Pillow's bits")


if __name__ == "__main__":
    main()
