"""The `cuaug` command. It loads nothing but the standard library: `doctor` must run where all else is broken.

What another command needs is imported when that command runs.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuaug import __version__
from cuaug.commands import doctor

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command, and returns its exit status."""
    if sys.stdout is None:  # closed, as by `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (for as long as the process lives)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as the standard error: files may have any names
    try:
        try:
            return _run(arguments)
        finally:  # also where argparse has printed its help and exits
            print(end="", flush=True)
    except OSError as error:  # the commands say themselves what else went wrong
        if not isinstance(error, BrokenPipeError):  # whose reader, such as head, has what it wants
            print(f"cuaug: cannot write what there is to say: {error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # which the interpreter flushes at its end
        return 1


def _run(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="cuaug", description="Image loading and augmentation for PyTorch, on the GPU or the CPU."
    )
    parser.add_argument("--version", action="version", version=f"cuaug {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    text = "say what works on this machine, and which command fixes what does not"
    command = commands.add_parser(
        "doctor", help=text, description=f"{text.capitalize()}. Exit status: 0 if loading on the CPU works."
    )
    command.add_argument("--require-cuda", action="store_true", help="exit status 1 unless loading on a GPU works too")
    _add_preview(commands)
    _add_profile(commands)
    _add_prepare(commands)
    _add_check(commands)
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 2
    if given.command == "preview":
        from cuaug.commands.preview import preview

        return preview(given, sys.stdout, sys.stderr)
    if given.command == "profile":
        from cuaug.commands.profile import profile

        return profile(given, sys.stdout, sys.stderr)
    if given.command == "prepare":
        from cuaug.commands.prepare import prepare

        return prepare(given, sys.stdout, sys.stderr)
    if given.command == "check":
        from cuaug.commands.check import check

        return check(given, sys.stdout, sys.stderr)
    findings = doctor.examine()
    works = doctor.report(findings, sys.stdout)
    return 0 if works["CPU"] and (works["GPU"] or not given.require_cuda) else 1


def _add_preview(commands: Any) -> None:
    text = "show what a chain of transforms makes of some pictures"
    command = commands.add_parser(
        "preview",
        help=text,
        description=f"{text.capitalize()}: a row for each, itself first and then one draw after the other. What "
        "Normalize did is undone; what lies beyond [0, 1] then is stretched, and the grid says so. Exit status: 0, or "
        "1 with one line that says what is wrong.",
    )
    command.add_argument(
        "images", nargs="+", metavar="IMAGE", help="pictures or folders; of more than 64, 64 are shown"
    )
    command.add_argument(
        "--transforms",
        required=True,
        metavar="FILE_OR_EXPR",
        help="a Python file that defines `transforms`, a transform or a list of them; or an expression that sees T "
        '(cuaug.transforms), cuaug, math and torch, as "[T.RandomResizedCrop(224), T.ColorJitter(0.4)]". The code is '
        "executed with your permissions",
    )
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="where the grid goes, as grid.png")
    command.add_argument("--columns", type=_at_least_1, default=6, help="draws of each picture (default: 6)")
    command.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    command.add_argument(
        "--side",
        type=_at_least_1,
        default=224,
        help="longest side of each shown picture, in pixels (default: 224)",
    )


def _add_profile(commands: Any) -> None:
    text = "say how fast files are loaded and augmented, and which stage takes how long"
    command = commands.add_parser(
        "profile",
        help=text,
        description=f"{text.capitalize()}, with a consumer that does nothing. docs/performance.md explains the table. "
        "Exit status: 0, or 1 with one line that says what is wrong.",
    )
    command.add_argument("files", nargs="+", metavar="FILE", help="picture files; or one folder, list file, tar, ...")
    command.add_argument(
        "--transforms",
        default="[T.RandomResizedCrop(224)]",
        metavar="FILE_OR_EXPR",
        help="as for `cuaug preview` (default: %(default)s)",
    )
    command.add_argument("--batches", type=_at_least_1, default=50, help="how many; files may come again (default: 50)")
    command.add_argument("--batch-size", type=_at_least_1, default=64, help="(default: 64)")
    command.add_argument("--device", help="cpu or cuda (default: cuda where it works)")
    command.add_argument("--threads", type=_at_least_1, help="as for `Loader`")
    command.add_argument("--prefetch", type=_at_least_1, help="as for `Loader`")
    command.add_argument("--html", metavar="FILE", help="write every thread's timeline as a page")
    command.add_argument("--trace", metavar="FILE", help="write it for ui.perfetto.dev")


def _add_prepare(commands: Any) -> None:
    text = "add restart markers to JPEGs, losslessly, so that crops of them decode faster"
    command = commands.add_parser(
        "prepare",
        help=text,
        description="Adds restart markers to JPEGs, losslessly, so that crops of them decode faster. Files keep their "
        "names, and any program can still read them. JPEGs in tars are rewritten, too; all other files are copied. "
        "Files that TARGET already has are skipped, so an interrupted run can be resumed. Needs jpegtran, from "
        "libjpeg-turbo. Exit status: 0, or 1 if something could not be read or written; a message says what.",
    )
    command.add_argument(
        "source", type=Path, metavar="SOURCE", help="a folder (with its subfolders), a picture or a tar"
    )
    command.add_argument("target", type=Path, metavar="TARGET", help="the folder to write to")
    command.add_argument("--threads", type=_at_least_1, help="as for `Loader`")
    command.add_argument(
        "--jpegtran", default="jpegtran", metavar="PROGRAM", help="the jpegtran to run (default: %(default)s)"
    )


def _add_check(commands: Any) -> None:
    text = "read and decode every sample of a data set, and name the damaged ones"
    command = commands.add_parser(
        "check",
        help=text,
        description=f"{text.capitalize()}, one line each. A child process reads them: LMDB and other libraries may end "
        "a process that reads a damaged file. Exit status: 0 if every sample is sound, else 1.",
    )
    command.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a folder with a folder per class, a list file, CSV, tar, TFRecord, LMDB or HDF5 file; or picture files",
    )
    command.add_argument(
        "--decode",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="decode what is read (default), or only read it",
    )
    command.add_argument("--csv", metavar="FILE", help="write index, path and cause of the damaged samples")
    command.add_argument("--threads", type=_at_least_1, help="as for `Loader`")
    command.add_argument(
        "--timeout",
        type=_at_least_1,
        default=120,
        metavar="SECONDS",
        help="a sample that takes longer counts as damaged (default: %(default)s)",
    )


def _at_least_1(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)
