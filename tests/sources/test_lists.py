"""List files and tables: paths, label types, and errors that name the line."""

from __future__ import annotations

import csv
import os
from collections import UserList
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Subset

from cuaug import LoaderError
from cuaug.sources import Csv, Files, ListFile, open_source
from cuaug.sources.labels import LabelColumns
from tests.support.loader.further_pictures import png
from tests.support.sources.loading import load_numbers, read_all


def write(folder: Path, text: str | bytes, name: str = "list.txt") -> Path:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder / name


# --- lists in memory -------------------------------------------------------------------------------------------------


class Series:
    """Like a pandas Series: indexing looks up row names."""

    def __init__(self, rows: list[int], values: list) -> None:
        self.rows, self.values = rows, values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self):
        return iter(self.values)

    def __getitem__(self, row: int):
        return self.values[self.rows.index(row)]


class Array(Series):
    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self.values, dtype)


@pytest.mark.parametrize("kind", [Series, Array])
def test_labels_are_taken_by_position(kind):
    paths, rows = ["a.jpg", "b.jpg", "c.jpg"], [2, 0, 1]
    source = Files(kind(rows, paths), kind(rows, [7, 8, 9]))
    assert read_all(source) == [("a.jpg", 7), ("b.jpg", 8), ("c.jpg", 9)] and source.label(0) == 7
    assert source.fingerprint() == Files(paths, [7, 8, 9]).fingerprint()


