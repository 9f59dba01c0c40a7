"""Damaged tars, COCO, YOLO and VOC files, tables and lists, each opened and fully read.

Each `run_x(rng, folder)` makes one file, damages it, and reads all samples and labels. It lets cuaug's errors and a
read's OSError pass and raises anything else.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cuaug.batch import collate
from cuaug.errors import CuaugError
from cuaug.sources import Coco, Csv, Files, ListFile, LitData, Mds, Parquet, PascalVoc, TarShards, TFRecord, Yolo
from cuaug.sources.file_bytes import read_bytes
from tests.support.loader.further_pictures import png
from tests.tools.corpus import CORPUS

# Numbers and texts that break parsers.
_NUMBERS = [0, -1, 1, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 10**19, 10**400]
_NUMBERS += [1e308, -1e9, 0.5, float("nan"), float("inf"), -float("inf")]
_TEXTS = ["", "\0", "..", "../a", "/etc/passwd", "a" * 5000, "http://h/a", "reference://a::b", "\udce4", "é", "9" * 19]
_TEXTS += ["9" * 5000, "nan", "1e999", "-0", "0x10", "1_000", '"', "\n", "\r\n", ",", "a://b", "\ufeff", "None"]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Flips bits, sets bytes, and deletes, repeats, replaces or appends runs of bytes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        if not changed:
            break
        at, size = rng.randrange(len(changed)), rng.choice((1, 2, 4, 8, 64, 512, 700))
        kind = rng.randrange(8)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at] = rng.choice((0, 1, 0x2F, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del changed[at : at + size]
        elif kind == 3:
            changed[at:at] = changed[at : at + size]
        elif kind == 4:
            changed[at : at + size] = rng.randbytes(size)
        elif kind == 5:
            changed[at : at + size] = bytes(min(size, len(changed) - at))
        elif kind == 6:
            changed += rng.randbytes(size)
        else:
            del changed[at:]
    return bytes(changed)


def read_all(source: Any, allowed: tuple[type[Exception], ...]) -> None:
    """Reads every sample and label, and collates the label, as a loader does."""
    for i in range(len(source)):
        with contextlib.suppress(*allowed):
            data, label = source.read(i)
            if isinstance(data, str):
                with contextlib.suppress(OSError, CuaugError):
                    read_bytes(data, 1 << 20)
            collate([label])
        source.path(i)
        for use in ("encoded_size", "label"):
            if hasattr(source, use):
                with contextlib.suppress(CuaugError):
                    getattr(source, use)(i)


def open_and_read(make: Callable[[], Any], allowed: tuple[type[Exception], ...] = (CuaugError, OSError)) -> None:
    """Opens and reads a source; `allowed` errors of a sample pass."""
    with contextlib.suppress(CuaugError):
        source = make()
        read_all(source, allowed)
        source.fingerprint()
        repr(source)


# --- tars ------------------------------------------------------------------------------------------------------------

_FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def _npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(3))
    return file.getvalue()


_MEMBERS = {"jpg": b"\xff\xd8\xff picture", "cls": b"7", "json": b'{"a": [1, 2.5, "b"]}', "npy": _npy(), "txt": b"text"}


def _tar(rng: random.Random) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=rng.choice(_FORMATS)) as tar:
        for i in range(rng.randint(1, 3)):
            stem = ("d" * 90 + "/") * rng.randrange(2) + f"{i}" + "n" * rng.choice((0, 0, 80))
            for field, content in _MEMBERS.items():
                member = tarfile.TarInfo(f"{stem}.{field}")
                content = rng.choice(_TEXTS).encode("utf-8", "surrogateescape") if rng.random() < 0.1 else content
                member.size = len(content)
                if rng.random() < 0.05:
                    member.type, member.size = rng.choice((tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE)), 0
                    member.linkname = f"{i}.jpg"
                tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _with_checksums(rng: random.Random, data: bytes) -> bytes:
    """Puts hostile fields into headers and fixes the checksum, which random damage rarely passes."""
    found = bytearray(data)
    headers = [at for at in range(0, len(found) - 511, 512) if found[at + 257 : at + 262] == b"ustar"]
    for at in rng.sample(headers, min(len(headers), rng.randint(0, 2))):
        start, size = rng.choice(((0, 100), (100, 8), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8), (345, 155)))
        kinds = [rng.randbytes(size), b"7" * size, b"\x80" + bytes(size - 1), b"\xff" * size]
        kinds += [b"x", b"S", b"L", b"1", b""]
        found[at + start : at + start + size] = rng.choice(kinds)[:size].ljust(size, b"\0")
        found[at + 148 : at + 156] = b" " * 8
        found[at + 148 : at + 156] = b"%06o\0 " % sum(found[at : at + 512])
    return bytes(found)


def run_tar(rng: random.Random, folder: Path) -> None:
    data = _with_checksums(rng, _tar(rng))
    path = folder / "a.tar"
    path.write_bytes(damaged(rng, data) if rng.random() < 0.6 else data)
    label = rng.choice([None, "cls", "json", "npy", "txt", ["cls", "json", "npy"]])
    open_and_read(lambda: TarShards(path, label=label))


# --- COCO ------------------------------------------------------------------------------------------------------------


def _coco() -> dict[str, Any]:
    segments: list[Any] = [[[1, 1, 5, 1, 5, 5, 1, 5]], {"size": [8, 8], "counts": [0, 64]}]
    segments += [{"size": [8, 8], "counts": "PPYo20"}, [[1.5, 1, 7, 2, 3, 9], [0, 0, 4, 0, 4, 4]]]
    annotations = [
        {"id": i, "image_id": i % 2, "category_id": 3, "bbox": [1, 1, 2, 2], "area": 4, "iscrowd": i % 2,
         "segmentation": segment, "keypoints": [1, 2, 2] * 2}
        for i, segment in enumerate(segments)
    ]  # fmt: skip
    images = [{"id": i, "file_name": f"{i}.jpg", "height": 8, "width": 8} for i in range(2)]
    return {"images": images, "annotations": annotations, "categories": [{"id": 3, "name": "thing"}]}


def _odd(rng: random.Random) -> Any:
    simple = [*_NUMBERS, *_TEXTS, None, True, [], {}]
    kind = rng.randrange(4)
    if kind == 0:
        return [rng.choice(simple) for _ in range(rng.choice((1, 3, 6, 40)))]
    if kind == 1:
        return {
            "size": [8, 8],
            "counts": rng.choice(["".join(rng.choices("0123456789PQYonop\0\x7f", k=20)), [0, 2**32]]),
        }
    if kind == 2:
        return [[rng.choice(_NUMBERS) for _ in range(rng.choice((6, 8, 7)))]]
    return rng.choice(simple)


def changed_json(rng: random.Random, value: Any) -> Any:
    """The value with one node replaced, removed or doubled, also within JSON that is a text of it."""
    if isinstance(value, str) and value.startswith(("[", "{")) and rng.random() < 0.9:
        with contextlib.suppress(ValueError):
            return json.dumps(changed_json(rng, json.loads(value)))
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.12:
        return _odd(rng)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = rng.choice(keys)
    changed = value.copy()
    if rng.random() < 0.08:
        del changed[key]
    elif isinstance(changed, list) and rng.random() < 0.08:
        changed.append(changed[key])
    else:
        changed[key] = changed_json(rng, value[key])
    return changed


def run_coco(rng: random.Random, folder: Path) -> None:
    content = _coco()
    for annotation in content["annotations"]:  # let the file open, so that its masks are reached
        annotation["segmentation"] = changed_json(rng, annotation["segmentation"])
    for _ in range(rng.choice((0, 0, 1, 2))):
        content = changed_json(rng, content)
    text = json.dumps(content, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    path = folder / "coco.json"
    path.write_bytes(damaged(rng, text) if rng.random() < 0.2 else text)
    options = {name: rng.random() < 0.5 for name in ("contiguous", "keep_crowds", "keep_empty", "allow_outside")}
    open_and_read(lambda: Coco(folder, path, masks=rng.random() < 0.8, **options))


# --- YOLO and Pascal VOC ---------------------------------------------------------------------------------------------

_PNG = png(3)


def run_yolo(rng: random.Random, folder: Path) -> None:
    for name in ("images", "labels"):
        (folder / name).mkdir()
    (folder / "images" / "a.png").write_bytes(_PNG if rng.random() < 0.8 else damaged(rng, _PNG))
    row = ["1", "0.5", "0.5", "0.2", "0.1"]
    rows = [[rng.choice(_TEXTS) if rng.random() < 0.1 else field for field in row] for _ in range(rng.randint(0, 3))]
    text = "\n".join(map(" ".join, rows)).encode("utf-8", "surrogateescape")
    (folder / "labels" / "a.txt").write_bytes(damaged(rng, text) if rng.random() < 0.5 else text)
    (folder / "list.txt").write_text("images/a.png\n" + rng.choice(["", "/etc/passwd\n", "../a.png\n"]))
    config = {"path": ".", "train": rng.choice(["images", "list.txt", ["images"]]), "names": ["a", "b"], "nc": 2}
    for _ in range(rng.choice((0, 0, 1, 2))):
        config = changed_json(rng, config)
    data = json.dumps(config).encode()  # YAML's flow style
    (folder / "data.yaml").write_bytes(damaged(rng, data) if rng.random() < 0.2 else data)
    open_and_read(lambda: Yolo(folder, allow_outside=rng.random() < 0.3))


def run_voc(rng: random.Random, folder: Path) -> None:
    texts = {
        name: rng.choice(_TEXTS).replace("\0", "").replace("\udce4", "") if rng.random() < 0.1 else value
        for name, value in {"name": "cat", "xmin": "1", "ymin": "1", "xmax": "3", "ymax": "2.5", "side": "5"}.items()
    }
    box = "".join(f"<{name}>{texts[name]}</{name}>" for name in ("xmin", "ymin", "xmax", "ymax"))
    size = f"<size><width>{texts['side']}</width><height>4</height></size>"
    text = f"<annotation>{size}<object><name>{texts['name']}</name><bndbox>{box}</bndbox></object></annotation>"
    (folder / "a.png").write_bytes(_PNG)
    (folder / "a.xml").write_bytes(damaged(rng, text.encode()) if rng.random() < 0.6 else text.encode())
    classes = None if rng.random() < 0.5 else ["cat"]
    open_and_read(lambda: PascalVoc(folder, None, images=".", annotations=".", classes=classes))


# --- tables and lists ------------------------------------------------------------------------------------------------


def _cells(rng: random.Random) -> list[str]:
    return [rng.choice(_TEXTS) if rng.random() < 0.2 else name for name in ("a.jpg", "3", "0.5", "dog")]


def run_table(rng: random.Random, folder: Path) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["path", "n", "x", "name"], *(_cells(rng) for _ in range(rng.randint(0, 4)))])
    data = text.getvalue().encode("utf-8", "surrogateescape")
    path = folder / "a.csv"
    path.write_bytes(damaged(rng, data) if rng.random() < 0.5 else data)
    label = rng.choice([1, "n", "name", None, ["n", "x", "name"], 99])
    open_and_read(lambda: Csv(path, label=label, header=rng.random() < 0.8, allow_outside=rng.random() < 0.3))


def run_list(rng: random.Random, folder: Path) -> None:
    lines = [" ".join(_cells(rng)[: rng.randint(1, 4)]) for _ in range(rng.randint(0, 4))]
    data = "\n".join(lines).encode("utf-8", "surrogateescape")
    path = folder / "a.txt"
    path.write_bytes(damaged(rng, data) if rng.random() < 0.5 else data)
    open_and_read(lambda: ListFile(path, labels=rng.randint(0, 3), allow_outside=rng.random() < 0.3))


# --- the corpus ------------------------------------------------------------------------------------------------------

_OPEN: dict[str, Callable[[Path], Any]] = {
    "files": lambda folder: ListFile(folder / "list.txt"),
    "class-folders": Files.from_directory,
    "tar": lambda folder: TarShards(folder / "train-{0..1}.tar"),
    "tfrecord": lambda folder: TFRecord(folder / "train-*.tfrecord"),
    "parquet": lambda folder: Parquet(folder / "train-*.parquet"),
    "mds": Mds,
    "litdata": LitData,
}


def run_corpus(rng: random.Random, folder: Path) -> None:
    """A set of tests/corpus, of which one file is damaged or exchanged for another one."""
    kind = rng.choice(sorted(_OPEN))
    copy = folder / "set"
    shutil.copytree(CORPUS / "sets" / kind, copy)
    path, other = rng.choices([path for path in sorted(copy.rglob("*")) if path.is_file()], k=2)
    path.write_bytes(damaged(rng, (path if rng.random() < 0.9 else other).read_bytes()))
    open_and_read(lambda: _OPEN[kind](copy))
