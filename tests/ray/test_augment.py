"""`cuaug.ray.Augment` on batches as Ray makes them, without Ray."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import cuaug
from cuaug import transforms as T
from cuaug.ray import Augment, draw_keys
from tests.support.loader.further_pictures import Bytes
from tests.support.ray.rows import CHAIN, DAMAGED, columns, objects, photo


def augment(batch: dict[str, Any], chain: Any = CHAIN, **settings: Any) -> dict[str, Any]:
    return Augment(chain, **{"device": "cpu", "threads": 2} | settings)(batch)


def take(batch: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: column[rows] for name, column in batch.items()}


def test_the_images_replace_their_column_and_further_columns_stay():
    batch = columns(5)
    found = augment(batch)
    assert list(found) == ["id", "name", "bytes"]
    assert found["bytes"].shape == (5, 3, 24, 24) and found["bytes"].dtype == np.float32
    assert found["id"] is batch["id"] and found["name"] is batch["name"]
    apart = augment(batch, out="image")
    assert "bytes" not in apart and np.array_equal(apart["image"], found["bytes"])


def test_a_row_draws_as_the_sample_of_a_loader():
    batch = columns(9)
    with cuaug.Loader(Bytes(*batch["bytes"]), CHAIN, batch_size=9, seed=3, device="cpu") as loader:
        for epoch, (images, _) in zip(range(2), loader, strict=False):
            assert np.array_equal(augment(batch, seed=3, epoch=epoch)["bytes"], images.numpy())
            loader.set_epoch(epoch + 1)


def test_draws_depend_on_the_key_not_on_the_batch():
    batch = columns(12)
    whole = augment(batch)["bytes"]
    order = np.random.default_rng(0).permutation(12)
    for size in (1, 5, 12):
        for begin in range(0, 12, size):
            rows = order[begin : begin + size]
            assert np.array_equal(augment(take(batch, rows))["bytes"], whole[rows])
    assert not np.array_equal(augment(batch, seed=1)["bytes"], whole)
    assert not np.array_equal(augment(batch, epoch=1)["bytes"], whole)


def test_rows_with_equal_keys_have_equal_draws():
    files = np.array([photo(0)] * 3, dtype=object)
    found = augment({"id": np.array(["a", "b", "a"], dtype=object), "bytes": files})["bytes"]
    assert np.array_equal(found[0], found[2]) and not np.array_equal(found[0], found[1])


def test_keys():
    strings = draw_keys(["photos/cat.jpg", "", "é"])
    # From: python -c "import hashlib; print(hashlib.blake2b(b'photos/cat.jpg', digest_size=8).hexdigest())"
    assert strings.astype("<i8")[0].tobytes().hex() == "2bac54f5dad364a9"
    assert len(set(strings.tolist())) == 3
    assert draw_keys(np.array(["é"])).tolist() == draw_keys(["é".encode()]).tolist() == strings[2:].tolist()
    assert draw_keys(np.array([7, -7], dtype=np.int32)).tolist() == draw_keys([7, -7]).tolist() == [7, -7]
    assert draw_keys(np.array([2**64 - 1], dtype=np.uint64)).tolist() == draw_keys([2**64 - 1]).tolist() == [-1]
    for bad in (np.array([1.0]), np.array([True]), [True]):
        with pytest.raises(cuaug.ArgumentError, match=r"'id' must hold integers or strings, not .* \(row 0\)"):
            draw_keys(bad, "id")
    for null in ([1, None], np.array([1, np.nan])):  # Ray makes floats of integers beside nulls
        with pytest.raises(cuaug.ArgumentError, match="'id' is null in row 1"):
            draw_keys(null, "id")


@pytest.mark.parametrize(
    "form", ["arrays", "one array", "path", "dict of bytes", "dict of a path", "bytearray", "uint8"]
)
def test_forms_of_images(form, tmp_path):
    plain = [T.Resize((20, 20))]
    files = [photo(0), photo(7)]
    want = augment({"id": np.arange(2), "bytes": np.array(files, dtype=object)}, plain)["bytes"]
    decoded = [cuaug.decode(file, device="cpu").permute(1, 2, 0).numpy() for file in files]
    paths = [tmp_path / f"{i}.jpg" for i in range(2)]
    for path, file in zip(paths, files, strict=True):
        path.write_bytes(file)
    values: Any = {
        "arrays": decoded,
        "one array": decoded,
        "path": [str(path) for path in paths],
        "dict of bytes": [{"bytes": file, "path": "a.jpg"} for file in files],
        "dict of a path": [{"bytes": None, "path": str(path)} for path in paths],
        "bytearray": [bytearray(file) for file in files],
        "uint8": [np.frombuffer(file, dtype=np.uint8) for file in files],
    }[form]
    if form == "one array":
        values = np.stack([values[0], values[0]])
        values.flags.writeable = False  # as Ray's arrays in shared memory
        want[1] = want[0]
    assert np.array_equal(augment({"id": [0, 1], "bytes": values}, plain)["bytes"], want)


def test_images_of_several_sizes_are_an_object_array():
    found = augment(columns(4), [T.RandomHorizontalFlip(0.5)])["bytes"]
    assert found.dtype == object and found.shape == (4,)
    assert [image.shape for image in found] == [(3, 50 + i, 60 + i) for i in range(4)]


def test_tensors():
    found = augment(columns(3), tensors=True)["bytes"]
    assert isinstance(found, torch.Tensor) and np.array_equal(found.numpy(), augment(columns(3))["bytes"])


def test_targets_move_and_are_columns_again():
    count = 3
    box = np.array([1.0, 2.0, 30.0, 40.0])
    boxes = objects([np.array([box] * i, dtype=object) for i in range(count)])  # as Ray gives lists of lists
    batch = columns(count) | {"boxes": boxes, "label": np.arange(count)}
    batch["masks"] = objects([np.ones((i, 50 + i, 60 + i), np.uint8) for i in range(count)])
    flipped = augment(batch, [T.RandomHorizontalFlip(1.0), T.Resize((25, 30))], targets=["boxes", "masks"])
    assert [len(rows) for rows in flipped["boxes"]] == [0, 1, 2] and flipped["label"] is batch["label"]
    # Image 2 is 52 x 62: 62 - 30 = 32 and 62 - 1 = 61, scaled by 30 / 62 and 25 / 52.
    want = np.array([32 * 30 / 62, 2 * 25 / 52, 61 * 30 / 62, 40 * 25 / 52])
    np.testing.assert_allclose(np.asarray(flipped["boxes"][2], dtype=float), [want, want], rtol=1e-6)
    assert [mask.shape for mask in flipped["masks"]] == [(i, 25, 30) for i in range(count)]


def test_a_damaged_row_is_named():
    with pytest.raises(cuaug.DecodeError, match=r"cannot decode 'id=3': .*no image") as caught:
        augment(columns(5, damaged=(3,)))
    assert caught.value.path == "id=3" and caught.value.index is None
    with pytest.raises(cuaug.DecodeError, match=r"cannot decode '/nowhere/a.jpg': No such file"):
        augment({"id": [5], "bytes": np.array(["/nowhere/a.jpg"], dtype=object)})
    with pytest.raises(cuaug.DecodeError, match=r"'id=5': the column 'bytes' is null"):
        augment({"id": [5], "bytes": np.array([None], dtype=object)})


def test_skipping_drops_the_row_from_all_columns(caplog):
    whole, batch = augment(columns(6)), columns(6, damaged=(0, 4))
    batch["boxes"] = objects([np.full((1, 4), i + 1.0) for i in range(6)])
    transform = Augment(CHAIN, on_error="skip", device="cpu", threads=2, targets=["boxes"])
    with caplog.at_level(logging.WARNING):
        found = transform(batch)
    rows = [1, 2, 3, 5]
    assert found["id"].tolist() == rows and found["name"].tolist() == [f"n{i}" for i in rows]
    assert np.array_equal(found["bytes"], whole["bytes"][rows]) and len(found["boxes"]) == 4
    assert transform.failed == 2
    messages = [record.getMessage() for record in caplog.records]
    assert [message.split(":")[:2] for message in messages] == [
        ["skipped", " cannot decode 'id=0'"],
        ["skipped", " cannot decode 'id=4'"],
    ]


def test_max_bytes_costs_one_row(caplog):
    batch = columns(3)
    batch["bytes"][1] += bytes(100_000)
    transform = Augment(CHAIN, on_error="skip", device="cpu", decode=cuaug.DecodeOptions(max_bytes=100_000))
    with caplog.at_level(logging.WARNING):
        assert transform(batch)["id"].tolist() == [0, 2]
    assert "bytes, above the limit max_bytes=100,000" in caplog.text


def test_a_batch_of_damaged_rows_is_empty():
    found = augment(columns(2, damaged=(0, 1)), on_error="skip")
    assert found["bytes"].shape == (0, 3, 24, 24) and found["bytes"].dtype == np.float32
    assert found["id"].shape == found["name"].shape == (0,)


def test_an_empty_batch_has_the_images_shape():
    found = augment(take(columns(2), slice(0)))
    assert found["bytes"].shape == (0, 3, 24, 24) and found["id"].shape == (0,)
    batch = take(columns(2) | {"boxes": np.ones((2, 1, 4))}, slice(0))
    assert augment(batch, targets=["boxes"])["boxes"].shape == (0, 1, 4)


@pytest.mark.parametrize("size", [1, 3, 6])
def test_replacing_keeps_all_rows_and_does_not_depend_on_the_batch(size):
    whole, batch = augment(columns(6)), columns(6, damaged=(0, 1, 4))
    chain = T.Compose([*CHAIN.transforms, T.Normalize(0.5, 0.5)])
    whole = augment(columns(6), chain)
    parts = [augment(take(batch, slice(i, i + size)), chain, on_error="replace") for i in range(0, 6, size)]
    images, valid, ids = (np.concatenate([part[name] for part in parts]) for name in ("bytes", "valid", "id"))
    assert ids.tolist() == list(range(6)) and valid.tolist() == [False, False, True, True, False, True]
    assert np.array_equal(images[valid], whole["bytes"][valid])
    assert (images[~valid] == -1).all(), "black"


def test_an_instance_can_be_pickled():
    batch = columns(3)
    transform = Augment(CHAIN, device="cpu", threads=2)
    want = transform(batch)["bytes"]
    assert np.array_equal(pickle.loads(pickle.dumps(transform))(batch)["bytes"], want)


def test_a_path_that_is_the_key_stays_beside_the_images(tmp_path):
    paths = [str(tmp_path / f"{i}.jpg") for i in range(2)]
    for i, path in enumerate(paths):
        (tmp_path / path).write_bytes(photo(i))
    found = augment({"path": objects(paths)}, image="path", key="path", out="image")
    assert list(found) == ["path", "image"] and found["path"].tolist() == paths
    assert list(augment({"path": objects(paths)}, image="path", key="path")) == ["path"]


@pytest.mark.parametrize("null", [None, float("nan"), np.float32("nan")])
def test_a_null_image_is_a_damaged_row(null):
    found = augment({"id": [0, 1], "bytes": objects([null, photo(1)])}, on_error="skip")
    assert found["id"] == [1]
    # Ray gives a block of nulls alone as floats.
    assert augment({"id": [0], "bytes": np.array([np.nan], np.float32)}, on_error="skip")["id"] == []


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "the column 'boxes' is null"),
        ([np.arange(4.0), np.arange(2.0)], "boxes must be .* not of dtype object"),
        ([None, np.arange(4.0)], "boxes must be .* not of dtype object"),
        (torch.zeros(1, 4, device="meta"), "boxes must be a dense tensor, not a tensor on meta"),
    ],
    ids=["null", "lengths", "inner null", "meta"],
)
def test_a_bad_target_costs_its_row(bad, reason, caplog):
    """Rows of several lengths ended the run with NumPy's error; a null passed as no boxes."""
    boxes = np.array([[0.0, 0, 10, 10]])
    bad = objects(bad) if isinstance(bad, list) else bad
    batch = columns(3) | {"boxes": objects([boxes, bad, boxes])}
    found = augment(batch, [T.Resize((20, 20))], targets=["boxes"], on_error="skip")
    assert found["id"].tolist() == [batch["id"][0], batch["id"][2]] and found["boxes"].shape == (2, 1, 4)
    with pytest.raises((cuaug.DecodeError, cuaug.TransformError), match=reason):
        augment(batch, [T.Resize((20, 20))], targets=["boxes"])