LABELS = {
    "none": None,
    "integers": [7, 8, 9, 7],
    "mixed": [7, 0.5, None, {"mask": "m.png"}],
    "text": ["a cat", "a dog", "a bird", "a fox"],
    "array": np.array([7, 8, 9, 7]),
    "rows": np.arange(8.0).reshape(4, 2),
    "columns": LabelColumns({"id": [1, 2, 3, 4], "box": np.arange(16).reshape(4, 4)}),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_samples_are_named_together_as_one_by_one(labels):
    source, indices = Files(["a.jpg", "b.jpg", "c.jpg", "d.jpg"], labels), np.array([3, 0, 0, 2])
    paths, found = source.locate(indices)
    each = [source.read(i) for i in indices.tolist()]
    assert paths == [path for path, _ in each]
    assert list(map(type, found)) == [type(label) for _, label in each]
    np.testing.assert_equal(found, [label for _, label in each])
    subset = open_source(Subset(source, [2, 3]))
    np.testing.assert_equal(subset.locate(np.array([1, 0])), (["d.jpg", "c.jpg"], [source.labels[3], source.labels[2]]))


def test_code_of_the_users_is_called_for_each_sample():
    class Drawn(Files):
        def read(self, index: int):
            return self.paths[index], -index

    class Numbers(UserList):
        pass

    indices = np.arange(2)
    for source in (Drawn(["a.jpg", "b.jpg"]), Files(["a.jpg", "b.jpg"], Numbers([1, 2]))):
        assert source.locate(indices) is None
        assert open_source(Subset(source, [0, 1])).locate(indices) is None


@pytest.mark.parametrize("paths", ["photos/a.jpg", Path("photos"), b"photos", None, 5, {"a.jpg"}])
def test_invalid_lists_of_paths_are_refused(paths):
    with pytest.raises(LoaderError, match=r"paths must be a list of files, not .*open_source") as refused:
        Files(paths)
    assert repr(paths) in str(refused.value)


@pytest.mark.parametrize("path", [None, 5, b"b.jpg", ("b.jpg", 1)])
def test_invalid_paths_in_a_list_are_refused(path):
    with pytest.raises(LoaderError, match=r"paths: entry 1 is ") as refused:
        Files(["a.jpg", path])
    assert repr(path) in str(refused.value)


@pytest.mark.parametrize("labels", [{"a.jpg": 1}, {1}, 5])
def test_labels_without_order_are_refused(labels):
    with pytest.raises(LoaderError, match=f"in sample order, not a {type(labels).__name__}"):
        Files(["a.jpg"], labels)


def test_a_mapping_of_paths_to_labels():
    source = open_source({"b.jpg": 3, Path("a.jpg"): 5})
    assert read_all(source) == [("b.jpg", 3), ("a.jpg", 5)]


# --- list files ------------------------------------------------------------------------------------------------------


def test_a_list_in_the_format_of_dali_and_caffe(tmp_path):
    text = "# path label\n\na.jpg 3\nfolder with spaces/b c.jpg\t0\r\n/abs/d.jpg -1\n  e.jpg   12  \nlast.jpg 7"
    source = ListFile(write(tmp_path, text), allow_outside=True)
    names = [str(tmp_path / "a.jpg"), str(tmp_path / "folder with spaces/b c.jpg"), "/abs/d.jpg"]
    names += [str(tmp_path / "e.jpg"), str(tmp_path / "last.jpg")]
    assert read_all(source) == list(zip(names, [3, 0, -1, 12, 7], strict=True))
    assert source.labels.dtype == np.int64 and source.classes is None and source.path(1) == names[1]


@pytest.mark.parametrize(
    ("text", "labels", "expected", "dtype"),
    [
        ("a 1\nb 2\n", 1, [1, 2], np.int64),
        ("a 1\nb 0.5\n", 1, [1.0, 0.5], np.float64),
        ("a 1e3\n", 1, [1000.0], np.float64),
        ("a 1 2 3\nb c 4 5 6\n", 3, [[1, 2, 3], [4, 5, 6]], np.int64),
        ("a 1 2.5\nb 4 5\n", 2, [[1.0, 2.5], [4.0, 5.0]], np.float64),
        ("a 9223372036854775807\n", 1, [2**63 - 1], np.int64),
    ],
)
def test_all_labels_have_one_dtype(tmp_path, text, labels, expected, dtype):
    source = ListFile(write(tmp_path, text), labels=labels)
    assert source.labels.dtype == dtype and source.labels.tolist() == expected


def test_a_list_without_labels(tmp_path):
    source = ListFile(write(tmp_path, "a b 7\nc.jpg\n"), labels=0)
    assert read_all(source) == [(str(tmp_path / "a b 7"), 0), (str(tmp_path / "c.jpg"), 1)]


def test_names_that_are_not_utf8_and_a_byte_order_mark(tmp_path):
    name = b"\xe4\xff.png"
    path = Path(os.fsdecode(bytes(tmp_path) + b"/" + name))
    path.write_bytes(png(4))
    assert load_numbers(ListFile(write(tmp_path, b"\xef\xbb\xbf" + name + b" 5\n"))) == ([4], [5])


@pytest.mark.parametrize(
    ("text", "labels", "line"),
    [
        ("a.jpg 1\nb.jpg\n", 1, 2),
        ("a.jpg 1\n\n# x\nb.jpg cat\n", 1, 4),
        ("a.jpg 1 2\nb.jpg 1\n", 2, 2),
        ("a.jpg 1\nb.jpg 1_0\n", 1, 2),
        ("a.jpg 9223372036854775808\n", 1, 1),
        ("0\t1.0\ta.jpg\n", 1, 1),
        ("7\n", 1, 1),
    ],
    ids=["no label", "a word", "too few", "underscore", "too large", "MXNet's order", "no path"],
)
def test_errors_name_the_line(tmp_path, text, labels, line):
    with pytest.raises(LoaderError) as caught:
        ListFile(write(tmp_path, text), labels=labels)
    assert f"list.txt' line {line}: expected a path and " in str(caught.value)
    assert repr(text.splitlines()[line - 1]) in str(caught.value)


def test_the_error_for_a_list_without_labels_has_a_hint(tmp_path):
    for name in ("a.jpg", "b c.jpg"):
        (tmp_path / name).write_bytes(png(1))
    for text in ("a.jpg\n", "b c.jpg\n"):
        with pytest.raises(LoaderError, match=r"; for paths without labels: ListFile\(\.\.\., labels=0\)$"):
            ListFile(write(tmp_path, text))
    with pytest.raises(LoaderError, match=r"got 'b c\.jpg 1 2'$"):
        ListFile(write(tmp_path, "b c.jpg 1 2\n"), labels=3)


def test_unreadable_lists_are_refused(tmp_path):
    with pytest.raises(LoaderError, match=r"cannot read .*none.txt': No such file"):
        ListFile(tmp_path / "none.txt")
    with pytest.raises(LoaderError, match=r"list.txt' names no file"):
        ListFile(write(tmp_path, "# nothing\n\n"))
    for labels in (-1, 1.5, None, True):
        with pytest.raises(LoaderError, match=f"labels must be an integer of at least 0, not {labels}"):
            ListFile(write(tmp_path, "a 1\n"), labels=labels)
    assert ListFile(write(tmp_path, "a 1 2\n"), labels=np.int64(2)).labels.tolist() == [[1, 2]]


_names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1).filter(lambda s: "://" not in s)


