"""Labels that are class names become class numbers, and captions stay text, whatever the source."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuaug import Loader, LoaderError
from cuaug.sources import Csv, Files, FromDataset, open_source
from tests.support.loader.further_pictures import png
from tests.support.sources.loading import read_all

NAMES = ["pug", "akita", "pug", "akita", "pug"]
NUMBERS = [1, 0, 1, 0, 1]
CLASSES = ["akita", "pug"]
CAPTIONS = ["a pug", "an akita", "two pugs", "an akita asleep", "no dog"]
PATHS = [f"{i}.png" for i in range(5)]


class Items:
    """A Dataset of (image, label)."""

    def __init__(self, labels: list[Any], **attributes: Any) -> None:
        self.labels = labels
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        return png(index), self.labels[index]


class HuggingFace(Items):
    """As in Hugging Face's library: dicts, and `features` with a ClassLabel or a Value."""

    def __init__(self, labels: list[Any], feature: Any) -> None:
        super().__init__(labels, features={"image": None, "label": feature})

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": png(index), "label": self.labels[index]}

    def unique(self, column: str) -> list[Any]:
        assert column == "label"
        return list(dict.fromkeys(self.labels))


TEXT = SimpleNamespace(dtype="string")
SOURCES = {
    "pairs": lambda labels, folder: open_source(list(zip(PATHS, labels, strict=True))),
    "mapping": lambda labels, folder: open_source(dict(zip(PATHS, labels, strict=True))),
    "array": lambda labels, folder: Files(PATHS, np.array(labels)),
    "objects": lambda labels, folder: Files(PATHS, np.array(labels, dtype=object)),
    "table": lambda labels, folder: Csv(write_table(folder, labels)),
    "data frame": lambda labels, folder: open_source(frame(path=PATHS, label=labels)),
    "targets": lambda labels, folder: open_source(Items(labels, targets=labels)),
    "samples": lambda labels, folder: open_source(Items(labels, samples=list(zip(PATHS, labels, strict=True)))),
    "text column": lambda labels, folder: open_source(HuggingFace(labels, TEXT)),
    "subset": lambda labels, folder: FromDataset(
        torch.utils.data.Subset(Items(labels, targets=labels), range(5))  # type: ignore[arg-type]
    ),
}


def labels_of(source: Any) -> list[Any]:
    return [label for _, label in read_all(source)]


def frame(**columns: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def write_table(folder: Path, labels: list[str]) -> Path:
    rows = [f"{path},{label}\n" for path, label in zip(PATHS, labels, strict=True)]
    (folder / "table.csv").write_text("path,label\n" + "".join(rows))
    return folder / "table.csv"


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_class_names_are_numbered(make, tmp_path, caplog):
    source = make(NAMES, tmp_path)
    assert labels_of(source) == NUMBERS and source.classes == CLASSES
    assert not caplog.records


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_captions_stay_text(make, tmp_path):
    source = make(CAPTIONS, tmp_path)
    assert labels_of(source) == CAPTIONS and source.classes is None


def test_captions_are_logged_with_both_remedies(caplog):
    Files(PATHS, CAPTIONS)
    (record,) = caplog.records
    assert "5 different strings for 5 samples, such as 'a pug', and stay text" in record.getMessage()
    caplog.clear()
    assert labels_of(Files(PATHS, CAPTIONS, None)) == CAPTIONS
    source = Files(PATHS[:1], ["pug"], classes=CLASSES)
    assert labels_of(source) == [1] and source.classes == CLASSES
    assert not caplog.records


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=30))
def test_names_are_numbered_in_sorted_order(labels):
    source = Files([f"{i}.png" for i in range(len(labels))], labels)
    if 3 * len(set(labels)) <= 2 * len(labels):
        assert source.classes == sorted(set(labels))
        assert [source.classes[number] for number in labels_of(source)] == labels
    else:
        assert source.classes is None and labels_of(source) == labels


