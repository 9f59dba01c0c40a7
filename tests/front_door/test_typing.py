"""Type checking of a user's program: mypy accepts correct calls, and refuses unknown names and values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, TensorDataset, random_split

import cuaug
from cuaug import transforms as T
from cuaug.sources import Csv, Files, Source, open_source

chain = T.Compose([
    T.RandomResizedCrop(224, interpolation="bicubic"),
    T.RandomHorizontalFlip(0.5),
    T.RandomRotation(10, interpolation=T.InterpolationMode.NEAREST),
    T.Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2)),
])
decode = cuaug.DecodeOptions(apply_exif=False)
with cuaug.Loader("photos/", chain, batch_size=64, shuffle=True, last_batch="drop", decode=decode) as loader:
    names: list[str] | None = loader.classes
    numbers: dict[str, int] | None = loader.class_to_idx
    for batch in loader:
        count: int = batch.images.shape[0]
        indices: list[int] = batch.indices[batch.valid].tolist()
        picture: Image.Image = batch.show(classes=names)
        paths: list[str | None] = batch.paths
        digest: str = batch.digest
        batch.to("cuda", non_blocking=True).copy_into(batch.images)
    for images, labels in loader:
        loss: torch.Tensor = torch.nn.functional.cross_entropy(images.mean((1, 2)), labels)

one: torch.Tensor = cuaug.decode("a.jpg", region=(0, 0, 8, 8))
other: torch.Tensor = cuaug.decode(Path("a.jpg").read_bytes())
several: list[torch.Tensor] = cuaug.decode(["a.jpg", b"", np.zeros(3, np.uint8)], threads=2)
gray: torch.Tensor = cuaug.decode("a.jpg", mode="L")
stack: torch.Tensor = cuaug.decode([Path("a.jpg")], chain)
moved: torch.Tensor = chain(stack)
pair: tuple[torch.Tensor, dict[str, int]] = T.RandomCrop(8)(stack, {"a": 1})
picture = chain(picture)
cuaug.show(loader.source and stack, columns=4)
cuaug.Loader(Files(["a.jpg"], ["cat"], classes=["ant", "cat"]), [T.Resize((8, 8))])
cuaug.Loader(Csv("table.csv", classes=None), batch_size=2)

chain(stack).shap  # type: ignore[attr-defined]
T.RandomCrop(8)(stack).shap  # type: ignore[attr-defined]
cuaug.decode("a.jpg", chain).shap  # type: ignore[attr-defined]
cuaug.Loadr  # type: ignore[attr-defined]
T.RandomCropp  # type: ignore[attr-defined]
loader.datasets  # type: ignore[attr-defined]
loader[0]  # type: ignore[index]
batch.image  # type: ignore[attr-defined]
batch.images.shap  # type: ignore[attr-defined]
T.Resize(8, interpolation="bilinea")  # type: ignore[arg-type]
T.Resize(8, interpolate="bilinear")  # type: ignore[call-arg]
cuaug.Loader("photos/", 64)  # type: ignore[arg-type]
cuaug.Loader("photos/", last_batch="keep")  # type: ignore[arg-type]
cuaug.DecodeOptions(exif=False)  # type: ignore[call-arg]
cuaug.decode("a.jpg", mode="CMYK")  # type: ignore[call-overload]
cuaug.decode(7)  # type: ignore[call-overload]


class Typed(Dataset[tuple[str, int]]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> tuple[str, int]:
        return "a.png", 1


class Plain:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, number: int) -> str:
        return "a.png"


class Own:
    def __len__(self) -> int:
        return 1

    def read(self, index: int) -> tuple[str, int]:
        return "a.png", index


def found() -> Iterator[Path]:
    yield Path("a.png")


Files(sorted(Path("photos").glob("*.png")), labels=[1])
source: Source = Files(["a.png", Path("b.png")])
open_source(Typed())
open_source(Plain())
open_source(Own())
open_source(source)
open_source(TensorDataset(torch.zeros(1)))
open_source(ConcatDataset([Typed(), Typed()]))
for half in random_split(Typed(), [0.5, 0.5]):
    open_source(half)
open_source(Path("photos"))
open_source(found())
open_source([("a.png", 1)])
open_source({"a.png": 1})
open_source(np.array(["a.png"]))
open_source(7)  # type: ignore[arg-type]
Files([7])  # type: ignore[list-item]
"""


@pytest.mark.slow
def test_mypy_checks_a_users_program(tmp_path):
    """An unused `type: ignore` is an error, too: so each wrong line is one."""
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(tmp_path / "program.py")],
        cwd=Path(__file__).parents[2],  # its pyproject.toml
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
