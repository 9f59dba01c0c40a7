"""The `cuaug` command: its arguments, and an overview; runs one of the commands.

It imports only the standard library, since `doctor` must run on a broken installation. Other commands import their
modules when they run.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuaug import __version__
from cuaug.commands import doctor

__all__ = ["main", "make_parser"]


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands. Each command's epilog is an example, which the overview shows too."""
    parser = argparse.ArgumentParser(
        prog="cuaug", description="Image loading and augmentation for PyTorch, on the GPU or the CPU."
    )
    parser.add_argument("--version", action="version", version=f"cuaug {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_doctor(commands)
    _add_demo(commands)
    _add_preview(commands)
    _add_profile(commands)
    _add_prepare(commands)
    _add_index(commands)
    _add_check(commands)
    _add_shard(commands)
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


def _add_preview(commands: Any) -> None:
    text = "draw a grid of images and random results of a chain of transforms"
    command = commands.add_parser(
        "preview",
        help=text,
        description=f"{text.capitalize()}. Each row has one image and its results. Normalize is undone. Other values "
        "beyond [0, 1] are stretched to that range, and the caption says so. Exit status: 0, or 1 with an error "
        "message of one line.",
        epilog='example: cuaug preview photos --transforms "[T.RandomResizedCrop(224)]" -o grid.png',
    )
    command.add_argument(
        "images",
        nargs="+",
        metavar="PATH",
        help="image files or folders; or one list file, CSV, COCO file, tar, ..., whose boxes, masks and keypoints are "
        "drawn. Mixes take the images that are shown. Of videos, each row shows the frames of a clip",
    )
    command.add_argument(
        "--limit", type=_at_least_1, default=64, help="most images to show, evenly chosen (default: %(default)s)"
    )
    command.add_argument(
        "--transforms",
        required=True,
        metavar="FILE_OR_EXPR",
        help="a Python file that defines `transforms`, a transform or a list of transforms; or an expression such as "
        '"[T.RandomResizedCrop(224), T.ColorJitter(0.4)]", where T is cuaug.transforms, beside cuaug, math and torch. '
        "The code runs with your permissions",
    )
    command.add_argument("-o", "--output", required=True, metavar="FILE", help="image file to write, such as grid.png")
    command.add_argument("--columns", type=_at_least_1, default=6, help="results per image (default: 6)")
    command.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    command.add_argument(
        "--side",
        type=_at_least_1,
        default=224,
        help="longest side of each image in the grid, in pixels (default: 224)",
    )
    _add_clip_options(command)


def _add_clip_options(command: Any) -> None:
    command.add_argument("--frames", type=_at_least_1, default=8, help="frames of a clip of a video (default: 8)")
    command.add_argument(
        "--stride", type=_at_least_1, default=4, help="distance of two frames of a clip, in frames (default: 4)"
    )


def _add_profile(commands: Any) -> None:
    text = "measure how fast files are loaded and augmented, and how long each stage takes"
    command = commands.add_parser(
        "profile",
        help=text,
        description=f"{text.capitalize()}. The consumer does nothing. docs/performance.md explains the table. Exit "
        "status: 0, or 1 with an error message of one line.",
        epilog="example: cuaug profile photos --batch-size 256 --html timeline.html",
    )
    command.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="image files; or one folder, list file, COCO file, tar, ...; or videos, whose clips are loaded",
    )
    command.add_argument(
        "--transforms",
        default="[T.RandomResizedCrop(224)]",
        metavar="FILE_OR_EXPR",
        help="as for `cuaug preview` (default: %(default)s)",
    )
    command.add_argument(
        "--batches", type=_at_least_1, default=50, help="number of batches; few files repeat (default: 50)"
    )
    command.add_argument("--batch-size", type=_at_least_1, default=64, help="samples per batch (default: 64)")
    command.add_argument("--device", help="cpu or cuda (default: cuda if it works)")
    command.add_argument("--threads", type=_at_least_1, help="as for `Loader`")
    command.add_argument("--prefetch", type=_at_least_1, help="as for `Loader`")
    _add_clip_options(command)
    command.add_argument("--html", metavar="FILE", help="write the timeline of all threads as an HTML page")
    command.add_argument("--trace", metavar="FILE", help="write the timeline as a trace for ui.perfetto.dev")


def _add_prepare(commands: Any) -> None:
    text = "add restart markers to JPEGs, losslessly, so that crops decode faster"
    command = commands.add_parser(
        "prepare",
        help=text,
        description="Adds restart markers to JPEGs, losslessly, so that crops decode faster. Files keep their names "
        "and stay readable by any program. JPEGs in tars are rewritten too; other files are copied. Existing files in "
        "TARGET are skipped, so an interrupted run can be resumed. Needs jpegtran, from libjpeg-turbo. Exit status: "
        "0, or 1 if a file could not be read or written; a message names it.",
        epilog="example: cuaug prepare photos photos-prepared",
    )
    command.add_argument(
        "source", type=Path, metavar="SOURCE", help="a folder (with its subfolders), an image or a tar"
    )
    command.add_argument("target", type=Path, metavar="TARGET", help="the folder to write to")
    command.add_argument("--threads", type=_at_least_1, help="as for `Loader`")
    command.add_argument(
        "--jpegtran", default="jpegtran", metavar="PROGRAM", help="the jpegtran to run (default: %(default)s)"
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


def _add_shard(commands: Any) -> None:
    text = "write a data set as tars in WebDataset's layout"
    command = commands.add_parser(
        "shard",
        help=text,
        description=f"{text.capitalize()}. Images are stored as they are, unless --short-side scales them. Run it "
        "again after an interruption: finished shards stay. A manifest beside the tars knows them by size and SHA-256. "
        "Exit status: 0, or 1 with an error message of one line.",
        epilog="example: cuaug shard photos out/train-{:05d}.tar --size 500MB",
    )
    command.add_argument("source", nargs="+", metavar="SOURCE", help="as the paths of `cuaug index`")
    command.add_argument("out", metavar="OUT", help="the files to write, such as out/train-{:05d}.tar")
    command.add_argument(
        "--image", metavar="FIELD", help="SOURCE's field of tars, or column of Parquet files, with the image"
    )
    command.add_argument(
        "--label",
        action="append",
        metavar="FIELD",
        help="the field or column with the label (default: cls or label); repeated: a dict; '': the sample's index",
    )
    command.add_argument(
        "--size", type=_bytes, default="1GiB", help="size of a shard, about: such as 500MB (default: %(default)s)"
    )
    command.add_argument(
        "--short-side",
        type=_at_least_1,
        metavar="PIXELS",
        help="scale larger images down to this short side: JPEGs to JPEGs of quality 95, others to PNG",
    )
    command.add_argument("--restart-markers", action="store_true", help="add restart markers to JPEGs, as prepare does")
    command.add_argument(
        "--jpegtran", default="jpegtran", metavar="PROGRAM", help="the jpegtran to run (default: %(default)s)"
    )
    command.add_argument("--shuffle", type=int, metavar="SEED", help="a random order, instead of the source's")
    command.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="a sample that cannot be read ends the run (default), or is left out and listed in the manifest",
    )
    command.add_argument("--threads", type=_at_least_1, help="as for `Loader`")


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)(I?)B?", text.upper())
    size = int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2] or " ")) if match else 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 1GiB or 500MB")
    return size


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