def test_keys_that_are_no_text_are_refused():
    with pytest.raises(cuaug.ArgumentError, match=r"the column 'id' has '\\ud800' in row 1, which is no text"):
        draw_keys(["\udcff", "\ud800"], "id")


def test_columns_beside_dropped_boxes_are_refused():
    two = np.array([[0.0, 0, 1, 1], [10, 10, 40, 40]])
    batch = columns(3) | {"boxes": objects([two] * 3), "labels": objects([np.array([5, 6])] * 3)}
    crop = [T.CenterCrop((30, 30)), T.SanitizeBoundingBoxes()]
    found = augment(batch, crop, targets=["boxes", "labels"])
    assert found["boxes"].shape == (3, 1, 4) and found["labels"].tolist() == [[6]] * 3
    with pytest.raises(cuaug.ArgumentError, match=r"'labels' has 2 rows beside the 2 boxes of 'id=0'.* list it in"):
        augment(batch, crop, targets=["boxes"])
    keep = T.Compose(crop, pass_through=("labels",))
    assert augment(batch, keep, targets=["boxes"])["labels"] is batch["labels"]
    # No box is dropped, or the column has another number of rows.
    assert augment(batch, [T.Resize((20, 20))], targets=["boxes"])["labels"] is batch["labels"]
    other = batch | {"labels": objects([np.arange(3)] * 3)}
    assert augment(other, crop, targets=["boxes"])["labels"] is other["labels"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"transforms": [T.Resize((8, 8)), T.MixUp(num_classes=2)]}, "mixes images of one batch"),
        ({"targets": "boxes"}, "targets must be a list of columns, not 'boxes'"),
        ({"targets": ["boxes"], "on_error": "replace"}, "'replace' has no targets"),
        ({"on_error": "ignore"}, "on_error must be one of"),
        ({"out": "valid", "on_error": "replace"}, "adds the column 'valid'"),
        ({"targets": ["bytes"]}, "targets: 'bytes' is the column of images"),
    ],
)
def test_errors_of_arguments(settings, message):
    with pytest.raises(cuaug.ArgumentError, match=message):
        Augment(**{"transforms": CHAIN} | settings)


