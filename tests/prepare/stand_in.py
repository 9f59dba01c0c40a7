"""A program in place of jpegtran, which is not everywhere, and what it knows."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from PIL import Image

from tests.codec.pictures import app1, encode, photo, tiff_block

LARGE = Image.fromarray(photo(200, 410))
PLAIN = encode(LARGE, "JPEG", quality=85, subsampling=2)
# 26 MCUs of 16 pixels in a row: of what divides them, 2 comes nearest to 64 pixels.
MARKED = encode(LARGE, "JPEG", quality=85, subsampling=2, restart_marker_blocks=2)
TURNED = PLAIN[:2] + app1(tiff_block(6)) + PLAIN[2:]


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