@given(
    st.lists(st.tuples(st.lists(_names, min_size=1, max_size=3), st.integers(-(2**63), 2**63 - 1)), min_size=1),
    st.sampled_from([" ", "\t", "  "]),
)
def test_any_list_is_read_back(tmp_path_factory, entries, separator):
    entries = [(" ".join(words), label) for words, label in entries if not words[0].startswith(("#", "\ufeff"))]
    if not entries:
        return
    path = tmp_path_factory.mktemp("list") / "list.txt"
    path.write_text("".join(f"{name}{separator}{label}\n" for name, label in entries), encoding="utf-8")
    source = ListFile(path, root="/r", allow_outside=True)
    assert read_all(source) == [(name if name.startswith("/") else f"/r/{name}", label) for name, label in entries]


# --- tables ----------------------------------------------------------------------------------------------------------

TABLE = "path,breed,age,weight\nb.jpg,pug,3,7.5\na.jpg,akita,4,30\nc.jpg,pug,12,8\n"


def table(folder: Path, text: str = TABLE, name: str = "table.csv") -> Path:
    return write(folder, text, name)


def labels_of(source: Csv) -> list:
    return [label for _, label in read_all(source)]


def test_columns_by_name_and_by_number(tmp_path):
    path = table(tmp_path)
    assert [p for p, _ in read_all(Csv(path))] == [str(tmp_path / name) for name in ("b.jpg", "a.jpg", "c.jpg")]
    assert labels_of(Csv(path, "path", "age")) == labels_of(Csv(path, 0, 2)) == [3, 4, 12]
    assert Csv(path, label="age").labels.dtype == np.int64
    assert labels_of(Csv(path, label="weight")) == [7.5, 30, 8] and Csv(path, label=3).labels.dtype == np.float64
    assert labels_of(Csv(path, label=None)) == [0, 1, 2]


def test_string_labels_are_classes(tmp_path):
    source = Csv(table(tmp_path), label="breed")
    assert source.classes == ["akita", "pug"] and labels_of(source) == [1, 0, 1] and source.labels.dtype == np.int64
    numeric = Csv(table(tmp_path), label="age", class_column="age")
    assert numeric.classes == ["12", "3", "4"] and labels_of(numeric) == [1, 2, 0]


def test_several_columns_are_a_dict(tmp_path):
    source = Csv(table(tmp_path), label=["breed", "age"])
    assert source.classes is None and source.read(1)[1] == {"breed": "akita", "age": 4}
    source = Csv(table(tmp_path), label=["breed", 3], class_column="breed")
    assert source.classes == ["akita", "pug"] and source.read(0)[1] == {"breed": 1, "weight": 7.5}
    assert Csv(table(tmp_path), label=["breed"]).read(0)[1] == {"breed": "pug"}


def test_a_table_without_a_header(tmp_path):
    source = Csv(table(tmp_path, "a.jpg,1,x\nb.jpg,2,y\n"), label=[1, 2], header=False)
    assert labels_of(source) == [{"1": 1, "2": "x"}, {"1": 2, "2": "y"}]


def test_delimiters_quotes_blank_lines_and_spaces(tmp_path):
    source = Csv(table(tmp_path, 'path\tlabel\n"a, b.jpg"\t1\n\nc.jpg\t2\n', "t.tsv"))
    assert read_all(source) == [(str(tmp_path / "a, b.jpg"), 1), (str(tmp_path / "c.jpg"), 2)]
    source = Csv(table(tmp_path, '"a, b.jpg"; 1\n'), delimiter=";", header=False)
    assert read_all(source) == [(str(tmp_path / "a, b.jpg"), 1)]


