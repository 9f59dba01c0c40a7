"""Parquet: rows against a plain pyarrow read, labels of any type, row groups, changes, and refused files."""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuaug import DecodeError, LoaderError, ShardSampler
from cuaug.errors import ArgumentError, SourceError
from cuaug.sources import Parquet, open_source
from cuaug.sources.shards.parquet_pages import read_columns
from tests.support.codec.memory import forget_peak, peak_bytes
from tests.support.loader.further_pictures import png
from tests.support.loader.programs import run
from tests.support.sources.loading import load, load_numbers
from tests.support.sources.writers import flip_bit, samples, write_parquet


def write(path: Path, group: int = 4, **columns) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def images(count: int) -> list[bytes]:
    return [png(i) for i in range(count)]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "data.parquet"


# --- rows ------------------------------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3),
    group=st.integers(1, 6),
    is_struct=st.booleans(),
    compression=st.sampled_from(["none", "snappy", "zstd"]),
    cache_bytes=st.sampled_from([800, 1 << 20]),
)
def test_rows_are_those_of_pyarrow(tmp_path_factory, sizes, group, is_struct, compression, cache_bytes):
    folder = tmp_path_factory.mktemp("rows")
    number = 0
    for file, size in enumerate(sizes):
        data = [os.urandom(20 + i) for i in range(size)]
        column = [{"bytes": value, "path": f"{i}.png"} for i, value in enumerate(data)] if is_struct else data
        table = pa.table({"photo": column, "y": list(range(number, number + size)), "unused": ["x"] * size})
        pq.write_table(table, folder / f"{file}.parquet", row_group_size=group, compression=compression)
        number += size
    source = Parquet(folder, "photo", "y", cache_bytes=cache_bytes)
    rows = [row for file in range(len(sizes)) for row in pq.read_table(folder / f"{file}.parquet").to_pylist()]
    assert len(source) == len(rows) == sum(source.shard_sizes)
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    with ThreadPoolExecutor(3) as pool:
        for i, (data, label) in zip(order, pool.map(source.read, order), strict=True):
            assert data == (rows[i]["photo"]["bytes"] if is_struct else rows[i]["photo"]) and label == rows[i]["y"]
    names = [source.path(i) for i in range(len(rows))]
    assert names == [f"{folder}/{file}.parquet row {row}" for file, size in enumerate(sizes) for row in range(size)]


def test_labels_of_any_type(path):
    box = pa.list_(pa.list_(pa.float32(), 4))
    columns = {
        "image": images(2),
        "text": ["ä", "b"],
        "flag": [True, False],
        "row": [[1, 2], [3]],
        "boxes": pa.array([[[1, 2, 3, 4], [5, 6, 7, 8]], []], box),
        "objects": [{"area": 1.5, "names": ["a"]}, {"area": 2.5, "names": []}],
        "kind": pa.array(["x", "y"]).dictionary_encode(),
    }
    write(path, **columns)
    source = Parquet(path, label=list(columns)[1:])
    label = source.label(0)
    assert (label["text"], label["flag"], label["kind"]) == ("ä", True, "x")
    assert label["objects"] == {"area": 1.5, "names": ["a"]}
    np.testing.assert_array_equal(label["row"], [1, 2])
    np.testing.assert_array_equal(label["boxes"], [[1, 2, 3, 4], [5, 6, 7, 8]])
    assert source.label(1)["boxes"].shape == (0, 4) and source.label(1)["row"].dtype == np.int64
    assert Parquet(path, label=None).read(1) == (png(1), 1)
    assert Parquet(path, label="kind").read(1)[1] == "y"


def test_class_names_of_hugging_face(path):
    features = {"label": {"names": ["ant", "bee"], "_type": "ClassLabel"}, "image": {"_type": "Image"}}
    table = pa.table({"image": images(2), "label": [0, 1]})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    assert Parquet(path).classes == ["ant", "bee"]
    assert Parquet(path, label=None).classes is None
    for damaged in ("[damaged", "[" * 100_000, "[]", '{"info": []}', "1"):
        pq.write_table(table.replace_schema_metadata({"huggingface": damaged}), path)
        assert Parquet(path).classes is None


def test_a_loader_opens_paths_and_lists_of_files(tmp_path):
    write_parquet(tmp_path, samples())
    for files in (tmp_path / "train-0.parquet", str(tmp_path / "*.parquet"), sorted(tmp_path.glob("*.parquet"))):
        assert isinstance(open_source(files), Parquet)
    labels = [sample.label for sample in samples()]
    assert load_numbers(str(tmp_path / "train-{0..1}.parquet")) == (list(range(12)), labels)


# --- row groups ------------------------------------------------------------------------------------------------------


def decoded_rows(source: Parquet) -> int:
    return source._cache.get().decoded_rows


