"""The `cuaug` command: its arguments, and an overview; runs one of the commands.

It imports only the standard library, since `doctor` must run on a broken installation. Other commands import their
modules when they run.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from cuaug import __version__
from cuaug.commands import doctor


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands. Each command's epilog is an example, which the overview shows too."""
    parser = argparse.ArgumentParser(
        prog="cuaug", description="Image loading and augmentation for PyTorch, on the GPU or the CPU."
    )
    parser.add_argument("--version", action="version", version=f"cuaug {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_doctor(commands)
    _add_demo(commands)
    _add_index(commands)
    _add_check(commands)
    return parser


def _add_doctor(commands: Any) -> None:
    text = "check this installation, and print a command that fixes each problem"
    command = commands.add_parser(
        "doctor",
        help=text,
        description=f"{text.capitalize()}. Exit status: 0 if loading on the CPU works.",
        epilog="example: cuaug doctor",
    )
    command.add_argument("--require-cuda", action="store_true", help="exit status 1 unless loading on a GPU works too")


def _add_demo(commands: Any) -> None:
    text = "train a small network on pictures that it makes, in less than a minute"
    command = commands.add_parser(
        "demo",
        help=text,
        description=f"{text.capitalize()}. It needs no network and no files, and writes one picture: a batch as the "
        "network sees it. Exit status: 0, or 1 with an error message of one line.",
        epilog="example: cuaug demo",
    )
    command.add_argument("--device", help="cpu or cuda (default: cuda if it works)")
    command.add_argument(
        "-o", "--output", default="cuaug-demo.png", metavar="FILE", help="picture to write (default: %(default)s)"
    )
    command.add_argument(
        "--pictures",
        metavar="FOLDER",
        help="train nothing: only write the pictures to FOLDER/train and FOLDER/validation, a folder per class",
    )


def _add_index(commands: Any) -> None:
    text = "make the JPEG index of a data set, so that crops decode faster from the first epoch on"
    command = commands.add_parser(
        "index",
        help=text,
        description=f"{text.capitalize()}. It changes no image: the index is a file in the folder of the images, or in "
        "CUAUG_CACHE_DIR. Files that have an entry are skipped, so an interrupted run can be resumed. Exit status: 0, "
        "or 1 if a sample could not be read or the index is not complete; a message says which.",
        epilog="example: cuaug index photos",
    )
    command.add_argument(
        "paths", nargs="+", metavar="PATH", help="image files; or one folder, list file, CSV, COCO file, tar, ..."
    )
    command.add_argument("--threads", type=_at_least_1, help="as for `Loader`")
    command.add_argument("--index-bytes", type=_at_least_1, help="as for `DecodeOptions`: largest size of the index")


def _add_check(commands: Any) -> None:
    text = "read and decode every sample of a data set, and list the damaged ones"
    command = commands.add_parser(
        "check",
        help=text,
        description=f"{text.capitalize()}, one per line. A child process reads them, since LMDB and other libraries "
        "may crash on a damaged file. Videos are decoded from the first frame to the last; the cause names the time. "
        "Exit status: 0 if no sample is damaged, else 1.",
        epilog="example: cuaug check photos --csv damaged.csv",
    )
    command.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a folder with or without class folders, a list file, CSV, COCO, tar, TFRecord, LMDB or HDF5 file; or "
        "image files; or videos, a list of them, or a folder of videos without images",
    )
    command.add_argument(
        "--decode",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="decode the samples (default), or only read them",
    )
    command.add_argument("--csv", metavar="FILE", help="write index, path and cause of the damaged samples as CSV")
    command.add_argument("--threads", type=_at_least_1, help="as for `Loader`")
    command.add_argument(
        "--timeout",
        type=_at_least_1,
        default=120,
        metavar="SECONDS",
        help="a sample without progress for longer counts as damaged (default: %(default)s)",
    )


def _at_least_1(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    if sys.stdout is None:  # closed, as by `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (open until the process ends)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: file names may have any bytes
    try:
        try:
            return _run(arguments)
        finally:  # also where argparse has printed its help and exits
            print(end="", flush=True)
    except OSError as error:  # the commands handle their own errors
        if not isinstance(error, BrokenPipeError):  # the reader, such as head, has closed the pipe
            print(f"cuaug: cannot write the output: {error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes stdout at exit
        return 1


def _run(arguments: Sequence[str] | None) -> int:
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        print(_overview(parser))
        return 0
    if options.command == "doctor":
        works = doctor.report(doctor.examine(), sys.stdout)
        return 0 if works["CPU"] and (works["GPU"] or not options.require_cuda) else 1
    # Every other command is a function in a module, both of its name.
    module = importlib.import_module(f"cuaug.commands.{options.command}")
    status: int = getattr(module, options.command)(options, sys.stdout, sys.stderr)
    return status


def _overview(parser: argparse.ArgumentParser) -> str:
    """What `cuaug` alone prints: each command, what it does and an example."""
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    width = max(shutil.get_terminal_size().columns, 60)
    lines = [f"cuaug {__version__}: image loading and augmentation for PyTorch", ""]
    indent = " " * 14
    for choice in commands._choices_actions:
        name = f"  {choice.dest:<12}"
        lines += textwrap.wrap(str(choice.help), width, initial_indent=name, subsequent_indent=indent)
        # An example is one line, however long: it is there to be copied.
        lines.append(indent + str(commands.choices[choice.dest].epilog).removeprefix("example: "))
    lines += [
        "",
        "cuaug COMMAND --help    lists the options of a command",
        "help(cuaug.Loader)      explains the loader, in Python",
        "README.md and docs/     are in the source distribution",
    ]
    return "\n".join(lines)
