"""`cuaug shard`: the finished set holds the source's bytes and labels, in its order."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cuaug import Loader, sources
from cuaug import transforms as T
from cuaug.commands.cli import main
from tests.support.codec.encoded_images import RGB, encode
from tests.support.commands.shard_sets import (
    Labeled,
    files_of,
    open_set,
    read_manifest,
    shard,
    shard_source,
    write_photos,
)
from tests.support.prepare.fake_jpegtran import MARKED, PLAIN, FakeJpegtran

pytestmark = pytest.mark.cpu_only


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path)


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def stored(source: Path | sources.Source) -> list:
    source = source if isinstance(source, sources.Source) else sources.open_source(source)
    samples = [source.read(i) for i in range(len(source))]
    return [(Path(data).read_bytes() if isinstance(data, str) else data, label) for data, label in samples]


def skipped(manifest: dict) -> list:
    return [sample for entry in manifest["shards"] for sample in entry["skipped"]]


def test_tars_hold_the_same_bytes_and_labels(photos, out, capsys):
    assert shard(photos, out / "train-{:03d}.tar", "--size", "16kB") == 0
    manifest = read_manifest(out / "train.manifest.json")
    assert len(manifest["shards"]) > 3 and manifest["samples"] == 60 and skipped(manifest) == []
    last = len(manifest["shards"]) - 1
    call = f"cuaug.sources.TarShards('{out}/train-{{000..{last:03d}}}.tar', image='png', label='cls')"
    assert manifest["opens_with"] == call and call in capsys.readouterr().out
    assert stored(open_set(manifest)) == stored(photos)
    # Shards have their indexes, and nothing else is left.
    names = [entry["name"] for entry in manifest["shards"]]
    expected = sorted([*names, *(f"{name}.cuaug-index" for name in names), "train.manifest.json"])
    assert sorted(files_of(out)) == expected


def test_other_programs_read_the_tars(photos, out):
    assert shard(photos, out / "{:05d}.tar") == 0
    with tarfile.open(out / "00000.tar") as tar:
        names = tar.getnames()
    assert names[:4] == ["000000000.png", "000000000.cls", "000000001.png", "000000001.cls"] and len(names) == 120
    assert (out / "shards.manifest.json").exists() and (out / "00000.tar").stat().st_size % tarfile.RECORDSIZE == 0


def test_shards_are_about_as_large_as_asked(photos, out):
    assert shard(photos, out / "train-{:05d}.tar", "--size", "30kB") == 0
    sizes = [entry["bytes"] for entry in read_manifest(out / "train.manifest.json")["shards"]]
    samples = [entry["samples"] for entry in read_manifest(out / "train.manifest.json")["shards"]]
    assert 15_000 < np.mean(sizes) < 60_000 and max(samples) - min(samples) <= 1


LABELS = {
    "txt": ["a cat", "ein Käfer", ""],
    "json": [{"caption": "x", "numbers": [1, 2.5, None], "more": {"a": True}}, [1, 2], 0.1, True],
    "cls": [3, -(2**62), np.int32(7)],
    "npy": [np.arange(6, dtype=np.float32).reshape(2, 3)],
    "npz": [
        {"boxes": np.ones((2, 4), np.float32), "labels": np.array([1, 2]), "image_id": 7, "name": "x"},
        {"boxes": np.zeros((0, 4), np.float32), "labels": np.zeros(0, np.int64), "image_id": 8, "name": "y"},
    ],
    "bin": [b"\0\1"],
}


@pytest.mark.parametrize("field", LABELS)
def test_labels_of_every_type(field, out, monkeypatch):
    assert shard_source(monkeypatch, Labeled(LABELS[field]), out / "x-{:05d}.tar") == 0
    manifest = read_manifest(out / "x.manifest.json")
    assert f"label='{field}'" in manifest["opens_with"]
    source = open_set(manifest)
    for i, label in enumerate(LABELS[field]):
        np.testing.assert_equal(source.label(i), label)
        if isinstance(label, dict) and field == "npz":
            assert {name: getattr(value, "dtype", 0) for name, value in source.label(i).items()} == {
                name: getattr(value, "dtype", 0) for name, value in label.items()
            }


@pytest.mark.parametrize("label", [2**63, {1: 2}, object(), {"a": np.ones(2), "b": None}, np.array([object()])])
def test_labels_that_no_file_holds(label, out, monkeypatch, capsys):
    assert shard_source(monkeypatch, Labeled([0, label]), out / "x-{:05d}.tar") == 1
    assert "(sample 1)" in capsys.readouterr().err and list(out.glob("*.tar")) == []


def test_masks_that_labels_name_are_stored(tmp_path, out, monkeypatch):
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    for i in range(3):
        (tmp_path / "images" / f"{i}.png").write_bytes(encode(RGB, "PNG"))
        mask = np.full((RGB.height, RGB.width), i, np.uint8)
        Image.fromarray(mask).save(tmp_path / "masks" / f"{i}.png")
    pairs = sources.Pairs(tmp_path / "images", tmp_path / "masks")
    assert shard_source(monkeypatch, pairs, out / "x-{:05d}.tar") == 0
    both = []
    for source in (pairs, open_set(read_manifest(out / "x.manifest.json"))):
        with Loader(source, [T.CenterCrop(8)], batch_size=3, device="cpu") as loader:
            (batch,) = loader
            both.append((batch.images.clone(), batch.labels["mask"].clone()))
    assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(*both, strict=True))


def test_arrays_become_pngs(out, monkeypatch):
    class Arrays(Labeled):
        def read(self, index):
            return np.arange(60, dtype=np.uint8).reshape([(4, 5, 3), (12, 5), (60, 1, 1)][index]), index

    assert shard_source(monkeypatch, Arrays([0] * 3), out / "x-{:05d}.tar") == 0
    tar = open_set(read_manifest(out / "x.manifest.json"))
    (out / "image.png").write_bytes(tar.read(1)[0])
    image = Image.open(out / "image.png")
    assert image.mode == "L" and (np.asarray(image).ravel() == np.arange(60)).all()


@pytest.mark.parametrize("extension", ["tar", "parquet"])
@pytest.mark.parametrize("names", [["txt"], ["txt", "json"], [""]])
def test_fields_of_tars_and_of_parquet_files(names, extension, tmp_path, out, capsys):
    """As img2dataset writes them: captions, and no classes."""
    if extension == "parquet":
        pytest.importorskip("pyarrow")
    samples = [(encode(RGB, "PNG"), f"a caption {i}", {"url": f"http://{i}", "width": i}) for i in range(3)]
    write_captions(tmp_path / f"in.{extension}", samples)
    options = [f"--label={name}" for name in names]
    assert shard(tmp_path / f"in.{extension}", out / "x-{:05d}.tar", "--image", "png", *options) == 0
    labels = [[text, {"txt": text, "json": record}, i] for i, (_, text, record) in enumerate(samples)]
    kind = [["txt"], ["txt", "json"], [""]].index(names)
    assert stored(open_set(read_manifest(out / "x.manifest.json"))) == [
        (image, label[kind]) for (image, *_), label in zip(samples, labels, strict=True)
    ]
    assert shard(tmp_path / f"in.{extension}", out / "x-{:05d}.tar", "--image", "png", "--label=json") == 1
    assert "--label is ['json'] now but" in capsys.readouterr().err


def write_captions(path, samples):
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        columns = dict(zip(("png", "txt", "json"), zip(*samples, strict=True), strict=True))
        parquet.write_table(pyarrow.table({name: list(values) for name, values in columns.items()}), path)
        return
    with tarfile.open(path, "w") as tar:
        for i, (image, text, record) in enumerate(samples):
            for name, data in (("png", image), ("txt", text.encode()), ("json", json.dumps(record).encode())):
                info = tarfile.TarInfo(f"{i}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def test_fields_of_other_sources_are_refused(photos, out, capsys):
    assert shard(photos, out / "x-{:05d}.tar", "--label", "txt") == 1
    assert "--image and --label name fields of .tar files" in capsys.readouterr().err


def test_a_random_order(photos, out):
    assert shard(photos, out / "a-{:05d}.tar", "--shuffle", "3", "--size", "16kB") == 0
    assert shard(photos, out / "b-{:05d}.tar", "--shuffle", "3", "--size", "16kB") == 0
    (first, second) = (read_manifest(out / f"{name}.manifest.json") for name in "ab")
    assert [entry["sha256"] for entry in first["shards"]] == [entry["sha256"] for entry in second["shards"]]
    source, plain = open_set(first), stored(photos)
    assert stored(source) != plain and sorted(stored(source)) == sorted(plain)
    keys = [int(Path(source.path(i)).stem) for i in range(60)]
    assert [plain[key] for key in keys] == stored(source)  # a key is the sample's index in the source


def test_images_are_scaled(tmp_path, out):
    (tmp_path / "images").mkdir()
    for i, size in enumerate([(400, 300), (30, 40)]):
        RGB.resize(size).save(tmp_path / "images" / f"{i}.jpg")
        RGB.resize(size).save(tmp_path / "images" / f"{i}.png")
    assert shard(tmp_path / "images", out / "x-{:05d}.tar", "--short-side", "50") == 0
    manifest = read_manifest(out / "x.manifest.json")
    with tarfile.open(out / "x-00000.tar") as tar:
        images = [(Image.open(tar.extractfile(m)).copy(), m.name) for m in tar if m.name.endswith(("jpg", "png"))]
    assert [image.size for image, _ in images] == [(66, 50), (66, 50), (30, 40), (30, 40)]
    assert [name[-3:] for _, name in images] == ["jpg", "png"] * 2
    kept = {data for data, _ in stored(open_set(manifest))}
    assert {(tmp_path / "images" / f"1.{kind}").read_bytes() for kind in ("jpg", "png")} < kept
    with Loader(tmp_path / "images", [T.Resize((50, 66))], batch_size=4, device="cpu", shuffle=False) as loader:
        (batch,) = loader
    assert (np.moveaxis(np.asarray(images[1][0]), -1, 0) == batch.images[1].numpy()).all()


def test_boxes_do_not_follow_a_scaled_image(out, monkeypatch, capsys):
    label = {"boxes": np.ones((1, 4), np.float32)}
    assert shard_source(monkeypatch, Labeled([label]), out / "x-{:05d}.tar", "--short-side", "8") == 1
    assert "--short-side" in capsys.readouterr().err


def test_restart_markers(tmp_path, out, capsys):
    (tmp_path / "bin").mkdir()
    program = FakeJpegtran(tmp_path / "bin")
    program.add_answer(PLAIN, MARKED)
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(PLAIN)
    (tmp_path / "images" / "b.jpg").write_bytes(encode(RGB, "JPEG"))  # jpegtran fails
    options = "--restart-markers", "--jpegtran", program.path
    assert shard(tmp_path / "images", out / "x-{:05d}.tar", *options) == 0
    manifest = read_manifest(out / "x.manifest.json")
    assert [data for data, _ in stored(open_set(manifest))] == [MARKED, encode(RGB, "JPEG")]
    assert manifest["unmarked"] == 1 and "sample 1 gets no restart markers: " in capsys.readouterr().err


def test_a_sample_that_cannot_be_read(photos, out, capsys):
    list_file = photos.parent / "list.txt"
    files = sorted(photos.rglob("*.png"))
    list_file.write_text("".join(f"{path} {i}\n" for i, path in enumerate(files)))
    files[7].unlink()
    assert shard(list_file, out / "x-{:05d}.tar", "--size", "16kB") == 1
    assert f"{str(files[7])!r} (sample 7)" in capsys.readouterr().err
    assert read_manifest(out / "x.manifest.json")["opens_with"] is None
    assert shard(list_file, out / "x-{:05d}.tar", "--size", "16kB", "--on-error", "skip") == 0
    manifest = read_manifest(out / "x.manifest.json")
    assert manifest["samples"] == 59 and [entry[0] for entry in skipped(manifest)] == [7]
    assert stored(open_set(manifest)) == [(path.read_bytes(), i) for i, path in enumerate(files) if i != 7]


@pytest.mark.parametrize(
    "pattern",
    [
        "x.tar",
        "x-{:05d}.parquet",
        "x-{}.tar",
        "x-{:5d}.tar",
        "x-{:05d}.zip",
        "s3://b/x-{:05d}.tar",
        "{:02d}/x.tar",
        "{{a}}-{:02d}.tar",
    ],
)
def test_output_names_that_cannot_be(photos, out, pattern, capsys):
    assert shard(photos, pattern if "://" in pattern else out / pattern) == 1
    assert capsys.readouterr().err.startswith("cuaug shard: OUT")


def test_too_few_digits(photos, out, capsys):
    assert shard(photos, out / "x-{:01d}.tar", "--size", "3kB") == 1
    assert "OUT" in capsys.readouterr().err and list(out.glob("*.tar")) == []


@pytest.mark.parametrize("size", ["0", "1GX", "-5"])
def test_sizes_that_cannot_be(photos, out, size, capsys):
    with pytest.raises(SystemExit):
        main(["shard", str(photos), str(out / "{:05d}.tar"), f"--size={size}"])
    assert "is no size such as 1GiB" in capsys.readouterr().err
