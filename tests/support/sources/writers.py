"""Writes the same samples in every format of cuaug.sources, with other libraries or from specifications."""

from __future__ import annotations

import contextlib
import csv
import functools
import http.server
import io
import json
import os
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

from cuaug import sources
from tests.support.loader.further_pictures import png


class Sample(NamedTuple):
    name: str
    number: int  # of a constant-color image
    label: int

    @property
    def data(self) -> bytes:
        return png(self.number)

    @property
    def pixels(self) -> np.ndarray:
        return np.array(Image.open(io.BytesIO(self.data)))


def samples(count: int = 12) -> list[Sample]:
    return [Sample(f"{i:04d}", i, 7 * i % 11) for i in range(count)]


@dataclass(frozen=True)
class Kind:
    """One format of a dataset.

    Attributes:
        write: (folder, samples): writes the dataset.
        open: (folder) -> source.
        label: the label that the source returns for a sample.
        has_names: the dataset stores names of samples.
    """

    write: Callable[[Path, list[Sample]], None]
    open: Callable[[Path], Any]
    label: Callable[[Sample], Any] = lambda sample: sample.label
    has_names: bool = True


def overwrite(path: Path, at: int, value: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(value)


def flip_bit(path: Path, at: int) -> None:
    """Damages one byte of a file."""
    overwrite(path, at, bytes([path.read_bytes()[at] ^ 1]))


# --- files -----------------------------------------------------------------------------------------------------------


def write_files(folder: Path, content: list[Sample]) -> None:
    """Writes name.png, and names and labels in list.txt and table.csv."""
    for sample in content:
        (folder / f"{sample.name}.png").write_bytes(sample.data)
    lines = [f"{sample.name}.png {sample.label}\n" for sample in content]
    (folder / "list.txt").write_text("".join(lines))
    with open(folder / "table.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "name"])
        writer.writerows([f"{sample.name}.png", sample.label, f"no {sample.name}"] for sample in content)


def open_files(folder: Path) -> sources.Files:
    lines = (folder / "list.txt").read_text().splitlines()
    pairs = [line.split() for line in lines]
    return sources.Files([str(folder / path) for path, _ in pairs], [int(label) for _, label in pairs])


def open_data_frame(folder: Path) -> sources.DataFrame:
    pandas = pytest.importorskip("pandas")
    return sources.DataFrame(pandas.read_csv(folder / "table.csv"), root=folder)


def write_pngs(folder: Path, *names: str) -> None:
    """Writes images of the numbers in their names, such as cat/3.png; files with other endings hold text."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(int(path.stem)) if path.suffix.lower() == ".png" else b"text")


def write_class_folders(folder: Path, content: list[Sample]) -> None:
    for sample in content:
        path = folder / f"{sample.label:02d}" / f"{sample.name}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(sample.data)


# --- detection -------------------------------------------------------------------------------------------------------

BOX = [1.5, 1.0, 3.5, 3.0]  # of an image of 5 x 4 pixels (width x height)


def write_yolo(folder: Path, content: list[Sample]) -> None:
    """Writes images/train/name.png, labels/train/name.txt and data.yaml."""
    for name in ("images", "labels"):
        (folder / name / "train").mkdir(parents=True, exist_ok=True)
    for sample in content:
        (folder / "images" / "train" / f"{sample.name}.png").write_bytes(sample.data)
        (folder / "labels" / "train" / f"{sample.name}.txt").write_text(f"{sample.label} 0.5 0.5 0.4 0.5\n")
    names = "".join(f"  {i}: class {i}\n" for i in range(11))
    (folder / "data.yaml").write_text(f"path: .\ntrain: images/train\nval: images/val\nnames:\n{names}")


def write_voc(folder: Path, content: list[Sample]) -> None:
    """Writes JPEGImages/name.png, Annotations/name.xml and ImageSets/Main/train.txt."""
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    x0, y0, x1, y1 = BOX
    box = f"<xmin>{x0 + 1}</xmin><ymin>{y0 + 1}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax>"
    for sample in content:
        (folder / "JPEGImages" / f"{sample.name}.png").write_bytes(sample.data)
        (folder / "Annotations" / f"{sample.name}.xml").write_text(
            f"<annotation><size><width>5</width><height>4</height><depth>3</depth></size><object>"
            f"<name>class {sample.label:02d}</name><bndbox>{box}</bndbox></object></annotation>"
        )
    (folder / "ImageSets" / "Main" / "train.txt").write_text("".join(f"{sample.name}\n" for sample in content))


# --- tar -------------------------------------------------------------------------------------------------------------


def write_tar(
    path: Path, members: Mapping[str, bytes] | list[tuple[str, bytes]], tar_format: int = tarfile.GNU_FORMAT
) -> None:
    with tarfile.open(path, "w", format=tar_format) as archive:
        for name, data in members.items() if isinstance(members, Mapping) else members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def write_shards(folder: Path, content: list[Sample]) -> None:
    """Writes train-0.tar with a third of the samples, and train-1.tar."""
    cut = len(content) // 3
    for i, part in enumerate([content[:cut], content[cut:]]):
        members = {}
        for sample in part:
            members[f"{sample.name}.png"] = sample.data
            members[f"{sample.name}.cls"] = str(sample.label).encode()
        write_tar(folder / f"train-{i}.tar", members)


# --- TFRecord, from https://www.tensorflow.org/tutorials/load_data/tfrecord and protobuf's encoding guide ------------


def crc32c(data: bytes) -> int:
    """One bit at a time, as defined."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> bytes:
    crc = crc32c(data)
    rotated = ((crc >> 15) | (crc << 17)) % 2**32
    return struct.pack("<I", (rotated + 0xA282EAD8) % 2**32)


def frame(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + masked_crc(length) + record + masked_crc(record)


def varint(value: int) -> bytes:
    value %= 2**64
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def block(number: int, content: bytes) -> bytes:
    return varint(8 * number + 2) + varint(len(content)) + content


def feature(value: Any, packed: bool = True) -> bytes:
    """A Feature message of one or several bytes, floats or integers."""
    values = value if isinstance(value, list) else [value]
    if isinstance(values[0], bytes):
        return block(1, b"".join(block(1, item) for item in values))
    if isinstance(values[0], float):
        singles = [struct.pack("<f", item) for item in values]
        return block(2, block(1, b"".join(singles)) if packed else b"".join(varint(8 + 5) + item for item in singles))
    singles = [varint(item) for item in values]
    return block(3, block(1, b"".join(singles)) if packed else b"".join(varint(8 + 0) + item for item in singles))


def example(fields: Mapping[str, Any], packed: bool = True) -> bytes:
    entries = [block(1, name.encode()) + block(2, feature(value, packed)) for name, value in fields.items()]
    return block(1, b"".join(block(1, entry) for entry in entries))


def write_tfrecord(path: Path, records: list[bytes]) -> None:
    path.write_bytes(b"".join(map(frame, records)))


def write_tfrecords(folder: Path, content: list[Sample]) -> None:
    cut = len(content) // 3
    for i, part in enumerate([content[:cut], content[cut:]]):
        records = [
            example({"image/encoded": s.data, "image/class/label": s.label, "image/filename": s.name.encode()})
            for s in part
        ]
        write_tfrecord(folder / f"train-{i}.tfrecord", records)


# --- LMDB and HDF5 ---------------------------------------------------------------------------------------------------


def write_environment(path: Path, items: Mapping[bytes, bytes]) -> None:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(path), map_size=1 << 26) as environment, environment.begin(write=True) as transaction:
        for key, value in items.items():
            transaction.put(key, value)


def value_size_at(data: bytes, key: bytes) -> int:
    """Offset of the 4-byte size of a value that has its own pages in an LMDB file."""
    node = struct.pack("<HH", 1, len(key)) + key  # flags: F_BIGDATA; then the key and its length
    assert data.count(node) == 1
    return data.index(node) - 4


def value_page_at(data: bytes, key: bytes) -> int:
    """Offset of the 8-byte number of that value's first page."""
    return value_size_at(data, key) + 8 + len(key)


def write_lmdb(folder: Path, content: list[Sample]) -> None:
    write_environment(folder / "db.lmdb", {sample.name.encode(): sample.data for sample in content})
    (folder / "labels.txt").write_text("".join(f"{sample.name} {sample.label}\n" for sample in content))


def open_lmdb(folder: Path) -> sources.Lmdb:
    pairs = [line.split() for line in (folder / "labels.txt").read_text().splitlines()]
    return sources.Lmdb(folder / "db.lmdb", labels={name: int(label) for name, label in pairs})


def write_labeled_lmdb(folder: Path, content: list[Sample]) -> None:
    """Writes values of a 4-byte label and the image."""
    values = {sample.name.encode(): struct.pack("<i", sample.label) + sample.data for sample in content}
    write_environment(folder / "db.lmdb", values)


def split_value(key: bytes, value: bytes) -> tuple[bytes, int]:
    return value[4:], struct.unpack("<i", value[:4])[0]


def write_hdf5(folder: Path, content: list[Sample]) -> None:
    """Writes data.h5: `images`, encoded; `pixels`, decoded; `labels`."""
    with h5py.File(folder / "data.h5", "w") as file:
        images = file.create_dataset("images", (len(content),), dtype=h5py.vlen_dtype(np.uint8))
        for i, sample in enumerate(content):
            images[i] = np.frombuffer(sample.data, np.uint8)
        file["pixels"] = np.stack([sample.pixels for sample in content])
        file["labels"] = [sample.label for sample in content]


# --- Parquet ---------------------------------------------------------------------------------------------------------


def write_parquet(folder: Path, content: list[Sample]) -> None:
    """Writes train-0.parquet with a third of the samples, and train-1.parquet; row groups of 3 rows."""
    cut = len(content) // 3
    for i, part in enumerate([content[:cut], content[cut:]]):
        table = pyarrow.table(
            {
                "image": [{"bytes": sample.data, "path": f"{sample.name}.png"} for sample in part],
                "label": [sample.label for sample in part],
            }
        )
        pyarrow.parquet.write_table(table, folder / f"train-{i}.parquet", row_group_size=3)


def open_remote_parquet(folder: Path) -> sources.Parquet:
    return sources.Parquet([f"{_file_server()[1]}{path}" for path in sorted(folder.glob("*.parquet"))])


# --- MDS and LitData -------------------------------------------------------------------------------------------------


def record_file(records: list[bytes], after_offsets: bytes = b"") -> bytes:
    """The number of records, their offsets, and the records."""
    first = 4 * (len(records) + 2) + len(after_offsets)
    offsets = [first + sum(map(len, records[:i])) for i in range(len(records) + 1)]
    header = struct.pack(f"<{len(records) + 2}I", len(records), *offsets)
    return header + after_offsets + b"".join(records)


def write_mds(folder: Path, content: list[Sample]) -> None:
    """Writes 0.mds with a third of the samples, and 1.mds."""
    shards = []
    for i, part in enumerate([content[: len(content) // 3], content[len(content) // 3 :]]):
        records = [struct.pack("<I", len(s.data)) + s.data + struct.pack("<q", s.label) for s in part]
        data = record_file(records, b"{}")
        (folder / f"{i}.mds").write_bytes(data)
        columns = {"column_names": ["image", "label"], "column_encodings": ["png", "int"], "column_sizes": [None, 8]}
        raw_data = {"basename": f"{i}.mds", "bytes": len(data), "hashes": {}}
        options = {"format": "mds", "version": 2, "compression": None, "zip_data": None}
        shards.append({**columns, **options, "samples": len(part), "raw_data": raw_data})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


def write_litdata(folder: Path, content: list[Sample]) -> None:
    """Writes chunk-0-0.bin with a third of the samples, and chunk-0-1.bin."""
    chunks = []
    for i, part in enumerate([content[: len(content) // 3], content[len(content) // 3 :]]):
        data = record_file([struct.pack("<II", len(s.data), 8) + s.data + struct.pack("<q", s.label) for s in part])
        name = f"chunk-0-{i}.bin"
        (folder / name).write_bytes(data)
        chunks.append({"filename": name, "chunk_size": len(part), "chunk_bytes": len(data)})
    leaf = {"type": None, "context": None, "children_spec": []}
    spec = [1, {"type": "builtins.dict", "context": '["image", "label"]', "children_spec": [leaf, leaf]}]
    config = {"compression": None, "data_format": ["bytes", "int"], "data_spec": json.dumps(spec)}
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))


# --- Datasets --------------------------------------------------------------------------------------------------------


class ImageDataset(torch.utils.data.Dataset):
    """A Dataset like torchvision's ImageFolder: (image, label) items, and `samples`."""

    def __init__(self, folder: Path, image_type: str) -> None:
        source = open_files(folder)
        self.samples = list(zip(source.paths, source.labels, strict=True))
        self.image_type = image_type

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.samples[index]
        if self.image_type == "path":
            return path, label
        if self.image_type == "bytes":
            return Path(path).read_bytes(), label
        image = Image.open(path)
        return (image if self.image_type == "pillow" else np.asarray(image)), label


def open_halves(folder: Path) -> sources.Source:
    source = open_files(folder)
    return sources.open_source(ConcatDataset([Subset(source, range(6)), Subset(source, range(6, len(source)))]))


# --- remote ----------------------------------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


class Ranges(Quiet):
    """A file server with byte ranges and ETags."""

    def send_head(self) -> None:
        header = self.headers.get("Range")
        path = self.translate_path(self.path.partition("?")[0])
        if not os.path.isfile(path):
            return self.send_error(404)
        with open(path, "rb") as file:
            data = file.read()
        if header is None:
            self.send_response(200)
            part = data
        else:
            first, last = map(int, header.removeprefix("bytes=").split("-"))
            part = data[first : last + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hash(data)}"')
        self.send_header("Last-Modified", self.date_time_string(os.stat(path).st_mtime))
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(part)


@contextlib.contextmanager
def served(folder: Path, handler: type = Quiet) -> Iterator[str]:
    """Serves a folder by HTTP; yields its URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@functools.cache
def _file_server() -> Any:
    """Serves all files of this machine until the process ends."""
    server = served(Path("/"), Ranges)
    return server, server.__enter__()


def open_http(folder: Path) -> sources.Remote:
    source = open_files(folder)
    return sources.Remote([_file_server()[1] + path for path in source.paths], source.labels)


def _dataset(image_type: str, **options: Any) -> Kind:
    return Kind(write_files, lambda folder: sources.FromDataset(ImageDataset(folder, image_type), **options))


KINDS: dict[str, Kind] = {
    "files": Kind(write_files, open_files),
    "class folders": Kind(
        write_class_folders, sources.Files.from_directory, label=lambda sample: ORDER_OF_LABELS[sample.label]
    ),
    "list": Kind(write_files, lambda folder: sources.ListFile(folder / "list.txt")),
    "csv": Kind(write_files, lambda folder: sources.Csv(folder / "table.csv")),
    "csv fields": Kind(
        write_files,
        lambda folder: sources.Csv(folder / "table.csv", "path", ["label", "name"]),
        label=lambda sample: {"label": sample.label, "name": f"no {sample.name}"},
    ),
    "data frame": Kind(write_files, open_data_frame),
    "yolo": Kind(write_yolo, sources.Yolo, label=lambda sample: {"boxes": [BOX], "labels": [sample.label]}),
    "voc": Kind(
        write_voc,
        sources.PascalVoc,
        label=lambda sample: {"boxes": [BOX], "labels": [ORDER_OF_LABELS[sample.label]], "difficult": [0]},
    ),
    "tar": Kind(write_shards, lambda folder: sources.TarShards(folder / "train-{0..1}.tar")),
    "tfrecord": Kind(write_tfrecords, lambda folder: sources.TFRecord(folder / "train-*.tfrecord")),
    "lmdb": Kind(write_lmdb, open_lmdb),
    "lmdb decode": Kind(write_labeled_lmdb, lambda folder: sources.Lmdb(folder / "db.lmdb", decode=split_value)),
    "hdf5": Kind(write_hdf5, lambda folder: sources.Hdf5(folder / "data.h5"), has_names=False),
    "hdf5 pixels": Kind(write_hdf5, lambda folder: sources.Hdf5(folder / "data.h5", "pixels"), has_names=False),
    "parquet": Kind(write_parquet, lambda folder: sources.Parquet(folder / "train-*.parquet")),
    "parquet remote": Kind(write_parquet, open_remote_parquet),
    "mds": Kind(write_mds, sources.Mds, has_names=False),
    "litdata": Kind(write_litdata, sources.LitData, has_names=False),
    "dataset paths": _dataset("path"),
    "dataset bytes": _dataset("bytes"),
    "dataset arrays": _dataset("array"),
    "dataset pillow": _dataset("pillow"),
    "dataset locked": _dataset("bytes", lock=True),
    "dataset of sources": Kind(write_files, open_halves),
    "http": Kind(write_files, open_http),
}
ORDER_OF_LABELS = {label: i for i, label in enumerate(sorted({sample.label for sample in samples()}))}
