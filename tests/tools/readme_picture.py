"""Draws the picture of README.md: a batch of 16 augmented photos.

python -m tests.tools.readme_picture [--out docs/batch.jpg]
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

import cuaug
from cuaug import transforms as T

ROOT = Path(__file__).parents[2]
ROWS, COLUMNS, SIDE, GAP = 2, 8, 112, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "batch.jpg")
    out = parser.parse_args().out
    sys.path.insert(0, str(ROOT / "examples"))
    from photos import EVERYDAY, PHOTOS

    paths: list[Path] = []
    for name in (*EVERYDAY, *EVERYDAY, EVERYDAY[0], EVERYDAY[1]):
        package, folder, file = PHOTOS[name]
        (root,) = find_spec(package).submodule_search_locations
        paths.append(Path(root) / folder / file)
    chain = [
        T.RandomResizedCrop(SIDE, scale=(0.3, 1.0)),
        T.RandomHorizontalFlip(),
        T.RandAugment(2, 9),
        T.RandomErasing(p=0.25),
    ]
    loader = cuaug.Loader(paths, chain, batch_size=ROWS * COLUMNS, seed=3, device="cpu")
    (batch,) = loader
    sheet = np.full((ROWS * (SIDE + GAP) - GAP, COLUMNS * (SIDE + GAP) - GAP, 3), 255, np.uint8)
    for i, image in enumerate(batch.images.permute(0, 2, 3, 1).numpy()):
        y, x = (k * (SIDE + GAP) for k in divmod(i, COLUMNS))
        sheet[y : y + SIDE, x : x + SIDE] = image
    Image.fromarray(sheet).save(out, quality=88)


if __name__ == "__main__":
    main()