def test_a_window_decodes_each_row_group_once(path):
    write(path, group=10, image=images(400), label=range(400))
    source = Parquet(path, cache_bytes=50 * len(png(0)) * 2)
    order = ShardSampler(source.shard_sizes, window=20).order(seed=1, epoch=0)
    for i in order.tolist():
        assert source.read(i) == (png(i), i)
    assert decoded_rows(source) == 400
    assert source._cache.get()._bytes <= 50 * len(png(0)) * 2


def test_random_rows_beyond_the_cache_are_warned_of_once(path, caplog):
    write(path, group=20, image=images(400), label=range(400))
    source = Parquet(path, cache_bytes=50 * len(png(0)))
    with caplog.at_level(logging.WARNING, "cuaug"):
        for i in np.random.default_rng(0).permutation(400).tolist():
            source.read(i)
    assert len(caplog.records) == 1 and "ShardSampler(source.shard_sizes, window)" in caplog.text
    assert decoded_rows(source) > 4000


def read_at_once(source: Parquet) -> list[Future[int]]:
    """Eight threads read the first eight labels."""
    barrier = threading.Barrier(8)

    def read(i: int) -> int:
        barrier.wait()
        return source.read(i)[1]

    with ThreadPoolExecutor(8) as pool:
        return [pool.submit(read, i) for i in range(8)]


def test_threads_share_one_decoding(path):
    source = Parquet(write(path, group=50, image=images(50), label=range(50)))
    assert [read.result() for read in read_at_once(source)] == list(range(8))
    assert decoded_rows(source) == 50


def test_a_failed_decoding_is_each_threads_own_error(path):
    source = Parquet(write(path, group=50, image=images(50), label=range(50)))
    os.remove(path)
    errors = [read.exception() for read in read_at_once(source)]
    assert all(isinstance(error, FileNotFoundError) for error in errors) and len(set(map(id, errors))) == 8


# --- damage and changes ----------------------------------------------------------------------------------------------


def test_null_values_damage_one_sample(path):
    struct = [{"bytes": png(0), "path": None}, {"bytes": None, "path": "/etc/passwd"}, None, {"bytes": png(3)}]
    write(path, image=struct, label=[0, 1, 2, None])
    source = Parquet(path)
    message = r"the image is null: .* only its path, '/etc/passwd'\. Paths in .* are not opened: give"
    with pytest.raises(DecodeError, match=message):
        source.read(1)
    with pytest.raises(DecodeError, match=r"the image is null$"):
        source.read(2)
    with pytest.raises(DecodeError, match="label 'label' is null"):
        source.read(3)
    assert load(source, on_error="skip").labels.tolist() == [0]


FAR = {
    "timestamp": pa.array([0, 2**62, 2], pa.timestamp("us")),
    "date": pa.array([0, 2**31 - 1, 2], pa.date32()),
    "duration": pa.array([0, 2**62, 2], pa.duration("s")),
    "nanoseconds of a day": pa.array([0, 1, 2000], pa.time64("ns")),
    "negative time of day": pa.array([0, -1, 2], pa.time32("s")),
    "uint64": pa.array([0, 2**64 - 1, 2], pa.uint64()),
    "text": pa.array([b"a", b"\xff", b"b"]).view(pa.string()),
    "list": pa.array([[0], [2**62], [2]], pa.list_(pa.timestamp("us"))),
    "struct": pa.array([{"a": 0}, {"a": 2**62}, {"a": 2}], pa.struct([("a", pa.timestamp("us"))])),
}


@pytest.mark.parametrize("kind", FAR)
def test_a_value_without_a_counterpart_damages_one_sample(path, kind):
    """A far date ended the run with an OverflowError, and so did the fingerprint."""
    source = Parquet(write(path, image=images(3), label=FAR[kind]))
    errors: list[DecodeError] = []
    collate = {} if kind == "uint64" else {"collate_fn": list}
    batch = load(source, on_error="skip", error_callback=errors.append, **collate)
    assert batch.indices.tolist() == [0, 2]
    assert [error.index for error in errors] == [1] and source.fingerprint()
    if kind == "uint64":
        assert load(source, collate_fn=list).labels == [0, 2**64 - 1, 2]


def test_a_type_without_values_is_refused(path):
    zone = pa.array([0, 1], pa.timestamp("us", tz="Mars/Olympus"))
    twice = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["a", "a"])
    inner = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 2], zone)], names=["times"])
    for column, message in ((zone, "cannot be converted"), (twice, "two fields of one name"), (inner, "cannot be")):
        write(path, image=images(2), label=column)
        with pytest.raises(SourceError, match=rf"data.parquet': column 'label' has the type .*{message}"):
            Parquet(path)
        assert len(Parquet(path, label=None)) == 2
    write(path, image=images(2), label=pa.array([0, 1], pa.timestamp("us", tz="UTC")))
    assert Parquet(path).label(1).microsecond == 1


