"""`cuaug completion`: a completion script for bash, zsh or fish.

shtab writes a static script from the parser. argcomplete would start Python at each press of the tab key, and leaves
fish to its contributors.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TextIO

from cuaug._runtime.extras import require_module
from cuaug.commands.parser import make_parser
from cuaug.errors import LoaderError

__all__ = ["completion"]

# The metavars of arguments that are paths.
_PATHS = {"FILE", "FILE_OR_EXPR", "FOLDER", "OUT", "PATH", "SOURCE", "STATE", "TARGET"}


def completion(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """Prints the script and returns the exit status; errors are one line on `errors`."""
    try:
        shtab = require_module("shtab", "completion", "cuaug completion")
    except LoaderError as error:
        print(error, file=errors)
        return 1
    parser = make_parser()
    for action in _actions(parser):
        if action.metavar in _PATHS:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
    print(shtab.complete(parser, shell=options.shell), file=out)
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of the parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
