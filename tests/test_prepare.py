"""`cuaug prepare`: with jpegtran where it is installed, and everywhere with a stand-in that knows a few answers."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

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
    """A program that answers as told, and with status 2 to everything else.

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

    def answer(self, data: bytes, with_this: bytes) -> None:
        (self.folder / hashlib.sha1(data).hexdigest()).write_bytes(with_this)

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


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
    return folder


def test_a_folder(stand_in, photos, tmp_path, capsys):
    target = tmp_path / "prepared"
    assert main(["prepare", str(photos), str(target), "--jpegtran", stand_in.path, "--threads", "2"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{target}: 2 JPEGs with restart markers, ") and "2 other files copied" in told
    assert stand_in.calls() == ["-copy all -optimize -restart 2B"] * 2
    names = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert names == {"cats/a.jpg", "cats/no suffix", "labels.csv", "b.png"}
    assert (target / "cats" / "a.jpg").read_bytes() == MARKED == (target / "cats" / "no suffix").read_bytes()
    for same in ("labels.csv", "b.png"):
        assert (target / same).read_bytes() == (photos / same).read_bytes()


def test_a_run_goes_on_where_another_ended(stand_in, photos, tmp_path, capsys):
    target = tmp_path / "prepared"
    (target / "cats").mkdir(parents=True)
    (target / "cats" / "a.jpg").write_bytes(b"there before")
    (target / "cats" / "no suffix.part").write_bytes(b"what was being written")
    assert main(["prepare", str(photos), str(target), "--jpegtran", stand_in.path]) == 0
    assert "1 JPEGs with" in (told := capsys.readouterr().out) and "1 files there already" in told
    assert (target / "cats" / "a.jpg").read_bytes() == b"there before"
    assert (target / "cats" / "no suffix").read_bytes() == MARKED and not list(target.rglob("*.part"))


def test_progress_is_told(stand_in, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("cuaug.prepare._TELL_SECONDS", -1.0)
    assert main(["prepare", str(photos), str(tmp_path / "prepared"), "--jpegtran", stand_in.path]) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 4 and all(line.startswith("so far: ") for line in told) and "2 JPEGs with" in told[-1]


def test_a_tar(stand_in, tmp_path, capsys):
    source, target = tmp_path / "shard-0.tar", tmp_path / "prepared"
    members = {"0001.jpg": PLAIN, "0001.cls": b"7", "x/0002.jpg": PLAIN, "x/0002.cls": b"8"}
    with tarfile.open(source, "w") as tar:
        tar.addfile(directory := tarfile.TarInfo("x"))
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 1234567
            tar.addfile(member, io.BytesIO(data))
    assert main(["prepare", str(source), str(target), "--jpegtran", stand_in.path]) == 0
    assert "2 JPEGs with restart markers" in capsys.readouterr().out
    with tarfile.open(target / "shard-0.tar") as tar:
        assert tar.getnames() == [directory.name, *members]
        read = {member.name: tar.extractfile(member).read() for member in tar.getmembers()[1:]}
        assert {member.mtime for member in tar.getmembers()[1:]} == {1234567}
    assert read == {name: MARKED if name.endswith("jpg") else data for name, data in members.items()}


OTHER = encode(Image.fromarray(photo(200, 410, seed=1)), "JPEG", quality=85, subsampling=2)


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
    ],
    ids=["no end", "cut short", "no picture", "CMYK", "it fails", "other pixels", "other EXIF", "nothing"],
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
def test_what_is_wrong_is_one_line(photos, tmp_path, capsys, arguments, says):
    arguments = [argument.format(photos=photos, target=tmp_path / "prepared") for argument in arguments]
    assert main(["prepare", *arguments]) == 1
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
