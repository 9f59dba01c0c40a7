"""Decodes encoded images to RGB pixels, on the CPU or a GPU. The only package that imports nvImageCodec.

| file                                                      | `CpuDecoder` | `CudaDecoder`             |
|-----------------------------------------------------------|--------------|---------------------------|
| gray or YCbCr JPEG or MPO                                 | nvImageCodec | nvImageCodec, on the GPU  |
|   sequential, for a `Loader` on a GPU                     |              | our kernels, on the GPU   |
| PNG or WebP, upright, one frame                           | nvImageCodec | nvImageCodec, on the CPU  |
| TIFF, JPEG 2000, BMP, PPM/PGM/PBM, GIF, AVIF              | Pillow       | Pillow                    |
| CMYK or RGB JPEG; animated or EXIF-rotated PNG or WebP    | Pillow       | Pillow                    |
| unusual EXIF or markers (`sniff.py`); nvImageCodec failed | Pillow       | Pillow                    |
| any other format                                          | DecodeError  | DecodeError               |

The output is (H, W, 3) uint8 RGB, equal to Pillow's `convert("RGB")`: gray is repeated, alpha is dropped (not blended),
CMYK and palettes are converted. Files that would lose depth, bands, pages or frames are refused unless `lossy=True`,
which takes 8 bits of the first frame. We scale 16-bit gray then, which Pillow clips to a white image. `read_picture`
decodes gray, RGBA, and channels and depth as stored.

Limits:
- `max_pixels` bounds the size of an image. It also bounds the work hidden behind a small size: JPEG scans, TIFF tiles,
  AVIF frames, and JPEG 2000 tiles, precincts and code blocks.
- Other formats raise `DecodeError`, even where Pillow reads them: their decoders have no limits.
- nvImageCodec 0.9.0 corrupts the heap on a damaged JPEG 2000 file, and returns a damaged TIFF half-filled as a success.
  Its colours also differ for TIFF palettes, gray with alpha and CMYK. Pillow therefore decodes both formats.
- nvImageCodec gives no reason for a failure. Pillow decodes such a file after all, or names the cause.
  `PIL.ImageFile.LOAD_TRUNCATED_IMAGES` and `PIL.Image.MAX_IMAGE_PIXELS` apply then.

The decoders:

    CpuDecoder.decode(image, region, index=None)      -> pixels in host memory
    CudaDecoder.decode_batch(images, slots, stream)   -> [None | array | DecodeError], pixels in device slots

The loader's batches on the CPU are decoded by the same native code as `CpuDecoder`, without Python: see
kernels/cpu/batch_work.h.

image.py           `EncodedImage`, `DecodedImage`, `read_header`
sniff.py           format, EXIF orientation and JPEG markers, from the first bytes
cpu.py, cuda.py    `CpuDecoder`, `CudaDecoder`
decoder_paths.py   which of nvImageCodec's decoders a GPU uses
_nvimgcodec_c.py   nvImageCodec on the CPU, through its C interface
_nvimgcodec.py     nvImageCodec on GPUs, through its Python interface
_pillow.py         decoding with Pillow
masks.py           masks as class numbers, with Pillow
picture.py         images that are not 8-bit RGB: PNG, TIFF and NPY as stored, other formats with Pillow
tiff_pixels.py     TIFF samples as stored
loss.py            information that a file loses in 8 bits
tiff.py, avif.py, jpeg2000.py, boxes.py    limits on file structure
device_jpegs.py    what our kernels (kernels/core/decode_jpeg.h) decode of a batch's JPEGs
jpeg_crop.py       regions of JPEGs, decoded from a smaller JPEG
jpeg_index.py      the JPEG index: entry points, in a file that processes share
exif.py            EXIF orientation of pixels and regions
jpegtran.py        restart markers for JPEGs, for `cuaug prepare`
multichannel.py    `MultiChannelImage`: other images than 8-bit RGB, for the kernels
messages.py        warnings of the image libraries
nvdec.py           `NvdecDecoder`: decodes chosen frames of a video on a GPU's video engine, with PyNvVideoCodec
samples.py         depth, sign and order of a file's samples, as the file states them
sei.py             supplemental enhancement information (SEI) of H.264 and HEVC: messages beside the pictures
video.py           `VideoDecoder`: decodes chosen frames of a video, and no more than they need
video_index.py     `VideoIndex`: when each frame of a video is shown, and where decoding may begin
yuv.py             converts parts of decoded video frames to RGB
yuv_planes.py      copies the rows of video frames' planes that conversion to RGB reads, packed, for the upload to a GPU
"""

from __future__ import annotations

from cuaug.codec._nvimgcodec import DecoderPaths, gpu_decodes, nv
from cuaug.codec._nvimgcodec_c import codec_version, load_codec
from cuaug.codec.cpu_decoder import CpuDecoder, DecodeResult, thread_decoder
from cuaug.codec.cuda_decoder import CpuFallback, CudaDecoder
from cuaug.codec.device_jpegs import DeviceJpegs, DevicePlan, Places, ResidentJpeg, memory_bound, resident_table
from cuaug.codec.formats.loss import pil_to_rgb8
from cuaug.codec.image import (
    DecodedImage,
    EncodedImage,
    EncodedJpeg,
    FileView,
    jpegs_of,
    open_jpegs,
    read_header,
    read_jpeg_headers,
    read_other_header,
)
from cuaug.codec.jpeg_index import SPARE_BYTES, JpegIndex
from cuaug.codec.masks import decode_mask, mask_array
from cuaug.codec.messages import MessageLog, split_lines
from cuaug.codec.picture import PICTURE_MODES, MultiChannelImage, read_picture
from cuaug.codec.sniff import MAX_FULL_SCANS, MAX_SCANS, Region, file_format

__all__ = [
    "MAX_FULL_SCANS",
    "MAX_SCANS",
    "PICTURE_MODES",
    "SPARE_BYTES",
    "CpuDecoder",
    "CpuFallback",
    "CudaDecoder",
    "DecodeResult",
    "DecodedImage",
    "DecoderPaths",
    "DeviceJpegs",
    "DevicePlan",
    "EncodedImage",
    "EncodedJpeg",
    "FileView",
    "JpegIndex",
    "MessageLog",
    "MultiChannelImage",
    "Places",
    "Region",
    "ResidentJpeg",
    "codec_version",
    "decode_mask",
    "file_format",
    "gpu_decodes",
    "jpegs_of",
    "load_codec",
    "mask_array",
    "memory_bound",
    "nv",
    "open_jpegs",
    "pil_to_rgb8",
    "read_header",
    "read_jpeg_headers",
    "read_other_header",
    "read_picture",
    "resident_table",
    "split_lines",
    "thread_decoder",
]
