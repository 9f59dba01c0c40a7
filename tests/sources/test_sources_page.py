"""The programs of docs/sources.md run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tests.support.sources import writers
from tests.support.sources.writers import ImageDataset, samples

PAGE = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([{"image": sample.data, "label": sample.label} for sample in samples()])


def write_all(folder: Path) -> None:
    """Writes the files that the programs read."""
    content = samples()
    writers.write_files(folder, content)
    writers.write_shards(folder, content)
    writers.write_tfrecords(folder, content)
    writers.write_parquet(folder, content)
    writers.write_labeled_lmdb(folder, content)
    writers.write_hdf5(folder, content)
    folders = {"mds": writers.write_mds, "litdata": writers.write_litdata}
    folders |= {"coco8": writers.write_yolo, "VOC2012": writers.write_voc}
    for name, write in folders.items():
        (folder / name).mkdir()
        write(folder / name, content)
    rows = [{"bytes": None, "path": f"photos/train/cat/{i % 6}.png"} for i in range(12)]
    pq.write_table(pa.table({"image": rows, "label": range(12)}), folder / "paths.parquet")
    objects = [{"bbox": [[1.0, 1.0, 2.0, 1.0]] * (i % 3), "category": [i] * (i % 3)} for i in range(12)]
    table = pa.table({"image": [sample.data for sample in content], "objects": objects})
    pq.write_table(table, folder / "objects.parquet")
    writers.write_pngs(folder, *(f"photos/train/{name}/{number}.png" for name in ("cat", "dog") for number in range(6)))


def test_the_programs_run(tmp_path, monkeypatch):
    """Each line that makes a loader loads an epoch."""
    write_all(tmp_path)
    monkeypatch.chdir(tmp_path)
    counts: list[int] = []
    names: dict[str, Any] = {"counts": counts, "split_value": writers.split_value}
    names |= {"dataset": ImageDataset(tmp_path, "bytes"), "streaming_dataset": Stream()}
    assert len(CODE) >= 7
    for code in CODE:
        load = r"\1\ncounts.append(sum(len(batch.indices) for batch in loader))\nloader.close()"
        exec(re.sub(r"^(loader = .*)$", load, code, flags=re.MULTILINE), names)
    assert sorted(set(counts)) == [2, 3, 12] and len(counts) == PAGE.count("\nloader = ")