def test_types(tmp_path):
    path = table(tmp_path, "path,id,when\na.jpg,0012,1:30\nb.jpg,7a,2:15\n")
    source = Csv(path, label="id", types={"id": str})
    assert labels_of(source) == ["0012", "7a"] and source.classes is None
    source = Csv(path, label=["when"], types={"when": lambda text: [int(part) for part in text.split(":")]})
    assert labels_of(source) == [{"when": [1, 30]}, {"when": [2, 15]}]
    with pytest.raises(LoaderError, match=r"line 3, column 'id': the converter in `types` refuses '7a'"):
        Csv(path, label="id", types={"id": int})


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (TABLE, {"label": "color"}, r"no column 'color'.* has the columns 'path', 'breed', 'age', 'weight'"),
        (TABLE, {"label": 4}, "no column 4"),
        (TABLE, {"label": -1}, "no column -1"),
        (TABLE, {"label": True}, "no column True"),
        (TABLE, {"image": "file"}, "no column 'file'"),
        (TABLE, {"label": "age", "header": False}, "no column 'age'.* it has 4 columns, numbered from 0"),
        ("path,a,a\nx,1,2\n", {"label": "a"}, "no column 'a', or several"),
        (TABLE, {"class_column": "age"}, r"class_column must be one of the label columns \[1\], not 'age'"),
        (TABLE, {"types": {"age": int}}, r"types must name label columns \[1\], not 'age'"),
        ("path,l\na,1\nb,x\n", {}, r"table.csv' line 3, column 'l': 'x' is not a number.*types=\{1: str\}"),
        ("path,l\na,x\nb,\nc,1\n", {}, r"line 2, column 'l': 'x' is not a number"),
        ("path,l\na,1\n,2\n", {}, "line 3: the path is empty"),
        ("path,l\na,1\nb,c,2\n", {}, "line 3: 3 columns here, 2 above.*in quotes"),
        ("path,l\na,1\nb\n", {}, "line 3: 1 columns here, 2 above"),
        ('path,l\na,1\n"b,2\n', {}, "line 3: "),
        ("path,l\n", {}, "names no file"),
        ("", {}, "names no file"),
        (
            "a.JPG,1\nb.jpg,2\n",
            {},
            r"line 1: 'a.JPG' looks like a file, not .* without a header: Csv\(..., header=False\)",
        ),
        ("\n1, a.jpg\n2,b.jpg\n", {"image": 1, "label": 0}, "line 2: 'a.jpg' looks like a file"),
        ("a.jpg\n", {}, "line 1: 'a.jpg' looks like a file"),
    ],
)
def test_malformed_tables_are_refused(tmp_path, text, arguments, message):
    with pytest.raises(LoaderError, match=message) as caught:
        Csv(table(tmp_path, text), **arguments)
    assert "table.csv" in str(caught.value) or "label columns" in str(caught.value)


def test_a_named_column_may_look_like_a_file(tmp_path):
    assert read_all(Csv(table(tmp_path, "a.jpg,label\nx,1\n"), "a.jpg")) == [(str(tmp_path / "x"), 1)]


def test_paths_in_another_column_are_noticed(tmp_path):
    """Kaggle's tables begin with a number."""
    path = table(tmp_path, "id,breed,file name\n7,pug,a.jpg\n8,akita,none.jpg\n")
    assert read_all(Csv(path))[0] == (str(tmp_path / "7"), "pug"), "neither column names a file: no way to tell"
    (tmp_path / "a.jpg").write_bytes(png(1))
    fault = "line 2: column 'id' names no file, '7', but column 'file name' does, 'a.jpg': name the columns, "
    with pytest.raises(LoaderError, match=fault + r"Csv\(..., image='file name', label=...\)"):
        Csv(path)
    assert read_all(Csv(path, "file name", "breed"))[0] == (str(tmp_path / "a.jpg"), "pug")
    without = table(tmp_path, "7,a.jpg\n")
    with pytest.raises(LoaderError, match=r"column 0 names no file, '7', but column 1 does, .*image=1,"):
        Csv(without, header=False)
    (tmp_path / "7").write_bytes(png(1))
    with pytest.raises(LoaderError, match=r"line 1: the label 'a\.jpg' is an image file"):
        Csv(without, header=False)
    masks = table(tmp_path, "image,mask\nlost.jpg,a.jpg\n")
    want = [(str(tmp_path / "lost.jpg"), {"mask": str(tmp_path / "a.jpg")})]
    assert read_all(Csv(masks, label=["mask"])) == want, "on_error handles a missing image"


_cells = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1).map(lambda s: "x" + s)


@given(st.lists(st.tuples(_cells, _cells, st.integers(-5, 5)), min_size=1), st.sampled_from([",", ";", "\t"]))
def test_any_table_is_read_back(tmp_path_factory, rows, delimiter):
    rows = [row for row in rows if "://" not in row[0]]
    if not rows:
        return
    path = tmp_path_factory.mktemp("table") / "t.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([("p", "s", "n"), *rows])
    source = Csv(path, "p", ["s", "n"], root="/r", delimiter=delimiter)
    assert read_all(source) == [(f"/r/{name}", {"s": text, "n": n}) for name, text, n in rows]
    one = Csv(path, "p", "s", root="/r", delimiter=delimiter, class_column="s")
    assert [one.classes[label] for _, label in read_all(one)] == [text for _, text, _ in rows]


def test_a_named_image_column_is_not_questioned(tmp_path):
    """Even if its first file is missing and another column names an existing one."""
    (tmp_path / "thumb.jpg").write_bytes(b"")
    (tmp_path / "table.csv").write_text("file,thumb\nraw/1,thumb.jpg\n")
    assert len(Csv(tmp_path / "table.csv", image="file", label=["thumb"])) == 1
