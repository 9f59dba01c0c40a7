"""Adds restart markers to JPEGs without loss, with libjpeg-turbo's jpegtran.

jpegtran rewrites the entropy coding and keeps the coefficients. We choose the restart interval and compare the output
image with the input.
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

_INTERVAL_PIXELS = 64
"""Distance of restart markers, about. A marker costs some four bytes, one or two percent of a file, which optimized
Huffman tables give back. A longer distance makes JPEG crops larger."""
# A marker that ends entropy-coded data: neither a stuffed 0xFF nor a fill byte nor a restart marker.
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


def with_restarts(data: bytes, *, jpegtran: str = "jpegtran") -> bytes:
    """Add restart markers to a JPEG, so that its regions decode alone.

    Image, EXIF, color profile, comments and bytes after the image stay. A progressive file becomes a sequential one,
    which decodes faster and is larger.

    Args:
        data: the whole file.
        jpegtran: name or path of the program.

    Raises:
        ValueError: why the file must stay unchanged: not a common JPEG, damaged, or jpegtran would change the image.
        OSError: jpegtran cannot be run.
    """
    try:
        if not isinstance(read_header(data), EncodedJpeg):
            raise ValueError("of a kind that is always decoded as a whole: CMYK or RGB, or with misplaced markers")
    except DecodeError as error:
        raise ValueError(error.cause) from error
    before = _decode(data)
    if before.format != "JPEG":
        raise ValueError(f"{before.format}, a file of several images with offsets into it")
    interval, end = restart_interval(before), _find_end(data)
    written = _run([jpegtran, "-copy", "all", "-optimize", "-restart", f"{interval}B"], data[:end])
    after = _decode(written)
    if after.info.get("progressive") or read_header(written).restart_interval != interval:
        raise ValueError(f"{jpegtran} does not set restart markers as requested; libjpeg-turbo's does")
    same_info = all(before.info.get(name) == after.info.get(name) for name in ("exif", "icc_profile", "comment"))
    if before.tobytes() != after.tobytes() or not same_info:
        raise ValueError(f"{jpegtran} would change the image")
    return written + data[end:]


def check_jpegtran(jpegtran: str) -> None:
    """Try jpegtran on a small image.

    Raises:
        OSError: it cannot be run, or does not add restart markers.
    """
    sample = io.BytesIO()
    Image.linear_gradient("L").save(sample, "JPEG")
    try:
        with_restarts(sample.getvalue(), jpegtran=jpegtran)
    except ValueError as error:
        raise OSError(f"jpegtran does not work: {error}") from error


def restart_interval(image: Any) -> int:
    """Choose the MCUs between restart markers: a divisor of an MCU row, so that intervals are rectangles.

    image: a JPEG opened by Pillow.
    """
    factors = [horizontal for _, horizontal, _, _ in image.layer]
    mcu_width = 8 * (max(factors) if len(factors) > 1 else 1)
    row = -(-image.width // mcu_width)
    divisors = [n for n in range(1, row + 1) if row % n == 0]
    return min(divisors, key=lambda n: max(n * mcu_width / _INTERVAL_PIXELS, _INTERVAL_PIXELS / (n * mcu_width)))


def _decode(data: bytes) -> Any:
    try:
        image = Image.open(io.BytesIO(data), formats=["JPEG"])
        image.load()
    except Exception as error:  # Pillow's parsers raise any exception type on a damaged file
        raise ValueError(f"damaged: {error}") from error
    return image


def _find_end(data: bytes) -> int:
    """Find the end of a JPEG with sound markers: phones append videos."""
    at = 2
    while (marker := data[at + 1]) != 0xD9:
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == 0xDA:
            match = _MARKER.search(data, at)
            assert match is not None
            at = match.start()
    return at + 2


def _run(command: list[str], data: bytes) -> bytes:
    try:
        done = subprocess.run(command, input=data, capture_output=True)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{command[0]} was not found; install libjpeg-turbo: `apt install libjpeg-turbo-progs`, "
            "`conda install libjpeg-turbo` or `brew install jpeg-turbo`"
        ) from error
    if done.returncode < 0:  # a Ctrl-C reaches jpegtran too
        raise OSError(f"{command[0]} was ended by signal {-done.returncode}")
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it failed without a message"]
        raise ValueError(f"{command[0]}: {lines[-1]}")
    return done.stdout
