"""JPEGs given restart markers, without loss, by jpegtran, which comes with libjpeg-turbo.

It writes the entropy coding anew and leaves what that codes as it is. Here it is told where the markers are to be, and
what comes out is compared with what went in.
"""

from __future__ import annotations

import io
import re
import subprocess
from typing import Any

from PIL import Image

from cuaug.codec.image import EncodedJpeg, read_header
from cuaug.errors import DecodeError

__all__ = ["check_jpegtran", "restart_interval", "with_restarts"]

_APART = 64
"""Pixels from one restart marker to the next, about. Each costs some four bytes, a hundredth of a picture or two, which
coding it optimally gives back; with more between them, regions hold more that is not needed."""
# A marker that ends entropy-coded data: neither a stuffed 0xFF nor a fill byte nor a restart.
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


def with_restarts(data: bytes, *, jpegtran: str = "jpegtran") -> bytes:
    """The same JPEG with restart markers, so that regions of it decode alone.

    Picture, EXIF, colour profile, comments and what follows the picture stay; a progressive file becomes a sequential
    one, which decodes faster and is larger.

    Args:
        data: a JPEG, whole.
        jpegtran: the program.

    Raises:
        ValueError: says why it has to stay as it is: not a common JPEG, damaged, or jpegtran would change the picture.
        OSError: jpegtran cannot be run.
    """
    try:
        if not isinstance(read_header(data), EncodedJpeg):
            raise ValueError("of a kind that is always decoded as a whole: CMYK, or with markers out of place")
    except DecodeError as error:
        raise ValueError(error.cause) from error
    before = _decoded(data)
    if before.format != "JPEG":
        raise ValueError(f"{before.format}, a file of several pictures that know their places in it")
    interval, end = restart_interval(before), _end(data)
    written = _run([jpegtran, "-copy", "all", "-optimize", "-restart", f"{interval}B"], data[:end])
    after = _decoded(written)
    if after.info.get("progressive") or read_header(written).restarts != interval:
        raise ValueError(f"{jpegtran} does not set restart markers as asked; that of libjpeg-turbo does")
    same = all(before.info.get(name) == after.info.get(name) for name in ("exif", "icc_profile", "comment"))
    if before.tobytes() != after.tobytes() or not same:
        raise ValueError(f"{jpegtran} would change the picture")
    return written + data[end:]


def check_jpegtran(jpegtran: str) -> None:
    """Has it write a small picture.

    Raises:
        OSError: it cannot be run, or does not do it.
    """
    sample = io.BytesIO()
    Image.linear_gradient("L").save(sample, "JPEG")
    try:
        with_restarts(sample.getvalue(), jpegtran=jpegtran)
    except ValueError as error:
        raise OSError(f"jpegtran does not work: {error}") from error


def restart_interval(picture: Any) -> int:
    """How many MCUs from one restart marker to the next: a part of a row of them, so that intervals are rectangles.

    picture: a JPEG that Pillow has opened.
    """
    factors = [across for _, across, _, _ in picture.layer]
    mcu = 8 * (max(factors) if len(factors) > 1 else 1)
    in_row = -(-picture.width // mcu)
    parts = [n for n in range(1, in_row + 1) if in_row % n == 0]
    return min(parts, key=lambda n: max(n * mcu / _APART, _APART / (n * mcu)))


def _decoded(data: bytes) -> Any:
    try:
        picture = Image.open(io.BytesIO(data), formats=["JPEG"])
        picture.load()
    except Exception as error:  # its parsers raise whatever a damaged file leads them to
        raise ValueError(f"damaged: {error}") from error
    return picture


def _end(data: bytes) -> int:
    """Where a JPEG ends whose markers are sound from the first to the last: phones put videos behind."""
    at = 2
    while (marker := data[at + 1]) != 0xD9:
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == 0xDA:
            found = _MARKER.search(data, at)
            assert found is not None
            at = found.start()
    return at + 2


def _run(command: list[str], data: bytes) -> bytes:
    try:
        done = subprocess.run(command, input=data, capture_output=True)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{command[0]} is not there; it comes with libjpeg-turbo: `apt install libjpeg-turbo-progs`, "
            "`conda install libjpeg-turbo` or `brew install jpeg-turbo`"
        ) from error
    if done.returncode < 0:  # an interruption, which the user sent to both
        raise OSError(f"{command[0]} was ended by signal {-done.returncode}")
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it failed, and did not say why"]
        raise ValueError(f"{command[0]}: {lines[-1]}")
    return done.stdout
