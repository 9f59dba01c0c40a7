"""Runs the JPEG kernels under compute-sanitizer, and compares the pixels with Pillow's.

    compute-sanitizer --tool memcheck  --error-exitcode 99 python -m tests.sanitize.sanitize_jpegs
    compute-sanitizer --tool racecheck --error-exitcode 99 python -m tests.sanitize.sanitize_jpegs --files 12

Whole images and regions, with an index and on first visits; then the same batches with damaged data, which must neither
fault nor race. `--mistake` plants an error that the tool must report: "bounds" for memcheck, "race" for racecheck.
"""

from __future__ import annotations

import argparse
import itertools
import os

import numpy as np
import torch

from cuaug.codec import JpegIndex
from tests.sanitize.sanitize_driver import plant_race
from tests.support.codec.encoded_images import as_pillow
from tests.support.cuda_jpegs import CudaJpegs, damage_data, draw_jpeg, random_region


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=48)
    parser.add_argument("--mistake", choices=["bounds", "race"])
    args = parser.parse_args()
    # Every tensor is an allocation of exactly its size, so one byte too many is out of bounds.
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    if args.mistake == "race":
        plant_race("core/color_jpeg.h")
    files = [draw_jpeg(seed, largest=200) for seed in range(args.files)]
    images = [as_pillow(data) for data in files]
    regions = [random_region(seed, *image.shape[:2]) for seed, image in enumerate(images)]
    failures = noticed = 0
    for index, chosen in itertools.product((JpegIndex(1 << 30), None), (None, regions)):
        batch = CudaJpegs(files, chosen, index=index, short=int(args.mistake == "bounds"))
        pixels, statuses = batch.decode()
        failures += int(np.count_nonzero(statuses))
        for got, image, (y0, x0, y1, x1) in zip(pixels, images, batch.regions, strict=True):
            failures += got is None or not np.array_equal(got, image[y0:y1, x0:x1])
        damage_data(batch, range(args.files), seed=1)
        _, statuses = batch.decode()
        noticed += int(np.count_nonzero(statuses))
    torch.cuda.synchronize()
    print(f"{4 * args.files} images, {failures} of them wrong; {noticed} of as many damaged ones were noticed")
    raise SystemExit((failures or not noticed) and not args.mistake)


if __name__ == "__main__":
    main()
