"""`cuaug prepare` of folders: what is written, what is left alone, and what is said."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys

import pytest

from cuaug.commands.cli import main
from tests.prepare.stand_in import MARKED, PLAIN


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


@pytest.mark.parametrize("name", ["cats/a.jpg", "labels.csv"])
def test_permissions_and_times_alone_are_copied(prepared, photos, name):
    """Set-user-ID, set-group-ID and sticky bits would act for the user who runs the command, not for the owner."""
    os.chmod(photos / name, 0o7751)
    with contextlib.suppress(OSError):  # not every file system has extended attributes
        os.setxattr(photos / name, "user.note", b"private")
    os.utime(photos / name, ns=(1_111_111_111_000_000_001, 1_222_222_222_000_000_002))
    before = (photos / name).stat()
    assert before.st_mode & 0o7777 == 0o7751, "the file system keeps these bits"
    status, target, _, errors = prepared(photos)
    assert status == 0 and not errors
    after = (target / name).stat()
    assert after.st_mode & 0o7777 == 0o751 and os.listxattr(target / name) == []
    assert (after.st_atime_ns, after.st_mtime_ns) == (1_111_111_111_000_000_001, 1_222_222_222_000_000_002)


def test_a_run_goes_on_where_another_ended(prepared, photos, tmp_path):
    (tmp_path / "prepared" / "cats").mkdir(parents=True)
    (tmp_path / "prepared" / "cats" / "a.jpg").write_bytes(b"there before")
    status, target, told, _ = prepared(photos)
    assert status == 0 and "1 JPEGs with" in told and "1 files there already" in told
    assert (target / "cats" / "a.jpg").read_bytes() == b"there before"
    assert (target / "cats" / "no suffix").read_bytes() == MARKED


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("closed", ["a full disk", "a pipe that nobody reads"])
def test_what_is_said_cannot_be_written(photos, stand_in, tmp_path, closed, unbuffered):
    """A line instead of a traceback, or none to a reader that has left; at once or when the interpreter ends."""
    if closed == "a full disk":
        output = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, output = os.pipe()
        os.close(reader)
    command = [sys.executable, "-m", "cuaug", "prepare", photos, tmp_path / "to", "--jpegtran", stand_in.path]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    os.close(output)
    assert done.returncode == 1 and (tmp_path / "to" / "cats" / "a.jpg").read_bytes() == MARKED
    said = r"cuaug: cannot write what there is to say: .*No space left on device\n" if closed == "a full disk" else ""
    assert re.fullmatch(said, done.stderr)


def test_help_cannot_be_written():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "cuaug", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("cuaug: cannot write what there is to say: ")


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


def test_links_to_each_others_folders(prepared, photos):
    """Neither lies in the folder that it leads to, until the other was followed."""
    (photos / "dogs").mkdir()
    (photos / "cats" / "to_dogs").symlink_to(photos / "dogs")
    (photos / "dogs" / "to_cats").symlink_to(photos / "cats")
    status, target, _, errors = prepared(photos)
    assert status == 1 and "cats/to_dogs/to_cats is a link to a folder in which it lies itself" in errors
    assert not (target / "cats" / "to_dogs" / "to_cats").exists()


def test_what_cannot_be_read_is_told(prepared, photos):
    """The rest is done. A pipe would be waited for."""
    (photos / "gone.jpg").symlink_to(photos / "nowhere")
    os.mkfifo(photos / "pipe.jpg")
    status, target, told, errors = prepared(photos)
    assert status == 1 and "2 JPEGs with" in told and "2 not readable" in told
    assert errors.count("\n") == 2 and f"{photos / 'gone.jpg'} cannot be read" in errors
    assert f"{photos / 'pipe.jpg'} cannot be read: [Errno 22] it is no regular file" in errors
    assert (target / "b.png").exists() and not (target / "gone.jpg").exists() and not (target / "pipe.jpg").exists()


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
    monkeypatch.setattr("cuaug.commands.prepare._TELL_SECONDS", -1.0)
    assert main(["prepare", str(photos), str(tmp_path / "prepared"), "--jpegtran", stand_in.path]) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 4 and all(line.startswith("so far: ") for line in told) and "2 JPEGs with" in told[-1]


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
