"""The `cuaug` command. It loads nothing but the standard library: `doctor` must run where all else is broken."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cuaug import __version__, doctor

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="cuaug", description="Image loading and augmentation for PyTorch, on the GPU or the CPU."
    )
    parser.add_argument("--version", action="version", version=f"cuaug {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    text = "say what works on this machine, and which command mends what does not"
    command = commands.add_parser(
        "doctor", help=text, description=f"{text.capitalize()}. Exit status: 0 if loading on the CPU works."
    )
    command.add_argument("--require-cuda", action="store_true", help="exit status 1 unless loading on a GPU works too")
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 2
    findings = doctor.examine()
    works = doctor.report(findings, sys.stdout)
    return 0 if works["CPU"] and (works["GPU"] or not given.require_cuda) else 1
