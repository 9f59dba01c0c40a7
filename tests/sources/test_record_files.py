"""MDS and LitData: files that their own libraries wrote, damage, changes, and what is refused.

tests/sources/written holds four samples each, written by mosaicml-streaming 0.13.0 and by litdata 0.2.76: image k is a
JPEG of 4 x 5 pixels of level 10 * k, its label is k + 1.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cuaug import DecodeError, LoaderError, ShardSampler
from cuaug.sources import Files, LitData, Mds, open_source
from tests.support.sources.loading import load
from tests.support.sources.writers import flip_bit, samples, write_litdata, write_mds, write_pngs

WRITTEN = Path(__file__).parent / "written"
CLASSES = {"mds": Mds, "litdata": LitData}
WRITERS = {"mds": write_mds, "litdata": write_litdata}


@pytest.fixture(params=CLASSES)
def name(request) -> str:
    return request.param


@pytest.fixture
def folder(name, tmp_path) -> Path:
    WRITERS[name](tmp_path, samples())
    return tmp_path


def first_file(folder: Path) -> Path:
    return min([*folder.glob("*.mds"), *folder.glob("*.bin")])


def change_index(folder: Path, change) -> None:
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))


def test_files_that_the_library_wrote(name):
    fields = ["label", "name", "score"]
    source = CLASSES[name](WRITTEN / name, label=fields)
    assert len(source) == 4
    for i in range(4):
        data, label = source.read(i)
        assert label == {"label": i + 1, "name": f"n{i}", "score": i / 2}
        pixels = np.asarray(Image.open(io.BytesIO(data)))
        assert pixels.shape == (4, 5, 3) and np.abs(pixels.astype(int) - 10 * i).max() <= 1
    sampler = ShardSampler(source.shard_sizes, 2)
    images, labels = load(CLASSES[name](WRITTEN / name), batch_size=4, sampler=sampler)
    assert images.float().mean((1, 2, 3)).round().div(10).add(1).long().tolist() == labels.tolist()


def test_other_encodings_of_mds():
    source = Mds(WRITTEN / "mds", "pixels", "meta")
    pixels, label = source.read(3)
    assert label == {"a": [3]} and pixels.shape == (2, 3, 3) and (pixels == 3).all()
    assert Mds(WRITTEN / "mds", "raw").read(2)[0][:2] == b"\xff\xd8"
    assert Mds(WRITTEN / "mds", label=None).read(2)[1] == 2


def test_a_damaged_record_damages_one_sample(name, folder):
    path = first_file(folder)
    data = bytearray(path.read_bytes())
    at = 4 + 4 * 1
    data[at : at + 4] = (len(data) + 9).to_bytes(4, "little")  # the end of record 0, and the begin of record 1
    path.write_bytes(data)
    with pytest.raises(DecodeError, match=r"record 1 lies at bytes \d+ to \d+ of \d+"):
        CLASSES[name](folder).read(1)
    assert len(load(CLASSES[name](folder), on_error="skip").labels) == 10


@pytest.mark.parametrize("overlap", [1, 4, 8])
def test_a_record_that_overlaps_the_table_of_offsets_is_damaged(name, folder, overlap):
    data = bytearray(first_file(folder).read_bytes())
    (count,) = struct.unpack_from("<I", data)
    begin = 4 + 4 * (count + 1) - overlap
    struct.pack_into("<I", data, 4, begin)
    first_file(folder).write_bytes(data)
    source = CLASSES[name](folder)
    with pytest.raises(DecodeError, match=f"record 0 lies at bytes {begin} to "):
        source.read(0)
    assert source.read(1) == (samples()[1].data, samples()[1].label)


def test_samples_that_litdata_stored_as_an_arrow_table(tmp_path):
    """Their chunk has empty records, and then the table."""
    write_litdata(tmp_path, samples())
    path = first_file(tmp_path)
    data, count = path.read_bytes(), LitData(tmp_path).shard_sizes[0]
    path.write_bytes(data[:4] + (4 * (count + 2)).to_bytes(4, "little") * (count + 1) + data[4 * (count + 2) :])
    with pytest.raises(DecodeError, match=r"the record is empty: litdata stores .* as Arrow tables .* return tuples"):
        LitData(tmp_path).read(0)


def test_a_wrong_size_of_a_field_damages_one_sample(name, folder):
    path, at = first_file(folder), int.from_bytes(first_file(folder).read_bytes()[4:8], "little")
    flip_bit(path, at)
    with pytest.raises(DecodeError, match=r"the record has \d+ bytes, its fields \d+"):
        CLASSES[name](folder).read(0)
    CLASSES[name](folder).read(1)


def test_a_changed_file_is_an_error(name, folder):
    source = CLASSES[name](folder)
    source.read(0)
    os.utime(first_file(folder), ns=(0, 0))
    with pytest.raises(OSError, match="has changed since its index was read"):
        source.read(0)


def test_a_truncated_or_missing_file_is_refused(name, folder):
    path = first_file(folder)
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(LoaderError, match=r"has \d+ bytes, but the index claims \d+: it is truncated"):
        CLASSES[name](folder)
    path.unlink()
    with pytest.raises(LoaderError, match="No such file or directory; all files must be local"):
        CLASSES[name](folder)


def test_a_record_above_the_limit_is_not_read(name, folder, monkeypatch):
    """Neither for its sample, nor whole for the fingerprint."""
    source = CLASSES[name](folder)
    sizes, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: (sizes.append(size), pread(fd, size, at))[1])
    monkeypatch.setattr("cuaug.sources.shards.record_files._FINGERPRINT_BYTES", 16)
    source.fingerprint()
    assert max(sizes[1:3]) == 16
    sizes.clear()
    assert source.encoded_size(0) > 16 and not sizes


def test_missing_fields_are_refused(name, folder):
    with pytest.raises(LoaderError, match="has no field 'photo'; it has 'image', 'label'"):
        CLASSES[name](folder, "photo")
    with pytest.raises(LoaderError, match="field 'label' has the encoding 'int'; bytes, jpeg, png, pil are read"):
        CLASSES[name](folder, "label")


NESTED = '[1, {"type": "list", "context": "[]", "children_spec": [' * 900
LEAF = '{"type": null}'
KEYS = json.dumps(["a" * 2000, "label"])
LONG = json.dumps([1, {"type": "dict", "context": KEYS, "children_spec": [json.loads(LEAF)] * 2}])


@pytest.mark.parametrize(
    "spec",
    ["[" * 100_000, NESTED + LEAF + "]}" * 900 + "]", LONG]
    + [
        "[1]",
        "[]",
        "{}",
        '{"1": 2}',
        '"a"',
        '"ab"',
        "[1, 2]",
        "[1, {}]",
        "[1, []]",
        '[1, {"type": "list"}]',
        "1e999",
        "",
    ],
    ids=lambda spec: spec[:20],
)
def test_a_damaged_data_spec_is_refused(tmp_path, spec):
    write_litdata(tmp_path, samples())
    change_index(tmp_path, lambda index: index["config"].update(data_spec=spec))
    with pytest.raises(LoaderError, match=r"index\.json is no index of LitData chunks"):
        LitData(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"shards": 3}', '{"config": {}, "chunks": []}', "[" * 100_000])
def test_other_indexes_are_refused(name, folder, text):
    (folder / "index.json").write_text(text)
    with pytest.raises(LoaderError, match="index"):
        CLASSES[name](folder)
    (folder / "index.json").unlink()
    with pytest.raises(LoaderError, match=r"cannot read .*index.json': No such file"):
        CLASSES[name](folder)


def test_numbers_that_are_no_integers_are_refused(name, folder):
    text = (folder / "index.json").read_text()
    (folder / "index.json").write_text(re.sub(r'("samples"|"chunk_bytes"): \d+', r"\1: Infinity", text))
    with pytest.raises(LoaderError, match="cannot convert float infinity"):
        CLASSES[name](folder)


@pytest.mark.parametrize("file", [".", "..", "", "a\0b", "folder"])
def test_files_that_are_no_files_are_refused(name, folder, file):
    (folder / "folder").mkdir()
    text = (folder / "index.json").read_text()
    quoted = json.dumps(file)
    text = re.sub(r'("basename"|"filename"): "[^"]*"', lambda match: f"{match[1]}: {quoted}", text)
    (folder / "index.json").write_text(text)
    with pytest.raises(LoaderError, match=r"is no name of a file|is no regular file"):
        CLASSES[name](folder)


def test_other_shards_of_mds_are_refused(tmp_path):
    write_mds(tmp_path, samples())
    shutil.copytree(tmp_path, tmp_path / "copy")
    for change, message in (
        (lambda shard: shard.update(column_encodings=["jpeg", "pkl"]), "'label' has the encoding 'pkl'"),
        (lambda shard: shard.update(format="json"), "format 'json', version 2; MDS version 2 is read"),
        (lambda shard: shard["raw_data"].update(basename="../0.mds"), "is no name of a file in the folder"),
        (lambda shard: shard.update(samples=10**9), "too few for the index.s 1000000000 records"),
    ):
        shutil.copy(tmp_path / "copy" / "index.json", tmp_path / "index.json")
        change_index(tmp_path, lambda index, change=change: [change(shard) for shard in index["shards"]])
        with pytest.raises(LoaderError, match=message):
            Mds(tmp_path)
    shutil.copy(tmp_path / "copy" / "index.json", tmp_path / "index.json")
    change_index(tmp_path, lambda index: index["shards"][1].update(column_sizes=[None, 4]))
    with pytest.raises(LoaderError, match="has other columns than"):
        Mds(tmp_path)
    change_index(tmp_path, lambda index: index["shards"][0].update(compression="zstd"))
    first_file(tmp_path).unlink()
    with pytest.raises(LoaderError, match=r"is compressed \(zstd\): decompress the shards first"):
        Mds(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"compression": "zstd"}, r"the chunks have compression \(zstd\)"),
        ({"encryption": {"algorithm": "fernet"}}, "the chunks have encryption"),
        ({"item_loader": "TokensLoader"}, "item_loader is 'TokensLoader'"),
        ({"data_format": ["bytes", "pickle"]}, "'label' has the encoding 'LitData pickle'"),
        ({"data_format": ["bytes"]}, "no index of LitData chunks"),
    ],
)
def test_other_chunks_of_litdata_are_refused(tmp_path, change, message):
    write_litdata(tmp_path, samples())
    change_index(tmp_path, lambda index: index["config"].update(change))
    with pytest.raises(LoaderError, match=message):
        LitData(tmp_path)


def test_a_folder_is_opened_by_its_index(name, folder):
    source = open_source(folder)
    assert type(source) is CLASSES[name] and source.fingerprint() == CLASSES[name](folder).fingerprint()


def test_an_index_of_another_program_says_nothing(tmp_path):
    write_pngs(tmp_path, "cat/0.png")
    (tmp_path / "index.json").write_text('{"photos": 1}')
    assert type(open_source(tmp_path)) is Files


@pytest.mark.parametrize("kind", [Mds, LitData])
def test_urls_are_refused_as_such(kind):
    with pytest.raises(LoaderError, match="'s3://bucket/train' is a URL: copy the folder first"):
        kind("s3://bucket/train")
