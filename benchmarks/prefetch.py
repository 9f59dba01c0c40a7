"""The CPU loader's images a second by `prefetch`, for small and large batches.

JPEGs of 500 x 375 from memory to 224 x 224 float32, one epoch per setting in turns; the consumer does nothing.
"chosen" is `prefetch=None`. Ratios are to prefetch=2, within a turn.

    python benchmarks/prefetch.py --out benchmarks/results/prefetch.json
"""

from __future__ import annotations

import io
import time

import numpy as np
import torch
from PIL import Image
from report import circumstances, parse, print_spreads, spread, write_json

import cuaug
from cuaug import transforms as T

CHAIN = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize([0.5] * 3, [0.25] * 3)]
BATCH_SIZES = (1, 4, 16, 64)
PREFETCH = (1, 2, 8, None)


class RepeatedPhoto:
    """A source that repeats one photo."""

    def __init__(self, count: int) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).resize((500, 375), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
        self.count, self.data = count, out.getvalue()

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> tuple[bytes, int]:
        return self.data, index


def main() -> None:
    arguments = parse(__doc__, images=256, repetitions=9, threads=2)
    ratios, chosen = {}, {}
    for batch_size in BATCH_SIZES:
        options = {"batch_size": batch_size, "threads": arguments.threads, "device": "cpu", "dtype": torch.float32}
        loaders = {
            prefetch: cuaug.Loader(RepeatedPhoto(arguments.images), CHAIN, prefetch=prefetch, **options)
            for prefetch in PREFETCH
        }
        chosen[batch_size] = loaders[None].prefetch
        seconds: dict[int | None, list[float]] = {prefetch: [] for prefetch in PREFETCH}
        for _ in range(arguments.repetitions + 1):
            for prefetch, loader in loaders.items():
                start = time.perf_counter()
                for _ in loader:
                    pass
                seconds[prefetch].append(time.perf_counter() - start)
        for prefetch, loader in loaders.items():
            loader.close()
            name = f"batches of {batch_size}, prefetch " + (str(prefetch) if prefetch else f"chosen: {loader.prefetch}")
            pairs = zip(seconds[2][1:], seconds[prefetch][1:], strict=True)  # the first turn warms up
            ratios[name] = spread([reference / own for reference, own in pairs])
    print("images a second against prefetch=2: median, range")
    print_spreads(ratios)
    if arguments.out:
        write_json(
            arguments.out, circumstances(["numpy", "torch"]) | {"speed_against_prefetch_2": ratios, "chosen": chosen}
        )


if __name__ == "__main__":
    main()
