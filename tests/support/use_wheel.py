"""Runs an installed wheel without a compiler: the README's first example and `cuaug demo`. For `make test-wheel`."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import cuaug
from cuaug.commands import cli, demo

ROOT = Path(__file__).parents[2]


def main() -> None:
    assert not Path(cuaug.__file__).is_relative_to(ROOT / "cuaug"), "the checkout was imported, not the wheel"
    assert not any(map(shutil.which, ("c++", "g++", "clang++", "gcc", "cc"))), "a compiler is on PATH"
    (example,) = re.findall(
        r"^## Load\n\n```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    demo.write_shapes(Path("photos/train"), 512, seed=0)
    names: dict[str, object] = {}
    exec(example, names)
    images = names["images"]
    print(
        f"cuaug {cuaug.__version__} of {Path(cuaug.__file__).parent}: README's example, {images.shape} {images.dtype}"
    )
    sys.exit(cli.main(["demo"]))


if __name__ == "__main__":
    main()
