"""Sound files of every kind, for the fuzzer to damage: ORIGINALS for RGB, PICTURES for other modes."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import tifffile
from PIL import Image

from tests.fuzz.mutations import join, split
from tests.support.codec.encoded_images import (
    FORMATS,
    GRAY,
    PHOTO,
    PNG,
    RGB,
    chunk,
    encode,
    jpeg_with,
    png16,
    png_with,
    tagged_files,
    tiff_block,
    with_alpha,
)


def interlaced_png(pixels: np.ndarray) -> bytes:
    """Encode (h, w, 3) uint8 or uint16 as an Adam7 PNG, which Pillow cannot write."""
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    big = pixels.astype(pixels.dtype.newbyteorder(">"))
    rows = b"".join(b"\0" + row.tobytes() for y, x, dy, dx in passes for row in big[y::dy, x::dx])
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8 * pixels.itemsize, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def originals() -> dict[str, bytes]:
    files = {name: data for name, data in FORMATS.items() if name.split()[0] in ("jpeg", "png", "apng", "webp", "mpo")}
    for value in (1, 6):
        files |= {f"{name} rotated {value}": data for name, data in tagged_files(value).items() if "tiff" not in name}
    files["jpeg progressive gray"] = encode(GRAY, "JPEG", progressive=True)
    files["jpeg progressive cmyk"] = encode(RGB.convert("CMYK"), "JPEG", progressive=True)
    files["jpeg progressive 4:44"] = encode(RGB, "JPEG", progressive=True, subsampling=0, quality=95)
    files["jpeg progressive restarts"] = encode(RGB, "JPEG", progressive=True, restart_marker_rows=1)
    files["jpeg 4:22 restarts"] = encode(RGB, "JPEG", subsampling=1, restart_marker_rows=1)
    files["jpeg comment"] = jpeg_with(b"\xff\xfe\0\x09comment", b"\xff\xe2\0\x06ICC_")
    files["jpeg one pixel"] = encode(Image.new("RGB", (1, 1), "red"), "JPEG")
    files["jpeg coarse"] = encode(RGB, "JPEG", quality=3)
    deep = PHOTO.astype(np.uint16) * 257
    for channels in (1, 2, 3, 4):
        files[f"png 16 bits, {channels}"] = png16(np.concatenate([deep, deep[:, :, :1]], axis=2)[:, :, :channels])
    files["png interlaced"] = interlaced_png(PHOTO)
    files["png many IDAT chunks"] = with_small_idat_chunks(PNG)
    files["png text and trailing bytes"] = png_with(b"gamma", name=b"tEXt") + b"and a tail"
    files["png gray transparency"] = encode(GRAY, "PNG", transparency=7)
    for bits in (1, 2, 4):
        files[f"png palette of {bits} bits"] = encode(RGB.quantize(2**bits), "PNG", bits=bits)
    files["webp lossy, coarse"] = encode(RGB, "WEBP", quality=5)
    files["webp exif and icc"] = encode(RGB, "WEBP", exif=b"Exif\0\0" + tiff_block(3), icc_profile=b"profile " * 20)
    files["webp lossless photo with exif"] = encode(RGB, "WEBP", lossless=True, exif=b"Exif\0\0" + tiff_block(8))
    files["webp lossless palette"] = encode(RGB.quantize(16).convert("RGB"), "WEBP", lossless=True)
    files["webp animated alpha"] = encode(
        with_alpha(RGB), "WEBP", save_all=True, append_images=[with_alpha(RGB.rotate(180))], duration=50, lossless=True
    )
    return files


def with_small_idat_chunks(png: bytes) -> bytes:
    """The same PNG with its pixels in IDAT chunks of 50 bytes."""
    parts = []
    for part in split(png):
        cuts = range(0, len(part.body), 50) if part.name == b"IDAT" else [None]
        parts += [part if at is None else replace(part, body=part.body[at : at + 50]) for at in cuts]
    return join(png, parts)


def tiff(array: np.ndarray, **options: Any) -> bytes:
    """Encode by tifffile; (H, W, C) unless `planarconfig` says otherwise."""
    out = io.BytesIO()
    layout = {"planarconfig": "contig"} if array.ndim == 3 else {}
    tifffile.imwrite(out, array, **({"photometric": "minisblack", "metadata": None} | layout | options))
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def pictures() -> dict[str, bytes]:
    deep = PHOTO.astype(np.uint16) * 257
    bands = np.concatenate([deep, deep[:, :, :2]], axis=2)
    files = {name: data for name, data in ORIGINALS.items() if "png 16" in name}
    for name, array in {"16 bits": deep, "5 bands": bands, "float": bands.astype(np.float32) / 65535}.items():
        files[f"npy {name}"] = npy(array)
        files[f"tiff {name}"] = tiff(array, rowsperstrip=9)
        files[f"tiff {name}, tiles"] = tiff(array, tile=(16, 32), compression="zlib")
        files[f"tiff {name}, planes"] = tiff(np.moveaxis(array, -1, 0), planarconfig="separate", compression="zlib")
    for number in (5, 8, 32773):
        options = [cv2.IMWRITE_TIFF_COMPRESSION, number, cv2.IMWRITE_TIFF_PREDICTOR, 2]
        files[f"tiff compression {number}"] = cv2.imencode(".tiff", deep, options)[1].tobytes()
    gray = Image.fromarray(deep[:, :, 0].astype(np.float32))
    files["tiff float, predictor 3"] = encode(gray, "TIFF", compression="tiff_lzw", tiffinfo={317: 3})
    files |= {
        name: data for name, data in FORMATS.items() if name.startswith(("tiff", "jpeg gray", "ppm", "pgm", "gif"))
    }
    return files


ORIGINALS = originals()
PICTURES = pictures()
