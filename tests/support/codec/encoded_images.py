"""Encoded images for the codec tests, and Pillow as the reference decoder."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps, features

H, W = 37, 53


def photo(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Smooth random colors with four different corners: (height, width, 3) uint8."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def encode(image: Image.Image, form: str, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def encode_jpeg(image: Image.Image, **options) -> bytes:
    """As `encode`. Pillow's own buffer is too small for noise with optimized tables, and it fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageFile, "MAXBLOCK", 1 << 24)
        return encode(image, "JPEG", **options)


def as_pillow(data: bytes) -> np.ndarray:
    """The reference: decoded, oriented and converted by Pillow alone."""
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


PHOTO = photo(H, W)
RGB = Image.fromarray(PHOTO)
GRAY = RGB.convert("L")
ALPHA = GRAY.rotate(180)


def with_alpha(image: Image.Image) -> Image.Image:
    image = image.copy()
    image.putalpha(ALPHA)
    return image


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png16(samples: np.ndarray) -> bytes:
    """Encode (h, w, c) uint16, 1 to 4 channels, as a 16-bit PNG, which Pillow cannot write in color."""
    h, w, c = samples.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    head = struct.pack(">IIBBBBB", w, h, 16, {1: 0, 2: 4, 3: 2, 4: 6}[c], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def bmp_555() -> bytes:
    pixels = (PHOTO[::-1, :52].astype(int) >> 3) @ [1024, 32, 1]
    data = pixels.astype("<u2").tobytes()
    info = struct.pack("<IiiHHIIiiII", 40, 52, H, 1, 16, 0, len(data), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(data), 0, 0, 54) + info + data


def adobe_cmyk() -> tuple[bytes, bytes, bytes]:
    """JPEGs: Adobe CMYK; the same without the Adobe marker; the same declared YCCK."""
    data = encode(RGB.convert("CMYK"), "JPEG", quality=92)
    start = data.index(b"\xff\xee")
    end = start + 2 + struct.unpack(">H", data[start + 2 : start + 4])[0]
    return data, data[:start] + data[end:], data[: end - 1] + b"\x02" + data[end:]


def formats() -> dict[str, bytes]:
    palette = RGB.quantize(32)
    modes = {
        "rgb": RGB, "rgba": with_alpha(RGB), "l": GRAY, "la": with_alpha(GRAY), "p": palette, "1": RGB.convert("1"),
    }  # fmt: skip
    files = {
        f"jpeg 4:{name}": encode(RGB, "JPEG", quality=90, subsampling=s) for s, name in enumerate(("44", "22", "20"))
    }
    files["jpeg progressive"] = encode(RGB, "JPEG", progressive=True)
    files["jpeg gray"] = encode(GRAY, "JPEG")
    files["jpeg restarts"] = encode(RGB, "JPEG", restart_marker_blocks=2)
    files["jpeg stored as rgb"] = encode(RGB, "JPEG", keep_rgb=True)
    files["jpeg fill bytes"] = files["jpeg 4:20"][:2] + b"\xff\xff" + files["jpeg 4:20"][2:]
    files["jpeg trailing junk"] = files["jpeg 4:20"] + b"junk" * 9
    files["jpeg cmyk adobe"], files["jpeg cmyk plain"], files["jpeg ycck"] = adobe_cmyk()
    files["mpo"] = encode(RGB, "MPO", save_all=True, append_images=[RGB.rotate(180)])
    for name, image in modes.items():
        files[f"png {name}"] = encode(image, "PNG")
        files[f"tiff {name}"] = encode(image, "TIFF")
        if name != "la":
            files[f"bmp {name}"] = encode(image, "BMP")
        if name not in ("p", "1"):
            files[f"jpeg2000 {name}"] = encode(image, "JPEG2000")
            files[f"webp {name}"] = encode(image, "WEBP")
            files[f"webp lossless {name}"] = encode(image, "WEBP", lossless=True)
    files["png palette transparency"] = encode(palette, "PNG", transparency=3)
    files["png 4 bits"] = encode(RGB.quantize(16), "PNG", bits=4)
    files["apng"] = encode(RGB, "PNG", save_all=True, append_images=[RGB.rotate(180)])
    files["webp animated"] = encode(RGB, "WEBP", save_all=True, append_images=[RGB.rotate(180)], duration=100)
    for compression in ("tiff_lzw", "jpeg", "tiff_adobe_deflate", "packbits"):
        files[f"tiff {compression}"] = encode(RGB, "TIFF", compression=compression)
    for mode in ("CMYK", "YCbCr"):  # not raw: Pillow before 13 cannot read its own raw YCbCr
        files[f"tiff {mode}"] = encode(RGB.convert(mode), "TIFF", compression="tiff_lzw")
    files["tiff two pages"] = encode(RGB, "TIFF", save_all=True, append_images=[RGB.rotate(180)])
    files["bigtiff"] = encode(RGB, "TIFF", big_tiff=True)
    files["jpeg2000 irreversible"] = encode(RGB, "JPEG2000", irreversible=True)
    files["jpeg2000 codestream"] = encode(RGB, "JPEG2000", no_jp2=True)
    files["jpeg2000 cmyk"] = encode(RGB.convert("CMYK"), "JPEG2000")
    files["gif"], files["ppm"], files["pgm"] = encode(palette, "GIF"), encode(RGB, "PPM"), encode(GRAY, "PPM")
    if features.check("avif"):  # from Pillow 11.3 on
        files["avif"] = encode(RGB, "AVIF")
    files["bmp 5-5-5"] = bmp_555()
    return files


FORMATS = formats()


def tiff_block(value: int, order: str = "<", kind: int = 3, count: int = 1, copies: int = 1) -> bytes:
    """An EXIF block with the orientation tag alone."""
    body = struct.pack(order + ("I" if kind == 4 else "HH"), *((value,) if kind == 4 else (value, 0)))
    entry = struct.pack(order + "HHI", 0x0112, kind, count) + body
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(order + "IH", 8, copies) + entry * copies + b"\0" * 4


def app1(block: bytes, name: bytes = b"Exif\0\0") -> bytes:
    return b"\xff\xe1" + struct.pack(">H", len(name) + len(block) + 2) + name + block


JPEG = encode(RGB, "JPEG", quality=90)
PNG = encode(RGB, "PNG")
SCAN = JPEG.index(b"\xff\xda")


def jpeg_with(*segments: bytes) -> bytes:
    return JPEG[:2] + b"".join(segments) + JPEG[2:]


def png_with(block: bytes, before: bytes = b"IDAT", name: bytes = b"eXIf") -> bytes:
    at = PNG.index(before) - 4
    return PNG[:at] + chunk(name, block) + PNG[at:]


def tagged_files(value: int) -> dict[str, bytes]:
    cmyk = adobe_cmyk()[0]
    return {
        "jpeg": jpeg_with(app1(tiff_block(value))),
        "jpeg, big endian": jpeg_with(app1(tiff_block(value, ">"))),
        "jpeg, after XMP": jpeg_with(app1(b"<x/>", b"http://ns.adobe.com/xap/1.0/\0"), app1(tiff_block(value))),
        "jpeg, before the scan": JPEG[:SCAN] + app1(tiff_block(value)) + JPEG[SCAN:],
        "jpeg, cmyk": cmyk[:2] + app1(tiff_block(value)) + cmyk[2:],
        "jpeg, two blocks": jpeg_with(app1(tiff_block(value)), app1(tiff_block(3))),
        "jpeg, as LONG": jpeg_with(app1(tiff_block(value, ">", kind=4))),
        "png": png_with(tiff_block(value)),
        "png, after the pixels": png_with(tiff_block(value), before=b"IEND"),
        "png, by ImageMagick": png_with(
            b"Raw profile type exif\0\nexif\n%8d\n%s\n" % (32, (b"Exif\0\0" + tiff_block(value)).hex().encode()),
            name=b"tEXt",
        ),
        "webp": encode(RGB, "WEBP", exif=b"Exif\0\0" + tiff_block(value)),
        "tiff": encode(RGB, "TIFF", tiffinfo={274: value}),
        "tiff, big": encode(RGB, "TIFF", tiffinfo={274: value}, big_tiff=True),
        "tiff, lzw": encode(RGB, "TIFF", tiffinfo={274: value}, compression="tiff_lzw"),
        "tiff, palette": encode(RGB.quantize(32), "TIFF", tiffinfo={274: value}),
    }


def without_segments(data: bytes, marker: int) -> bytes:
    """A JPEG without its segments of one kind, such as quantization (0xDB) or Huffman tables (0xC4)."""
    while (at := data.find(bytes([0xFF, marker]))) >= 0:
        data = data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]
    return data