def test_a_path_that_is_no_text(path):
    paths = pa.array([b"a.png", b"\xff"]).view(pa.string())
    column = pa.StructArray.from_arrays([pa.array([images(1)[0], None]), paths], names=["bytes", "path"])
    source = Parquet(write(path, image=column), label=None)
    assert source.read(0) == (png(0), 0)
    with pytest.raises(DecodeError, match="path is no UTF-8 text"):
        source.read(1)


def test_a_damaged_page_damages_its_row_group(path):
    table = pa.table({"image": images(8), "label": range(8)})
    pq.write_table(table, path, row_group_size=4, write_page_checksum=True, use_dictionary=False, compression="none")
    at = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    flip_bit(path, at + 200)
    source = Parquet(path)
    with pytest.raises(DecodeError, match=r"row group 1 of '.*data.parquet' is damaged"):
        source.read(5)
    assert load(source, on_error="skip").labels.tolist() == [0, 1, 2, 3]
    with pytest.raises(DecodeError, match=r"data.parquet row 4' \(sample 4\)"):
        load(source)


def test_a_changed_file_is_an_error(path):
    write(path, image=images(8), label=range(8))
    source = Parquet(path)
    source.read(0)
    write(path, image=images(8), label=range(1, 9))
    os.utime(path, ns=(0, 0))
    with pytest.raises(OSError, match=r"data.parquet' has changed since its footer was read"):
        source.read(7)


# --- sizes that a file claims ----------------------------------------------------------------------------------------

LIMIT = 16 << 20  # of decoded bytes; smaller ones of `cache_bytes` do not lower it


def same(value, count: int, kind):
    """A column whose file holds the value once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([value], kind)).cast(kind)


def write_bomb(path: Path, columns: dict, **options) -> None:
    options = {"dictionary_pagesize_limit": 1 << 30, "compression": "zstd"} | options
    pq.write_table(pa.table(columns), path, **options)
    assert path.stat().st_size < 1 << 20


BOMB = bytes(1 << 20)
OTHERS = {"image": [b"1"] * 40, "label": range(40)}
BOMBS = {
    "images": {"image": same(BOMB, 40, pa.binary())},
    "images in structs": {"image": pa.StructArray.from_arrays([same(BOMB, 40, pa.binary())], ["bytes"])},
    "texts": {"label": same(BOMB.decode(), 40, pa.string())},
    "lists of text": {"label": pa.ListArray.from_arrays([0] * 40 + [40], same(BOMB.decode(), 40, pa.string()))},
    "maps": {"label": pa.MapArray.from_arrays([0] * 40 + [40], pa.array(range(40)), same(BOMB, 40, pa.binary()))},
    "nulls in lists": {"label": pa.array([[None] * 100] * 40, pa.list_(pa.list_(pa.float32(), 10_000)))},
    "numbers": {"label": pa.ListArray.from_arrays([0] * 40 + [4 << 20], pa.array(np.zeros(4 << 20, np.int64)))},
    "lists of bytes of one size": {
        "label": pa.ListArray.from_arrays([0] * 40 + [40], same(BOMB, 40, pa.binary(1 << 20)))
    },
}


@pytest.mark.parametrize("name", BOMBS)
def test_small_files_do_not_decode_to_gigabytes(path, name):
    write_bomb(path, OTHERS | BOMBS[name])
    source = Parquet(path, cache_bytes=LIMIT)
    before = pa.total_allocated_bytes()
    with pytest.raises(DecodeError, match=r"row group 0 of .*data.parquet'.* more than cache_bytes: write smaller"):
        source.read(0)
    source.fingerprint()
    assert pa.total_allocated_bytes() - before < LIMIT


def test_decoding_stops_at_the_limit(path):
    """4,096 rows repeat an image of 1 MiB, which the file holds once."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 4096, pa.int32()), pa.array([BOMB]))
    write_bomb(path, {"image": column}, store_schema=False)
    forget_peak()
    before = peak_bytes()
    with pytest.raises(DecodeError, match="more than cache_bytes"):
        Parquet(path, label=None, cache_bytes=LIMIT).read(0)
    assert peak_bytes() - before < 1 << 30


def test_a_page_above_the_limit_that_the_footer_conceals(path):
    write_bomb(path, {"image": [BOMB * 40]}, use_dictionary=False)
    with pa.OSFile(str(path)) as file, pytest.raises(DecodeError, match="more than cache_bytes"):
        read_columns(file, pq.read_metadata(path), 0, ["image"], LIMIT)


def test_values_that_repeat_their_prefix(path):
    write_bomb(path, {"image": [BOMB] * 40}, use_dictionary=False, column_encoding={"image": "DELTA_BYTE_ARRAY"})
    with pytest.raises(DecodeError, match="more than cache_bytes"):
        Parquet(path, label=None, cache_bytes=LIMIT).read(0)


