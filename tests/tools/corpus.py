"""Writes tests/corpus: a sound file of each image format, and a small data set of each kind of source.

    python -m tests.tools.corpus

tests/corpus/found, which holds inputs that once broke a promise, is kept by hand.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.support.codec.originals import ORIGINALS, PICTURES

CORPUS = Path(__file__).parents[1] / "corpus"
#: Kinds of sources in tests/support/sources/writers.py whose data sets are files.
SETS = ("files", "class folders", "tar", "tfrecord", "lmdb", "hdf5", "parquet", "mds", "litdata")


def image_path(name: str) -> Path:
    """The path of an image by its name in ORIGINALS or PICTURES."""
    return CORPUS / "images" / re.sub(r"[^a-z0-9]+", "-", name.lower())


def stored_images(images: Mapping[str, bytes]) -> dict[str, bytes]:
    """The corpus's files of these images."""
    return {name: image_path(name).read_bytes() for name in images}


def main() -> None:
    for folder in ("images", "sets"):
        shutil.rmtree(CORPUS / folder, ignore_errors=True)
    (CORPUS / "images").mkdir(parents=True)
    for name, data in {**ORIGINALS, **PICTURES}.items():
        image_path(name).write_bytes(data)
    from tests.support.sources.writers import KINDS, samples  # libraries that images do not need

    for kind in SETS:
        folder = CORPUS / "sets" / kind.replace(" ", "-")
        folder.mkdir(parents=True)
        KINDS[kind].write(folder, samples(6))


if __name__ == "__main__":
    main()
