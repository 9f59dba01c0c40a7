"""The `cuaug` command: runs one of the commands, or prints an overview.

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

from cuaug import __version__
from cuaug.commands import doctor
from cuaug.commands.parser import make_parser

__all__ = ["main"]


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
