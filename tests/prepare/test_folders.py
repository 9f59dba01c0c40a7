"""`cuaug prepare` on folders: written files, skipped files, and output."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys

import pytest

from cuaug.commands.cli import main
from tests.support.prepare.fake_jpegtran import MARKED, PLAIN


def test_a_folder_is_written_anew(prepared, jpegtran, photos):
    os.chmod(photos / "cats" / "a.jpg", 0o640)
    os.utime(photos / "cats" / "a.jpg", (1234567, 1234567))
    status, target, output, errors = prepared(photos)
    assert status == 0 and not errors
    assert output.startswith(f"{target}: 2 JPEGs with restart markers, ") and "2 other files copied" in output
    assert jpegtran.calls() == ["-copy all -optimize -restart 2B"] * 2
    names = {str(path.relative_to(target)) for path in target.rglob("*")}
    assert names == {"cats", "cats/a.jpg", "cats/no suffix", "empty", "labels.csv", "b.png"}
    assert (target / "cats" / "a.jpg").read_bytes() == MARKED == (target / "cats" / "no suffix").read_bytes()
    for name in ("labels.csv", "b.png"):
        assert (target / name).read_bytes() == (photos / name).read_bytes()
    file_status = (target / "cats" / "a.jpg").stat()
    assert (file_status.st_mode & 0o777, file_status.st_mtime) == (0o640, 1234567)


@pytest.mark.parametrize("name", ["cats/a.jpg", "labels.csv"])
def test_permissions_and_times_alone_are_copied(prepared, photos, name):
    """Set-user-ID, set-group-ID and sticky bits would take effect for another user."""
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


def test_existing_files_stay_so_that_a_run_can_continue(prepared, photos, tmp_path):
    (tmp_path / "prepared" / "cats").mkdir(parents=True)
    (tmp_path / "prepared" / "cats" / "a.jpg").write_bytes(b"there before")
    status, target, output, _ = prepared(photos)
    assert status == 0 and "1 JPEGs with" in output and "1 files already there" in output
    assert (target / "cats" / "a.jpg").read_bytes() == b"there before"
    assert (target / "cats" / "no suffix").read_bytes() == MARKED


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("closed", ["a full disk", "a pipe that nobody reads"])
def test_output_that_cannot_be_written(photos, jpegtran, tmp_path, closed, unbuffered):
    """One line instead of a traceback; nothing for a closed pipe. The write fails at once or at interpreter exit."""
    if closed == "a full disk":
        output = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, output = os.pipe()
        os.close(reader)
    command = [sys.executable, "-m", "cuaug", "prepare", photos, tmp_path / "to", "--jpegtran", jpegtran.path]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    os.close(output)
    assert done.returncode == 1 and (tmp_path / "to" / "cats" / "a.jpg").read_bytes() == MARKED
    message = r"cuaug: cannot write the output: .*No space left on device\n" if closed == "a full disk" else ""
    assert re.fullmatch(message, done.stderr)


def test_help_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "cuaug", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("cuaug: cannot write the output: ")


def test_file_names_of_any_kind(prepared, photos):
    """The temporary name of an unfinished file collides with no other file and is never too long."""
    names = ["a.jpg.part", "a.part.jpg", "n" * 251 + ".jpg", os.fsdecode(b"\xff\xfe.jpg")]
    for name in names:
        (photos / "cats" / name).write_bytes(PLAIN)
    status, target, output, _ = prepared(photos)
    assert status == 0 and "6 JPEGs with" in output
    assert {path.name for path in (target / "cats").iterdir()} == {"a.jpg", "no suffix", *names}


def test_links_are_copied_as_the_files_they_lead_to(prepared, photos, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "c.jpg").write_bytes(PLAIN)
    (photos / "dogs").symlink_to(tmp_path / "elsewhere")
    (photos / "d.jpg").symlink_to(tmp_path / "elsewhere" / "c.jpg")
    status, target, output, _ = prepared(photos)
    assert status == 0 and "4 JPEGs with" in output
    assert (target / "dogs" / "c.jpg").read_bytes() == MARKED == (target / "d.jpg").read_bytes()
    assert not (target / "dogs").is_symlink() and not (target / "d.jpg").is_symlink()


@pytest.mark.parametrize("planted", ["cats", "cats/a.jpg", "labels.csv", "empty"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_nothing_is_written_outside_the_target(prepared, photos, tmp_path, planted, kind):
    """Another user who may write the target plants a link to a folder or file of this user's, or a pipe."""
    home, path = tmp_path / "home", tmp_path / "prepared" / planted
    home.mkdir()
    (home / "mine").write_bytes(b"mine")
    path.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(home / "none" if kind == "dangling link" else home if "." not in planted else home / "mine")
    before = path.lstat()
    status, _, _, errors = prepared(photos)
    assert status == 1 and errors.count("\n") == 1
    assert errors.startswith(f"cuaug prepare: '{path}' is not a ") and "remove it or choose another folder" in errors
    assert os.listdir(home) == ["mine"] and (home / "mine").read_bytes() == b"mine"
    assert path.lstat().st_ino == before.st_ino


