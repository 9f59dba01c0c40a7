"""A fake jpegtran, because the real one may not be installed, with its test images."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from PIL import Image

from tests.support.codec.encoded_images import app1, encode, photo, tiff_block

LARGE = Image.fromarray(photo(200, 410))
PLAIN = encode(LARGE, "JPEG", quality=85, subsampling=2)
# An MCU row has 26 MCUs of 16 pixels: the divisor 2 comes nearest to 64 pixels.
MARKED = encode(LARGE, "JPEG", quality=85, subsampling=2, restart_marker_blocks=2)
ROTATED = PLAIN[:2] + app1(tiff_block(6)) + PLAIN[2:]


class FakeJpegtran:
    """A program that returns prepared answers, and exits with status 1 for any other input.

    It answers `check_jpegtran`'s trial image as jpegtran does.

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
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell makes its background jobs ignore it
    os.kill(os.getpid(), signal.SIGINT)
sys.stdout.buffer.write(answer.read_bytes())
"""
        Path(self.path).write_text(text)
        os.chmod(self.path, 0o755)
        sample = Image.linear_gradient("L")
        self.add_answer(encode(sample, "JPEG"), encode(sample, "JPEG", restart_marker_blocks=8))

    def add_answer(self, data: bytes, answer: bytes) -> None:
        (self.folder / hashlib.sha1(data).hexdigest()).write_bytes(answer)

    def calls(self) -> list[str]:
        """The arguments of all calls but the first, which is the trial."""
        return (self.folder / "calls").read_text().splitlines()[1:]
