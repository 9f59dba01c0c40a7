"""`cuaug prepare`: with jpegtran where it is installed, and everywhere with a stand-in that knows a few answers."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

import cuaug
from cuaug import transforms as T
from cuaug.cli import main
from cuaug.codec.restarts import cut_out
from cuaug.prepare import with_restarts
from tests.codec.pictures import RGB, adobe_cmyk, app1, as_pillow, encode, photo, tiff_block

LARGE = Image.fromarray(photo(200, 410))
PLAIN = encode(LARGE, "JPEG", quality=85, subsampling=2)
# 26 MCUs of 16 pixels in a row: 2 x 16 is as far from 64 pixels as 13 x 16 is not.
MARKED = encode(LARGE, "JPEG", quality=85, subsampling=2, restart_marker_blocks=2)
TURNED = PLAIN[:2] + app1(tiff_block(6)) + PLAIN[2:]

needs_jpegtran = pytest.mark.skipif(shutil.which("jpegtran") is None, reason="jpegtran is not installed")


class StandIn:
    """A program that answers as told, as jpegtran would to the sample that it is tried with, and else with status 1.

    Attributes:
        path: of the program.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = str(folder / "jpegtran")
        text = f"""#!{sys.executable} -S
import hashlib, os, pathlib, signal, sys
folder, data = pathlib.Path({str(folder)!r}), sys.stdin.buffer.read()
answer = folder / hashlib.sha1(data).hexdigest()
with open(folder / "calls", "a") as calls:
    print(*sys.argv[1:], file=calls)
if not answer.exists():
    sys.exit("Premature end of JPEG file\\nnot known")
if answer.read_bytes() == b"interrupted":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored by what a shell started in its background
    os.kill(os.getpid(), signal.SIGINT)
sys.stdout.buffer.write(answer.read_bytes())
"""
        Path(self.path).write_text(text)
        os.chmod(self.path, 0o755)
        sample = Image.linear_gradient("L")
        self.answer(encode(sample, "JPEG"), encode(sample, "JPEG", restart_marker_blocks=8))

    def answer(self, data: bytes, with_this: bytes) -> None:
        (self.folder / hashlib.sha1(data).hexdigest()).write_bytes(with_this)

    def calls(self) -> list[str]:
        """The arguments of all calls but the first, with the sample."""
        return (self.folder / "calls").read_text().splitlines()[1:]


@pytest.fixture
def stand_in(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = StandIn(folder)
    program.answer(PLAIN, MARKED)
    return program


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "cats").mkdir(parents=True)
    (folder / "cats" / "a.jpg").write_bytes(PLAIN)
    (folder / "cats" / "no suffix").write_bytes(PLAIN)
    (folder / "labels.csv").write_text("cats/a.jpg,0\n")
    (folder / "b.png").write_bytes(encode(RGB, "PNG"))
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def prepared(stand_in, tmp_path, capsys):
    """Prepares a folder or a tar: the exit status, the target, and what was said on standard output and error."""

    def run(source: Path) -> tuple[int, Path, str, str]:
        target = tmp_path / "prepared"
        status = main(["prepare", str(source), str(target), "--jpegtran", stand_in.path, "--threads", "2"])
        told = capsys.readouterr()
        return status, target, told.out, told.err

    return run


def test_a_folder(prepared, stand_in, photos):
    os.chmod(photos / "cats" / "a.jpg", 0o640)
    os.utime(photos / "cats" / "a.jpg", (1234567, 1234567))
    status, target, told, errors = prepared(photos)
    assert status == 0 and not errors
    assert told.startswith(f"{target}: 2 JPEGs with restart markers, ") and "2 other files copied" in told
    assert stand_in.calls() == ["-copy all -optimize -restart 2B"] * 2
    names = {str(path.relative_to(target)) for path in target.rglob("*")}
    assert names == {"cats", "cats/a.jpg", "cats/no suffix", "empty", "labels.csv", "b.png"}
    assert (target / "cats" / "a.jpg").read_bytes() == MARKED == (target / "cats" / "no suffix").read_bytes()
    for same in ("labels.csv", "b.png"):
        assert (target / same).read_bytes() == (photos / same).read_bytes()
    is_like = (target / "cats" / "a.jpg").stat()
    assert (is_like.st_mode & 0o777, is_like.st_mtime) == (0o640, 1234567)


def test_a_run_goes_on_where_another_ended(prepared, photos, tmp_path):
    (tmp_path / "prepared" / "cats").mkdir(parents=True)
    (tmp_path / "prepared" / "cats" / "a.jpg").write_bytes(b"there before")
    status, target, told, _ = prepared(photos)
    assert status == 0 and "1 JPEGs with" in told and "1 files there already" in told
    assert (target / "cats" / "a.jpg").read_bytes() == b"there before"
    assert (target / "cats" / "no suffix").read_bytes() == MARKED