def test_the_target_itself_may_be_a_link(prepared, photos, tmp_path):
    """The user named it."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "prepared").symlink_to("disk")
    assert prepared(photos)[0] == 0 and (tmp_path / "disk" / "cats" / "a.jpg").read_bytes() == MARKED


def test_a_link_to_a_parent_folder_is_refused(prepared, photos):
    (photos / "cats" / "up").symlink_to(photos)
    status, _, _, errors = prepared(photos)
    assert status == 1 and "cats/up is a link to a folder that contains it" in errors


def test_a_cycle_of_two_links_is_refused(prepared, photos):
    """Neither link is in its own target until the other one was followed."""
    (photos / "dogs").mkdir()
    (photos / "cats" / "to_dogs").symlink_to(photos / "dogs")
    (photos / "dogs" / "to_cats").symlink_to(photos / "cats")
    status, target, _, errors = prepared(photos)
    assert status == 1 and "cats/to_dogs/to_cats is a link to a folder that contains it" in errors
    assert not (target / "cats" / "to_dogs" / "to_cats").exists()


def test_unreadable_files_are_reported_and_skipped(prepared, photos):
    """Opening a pipe would block."""
    (photos / "gone.jpg").symlink_to(photos / "nowhere")
    os.mkfifo(photos / "pipe.jpg")
    status, target, output, errors = prepared(photos)
    assert status == 1 and "2 JPEGs with" in output and "2 unreadable" in output
    assert errors.count("\n") == 2 and f"{photos / 'gone.jpg'} cannot be read" in errors
    assert f"{photos / 'pipe.jpg'} cannot be read: [Errno 22] it is no regular file" in errors
    assert (target / "b.png").exists() and not (target / "gone.jpg").exists() and not (target / "pipe.jpg").exists()


def test_an_unreadable_folder_ends_the_run(prepared, photos, monkeypatch):
    scan = os.scandir

    def scan_or_refuse(path: str) -> object:
        if str(path).endswith("cats"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_or_refuse)
    status, _, _, errors = prepared(photos)
    assert status == 1 and "Permission denied" in errors and "cats" in errors


def test_a_broken_jpegtran_ends_the_run_at_once(photos, tmp_path, capsys):
    """Without the trial, every file would be copied unchanged and count as prepared."""
    program = tmp_path / "jpegtran"
    program.write_text("#!/bin/sh\necho cannot open libjpeg.so >&2\nexit 127\n")
    os.chmod(program, 0o755)
    assert main(["prepare", str(photos), str(tmp_path / "prepared"), "--jpegtran", str(program)]) == 1
    assert "cannot open libjpeg.so" in capsys.readouterr().err and not (tmp_path / "prepared").exists()


def test_progress_is_printed(jpegtran, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("cuaug.commands.prepare._PROGRESS_SECONDS", -1.0)
    assert main(["prepare", str(photos), str(tmp_path / "prepared"), "--jpegtran", jpegtran.path]) == 0
    output = capsys.readouterr().err.splitlines()
    assert len(output) == 4 and all(line.startswith("so far: ") for line in output) and "2 JPEGs with" in output[-1]


def test_an_interrupted_jpegtran_writes_nothing(jpegtran, photos, tmp_path, capsys):
    """A Ctrl-C reaches jpegtran too; the file must not count as prepared and unchanged."""
    jpegtran.add_answer(PLAIN, b"interrupted")
    target = tmp_path / "prepared"
    assert main(["prepare", str(photos), str(target), "--jpegtran", jpegtran.path, "--threads", "1"]) == 1
    assert "was ended by signal 2" in capsys.readouterr().err
    assert not (target / "cats" / "a.jpg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{photos}", "{photos}/prepared"], "one lies in the other"),
        (["{photos}/cats", "{photos}"], "one lies in the other"),
        (["{photos}", "{photos}"], "one lies in the other"),
        (["{photos}", "{target}", "--jpegtran", "/no/such/jpegtran"], "apt install libjpeg-turbo-progs"),
        (["{photos}/missing", "{target}"], "missing"),
    ],
)
def test_an_error_is_one_line(jpegtran, photos, tmp_path, capsys, arguments, message):
    arguments = [argument.format(photos=photos, target=tmp_path / "prepared") for argument in arguments]
    program = [] if "--jpegtran" in arguments else ["--jpegtran", jpegtran.path]
    assert main(["prepare", *arguments, *program]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("cuaug prepare: ") and message in errors and errors.count("\n") == 1
