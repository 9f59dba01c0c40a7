"""No format's samples are stretched, shifted, wrapped or inverted without an error, in images and masks."""

from __future__ import annotations

import zlib

import cv2
import numpy as np
import pytest
from PIL import Image, features

from cuaug.codec import CpuDecoder, decode_mask, read_header, read_multichannel
from cuaug.errors import DecodeError
from tests.support.codec import tiffs
from tests.support.codec.avifs import box
from tests.support.codec.encoded_images import PHOTO, chunk, encode

H, W = 16, 32
RAMP = np.linspace(0, 1, H * W).reshape(H, W)
CLASSES = np.arange(H * W).reshape(H, W) % 13
MODES = ("RGB", "L", "RGBA", "unchanged")
LIMIT = 1 << 20


def read(data: bytes, mode: str, **options) -> np.ndarray:
    if mode == "RGB":
        return CpuDecoder().decode(read_header(data, **options))
    return read_multichannel(data, mode, **options)


def mask(data: bytes) -> np.ndarray:
    return decode_mask(data, LIMIT, "a mask")


def packed(values: np.ndarray, bits: int) -> bytes:
    digits = "".join(f"{int(value) & ((1 << bits) - 1):0{bits}b}" for value in values.ravel())
    return int(digits, 2).to_bytes(len(digits) // 8, "big")


def tiff(values: np.ndarray, bits: int, order: str = "<", **tags: int) -> bytes:
    """Gray, uncompressed, of any depth; `tags` are "t262" and the like, None leaves one out."""
    pixels = packed(values, bits)
    if order == "<" and bits in (16, 32):
        pixels = np.frombuffer(pixels, f">u{bits // 8}").astype(f"<u{bits // 8}").tobytes()
    entries = {256: W, 257: H, 258: bits, 259: 1, 262: 1, 273: -1, 277: 1, 278: H, 279: len(pixels)}
    entries |= {int(name[1:]): value for name, value in tags.items()}
    kept = [(tag, 4, value) for tag, value in entries.items() if value is not None]
    return tiffs.tiff(*kept, pixels=pixels, order=order)


def pgm(values: np.ndarray, maxval: int, *, is_text: bool = False) -> bytes:
    head = b"P%d %d %d %d\n" % (2 if is_text else 5, values.shape[1], values.shape[0], maxval)
    if is_text:
        return head + " ".join(map(str, values.ravel().tolist())).encode()
    return head + values.astype(">u2" if maxval > 255 else "u1").tobytes()


def ppm(maxval: int) -> bytes:
    values = np.repeat(np.round(RAMP * maxval).astype(int)[:, :, None], 3, axis=2)
    return b"P6" + pgm(values.reshape(H, 3 * W), maxval).replace(b" %d " % (3 * W), b" %d " % W, 1)[2:]


def jpeg2000(values: np.ndarray, bits: int, *, is_signed: bool = False) -> bytes:
    """A lossless codestream of any depth, which Pillow cannot write.

    The middle of the range is coded as 0, so values move as the middle does when the header states another depth.
    """
    moved = values + ((1 << 8 * values.itemsize - 1) - (1 << bits - 1))
    data = bytearray(encode(Image.fromarray(moved.astype(values.dtype)), "JPEG2000", no_jp2=True))
    at, components = 42, data[41]
    for i in range(components):
        data[at + 3 * i] = bits - 1 | (128 if is_signed else 0)
    return bytes(data)


def deep_color_jp2() -> bytes:
    values = np.round(np.linspace(0, 65535, 64 * 64)).astype(np.uint16).reshape(64, 64)
    return cv2.imencode(".jp2", np.repeat(values[:, :, None], 3, axis=2))[1].tobytes()


CHANGED = {  # Pillow decodes each of them to other values
    "tiff 12 bits": tiff(RAMP * 4095, 12),
    "tiff signed 8 bits": tiff(RAMP * 255, 8, t339=2),
    "tiff signed 16 bits": tiff(RAMP * 65535, 16, t339=2),
    "jpeg 2000 of 4 bits": jpeg2000((RAMP * 15).astype(np.uint8), 4),
    "jpeg 2000, signed": jpeg2000((RAMP * 255).astype(np.uint8), 8, is_signed=True),
    "jpeg 2000, deep color": deep_color_jp2(),
    "tiff without PhotometricInterpretation": tiff(RAMP * 255, 8, t262=None),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("name", CHANGED)
def test_samples_that_pillow_changes_are_refused_in_every_mode(name, lossy, mode):
    with pytest.raises(DecodeError, match=r"sample|Photometric|tag 262"):
        read(CHANGED[name], mode, lossy=lossy)


@pytest.mark.parametrize("mode", MODES)
def test_deep_white_is_zero(mode):
    data = tiff(65535 - np.round(RAMP * 65535), 16, t262=0)
    if mode == "unchanged":
        np.testing.assert_array_equal(read(data, mode)[:, :, 0], np.round(RAMP * 65535))
        return
    for lossy in (False, True):
        with pytest.raises(DecodeError, match="16-bit samples"):
            read(data, mode, lossy=lossy)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("mode", MODES)
def test_white_is_zero_of_few_bits(bits, mode):
    levels = np.round(RAMP * ((1 << bits) - 1))
    for data in (tiff(levels, bits), tiff((1 << bits) - 1 - levels, bits, t262=0)):
        np.testing.assert_array_equal(read(data, mode)[:, :, 0], levels * (255 // ((1 << bits) - 1)))


STRETCHED = {
    "pgm 20": (pgm(RAMP * 20, 20), 20),
    "pgm 20, text": (pgm(np.round(RAMP * 20).astype(int), 20, is_text=True), 20),
    "ppm 100": (ppm(100), 100),
    "pgm 1000": (pgm(RAMP * 1000, 1000), 1000),
    "pgm 40000": (pgm(RAMP * 40000, 40000), 40000),
    "jpeg 2000 of 12 bits": (jpeg2000(np.round(RAMP * 4095).astype(np.uint16), 12), 4095),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", STRETCHED)
def test_other_ranges_are_stretched_only_if_lossy(name, mode):
    data, white = STRETCHED[name]
    with pytest.raises(DecodeError, match=r"sample.*lossy=True"):
        read(data, mode)
    got = read(data, mode, lossy=True)[:, :, 0]
    unit = 255 if got.dtype == np.uint8 else 65535
    assert abs(got / unit - RAMP).max() <= 1.5 / 255 + 1 / white


@pytest.mark.parametrize("maxval", [1, 15, 51, 255])
@pytest.mark.parametrize("is_text", [False, True])
def test_ranges_that_255_is_a_multiple_of_are_exact(maxval, is_text):
    levels = np.round(RAMP * maxval).astype(int)
    for mode in MODES:
        np.testing.assert_array_equal(
            read(pgm(levels, maxval, is_text=is_text), mode)[:, :, 0], levels * (255 // maxval)
        )


@pytest.mark.skipif(not features.check("avif"), reason="Pillow reads AVIF from 11.3 on")
def test_the_depth_of_any_avif_item_counts():
    """An alpha item of 8 bits may come first."""
    data = encode(Image.fromarray(PHOTO), "AVIF")
    second = box(b"free", box(b"av1C", b"\x81\0\x40\0"))
    for mode in MODES:
        read(data, mode)
        with pytest.raises(DecodeError, match="10-bit samples"):
            read(data + second, mode)
        read(data + second, mode, lossy=True)


# --- masks -----------------------------------------------------------------------------------------------------------

MASKS = {
    **{f"tiff of {bits} bits": tiff(CLASSES, bits) for bits in (4, 8, 12, 16, 32)},
    "tiff, big-endian": tiff(CLASSES, 16, ">"),
    "tiff of signed 16 bits": tiff(CLASSES - 1, 16, t339=2),
    "tiff of signed 32 bits": tiff(CLASSES - 1, 32, t339=2),
    **{f"pgm {maxval}": pgm(CLASSES, maxval) for maxval in (12, 20, 254, 255, 256, 1000, 65535)},
    **{f"text pgm {maxval}": pgm(CLASSES, maxval, is_text=True) for maxval in (12, 20, 255, 1000, 65535)},
    "jpeg 2000 of 4 bits": jpeg2000(CLASSES.astype(np.uint8), 4),
    "jpeg 2000 of 8 bits": jpeg2000(CLASSES.astype(np.uint8), 8),
    "jpeg 2000 of 12 bits": jpeg2000(CLASSES.astype(np.uint16), 12),
    "jpeg 2000 of 16 bits": jpeg2000(CLASSES.astype(np.uint16), 16),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_keep_their_values(name):
    np.testing.assert_array_equal(mask(MASKS[name]), CLASSES - 1 if "signed" in name else CLASSES)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (tiff(CLASSES, 8, t262=0), "counts from white"),
        (tiff(CLASSES, 16, t262=0), "counts from white"),
        (tiff(CLASSES, 8, t262=None), "counts from white"),
        (tiff(CLASSES - 1, 8, t339=2), "signed 8-bit"),
        (jpeg2000(CLASSES.astype(np.uint8), 8, is_signed=True), "signed 8-bit"),
        (tiff(CLASSES - 1, 32), "above 2147483647"),
        (pgm(CLASSES + 243, 20), "255, above the maxval 20"),
        (pgm(CLASSES + 243, 20, is_text=True), "255, above the maxval 20"),
        (pgm(CLASSES + 999, 1000), "1011, above the maxval 1000"),
    ],
)
def test_masks_that_would_change_are_refused(data, reason):
    with pytest.raises(DecodeError, match=reason):
        mask(data)


@pytest.mark.skipif(not features.check("avif"), reason="Pillow reads AVIF from 11.3 on")
def test_an_avif_is_no_mask():
    with pytest.raises(DecodeError, match="mask"):
        mask(encode(Image.fromarray(CLASSES.astype(np.uint8)), "AVIF"))


def test_one_bit_is_true_where_it_shows_white():
    is_white = CLASSES % 2 == 1
    pbm = b"P4 %d %d\n" % (W, H) + packed(~is_white, 1)
    for data in (pbm, tiff(is_white, 1), tiff(~is_white, 1, t262=0), encode(Image.fromarray(is_white), "PNG")):
        np.testing.assert_array_equal(mask(data), is_white)


# --- metadata --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_png_with_a_large_profile_is_read(mode, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(Image.fromarray(PHOTO), "PNG", exif=exif, icc_profile=bytes(3_000_000))
    without = encode(Image.fromarray(PHOTO), "PNG", exif=exif)
    np.testing.assert_array_equal(read(data, mode), read(without, mode))
    gray = Image.fromarray(CLASSES.astype(np.uint8))
    np.testing.assert_array_equal(mask(encode(gray, "PNG", icc_profile=bytes(3_000_000))), CLASSES)


def test_only_the_profile_is_left_out():
    """A PNG that is cut short, or damaged elsewhere, is still refused."""
    profile = chunk(b"iCCP", b"name\0\0" + zlib.compress(bytes(3_000_000)))
    data = encode(Image.fromarray(PHOTO), "PNG")
    for damaged in (data[: len(data) // 2], data[:60] + b"\xff\xff" + data[62:]):
        with pytest.raises(DecodeError):
            read(damaged[:33] + profile + damaged[33:], "L")
