"""Encoded bytes to pixels: headers, regions and decoding. The only package that imports nvImageCodec.

Whatever the file holds, the result is (H, W, 3) uint8 RGB, as Pillow's `convert("RGB")` gives it: gray is repeated,
alpha is dropped (not blended), CMYK and palettes are converted, the first frame of an animation is taken. One
difference is on purpose: 16-bit gray is scaled to 8 bits, where Pillow clips it to a white picture.

nvImageCodec decodes what it was seen to decode like Pillow: JPEG with 1 or 3 channels, PNG, WebP, TIFF of plain gray
or RGB, JPEG 2000 of named colour space. Pillow decodes the rest (CMYK, palette and 1-bit TIFF, BMP, PNM, GIF, AVIF,
...), files whose EXIF is odd (see `exif.py`), and every file that nvImageCodec fails on: its failures carry no reason,
so Pillow either decodes the file after all or names the cause. `PIL.ImageFile.LOAD_TRUNCATED_IMAGES` is honoured then.
"""

from __future__ import annotations

from ._nvimgcodec import codec_version, gpu_decodes
from .decoders import CudaDecoder, HostDecoder
from .header import DEFAULT_MAX_PIXELS, Header, read_header

__all__ = [
    "DEFAULT_MAX_PIXELS",
    "CudaDecoder",
    "Header",
    "HostDecoder",
    "codec_version",
    "gpu_decodes",
    "read_header",
]