@pytest.mark.parametrize(
    ("batch", "settings", "message"),
    [
        ({}, {"key": "key"}, "no column 'key'; it has 'id', 'bytes', 'name'"),
        ({}, {"out": "id"}, "out is 'id', a column that the batch has already"),
        ({}, {"out": "name"}, "out is 'name', a column that the batch has already"),
        ({"id": np.arange(3)}, {}, "'id' has 3 rows and 'bytes' has 2"),
        ({"id": 3, "bytes": photo(0)}, {}, "'bytes' holds b.*, not a row per image: use map_batches, not map"),
        ({"valid": np.ones(2)}, {"on_error": "replace"}, "adds the column 'valid'"),
        ({"bytes": ["s3://b/a.jpg"] * 2}, {}, "holds the URL 's3://b/a.jpg'"),
        ({"id": [9, 8], "bytes": [3.5, 3.5]}, {}, r"must hold files as bytes.*not 3.5 \(id=9\)"),
        ({"bytes": np.array([DAMAGED] * 2)}, {}, r"dtype \|S8, which drops zero bytes"),
        ({}, {"chain": [T.Resize((8, 8)), T.ToDtype(torch.bfloat16, scale=True)]}, "bfloat16, which NumPy lacks"),
    ],
)
def test_errors_of_columns(batch, settings, message):
    with pytest.raises(cuaug.ArgumentError, match=message):
        augment(columns(2) | batch, **settings)


def test_batches_and_chains_that_do_not_fit():
    with pytest.raises(cuaug.ArgumentError, match="the batch is a list, not a dict"):
        Augment(CHAIN, device="cpu")([1])
    with pytest.raises(cuaug.TransformError, match="views of several sizes"):
        augment(columns(2), [T.MultiView([T.RandomResizedCrop(8), T.RandomResizedCrop(16)])])
