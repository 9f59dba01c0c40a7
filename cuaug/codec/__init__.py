"""Encoded bytes to pixels: headers, regions and decoding. The only package that imports nvImageCodec.

Formats: JPEG with MPO, PNG, WebP, TIFF, BMP, PPM with PBM and PGM, JPEG 2000, GIF and AVIF. Other formats raise a
DecodeError, also where Pillow knows them: their decoders have no limits.

Whatever the file holds, the result is (H, W, 3) uint8 RGB, as Pillow's `convert("RGB")` gives it: gray is repeated,
alpha is dropped (not blended), CMYK and palettes are converted, the first frame of an animation is taken. One
difference is on purpose: 16-bit gray is scaled to 8 bits, where Pillow clips it to a white picture.

nvImageCodec decodes JPEG of 1 or 3 channels, PNG and WebP, with the same pixels as Pillow. Everything else is Pillow's:
- TIFF and JPEG 2000. Damaged ones made nvImageCodec 0.9.0 corrupt the heap (JPEG 2000) or return a half-filled picture
  as a success (TIFF); colour also differs for palettes, gray with alpha and CMYK.
- CMYK JPEG, animated or turned PNG and WebP, BMP, PPM, GIF, AVIF, and files whose EXIF or structure is odd (see
  `probe.py`).
- Every file that nvImageCodec fails on. Its failures carry no reason: Pillow decodes the file after all, or names the
  cause. `PIL.ImageFile.LOAD_TRUNCATED_IMAGES` is honoured then, as is `PIL.Image.MAX_IMAGE_PIXELS`.

probe.py        what the bytes say: format, orientation, the markers of JPEGs, and whether their structure is sound
header.py       `EncodedImage`: a picture's size, and who is to decode it
cpu_decoder.py `CpuDecoder`
cuda_decoder.py `CudaDecoder`
_host_codec.py  nvImageCodec for the CPU, by its C interface
_nvimgcodec.py  nvImageCodec for GPUs, by its Python interface
_pillow.py      decoding by Pillow
tiff.py, avif.py, jpeg2000.py, boxes.py
                limits on the structure of files whose decoders have none
messages.py     warnings of the image libraries
pixels.py       `DecodedImage`: pictures that come decoded
parts.py        regions of JPEGs, from part of the file
turns.py        pictures as stored, and as EXIF has them displayed
jpegtran.py     restart markers for JPEGs, for `cuaug prepare`
"""

from __future__ import annotations

from cuaug.codec._nvimgcodec import gpu_decodes, nv
from cuaug.codec._nvimgcodec_c import codec_version, load_codec
from cuaug.codec._pillow import to_rgb8
from cuaug.codec.cpu import CpuDecoder, DecodeResult
from cuaug.codec.cuda import CudaDecoder
from cuaug.codec.exif import Region
from cuaug.codec.image import (
    EncodedImage,
    EncodedJpeg,
    read_header,
    read_jpeg_headers,
    read_other_header,
)
from cuaug.codec.jpeg_crop import JpegIndex
from cuaug.codec.messages import MessageLog
from cuaug.codec.pixels import DecodedImage
from cuaug.codec.sniff import file_format

__all__ = [
    "CpuDecoder",
    "CudaDecoder",
    "DecodeResult",
    "DecodedImage",
    "EncodedImage",
    "EncodedJpeg",
    "JpegIndex",
    "MessageLog",
    "Region",
    "codec_version",
    "to_rgb8",
    "file_format",
    "gpu_decodes",
    "load_codec",
    "nv",
    "read_header",
    "read_jpeg_headers",
    "read_other_header",
]
