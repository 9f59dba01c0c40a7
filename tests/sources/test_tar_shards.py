"""Tar shards: WebDataset's naming rules, labels by extension, and archives that are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from cuaug import DecodeError, LoaderError
from cuaug.sources import TarShards
from tests.support.loader.further_pictures import png
from tests.support.sources.loading import load, load_numbers, read_all
from tests.support.sources.writers import write_tar

FORMATS = {"gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT, "ustar": tarfile.USTAR_FORMAT}


def archive(folder: Path, members, name: str = "a.tar", **options) -> Path:
    write_tar(folder / name, members, **options)
    return folder / name


def names(source: TarShards) -> list[str]:
    folder = os.path.dirname(source.paths[0])
    return [os.path.relpath(source.path(i), folder) for i in range(len(source))]


def test_the_key_ends_at_the_first_dot_of_the_last_part(tmp_path):
    members = {
        "v1.2/a.b/0001.seg.png": b"s1",
        "v1.2/a.b/0001.JPG": b"i1",
        "v1.2/a.b/0002.jpg": b"i2",
        "v1.2/a.b/0002.seg.png": b"s2",
        "./0001.jpg": b"i3",
        "./0001.seg.png": b"s3",
    }
    source = TarShards(archive(tmp_path, members), label="seg.png")
    assert read_all(source) == [(b"i1", b"s1"), (b"i2", b"s2"), (b"i3", b"s3")]
    assert names(source)[0] == "a.tar/v1.2/a.b/0001.jpg"


def test_other_members_are_ignored(tmp_path):
    members = {"__meta__": b"{}", "__a__/x.jpg": b"", "README": b"", "._0001.jpg": b"", "d/.x.jpg": b"", "1.jpg": b"i"}
    path = archive(tmp_path, members)
    with tarfile.open(path, "a") as tar:
        for member_type in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo("2.jpg")
            info.type = member_type
            tar.addfile(info)
    assert read_all(TarShards(path, label=None)) == [(b"i", 0)]


def test_members_of_a_sample_need_not_be_adjacent(tmp_path):
    members = [("a.jpg", b"ia"), ("b.jpg", b"ib"), ("b.cls", b"2"), ("a.cls", b"1")]
    assert read_all(TarShards(archive(tmp_path, members))) == [(b"ia", 1), (b"ib", 2)]


@pytest.mark.parametrize("tar_format", FORMATS)
def test_long_and_unicode_names(tmp_path, tar_format):
    folder = "d" * 90 + "/" + "e" * 60
    long = f"{folder}/{'f' * 95}" if tar_format == "ustar" else f"{folder}/{'g' * 300}"
    members = {f"{long}.jpg": b"long", f"{long}.cls": b"1", "grün/日本.jpg": b"unicode", "grün/日本.cls": b"2"}
    source = TarShards(archive(tmp_path, members, tar_format=FORMATS[tar_format]))
    assert read_all(source) == [(b"long", 1), (b"unicode", 2)]
    assert names(source) == [f"a.tar/{long}.jpg", "a.tar/grün/日本.jpg"]


def test_names_that_are_not_utf8(tmp_path):
    info = tarfile.TarInfo(os.fsdecode(b"\xff\xe4.jpg"))
    info.size = 1
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
        tar.addfile(info, io.BytesIO(b"x"))
    source = TarShards(tmp_path / "a.tar", label=None)
    assert os.fsencode(source.path(0)).endswith(b"a.tar/\xff\xe4.jpg") and len(source.fingerprint()) == 64


def test_archives_of_the_tar_command(tmp_path):
    """Hard links, file system headers, a large blocking factor."""
    files = tmp_path / "files"
    files.mkdir()
    for i in range(5):
        (files / f"{i}.png").write_bytes(png(i))
        (files / f"{i}.cls").write_text(f"{i}\n")
    os.link(files / "3.png", files / "9.png")
    (files / "9.cls").write_text("3")
    for tar_format in ("gnu", "pax", "ustar", "v7"):
        path = tmp_path / f"{tar_format}.tar"
        command = ["tar", "-cf", str(path), f"--format={tar_format}", "-b", "200", "--sort=name", "."]
        subprocess.run(command, cwd=files, check=True)
        assert load_numbers(TarShards(path)) == ([0, 1, 2, 3, 4, 3], [0, 1, 2, 3, 4, 3])


def test_labels_by_extension(tmp_path):
    array = io.BytesIO()
    np.save(array, np.arange(6.0).reshape(2, 3))
    fields = {
        "jpg": b"image",
        "cls": b" 12\n",
        "json": b'{"box": [1, 2.5], "who": "gr\xc3\xbcn"}',
        "txt": "ein grüner Hund".encode(),
        "npy": array.getvalue(),
        "depth.npy": array.getvalue(),
        "bin": b"\x00\xff",
        "index": b"7",
    }
    path = archive(tmp_path, {f"s.{name}": data for name, data in fields.items()})
    image, label = TarShards(path, label=[name for name in fields if name != "jpg"]).read(0)
    assert image == b"image" and label["cls"] == 12 and label["index"] == 7 and label["bin"] == b"\x00\xff"
    assert label["json"] == {"box": [1, 2.5], "who": "grün"} and label["txt"] == "ein grüner Hund"
    assert label["npy"].shape == label["depth.npy"].shape == (2, 3)
    assert TarShards(path, label=["cls"]).read(0)[1] == {"cls": 12}
    assert TarShards(path, label="json").read(0)[1] == json.loads(fields["json"])
    assert TarShards(path, label=None).read(0)[1] == 0


def test_alternative_fields(tmp_path):
    members = {"a.png": b"a png", "a.txt": b"a", "b.webp": b"b webp", "b.jpg": b"b jpg", "b.cls": b"5"}
    source = TarShards(archive(tmp_path, members), image="jpg; png;webp", label="cls;txt")
    assert read_all(source) == [(b"a png", "a"), (b"b jpg", 5)]
    assert names(source) == ["a.tar/a.png", "a.tar/b.jpg"]
    assert TarShards(tmp_path / "a.tar", image="webp;jpg;png", label=None).read(1)[0] == b"b webp"


def test_user_decoders(tmp_path):
    path = archive(tmp_path, {"a.jpg": b"", "a.cls": b"0x1f", "a.box.bin": b"\1\2"})
    decoders = {"cls": lambda data: int(data, 16), "bin": list}
    assert TarShards(path, label=["cls", "box.bin"], decoders=decoders).read(0)[1] == {"cls": 31, "box.bin": [1, 2]}
    with pytest.raises(DecodeError, match=r"label 'cls' holds b'0x1f': invalid literal"):
        TarShards(path).read(0)


@pytest.mark.parametrize(
    ("field", "data", "cause"),
    [
        ("cls", b"cat", "invalid literal"),
        ("cls", b"9" * 19, "an integer beyond int64"),  # a batch with it once ended the run
        ("json", b"{", "Expecting"),
        ("txt", b"\xff", "utf-8"),
        ("npy", b"", "EOF: "),
    ],
    ids=["word", "large number", "JSON", "text", "array"],
)
def test_an_invalid_label_damages_its_sample(tmp_path, field, data, cause):
    valid = {"cls": b"1", "json": b"1", "txt": b"1", "npy": b""}[field]
    members = {"a.jpg": png(0), f"a.{field}": data, "b.jpg": png(1), f"b.{field}": valid}
    source = TarShards(archive(tmp_path, members), label=field)
    with pytest.raises(DecodeError, match=f"label '{field}' holds .*{cause}"):
        source.read(0)
    if field == "cls":
        assert load_numbers(source, on_error="skip") == ([1], [1])
        with pytest.raises(DecodeError, match=r"a.tar/a.jpg' \(sample 0\).*label 'cls'"):
            load(source)


def test_a_missing_field_damages_its_sample(tmp_path):
    members = {"a.jpg": b"", "a.cls": b"1", "b.cls": b"2", "c.jpg": b""}
    source = TarShards(archive(tmp_path, members))
    assert source.read(0) == (b"", 1)
    with pytest.raises(DecodeError, match="the sample has no field 'jpg;jpeg;png;webp'"):
        source.read(1)
    with pytest.raises(DecodeError, match="the sample has no field 'cls'"):
        source.read(2)
    assert names(source) == ["a.tar/a.jpg", "a.tar/b", "a.tar/c.jpg"]


def test_unknown_fields_are_refused(tmp_path):
    path = archive(tmp_path, {"a.jpg": b"", "a.cls": b"1"})
    with pytest.raises(LoaderError, match=r"no sample in .*a.tar' has a field 'json'; available: 'cls', 'jpg'"):
        TarShards(path, label="json")
    with pytest.raises(LoaderError, match="has a field 'png;webp'"):
        TarShards(path, "png;webp")
    with pytest.raises(LoaderError, match=r"label must be a field name, .* not \[3\]"):
        TarShards(path, label=[3])


@pytest.mark.parametrize(
    ("compress", "name"),
    [
        (gzip.compress, "gzip"),
        (bz2.compress, "bzip2"),
        (lzma.compress, "xz"),
        (lambda d: b"\x28\xb5\x2f\xfd" + d, "zstd"),
    ],
)
def test_compressed_archives_are_refused(tmp_path, compress, name):
    path = archive(tmp_path, {"a.jpg": b""})
    path.write_bytes(compress(path.read_bytes()))
    with pytest.raises(LoaderError, match=rf"a.tar' is compressed \({name}\)"):
        TarShards(path)


def test_a_truncated_archive_is_refused(tmp_path):
    whole = archive(tmp_path, {f"{i}.jpg": bytes(i * 300) for i in range(4)}).read_bytes()
    end = whole.rindex(b"3.jpg") + 512 + 1024  # the last member's data, in whole blocks
    path = tmp_path / "cut.tar"
    for size in [0, 1, 511, *range(512, end + 511, 256), end + 511]:
        path.write_bytes(whole[:size])
        with pytest.raises(LoaderError, match=r"cut.tar' is (not a tar file|damaged|truncated)"):
            TarShards(path, label=None)
    path.write_bytes(whole[: end + 512])
    assert len(TarShards(path, label=None)) == 4


def test_concatenated_archives_are_refused(tmp_path):
    one = archive(tmp_path, {"a.jpg": b""}).read_bytes()
    (tmp_path / "b.tar").write_bytes(one + one)
    with pytest.raises(LoaderError, match="data after its end mark at byte 512: is it several archives"):
        TarShards(tmp_path / "b.tar", label=None)


def test_other_files_are_refused(tmp_path):
    for data in (b"label,path\n" * 100, png(1), bytes(range(256)) * 9):
        (tmp_path / "x.tar").write_bytes(data)
        with pytest.raises(LoaderError, match=r"x.tar' is "):
            TarShards(tmp_path / "x.tar")
    with pytest.raises(LoaderError, match="there is no file"):
        TarShards(tmp_path / "y.tar")


@pytest.mark.parametrize("header_type", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_endless_headers_are_refused(tmp_path, header_type):
    """Each header announces the next; tarfile recurses."""
    header = tarfile.TarInfo("x")
    header.type = header_type
    (tmp_path / "a.tar").write_bytes(header.tobuf(tarfile.USTAR_FORMAT) * 2000 + bytes(1024))
    with pytest.raises(LoaderError, match=r"a.tar' is not a tar file, or damaged at byte 0: "):
        TarShards(tmp_path / "a.tar", label=None)


@pytest.mark.parametrize("header_type", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("size", [1 << 33, 1 << 40, 1 << 62, 1 << 70])
def test_a_name_of_a_huge_claimed_size_is_refused(tmp_path, header_type, size):
    """tarfile allocates the claimed size before it reads."""
    header = tarfile.TarInfo("x")
    header.type, header.size = header_type, size
    (tmp_path / "a.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
    with pytest.raises(LoaderError, match=r"a.tar' is "):
        TarShards(tmp_path / "a.tar", label=None)


def test_a_duplicate_field_is_refused(tmp_path):
    path = archive(tmp_path, [("a.jpg", b"1"), ("a.JPG", b"2")])
    with pytest.raises(LoaderError, match=r"a.tar' has 'a.JPG' twice"):
        TarShards(path, label=None)


def test_sparse_members_are_refused(tmp_path):
    with open(tmp_path / "1.jpg", "wb") as file:
        file.truncate(1 << 22)
        file.seek(1 << 21)
        file.write(b"data")
    subprocess.run(["tar", "--sparse", "-cf", "a.tar", "1.jpg"], cwd=tmp_path, check=True)
    with pytest.raises(LoaderError, match=r"holds '1.jpg' as a sparse file"):
        TarShards(tmp_path / "a.tar", label=None)