def test_large_dictionaries_of_honest_files(tmp_path):
    """pyarrow's default writes up to 1,024 values as one dictionary, whatever its size."""
    rng = np.random.default_rng(0)
    images = [rng.bytes(40_000) for _ in range(100)]
    labels = [[rng.bytes(10_000).hex() for _ in range(i % 3)] for i in range(100)]
    columns = {"image": images, "label": labels, "text": [label[0] if label else None for label in labels]}
    columns["struct"] = [{"bytes": data, "path": f"{i}"} for i, data in enumerate(images)]
    for name in ("dictionary", "plain"):
        pq.write_table(pa.table(columns), tmp_path / name, use_dictionary=name == "dictionary")
    for image, label in itertools.product(("image", "struct"), ("label", "text")):
        sources = [Parquet(tmp_path / name, image, label) for name in ("dictionary", "plain")]
        for i in range(2, 100, 3):
            assert [source.read(i) for source in sources] == [(images[i], columns[label][i])] * 2
            assert sources[0].label(i) == columns[label][i]


def test_claimed_rows_without_images(path):
    count = (1 << 20) + 1
    pq.write_table(pa.table({"image": pa.nulls(count, pa.binary()), "label": pa.nulls(count, pa.int64())}), path)
    with pytest.raises(LoaderError, match=r"claims 1,048,577 rows in .* bytes, less than one byte for each image"):
        Parquet(path)
    write(path, group=100, image=images(100), label=pa.nulls(100, pa.list_(pa.float64(), 1 << 20)))
    message = r"row group 0 has 100 rows of 838,\d+,\d+ bytes, above cache_bytes=500,000,000"
    with pytest.raises(LoaderError, match=message):
        Parquet(path, cache_bytes=500_000_000)


def test_a_footer_that_claims_gigabytes(path):
    with open(path, "wb") as file:
        file.truncate(3 << 30)
        file.seek(-8, os.SEEK_END)
        file.write((2 << 30).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(LoaderError, match=r"its footer claims 2,147,483,656 bytes, above the limit of 16,777,216"):
        Parquet(path)


# --- refused files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image": "photo"}, r"has no column 'photo'; it has 'image', 'label', 'text': give Parquet\("),
        ({"label": ["label", "y"]}, r"has no column 'y'"),
        ({"image": "text"}, "column 'text' has the type string: images are encoded bytes.* Paths .* are not opened"),
        ({"cache_bytes": 100}, r"row group 0 has 4 rows of .* bytes, above cache_bytes=100: write smaller row groups"),
        ({"label": 3}, "label must be a field name"),
    ],
)
def test_invalid_arguments_are_refused(path, arguments, message):
    write(path, image=images(8), label=range(8), text=["a"] * 8)
    with pytest.raises(LoaderError, match=message):
        Parquet(path, **arguments)


def test_a_damaged_entry_of_a_column_in_the_footer():
    """pyarrow ended the process when it was asked for the column's size."""
    found = Path(__file__).parents[1] / "corpus" / "found" / "parquet" / "damaged-level-histogram.parquet"
    program = (
        "import cuaug\nfrom cuaug.sources import Parquet\n"
        f"try:\n    source = Parquet({str(found)!r})\n    [source.read(i) for i in range(len(source))]\n"
        "except cuaug.CuaugError as error:\n    print('refused', error)\n"
    )
    run(program)  # it ends without an error


def test_two_columns_of_one_name_are_refused(path):
    columns = [pa.array(images(3)), pa.array(range(3)), pa.array(range(3))]
    pq.write_table(pa.Table.from_arrays(columns, names=["image", "label", "label"]), path)
    with pytest.raises(LoaderError, match="has 2 columns 'label'"):
        Parquet(path)


def test_other_files_are_refused(tmp_path, path):
    with pytest.raises(LoaderError, match=r"there is no file '.*data.parquet'"):
        Parquet(path)
    path.write_bytes(b"something else")
    with pytest.raises(LoaderError, match=r"data.parquet' cannot be read as a Parquet file"):
        Parquet(path)
    write(path, image=images(0), label=pa.array([], pa.int64()))
    with pytest.raises(LoaderError, match=r"the type null: images are encoded bytes"):
        Parquet(path)
    write(path, image=pa.array([], pa.binary()), label=pa.array([], pa.int64()))
    with pytest.raises(LoaderError, match="has no rows: nothing to load"):
        Parquet(path)
    write(path, image=images(2), label=range(2))
    write(tmp_path / "other.parquet", image=images(2), label=["a", "b"])
    with pytest.raises(LoaderError, match=r"other.parquet': column 'label' has the type string, and int64 in '.*data"):
        Parquet(tmp_path)
    with pytest.raises(ArgumentError, match="empty list"):
        Parquet([])
