"""Paths of masks in the labels of sources: which are opened, and which are not."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

from cuaug import DecodeError, LoaderError, TransformError, sources
from cuaug import transforms as T
from tests.support.sources.loading import load
from tests.support.sources.writers import example, write_tar, write_tfrecord

H, W, COUNT = 12, 16, 3


def png(value: int, mode: str) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (W, H), value).save(file, "PNG")
    return file.getvalue()


def write(folder: Path) -> None:
    for i in range(COUNT):
        for side, mode in (("images", "RGB"), ("masks", "L")):
            (folder / side).mkdir(exist_ok=True)
            (folder / side / f"{i}.png").write_bytes(png(i, mode))


def masks_of(source: Any, chain: Any = ()) -> torch.Tensor:
    (mask,) = load(source, transforms=chain).labels.values()
    return mask


WANT = np.arange(COUNT, dtype=np.uint8)[:, None, None] + np.zeros((1, H, W), np.uint8)


def csv_of(folder: Path, mask: str, name: str = "mask") -> Path:
    rows = [f"images/{i}.png,{mask.format(i)}\n" for i in range(COUNT)]
    (folder / "table.csv").write_text(f"path,{name}\n" + "".join(rows))
    return folder / "table.csv"


def test_the_mask_column_of_a_table_is_relative_to_its_folder(tmp_path):
    write(tmp_path)
    source = sources.Csv(csv_of(tmp_path, "masks/{}.png"), label=["mask"])
    np.testing.assert_array_equal(masks_of(source), WANT)
    np.testing.assert_array_equal(masks_of(Subset(source, [0, 1, 2])), WANT)
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(tmp_path / "table.csv")
    np.testing.assert_array_equal(masks_of(sources.DataFrame(frame, label=["mask"], root=tmp_path)), WANT)


@pytest.mark.parametrize("mask", ["/etc/{}.png", "../masks/{}.png"])
def test_a_mask_column_that_leads_out_of_the_folder_is_refused(tmp_path, mask):
    write(tmp_path)
    with pytest.raises(LoaderError, match=r"the path '.*png' leads out of"):
        sources.Csv(csv_of(tmp_path, mask), label=["mask"])


def test_other_columns_of_a_table_open_no_file(tmp_path):
    write(tmp_path)
    source = sources.Csv(csv_of(tmp_path, str(tmp_path / "masks" / "{}.png"), "seg"), label=["seg"])
    message = r"masks/0\.png' \(sample 0\): its mask: paths in labels of this source are not"
    with pytest.raises(DecodeError, match=message):
        masks_of(source, T.Compose([], masks=("seg",)))


def test_a_label_column_of_masks_is_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(LoaderError, match=r"line 2: the label 'masks/0\.png' is an image file: .*label=\[\"mask\"\]"):
        sources.Csv(csv_of(tmp_path, "masks/{}.png", "label"))


def shards(folder: Path, mask: Any) -> sources.TarShards:
    members: dict[str, bytes] = {}
    for i in range(COUNT):
        members |= {f"{i}.png": png(i, "RGB"), f"{i}.json": json.dumps({"mask": mask}).encode()}
        members[f"{i}.mask.png"] = png(i, "L")
    write_tar(folder / "0.tar", members)
    return sources.TarShards(folder / "0.tar", image="png", label="json")


def test_masks_in_shards(tmp_path):
    shards(tmp_path, None)
    source = sources.TarShards(tmp_path / "0.tar", image="png", label=["mask.png"])
    np.testing.assert_array_equal(masks_of(source, T.Compose([], masks=("mask.png",))), WANT)
    with pytest.raises(TransformError, match=r"mask\.png is an image file: .*masks=\('mask\.png',\)"):
        masks_of(source)


@pytest.mark.parametrize("kind", ["tar", "tfrecord", "hdf5"])
@pytest.mark.parametrize("wrap", [lambda source: source, lambda source: ConcatDataset([source, source])])
def test_labels_in_containers_open_no_file(tmp_path, kind, wrap):
    """A shard from anyone must not read files of this machine."""
    secret = tmp_path / "secret.png"
    secret.write_bytes(png(7, "L"))
    source: Any
    if kind == "tar":
        source = shards(tmp_path, str(secret))
    elif kind == "tfrecord":
        write_tfrecord(tmp_path / "0.tfrecord", [example({"image": png(0, "RGB"), "mask": str(secret).encode()})])
        source = sources.TFRecord(tmp_path / "0.tfrecord", image="image", label=["mask"])
    else:
        with h5py.File(tmp_path / "0.h5", "w") as file:
            file["image"] = np.zeros((1, H, W, 3), np.uint8)
            file["mask"] = [str(secret)]
        source = sources.Hdf5(tmp_path / "0.h5", "image", ["mask"])
    with pytest.raises(DecodeError, match=r"its mask: (paths in labels of this source are not opened|not an image)"):
        masks_of(wrap(source))
