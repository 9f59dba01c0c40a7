"""Images at their own sizes, on the CPU: sizes from headers, and batches of Qwen-VL's patches without padding.

Sizes: CPU time per file of `cuaug.sources.sizes` on one thread, beside Pillow, which opens lazily and reads the EXIF
orientation. The files are in the system's memory; kept sizes are removed before each turn.

Patches: images per second of a Loader with two threads, beside a DataLoader with two workers that resize with Pillow
and cut with NumPy. Both have the same pixels, Pillow's. Contenders take turns.

Tokens: the share of a budget that `TokenBudgetSampler` fills, for the sizes of these photos.

    python benchmarks/native_resolution.py --headers 50000 --photos 2000 --repetitions 5
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_photos import draw_photo
from PIL import Image
from report import circumstances, in_turns, milliseconds, options, print_spreads, ratios, spread, write_json

from cuaug import Loader, TokenBudgetSampler, decode, sources
from cuaug import transforms as T

PATCH, MERGE, TIMES, BUDGET = 14, 2, 2, 16_384
LIMITS = {"min_pixels": 56 * 56, "max_pixels": 448 * 448}
MEAN, STD = np.float32([0.481, 0.458, 0.408]), np.float32([0.269, 0.261, 0.276])
CHAIN = T.Compose(
    [
        T.ResizeToMultiple(PATCH * MERGE, **LIMITS, interpolation="bicubic"),
        T.Normalize(MEAN.tolist(), STD.tolist()),
        T.Patches(PATCH, MERGE, TIMES),
    ],
    pillow=True,
)


def write_photos(folder: Path, count: int, form: str = "jpg") -> list[str]:
    """Files of 40 sizes around 500 x 375: 80 photos, each with many names."""
    folder.mkdir()
    rng, paths = np.random.default_rng(0), [str(folder / f"{number}.{form}") for number in range(count)]
    exif = Image.Exif()
    exif[0x0112] = 1
    for number, path in enumerate(paths[:80]):
        if number % 2 == 0:
            height, width = (int(side) for side in rng.integers(240, 640, 2))
        Image.fromarray(draw_photo(number, height, width)).save(
            path, quality=90, **({"exif": exif} if form == "jpg" else {})
        )
    for number, path in enumerate(paths[80:]):
        os.link(paths[number % 80], path)
    return paths


def ours(paths: list[str]) -> None:
    for kept in Path(paths[0]).parent.glob(".sizes-*"):
        kept.unlink()
    assert sources.sizes(paths, threads=1).min() > 0


def pillows(paths: list[str]) -> None:
    for path in paths:
        with Image.open(path) as image:
            # Of a PNG, getexif would decode the pixels, which the EXIF may follow.
            assert min(image.size) > 0 and (image.format == "PNG" or image.getexif()[0x0112] == 1)


def measure_sizes(folder: Path, count: int, repetitions: int) -> dict[str, dict[str, float]]:
    found = {}
    for form in ("jpg", "png"):
        paths = write_photos(folder / f"headers-{form}", count if form == "jpg" else count // 10, form)
        calls = {"Pillow": (pillows, paths[: len(paths) // 10]), "cuaug": (ours, paths)}

        def microseconds(name: str, calls: Any = calls) -> float:
            read, files = calls[name]
            return 1000 * milliseconds(lambda: read(files), clock=time.process_time) / len(files)

        turns = in_turns({name: partial(microseconds, name) for name in calls}, repetitions, warm_up=0)
        found |= {f"{form}: {name}, us": spread(values) for name, values in turns.items()}
        found[f"{form}: Pillow / cuaug"] = ratios(turns["Pillow"], turns["cuaug"])
    return found


class Photos(torch.utils.data.Dataset[Any]):
    def __init__(self, paths: list[str], sizes: np.ndarray) -> None:
        self.paths, self.sizes = paths, sizes.tolist()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        height, width = self.sizes[index]
        with Image.open(self.paths[index]) as image:
            resized = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
        values = (np.asarray(resized, dtype=np.float32) / np.float32(255) - MEAN) / STD
        down, across = height // PATCH // MERGE, width // PATCH // MERGE
        blocks = values.reshape(down, MERGE, PATCH, across, MERGE, PATCH, 3).transpose(0, 3, 1, 4, 6, 2, 5)
        patches = blocks.reshape(-1, 3, 1, PATCH * PATCH).repeat(TIMES, axis=2)
        return torch.from_numpy(patches.reshape(len(patches), -1))


def measure_patches(paths: list[str], repetitions: int) -> dict[str, dict[str, float]]:
    resized = [tuple(decode(path, [CHAIN.transforms[0]]).shape[1:]) for path in paths[:80]]
    sizes = np.array([resized[number % 80] for number in range(len(paths))])
    theirs = torch.utils.data.DataLoader(
        Photos(paths, sizes), batch_size=32, num_workers=2, collate_fn=torch.cat, persistent_workers=True
    )
    with Loader(paths, CHAIN, batch_size=32, threads=2, device="cpu") as own:
        for one, other in zip(own, theirs, strict=True):
            assert torch.equal(one.images, other)
        calls = {"cuaug": own, "DataLoader": theirs}
        turns = in_turns(
            {
                name: partial(milliseconds, lambda loader=loader: sum(1 for _ in loader))
                for name, loader in calls.items()
            },
            repetitions,
        )
    found = {f"patches: {name}, images/s": ratios([len(paths) * 1e3] * repetitions, turns[name]) for name in calls}
    return found | {"patches: cuaug / DataLoader": ratios(turns["DataLoader"], turns["cuaug"])}


def measure_tokens(paths: list[str]) -> dict[str, dict[str, float]]:
    tokens = CHAIN.count_patches(sources.sizes(paths))
    batches = list(TokenBudgetSampler(tokens, BUDGET))
    assert sorted(index for batch in batches for index in batch) == list(range(len(paths)))
    filled = [float(tokens[batch].sum()) / BUDGET for batch in batches]
    return {"tokens: share of the budget": spread([sum(filled[:-1]) / max(len(filled) - 1, 1)])}


if __name__ == "__main__":
    args = options(__doc__, headers=50_000, photos=2_000, repetitions=5).parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = measure_sizes(Path(name), args.headers, args.repetitions)
        paths = write_photos(Path(name) / "photos", args.photos)
        result |= measure_tokens(paths) | measure_patches(paths, args.repetitions)
    print_spreads(result)
    if args.out:
        write_json(args.out, {"found": result, "circumstances": circumstances(["numpy", "pillow", "torch"])})
