"""What Pillow's pixels cost: `pillow=13` beside cuaug's resize in floats and Pillow itself, on the CPU.

The first table resizes one photo in memory on one core. The second loads JPEG files of 500 x 375 on two threads:
RandomResizedCrop, flip and Normalize, and Resize, CenterCrop and Normalize. Both are milliseconds of CPU time per
image, of all threads, which other work on the machine hardly changes. Contenders take turns; printed are medians and
ranges, and the range of the ratio within a turn.

    python benchmarks/exact_pixels.py --files 512 --repetitions 9
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from report import circumstances, in_turns, milliseconds, options, ratios, spread, write_json
from skimage.data import astronaut

from cuaug import Loader
from cuaug import transforms as T
from cuaug.devices import CpuExecutor
from cuaug.plan import Filter, Layout, Plan, Type

NORMALIZE = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CHAINS = {
    "training": [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), NORMALIZE],
    "evaluation": [T.Resize(256), T.CenterCrop(224), NORMALIZE],
    "evaluation, bicubic": [T.Resize(256, "bicubic"), T.CenterCrop(224), NORMALIZE],
}
SIZES = {"500 x 375 to 224 x 224": ((375, 500), (224, 224)), "1920 x 1080 to 224 x 224": ((1080, 1920), (224, 224))}


def executor(photo: np.ndarray, size: tuple[int, int], filter: Filter, pillow: int | None) -> Callable[[], object]:
    """A call that plans and resizes one photo, as the sample of a batch is."""
    plan = Plan([photo.shape[0]], [photo.shape[1]])
    plan.pillow = pillow
    plan.resize(*size, filter=filter)
    program, out = CpuExecutor(plan.compile(Type.UINT8, Layout.HWC)), np.empty((*size, 3), np.uint8)
    return lambda: program.run(0, photo, out.ctypes.data)


def resizes(repetitions: int) -> dict[str, Any]:
    found = {}
    for name, (old, new) in SIZES.items():
        image = Image.fromarray(astronaut()).resize(old[::-1], Image.Resampling.BICUBIC)
        photo = np.asarray(image).copy()
        for filter in (Filter.BILINEAR, Filter.BICUBIC, Filter.LANCZOS):
            contenders = {
                "Pillow": lambda image=image, new=new, filter=filter: image.resize(
                    new[::-1], Image.Resampling[filter.name]
                ),
                "floats": executor(photo, new, filter, None),
                "pillow=13": executor(photo, new, filter, 13),
            }
            calls = {key: partial(milliseconds, call, 5, time.thread_time) for key, call in contenders.items()}
            found[f"{name}, {filter.name.lower()}"] = summary(in_turns(calls, repetitions))
    return found


def chains(folder: Path, files: int, repetitions: int) -> dict[str, Any]:
    photo = Image.fromarray(astronaut())
    for number in range(files):
        left, top = number % 12, number // 12 % 130
        photo.crop((left, top, left + 500, top + 375)).save(folder / f"{number}.jpg", quality=90)
    found = {}
    for name, chain in CHAINS.items():
        options: dict[str, Any] = {"batch_size": 64, "threads": 2, "device": "cpu"}
        loaders = {
            label: Loader(str(folder / "*.jpg"), chain, pillow=pillow, **options)
            for label, pillow in (("floats", None), ("pillow=13", 13))
        }
        found[name] = summary(in_turns({key: partial(epoch, each) for key, each in loaders.items()}, repetitions))
        for loader in loaders.values():
            loader.close()
    return found


def epoch(loader: Loader) -> float:
    """Milliseconds of CPU time per image."""
    begin = time.process_time()
    images = sum(len(batch.images) for batch in loader)
    return (time.process_time() - begin) / images * 1e3


def summary(values: dict[str, list[float]]) -> dict[str, Any]:
    """The spread of each contender, and of the ratio of `pillow=13` to each other one."""
    exact = values["pillow=13"]
    quotients = {f"pillow=13 / {name}": ratios(exact, each) for name, each in values.items() if name != "pillow=13"}
    return {name: spread(each) for name, each in values.items()} | quotients


def show(title: str, found: dict[str, Any]) -> None:
    print(title)
    for name, rows in found.items():
        shown = (f"{key} {row['median']:.2f} ({row['min']:.2f} - {row['max']:.2f})" for key, row in rows.items())
        print(f"  {name}: {', '.join(shown)}")


if __name__ == "__main__":
    args = options(__doc__, files=512, repetitions=9).parse_args()
    alone = resizes(args.repetitions)
    show("One resize, milliseconds of CPU time", alone)
    with tempfile.TemporaryDirectory() as folder:
        whole = chains(Path(folder), args.files, args.repetitions)
    show("From files on two threads, milliseconds of CPU time per image", whole)
    result = {"resizes": alone, "chains": whole, "circumstances": circumstances(["numpy", "pillow", "torch"])}
    write_json(args.out, result)
