"""Size limits of one sample: they bound the memory that a damaged or hostile file makes cuaug allocate."""

from __future__ import annotations

from cuaug.errors import DecodeError

DEFAULT_MAX_PIXELS = 178_956_970
"""Height x width. Pillow reports a decompression bomb above the same size."""

DEFAULT_MAX_BYTES = 1 << 30
"""Encoded bytes of one sample. An uncompressed image of `DEFAULT_MAX_PIXELS` has 0.5 GB, with 16 bits 1 GB."""


def check_pixels(height: int, width: int, max_pixels: int, claim: str = "the header claims") -> None:
    """Refuses an image size before memory is allocated for it.

    Args:
        claim: subject and verb of the error message.

    Raises:
        DecodeError: the size is not positive, or height x width exceeds `max_pixels`.
    """
    if height < 1 or width < 1:
        raise DecodeError(f"{claim} {height} x {width} pixels (height x width), which is no image")
    if height * width > max_pixels:
        raise DecodeError(
            f"{claim} {height} x {width} = {height * width} pixels (height x width), "
            f"above the limit max_pixels={max_pixels}"
        )


def check_sample_bytes(height: int, width: int, channels: int, itemsize: int, max_pixels: int) -> None:
    """Refuses more than 8 bytes for each pixel of `max_pixels`, enough for 16-bit RGBA of the largest size.

    Raises:
        DecodeError: height x width x channels x itemsize is larger.
    """
    size = height * width * channels * itemsize
    if size > 8 * max_pixels:
        raise DecodeError(
            f"the header claims {height} x {width} pixels (height x width) of {channels} channels of {itemsize} bytes, "
            f"{size} bytes together: above the limit of {8 * max_pixels}, which max_pixels={max_pixels} sets"
        )


def check_bytes(size: int, max_bytes: int, claim: str = "the file has") -> None:
    """Refuses a number of bytes before they are read or allocated.

    Args:
        claim: subject and verb of the error message.

    Raises:
        DecodeError: `size` exceeds `max_bytes`.
    """
    if size > max_bytes:
        raise DecodeError(f"{claim} {size:,} bytes, above the limit max_bytes={max_bytes:,}")
