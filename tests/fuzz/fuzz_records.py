"""Damaged Parquet files, MDS shards and LitData chunks, each opened and fully read; see fuzz_files.py."""

from __future__ import annotations

import functools
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cuaug.sources import LitData, Mds, Parquet
from tests.fuzz.fuzz_files import changed_json, damaged, open_and_read
from tests.support.sources.writers import samples, write_litdata, write_mds

_COUNT = 6


# --- Parquet ---------------------------------------------------------------------------------------------------------


def run_parquet(rng: random.Random, folder: Path) -> None:
    """Files of any codec, encoding and page size; half of the damage hits the footer, which has no checksum."""
    data = _parquet(rng)
    footer = int.from_bytes(data[-8:-4], "little") + 8
    begin, end = rng.choice(((0, len(data)), (len(data) - footer, len(data) - 8)))
    data = data[:begin] + damaged(rng, data[begin:end]) + data[end:]
    path = folder / "a.parquet"
    path.write_bytes(data)
    label = rng.choice([None, "label", "text", "boxes", ["label", "text", "boxes", "nested"]])
    open_and_read(lambda: Parquet(path, label=label, cache_bytes=1 << 24))


def _parquet(rng: random.Random) -> bytes:
    images: list[Any] = [{"bytes": rng.randbytes(rng.choice((1, 80, 900))), "path": f"{i}.png"} for i in range(_COUNT)]
    if rng.random() < 0.3:
        images = [image["bytes"] for image in images]
    table = pa.table(
        {
            "image": images,
            "label": list(range(_COUNT)),
            "text": [f"text {i}" for i in range(_COUNT)],
            "boxes": [[[0.5, 1.0]] * (i % 3) for i in range(_COUNT)],
            "nested": [{"a": i, "b": [i] * i} for i in range(_COUNT)],
        }
    )
    out = pa.BufferOutputStream()
    pq.write_table(
        table,
        out,
        row_group_size=rng.choice((2, _COUNT)),
        compression=rng.choice(("none", "snappy", "gzip", "zstd", "lz4", "brotli")),
        use_dictionary=rng.random() < 0.5,
        data_page_version=rng.choice(("1.0", "2.0")),
        data_page_size=rng.choice((64, 1 << 20)),
        write_page_checksum=rng.random() < 0.3,
        store_schema=rng.random() < 0.7,
    )
    return out.getvalue().to_pybytes()


# --- MDS and LitData -------------------------------------------------------------------------------------------------


@functools.cache
def _whole(write: Callable[[Path, Any], None]) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), samples(_COUNT))
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def _run(
    rng: random.Random, folder: Path, files: dict[str, bytes], kinds: tuple[str, ...], open_source: Callable[..., Any]
) -> None:
    """Damages index.json as text or as values, or a file of records; fields get other encodings."""
    files = dict(files)
    text = files["index.json"]
    for old in ("png", "int", "bytes"):
        if rng.random() < 0.3:
            text = text.replace(f'"{old}"'.encode(), f'"{rng.choice(kinds)}"'.encode(), rng.choice((1, -1)))
    how = rng.random()
    if how < 0.4:
        text = json.dumps(changed_json(rng, json.loads(text))).encode()
    elif how < 0.5:
        text = damaged(rng, text)
    files["index.json"] = text
    if how > 0.4:
        name = rng.choice(sorted(set(files) - {"index.json"}))
        size = len(files[name])
        files[name] = damaged(rng, files[name])
        if rng.random() < 0.7:  # of the size that the index claims, so that the records are read
            files[name] = files[name][:size].ljust(size, b"\0")
    case_folder = Path(tempfile.mkdtemp(dir=folder))
    for name, data in files.items():
        (case_folder / name).write_bytes(data)
    try:
        label = rng.choice([None, "label", ["label"], ["label", "image"]])
        open_and_read(lambda: open_source(case_folder, label=label))
    finally:
        shutil.rmtree(case_folder)


def run_mds(rng: random.Random, folder: Path) -> None:
    kinds = ("png", "jpeg", "pil", "bytes", "pkl", "int", "str", "json", "str_int", "str_float", "float16", "ndarray")
    _run(rng, folder, _whole(write_mds), kinds, Mds)


def run_litdata(rng: random.Random, folder: Path) -> None:
    kinds = ("jpeg", "pil", "bytes", "int", "str", "bool", "float", "pickle", "no_header_numpy:2", "int:x")
    _run(rng, folder, _whole(write_litdata), kinds, LitData)