def test_a_list_file_names_the_source_of_class_names(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("".join(f"{p} {name}\n" for p, name in zip(PATHS, NAMES, strict=True)))
    message = r"line 1: expected a path and one number, .* for class names: (.*)$"
    with pytest.raises(LoaderError, match=message) as caught:
        open_source(path)
    source = eval(str(caught.value).partition("for class names: cuaug.sources.")[2])
    assert labels_of(source) == NUMBERS and source.classes == CLASSES


def test_in_a_batch(tmp_path):
    for i in range(5):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    with Loader([(tmp_path / path, name) for path, name in zip(PATHS, NAMES, strict=True)], batch_size=5) as loader:
        ((_, labels),) = loader
        assert labels.dtype == torch.int64 and labels.tolist() == NUMBERS
        assert loader.classes == CLASSES and loader.class_to_idx == {"akita": 0, "pug": 1}


def test_another_split_takes_the_same_classes(tmp_path):
    classes = ["akita", "collie", "pug"]
    for source in (
        Files(PATHS, NAMES, classes),
        Csv(write_table(tmp_path, NAMES), classes=classes),
        Csv(tmp_path / "table.csv", label="label", class_column="label", classes=classes),
        FromDataset(Items(NAMES), classes=classes),
        FromDataset(HuggingFace(NAMES, TEXT), classes=classes),
    ):
        assert labels_of(source) == [2, 0, 2, 0, 2] and source.classes == classes
    with pytest.raises(LoaderError, match=r"^labels: entry 1 is 'akita', which is not in classes, \['pug'\]"):
        Files(PATHS, NAMES, ["pug"])
    with pytest.raises(LoaderError, match=r"^item 1 of Items has the label 'akita', which is not in its classes"):
        labels_of(FromDataset(Items(NAMES), classes=["pug"]))
    with pytest.raises(LoaderError, match=r"^classes must be a list of names, 'auto' or None, not 'pug'"):
        Files(PATHS, NAMES, "pug")  # type: ignore[arg-type]


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_a_class_with_another_number_than_before_is_warned_of(make, tmp_path, caplog):
    for labels in (NAMES, ["a", "b", "b"], NAMES, ["akita", "zorilla"] * 2):
        Files([str(i) for i in range(len(labels))], labels)
    assert not caplog.records
    Files(PATHS, ["akita", "collie", "pug", "pug", "akita"])
    for _ in range(2):
        make(NAMES, tmp_path)
    (record,) = caplog.records
    assert record.getMessage() == (
        "the class 'pug' has label 1, but 2 in the source before, which has other classes: give one of them the names "
        "of all, such as classes=train.classes"
    )


def test_columns_of_classes_with_other_numbers_are_warned_of(tmp_path, caplog):
    table = write_table(tmp_path, NAMES)
    open_source(frame(path=PATHS, label=["akita", "collie", "pug", "pug", "akita"]).astype({"label": "category"}))
    Csv(table, label=["label"], class_column="label")
    open_source(frame(path=PATHS, label=["a", "pug", "pug", "z", "z"]).astype({"label": "category"}))
    Csv(table, label=["label"], class_column="label", classes=["akita", "collie", "pug"])
    assert [record.getMessage()[:29] for record in caplog.records] == ["the class 'pug' has label 1, "]


def test_other_labels_are_left_alone():
    for labels in ([3, 1, 2, 0, 4], [1.5] * 5, [["a", "b"]] * 5, [{"a": "b"}] * 5, ["a", 1, "a", 1, "a"]):
        source = Files(PATHS, labels)
        assert labels_of(source) == labels and source.classes is None


def test_a_datasets_classes():
    assert labels_of(source := open_source(Items(NAMES, classes=CLASSES))) == NUMBERS and source.classes == CLASSES
    assert labels_of(open_source(Items(NUMBERS, classes=CLASSES))) == NUMBERS
    assert labels_of(FromDataset(Items(CAPTIONS, classes=CLASSES), classes=None)) == CAPTIONS
    # Nobody knows the names of a Dataset that does not list its labels.
    assert labels_of(open_source(Items(NAMES))) == NAMES


def test_hugging_faces_class_label():
    label = SimpleNamespace(dtype="int64", names=["cat", "dog"])
    source = open_source(HuggingFace([0, 1, 1], label))
    assert source.classes == ["cat", "dog"] and labels_of(source) == [0, 1, 1]
    concatenated = torch.utils.data.ConcatDataset([HuggingFace([0], label), HuggingFace([1, 1], label)])  # type: ignore[list-item]
    assert open_source(concatenated).classes == ["cat", "dog"]
    assert FromDataset(HuggingFace([0, 1], label), label=["label"]).classes is None
    assert open_source(HuggingFace([0, 1], SimpleNamespace(dtype="int64"))).classes is None


def test_a_data_frames_columns():
    from cuaug.sources import DataFrame

    table = frame(
        file=PATHS, breed=NAMES, age=[3, 4, 12, 1, 2], weight=[7.5, 30, 8, 9, 10], good=[True, False, True, True, True]
    )
    table.index = [4, 3, 2, 1, 0]  # row names are no positions
    assert DataFrame(table, "file", "age").labels.dtype == np.int64
    assert labels_of(DataFrame(table, "file", "weight")) == [7.5, 30, 8, 9, 10]
    assert labels_of(DataFrame(table, "file", "good")) == [True, False, True, True, True]
    assert labels_of(DataFrame(table, "file", None)) == [0, 1, 2, 3, 4]
    source = DataFrame(table, "file", ["breed", "age"], root="photos")
    assert source.read(1) == ("photos/1.png", {"breed": "akita", "age": 4})
    table["breed"] = table["breed"].astype("category").cat.reorder_categories(["pug", "akita"])
    source = DataFrame(table, "file", "breed")
    assert source.classes == ["pug", "akita"] and labels_of(source) == [0, 1, 0, 1, 0]
    assert labels_of(DataFrame(table, "file", "breed", classes=None)) == NAMES
    nullable = table.convert_dtypes()
    assert labels_of(DataFrame(nullable, "file", "age")) == [3, 4, 12, 1, 2]
    with pytest.raises(LoaderError, match=r"^frame has no column 'path', or several; it has 'file', 'breed'.*image="):
        Loader(table)
    table.loc[2, "age"] = None
    with pytest.raises(LoaderError, match=r"^frame: row 2 has no 'age': leave it out"):
        DataFrame(table, "file", "age")
    with pytest.raises(LoaderError, match=r"^frame must be a pandas DataFrame, not \['a'\]"):
        DataFrame(["a"])
    with pytest.raises(LoaderError, match="paths: entry 0 is 3, not a path"):
        DataFrame(frame(path=[3], label=[1]), root="photos")