def test_names_of_any_kind(prepared, photos):
    """Files are written under other names until they are whole: none that is in the way of another, or too long."""
    names = ["a.jpg.part", "a.part.jpg", "n" * 251 + ".jpg", os.fsdecode(b"\xff\xfe.jpg")]
    for name in names:
        (photos / "cats" / name).write_bytes(PLAIN)
    status, target, told, _ = prepared(photos)
    assert status == 0 and "6 JPEGs with" in told
    assert {path.name for path in (target / "cats").iterdir()} == {"a.jpg", "no suffix", *names}


def test_links(prepared, photos, tmp_path):
    """They are copied as what they link to."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "c.jpg").write_bytes(PLAIN)
    (photos / "dogs").symlink_to(tmp_path / "elsewhere")
    (photos / "d.jpg").symlink_to(tmp_path / "elsewhere" / "c.jpg")
    status, target, told, _ = prepared(photos)
    assert status == 0 and "4 JPEGs with" in told
    assert (target / "dogs" / "c.jpg").read_bytes() == MARKED == (target / "d.jpg").read_bytes()
    assert not (target / "dogs").is_symlink() and not (target / "d.jpg").is_symlink()


def test_a_link_to_a_folder_around_it(prepared, photos):
    (photos / "cats" / "up").symlink_to(photos)
    status, _, _, errors = prepared(photos)
    assert status == 1 and "cats/up is a link to a folder in which it lies itself" in errors


def test_what_cannot_be_read_is_told(prepared, photos):
    """The rest is done."""
    (photos / "gone.jpg").symlink_to(photos / "nowhere")
    status, target, told, errors = prepared(photos)
    assert status == 1 and "2 JPEGs with" in told and "1 not readable" in told
    assert errors.count("\n") == 1 and f"{photos / 'gone.jpg'} cannot be read" in errors
    assert (target / "b.png").exists() and not (target / "gone.jpg").exists()


def test_a_folder_that_cannot_be_read(prepared, photos, monkeypatch):
    scan = os.scandir

    def refused(path: str) -> object:
        if str(path).endswith("cats"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    status, _, _, errors = prepared(photos)
    assert status == 1 and "Permission denied" in errors and "cats" in errors


def test_a_program_that_never_works(photos, tmp_path, capsys):
    """It is tried first: otherwise all would stay as it was, and count as done."""
    program = tmp_path / "jpegtran"
    program.write_text("#!/bin/sh\necho cannot open libjpeg.so >&2\nexit 127\n")
    os.chmod(program, 0o755)
    assert main(["prepare", str(photos), str(tmp_path / "prepared"), "--jpegtran", str(program)]) == 1
    assert "cannot open libjpeg.so" in capsys.readouterr().err and not (tmp_path / "prepared").exists()


def test_progress_is_told(stand_in, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("cuaug.prepare._TELL_SECONDS", -1.0)
    assert main(["prepare", str(photos), str(tmp_path / "prepared"), "--jpegtran", stand_in.path]) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 4 and all(line.startswith("so far: ") for line in told) and "2 JPEGs with" in told[-1]


# --- tars ------------------------------------------------------------------------------------------------------------

MEMBERS = {"0001.jpg": PLAIN, "0001.cls": b"7", "x/0002.jpg": PLAIN, "x/0002.cls": b"8"}


def write_tar(path: Path, **pax: str) -> Path:
    with tarfile.open(path, "w") as tar:
        directory = tarfile.TarInfo("x")
        directory.type = tarfile.DIRTYPE
        tar.addfile(directory)
        for name, data in MEMBERS.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 1234567
            member.pax_headers = {key: value.format(size=len(data)) for key, value in pax.items()}
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("pax", [{}, {"size": "{size}", "comment": "kept"}], ids=["plain", "sizes in PAX records"])
def test_a_tar(prepared, tmp_path, pax):
    source = write_tar(tmp_path / "shard-0.tar", **pax)
    os.chmod(source, 0o640)
    os.utime(source, (7654321, 7654321))
    status, target, told, errors = prepared(source)
    is_like = (target / "shard-0.tar").stat()
    assert (is_like.st_mode & 0o777, is_like.st_mtime) == (0o640, 7654321)
    assert status == 0 and "2 JPEGs with restart markers" in told and not errors
    with tarfile.open(target / "shard-0.tar") as tar:
        assert tar.getnames() == ["x", *MEMBERS] and tar.getmembers()[0].isdir()
        read = {member.name: tar.extractfile(member).read() for member in tar.getmembers()[1:]}
        assert {member.mtime for member in tar.getmembers()[1:]} == {1234567}
        assert {member.pax_headers.get("comment") for member in tar.getmembers()[1:]} == {pax.get("comment")}
    assert read == {name: MARKED if name.endswith("jpg") else data for name, data in MEMBERS.items()}


def test_a_tar_with_links_and_names_of_any_kind(prepared, tmp_path):
    path = tmp_path / "a.tar"
    odd = os.fsdecode(b"\xff\xfe.jpg")
    with tarfile.open(path, "w", encoding="utf-8", errors="surrogateescape") as tar:
        for name in (odd, "n" * 180 + ".jpg"):
            member = tarfile.TarInfo(name)
            member.size = len(PLAIN)
            tar.addfile(member, io.BytesIO(PLAIN))
        for name, kind in (("hard.jpg", tarfile.LNKTYPE), ("soft.jpg", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, odd
            tar.addfile(member)
    status, target, told, _ = prepared(path)
    assert status == 0 and "2 JPEGs with" in told
    with tarfile.open(target / "a.tar", encoding="utf-8", errors="surrogateescape") as tar:
        assert tar.getnames() == [odd, "n" * 180 + ".jpg", "hard.jpg", "soft.jpg"]
        assert tar.extractfile("hard.jpg").read() == MARKED and tar.getmember("soft.jpg").linkname == odd


def damaged_tar(how: str, path: Path) -> None:
    write_tar(path)
    data = bytearray(path.read_bytes())
    second = data.index(b"0001.cls")
    if how == "a damaged header":
        data[second + 150] ^= 1
    elif how == "cut in a header":
        data = data[: second + 100]
    elif how == "two archives":
        data = data * 2
    elif how == "compressed":
        data = bytearray(gzip.compress(bytes(data)))
    elif how == "empty":
        data = bytearray()
    else:  # a type that tarfile passes over, with data
        data[second + 156 : second + 157] = b"D"
        data[second + 148 : second + 156] = b"        "
        data[second + 148 : second + 156] = b"%06o\0 " % sum(data[second : second + 512])
    path.write_bytes(data)


@pytest.mark.parametrize(
    "how", ["a damaged header", "cut in a header", "two archives", "compressed", "empty", "another type"]
)
def test_a_tar_that_would_lose_something(prepared, tmp_path, how):
    """It is copied as it is, and told of by name."""
    path = tmp_path / "a.tar"
    damaged_tar(how, path)
    status, target, told, errors = prepared(path)
    assert status == 0 and "0 JPEGs with" in told and "1 kept as they were" in told
    assert errors.count("\n") == 1 and f"{path} is kept as it was: " in errors
    assert (target / "a.tar").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_a_sparse_member(prepared, tmp_path, form):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 20)
    path = tmp_path / "a.tar"
    subprocess.run(["tar", "-S", f"--format={form}", "-cf", path, "-C", tmp_path, "sparse"], check=True)
    status, target, _, errors = prepared(path)
    assert status == 0 and "sparse" in errors and (target / "a.tar").read_bytes() == path.read_bytes()


# --- pictures --------------------------------------------------------------------------------------------------------


SEVERAL = encode(LARGE, "MPO", save_all=True, append_images=[LARGE.rotate(180)])
OTHER = encode(Image.fromarray(photo(200, 410, seed=1)), "JPEG", quality=85, subsampling=2, restart_marker_blocks=2)


@pytest.mark.parametrize(
    ("data", "answer", "why"),
    [
        (PLAIN[:-400] + b"\xff\xd9", None, "jpegtran: not known"),
        (PLAIN[:900], None, "kept as it was: "),
        (b"\xff\xd8\xff\xe0not a picture", None, "kept as it was: "),
        (adobe_cmyk()[0], None, "of another kind"),
        (TURNED, None, "jpegtran: not known"),
        (TURNED, OTHER, "jpegtran would change the picture"),
        (TURNED, MARKED, "jpegtran would change the picture"),
        (TURNED, b"", "damaged: "),
        (TURNED, encode(LARGE, "JPEG", quality=85, subsampling=2, progressive=True), "does not set restart markers"),
        (TURNED, PLAIN, "does not set restart markers"),
        (SEVERAL, None, "MPO, a file of several pictures"),
    ],
    ids=[
        "no end",
        "cut short",
        "no picture",
        "CMYK",
        "it fails",
        "other pixels",
        "other EXIF",
        "nothing",
        "progressive",
        "no markers",
        "several pictures",
    ],
)
def test_what_stays_as_it_is(stand_in, tmp_path, capsys, data, answer, why):
    """It is copied, and told of by name."""
    source, target = tmp_path / "photos", tmp_path / "prepared"
    source.mkdir()
    (source / "a.jpg").write_bytes(data)
    (source / "b.jpg").write_bytes(PLAIN)
    if answer is not None:
        stand_in.answer(data, answer)
    assert main(["prepare", str(source), str(target), "--jpegtran", stand_in.path]) == 0
    told = capsys.readouterr()
    assert "1 JPEGs with restart markers" in told.out and "1 kept as they were" in told.out
    assert told.err.count("\n") == 1 and str(source / "a.jpg") in told.err and why in told.err
    assert (target / "a.jpg").read_bytes() == data and (target / "b.jpg").read_bytes() == MARKED


@pytest.mark.parametrize("more", [b"\0\0\0", b"a video \xff\xd9 and its end", PLAIN])
def test_what_follows_a_picture_stays(prepared, photos, more):
    (photos / "cats" / "a.jpg").write_bytes(PLAIN + more)
    _, target, told, _ = prepared(photos)
    assert "2 JPEGs with" in told and (target / "cats" / "a.jpg").read_bytes() == MARKED + more


def test_exif_without_a_value(prepared, stand_in, photos):
    """Zero divided by zero equals nothing, not even itself."""
    exif = Image.Exif()
    exif[0x011A] = IFDRational(0, 0)
    data, marked = (
        encode(LARGE, "JPEG", quality=85, subsampling=2, exif=exif, **options)
        for options in ({}, {"restart_marker_blocks": 2})
    )
    (photos / "cats" / "a.jpg").write_bytes(data)
    stand_in.answer(data, marked)
    _, target, told, _ = prepared(photos)
    assert "2 JPEGs with" in told and (target / "cats" / "a.jpg").read_bytes() == marked


def test_an_interruption_writes_nothing(stand_in, photos, tmp_path, capsys):
    """jpegtran gets it, too: the picture must not stay as it was because of that."""
    stand_in.answer(PLAIN, b"interrupted")
    target = tmp_path / "prepared"
    assert main(["prepare", str(photos), str(target), "--jpegtran", stand_in.path, "--threads", "1"]) == 1
    assert "was ended by signal 2" in capsys.readouterr().err
    assert not (target / "cats" / "a.jpg").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{photos}", "{photos}/prepared"], "one lies in the other"),
        (["{photos}/cats", "{photos}"], "one lies in the other"),
        (["{photos}", "{photos}"], "one lies in the other"),
        (["{photos}", "{target}", "--jpegtran", "/no/such/jpegtran"], "apt install libjpeg-turbo-progs"),
        (["{photos}/missing", "{target}"], "missing"),
    ],
)
def test_what_is_wrong_is_one_line(stand_in, photos, tmp_path, capsys, arguments, says):
    arguments = [argument.format(photos=photos, target=tmp_path / "prepared") for argument in arguments]
    program = [] if "--jpegtran" in arguments else ["--jpegtran", stand_in.path]
    assert main(["prepare", *arguments, *program]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("cuaug prepare: ") and says in errors and errors.count("\n") == 1


def test_the_same_batches(stand_in, tmp_path):
    """A loader gives the same bits from prepared files, of which it decodes parts."""
    images = [Image.fromarray(photo(200, 410, seed=i)) for i in range(6)]
    for folder, options in (("plain", {}), ("marked", {"restart_marker_blocks": 2})):
        (tmp_path / folder).mkdir()
        for i, image in enumerate(images):
            (tmp_path / folder / f"{i}.jpg").write_bytes(encode(image, "JPEG", subsampling=2, **options))
    batches = {}
    for folder in ("plain", "marked"):
        files = sorted(map(str, (tmp_path / folder).glob("*.jpg")))
        chain = [T.RandomResizedCrop(64), T.RandomHorizontalFlip()]
        with cuaug.Loader(files, chain, batch_size=3, device="cpu", seed=5) as loader:
            batches[folder] = np.concatenate([batch.images.numpy() for batch in loader])
    np.testing.assert_array_equal(batches["plain"], batches["marked"])


@needs_jpegtran
@pytest.mark.parametrize("size", [(200, 410), (375, 500), (331, 331), (8, 8), (64, 1040), (100, 2)])
@pytest.mark.parametrize("kind", ["4:2:0", "4:4:4", "progressive", "gray", "turned"])
def test_jpegtran(size, kind):
    image = Image.fromarray(photo(*size))
    options = {"4:4:4": {"subsampling": 0}, "progressive": {"progressive": True}}.get(kind, {})
    data = encode(image.convert("L") if kind == "gray" else image, "JPEG", comment=b"a comment", **options)
    orientation = 6 if kind == "turned" else 1
    data = data[:2] + app1(tiff_block(orientation)) + data[2:]
    written = with_restarts(data)
    np.testing.assert_array_equal(as_pillow(written), as_pillow(data))
    assert Image.open(io.BytesIO(written)).info["comment"] == b"a comment"
    if min(size) > 80:
        height, width = as_pillow(data).shape[:2]
        region = height // 2, width // 2, height // 2 + 9, width // 2 + 9
        part, (high, wide), _ = cut_out(written, region, (height, width), orientation)
        assert as_pillow(part.tobytes()).shape == (high, wide, 3) and high * wide < 0.6 * height * width
