"""Decodes encoded images to RGB pixels, on the CPU or a GPU. The only package that imports nvImageCodec.

| file                                                      | `CpuDecoder` | `NvImageCodecDecoder`     |
|-----------------------------------------------------------|--------------|---------------------------|
| gray or YCbCr JPEG or MPO                                 | nvImageCodec | nvImageCodec, on the GPU  |
| PNG or WebP, upright, one frame                           | nvImageCodec | nvImageCodec, on the CPU  |
| TIFF, JPEG 2000, BMP, PPM/PGM/PBM, GIF, AVIF              | Pillow       | Pillow                    |
| CMYK or RGB JPEG; animated or EXIF-rotated PNG or WebP    | Pillow       | Pillow                    |
| unusual EXIF or markers (`sniff.py`); nvImageCodec failed | Pillow       | Pillow                    |
| any other format                                          | DecodeError  | DecodeError               |

A `Loader` on a GPU decodes sequential JPEGs by our kernels (`BatchDecoding` in pipeline/cuda), not by nvImageCodec.

The output is (H, W, 3) uint8 RGB, equal to Pillow's `convert("RGB")`: gray is repeated, alpha is dropped (not blended),
CMYK and palettes are converted. Files that would lose depth, bands, pages or frames are refused unless `lossy=True`,
which takes 8 bits of the first frame. We scale 16-bit gray then, which Pillow clips to a white image.
`read_multichannel` decodes gray, RGBA, and channels and depth as stored.

Limits:
- `max_pixels` bounds the size of an image. It also bounds the work hidden behind a small size: JPEG scans, TIFF tiles,
  AVIF frames, and JPEG 2000 tiles, precincts and code blocks.
- Other formats raise `DecodeError`, even where Pillow reads them: their decoders have no limits.
- nvImageCodec 0.9.0 corrupts the heap on a damaged JPEG 2000 file, and returns a damaged TIFF half-filled as a success.
  Its colors also differ for TIFF palettes, gray with alpha and CMYK. Pillow therefore decodes both formats.
- nvImageCodec gives no reason for a failure. Pillow decodes such a file after all, or names the cause.
  `PIL.ImageFile.LOAD_TRUNCATED_IMAGES` and `PIL.Image.MAX_IMAGE_PIXELS` apply then.

The decoders:

    CpuDecoder.decode(image, region, index=None)             -> pixels in host memory
    NvImageCodecDecoder.decode_batch(images, slots, stream)  -> [None | array | DecodeError], pixels in device slots

The loader's batches on the CPU are decoded by the same native code as `CpuDecoder`, without Python: see
kernels/cpu/batch_work.h.

image.py               `EncodedImage`, `DecodedImage`, `read_header`
sniff.py               format, EXIF orientation and JPEG markers, from the first bytes
cpu_decoder.py         `CpuDecoder`
nvimgcodec_decoder.py  `NvImageCodecDecoder`
decode_options.py      `DecodeOptions`: how a loader decodes
_nvimgcodec_c.py       nvImageCodec on the CPU, through its C interface
_nvimgcodec.py         nvImageCodec on GPUs, through its Python interface; which of its decoders a GPU uses
device_jpegs.py        JPEGs of a batch for our kernels (kernels/core/decode_jpeg.h)
jpeg_index.py          the JPEG index: entry points, in a file that processes share; crops of JPEGs
masks.py               masks as class numbers, with Pillow
multichannel.py        images that are not 8-bit RGB, and their form for the kernels
messages.py            warnings of the image libraries
formats/               formats beside JPEG
video/                 videos
"""

from __future__ import annotations

from cuaug.codec._nvimgcodec import DecoderPaths, gpu_decodes, nv
from cuaug.codec._nvimgcodec_c import codec_version, load_codec
from cuaug.codec.cpu_decoder import CpuDecoder, DecodeResult, thread_decoder
from cuaug.codec.device_jpegs import (
    DeviceJpegs,
    JpegLaunch,
    Places,
    ResidentJpeg,
    empty_launch,
    memory_bound,
)
from cuaug.codec.formats.loss import pil_to_rgb8
from cuaug.codec.image import (
    IMAGE,
    DecodedImage,
    EncodedImage,
    EncodedJpeg,
    FileView,
    find_jpegs,
    jpeg_in_table,
    open_jpegs,
    read_header,
    read_jpeg_headers,
    read_other_header,
)
from cuaug.codec.jpeg_index import SPARE_BYTES, JpegIndex
from cuaug.codec.masks import decode_mask, mask_array
from cuaug.codec.messages import MessageLog, split_lines
from cuaug.codec.multichannel import MULTICHANNEL_MODES, MultiChannelImage, read_multichannel
from cuaug.codec.nvimgcodec_decoder import CpuFallback, NvImageCodecDecoder
from cuaug.codec.sniff import MAX_FULL_SCANS, MAX_SCANS, Region, file_format, jpeg_headers

__all__ = [
    "IMAGE",
    "MAX_FULL_SCANS",
    "MAX_SCANS",
    "MULTICHANNEL_MODES",
    "SPARE_BYTES",
    "CpuDecoder",
    "CpuFallback",
    "DecodeResult",
    "DecodedImage",
    "DecoderPaths",
    "DeviceJpegs",
    "EncodedImage",
    "EncodedJpeg",
    "FileView",
    "JpegIndex",
    "JpegLaunch",
    "MessageLog",
    "MultiChannelImage",
    "NvImageCodecDecoder",
    "Places",
    "Region",
    "ResidentJpeg",
    "codec_version",
    "decode_mask",
    "empty_launch",
    "file_format",
    "find_jpegs",
    "gpu_decodes",
    "jpeg_headers",
    "jpeg_in_table",
    "load_codec",
    "mask_array",
    "memory_bound",
    "nv",
    "open_jpegs",
    "pil_to_rgb8",
    "read_header",
    "read_jpeg_headers",
    "read_multichannel",
    "read_other_header",
    "split_lines",
    "thread_decoder",
]
