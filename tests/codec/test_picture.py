"""Images that are not 8-bit RGB equal what OpenCV, tifffile, NumPy and Pillow read."""

from __future__ import annotations

import io
import logging
import re
import struct
import sys
import time

import cv2
import numpy as np
import pytest
import tifffile
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

import cuaug
from cuaug._runtime.extras import install_command
from cuaug.codec import read_header, read_multichannel
from cuaug.codec.formats import loss
from cuaug.errors import DecodeError, LoaderError
from tests.support.codec.encoded_images import (
    FORMATS,
    GRAY,
    PHOTO,
    RGB,
    H,
    W,
    adobe_cmyk,
    encode,
    png16,
    tagged_files,
    with_alpha,
)
from tests.support.codec.memory import forget_peak, peak_bytes
from tests.support.codec.originals import interlaced_png, npy, tiff

RNG = np.random.default_rng(0)
DTYPES = ("uint8", "uint16", "float32")
SEVERAL = ("apng", "webp animated", "tiff two pages")  # images in one file


def noise(channels: int, dtype: str, height: int = H, width: int = W) -> np.ndarray:
    """Samples of the whole range, (height, width, channels)."""
    if dtype == "float32":
        return RNG.normal(0, 1e3, (height, width, channels)).astype(np.float32)
    return RNG.integers(0, np.iinfo(dtype).max + 1, (height, width, channels), dtype=dtype)


def unchanged(data: bytes, **options) -> np.ndarray:
    pixels = read_multichannel(data, "unchanged", **options)
    assert pixels.flags.c_contiguous and pixels.flags.writeable and pixels.dtype.isnative and pixels.ndim == 3
    return pixels


def opencv(data: bytes) -> np.ndarray:
    """As OpenCV reads it, with RGB order."""
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
    return pixels[:, :, [0, 1, 2, 3][: pixels.shape[2]] if pixels.shape[2] < 3 else [2, 1, 0, 3][: pixels.shape[2]]]


# --- unchanged -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_deep_png_of_every_kind(channels):
    array = noise(channels, "uint16")
    np.testing.assert_array_equal(unchanged(png16(array)), array)


def test_interlaced_deep_png():
    array = noise(3, "uint16")
    np.testing.assert_array_equal(unchanged(interlaced_png(array)), array)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [1, 3, 5, 16])
def test_tiff_by_tifffile(channels, dtype, order):
    array = noise(channels, dtype)
    layouts = [{}, {"tile": (32, 16)}, {"rowsperstrip": 5}, {"compression": "zlib"}, {"bigtiff": True}]
    stored = array if channels > 1 else array[:, :, 0]
    for options in layouts:
        np.testing.assert_array_equal(unchanged(tiff(stored, byteorder=order, **options)), array, str(options))
    if channels > 1:
        planes = np.ascontiguousarray(array.transpose(2, 0, 1))
        for options in layouts:
            data = tiff(planes, byteorder=order, planarconfig="separate", **options)
            np.testing.assert_array_equal(unchanged(data), array, str(options))


@pytest.mark.parametrize("compression", [1, 5, 8, 32773])
@pytest.mark.parametrize(
    ("dtype", "predictor"), [("uint8", 1), ("uint8", 2), ("uint16", 1), ("uint16", 2), ("float32", 1), ("float32", 3)]
)
def test_tiff_by_opencv(dtype, predictor, compression):
    array = noise(3, dtype)
    options = [cv2.IMWRITE_TIFF_COMPRESSION, compression, cv2.IMWRITE_TIFF_PREDICTOR, predictor]
    is_written, data = cv2.imencode(".tiff", array[:, :, ::-1], options)
    assert is_written
    np.testing.assert_array_equal(unchanged(data.tobytes()), array)


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in SEVERAL])
def test_eight_bit_files_equal_pillow(name):
    image = Image.open(io.BytesIO(FORMATS[name]))
    mode = {"1": "L", "P": "RGBA" if image.has_transparency_data else "RGB", "YCbCr": "RGB"}.get(image.mode, image.mode)
    expected = np.asarray(image.convert(mode))
    np.testing.assert_array_equal(unchanged(FORMATS[name]).squeeze(), expected)


def test_sixteen_bit_gray_of_other_formats():
    array = noise(1, "uint16")
    for form in ("JPEG2000", "PPM", "TIFF"):
        np.testing.assert_array_equal(unchanged(encode(Image.fromarray(array[:, :, 0]), form)), array, form)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 16), st.sampled_from(DTYPES), st.booleans(), st.booleans())
def test_arrays_of_any_size(height, width, channels, dtype, is_fortran, is_big):
    array = noise(channels, dtype, height, width)
    stored = np.asfortranarray(array) if is_fortran else array
    stored = stored.astype(stored.dtype.newbyteorder(">" if is_big else "<"))
    for data in (npy(stored), tiff(array, planarconfig="contig") if channels > 1 else npy(stored[:, :, 0])):
        np.testing.assert_array_equal(unchanged(data), array)


@pytest.mark.parametrize("value", range(1, 9))
def test_orientation(value):
    array = noise(3, "uint16")
    deep = tiff(array, photometric="rgb", extratags=[(274, "H", 1, value, True)])
    expected = opencv(deep)
    np.testing.assert_array_equal(unchanged(deep), expected)
    np.testing.assert_array_equal(unchanged(deep, apply_exif=False), array)
    for name, data in tagged_files(value).items():
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        if "cmyk" not in name and "palette" not in name and "two blocks" not in name:
            np.testing.assert_array_equal(unchanged(data), np.asarray(upright), name)
            np.testing.assert_array_equal(read_multichannel(data, "L")[:, :, 0], np.asarray(upright.convert("L")), name)


# --- L and RGBA ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["L", "RGBA"])
@pytest.mark.parametrize("name", [name for name in FORMATS if name not in SEVERAL])
def test_modes_equal_pillow(name, mode):
    image = Image.open(io.BytesIO(FORMATS[name]))
    image = image if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else image.convert("RGB")
    expected = np.asarray(image.convert(mode))
    pixels = read_multichannel(FORMATS[name], mode)
    assert pixels.dtype == np.uint8 and pixels.shape == (H, pixels.shape[1], len(mode))
    np.testing.assert_array_equal(pixels.squeeze(), expected)


def test_modes_of_arrays():
    np.testing.assert_array_equal(read_multichannel(npy(PHOTO), "L")[:, :, 0], np.asarray(GRAY))
    rgba = read_multichannel(npy(PHOTO), "RGBA")
    assert (rgba[:, :, 3] == 255).all() and (rgba[:, :, :3] == PHOTO).all()
    deep = noise(3, "uint16")
    with pytest.raises(DecodeError, match=r'uint16 with 3 channels, which only .*"unchanged"'):
        read_multichannel(npy(deep), "RGBA")
    np.testing.assert_array_equal(read_multichannel(npy(deep), "RGBA", lossy=True)[:, :, :3], deep >> 8)


# --- losses ----------------------------------------------------------------------------------------------------------

COG = [(254, "I", 1, 1, True)]  # NewSubfileType: a smaller copy


def two_pages(second: list) -> bytes:
    out = io.BytesIO()
    with tifffile.TiffWriter(out) as writer:
        writer.write(PHOTO, photometric="rgb", metadata=None)
        writer.write(PHOTO[::2, ::2], photometric="rgb", metadata=None, subfiletype=1 if second else 0)
    return out.getvalue()


DEEP = noise(3, "uint16")
LOSSES = {
    "png 16": (png16(DEEP), "16-bit samples"),
    "png 16 gray": (png16(DEEP[:, :, :1]), "16-bit samples"),
    "tiff 16": (tiff(DEEP, photometric="rgb"), "16-bit samples"),
    "tiff 16 gray": (tiff(DEEP[:, :, 0]), "16-bit samples"),
    "tiff 5 bands": (tiff(noise(5, "uint8"), photometric="rgb", planarconfig="contig"), "5 bands"),
    "tiff 5 deep bands": (tiff(noise(5, "uint16"), photometric="rgb"), "5 bands"),
    "tiff 9 bands": (tiff(noise(9, "uint8")), "9 bands"),
    "tiff nir": (tiff(noise(4, "uint8"), photometric="rgb", extrasamples=[0]), "4 bands"),
    "pgm 16": (encode(Image.fromarray(DEEP[:, :, 0]), "PPM"), "16-bit samples"),
    "ppm 16": (cv2.imencode(".ppm", DEEP)[1].tobytes(), "16-bit samples"),
    "jpeg2000 16": (encode(Image.fromarray(DEEP[:, :, 0]), "JPEG2000"), "16-bit samples"),
    "two pages": (two_pages([]), "2 pages"),
    "apng": (FORMATS["apng"], "animation"),
    "webp": (FORMATS["webp animated"], "animation"),
    "gif": (encode(RGB, "GIF", save_all=True, append_images=[RGB.rotate(180)]), "animation"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_refused_unless_allowed(name, decoder):
    data, loss_text = LOSSES[name]
    with pytest.raises(DecodeError, match=rf"{loss_text}.*(lossy=True|unchanged)"):
        read_header(data)
    with pytest.raises(DecodeError, match=rf"{loss_text}.*(lossy=True|unchanged)"):
        read_multichannel(data, "L")
    if name in ("tiff 5 deep bands", "tiff 9 bands"):  # Pillow does not read them at all
        with pytest.raises(DecodeError):
            read_header(data, lossy=True)
        return
    pixels = decoder.decode(read_header(data, lossy=True))
    assert pixels.shape[2] == 3 and read_multichannel(data, "RGBA", lossy=True).shape[:2] == pixels.shape[:2]
    if "pages" in name or "animation" in loss_text:
        with pytest.raises(DecodeError, match=loss_text):
            read_multichannel(data, "unchanged")


def test_float_samples_have_no_8_bits(decoder):
    data = tiff(DEEP[:, :, 0].astype(np.float32))
    for options in {}, {"lossy": True}:
        with pytest.raises(DecodeError, match=r'no fixed range.*mode="unchanged"'):
            decoder.decode(read_header(data, **options))
        with pytest.raises(DecodeError, match=r'no fixed range.*mode="unchanged"'):
            read_multichannel(data, "RGBA", **options)


def test_what_is_no_loss(decoder):
    files = [two_pages(COG), FORMATS["mpo"], encode(with_alpha(RGB), "TIFF"), adobe_cmyk()[0], encode(RGB, "GIF")]
    for data in files:
        decoder.decode(read_header(data))
        unchanged(data)


def test_alpha_is_logged_once(caplog, monkeypatch):
    files = [FORMATS[name] for name in ("png rgba", "webp rgba", "webp lossless rgba", "png palette transparency")]
    for data in [*files, encode(with_alpha(RGB), "TIFF"), FORMATS["png la"]]:
        monkeypatch.setattr(loss, "_logged_alpha", False)
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="cuaug"):
            for _ in range(2):
                read_header(data)
            read_multichannel(data, "RGBA")
        assert [record.message.startswith("an image has alpha") for record in caplog.records] == [True]
    caplog.clear()
    monkeypatch.setattr(loss, "_logged_alpha", False)
    for name in ("png rgb", "webp rgb", "webp lossless rgb", "jpeg gray", "png p", "tiff rgb", "gif"):
        read_header(FORMATS[name])
    assert not caplog.records


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (npy(np.zeros((3, 40, 50), np.uint8)), r"shape \(3, 40, 50\): an image is"),
        (npy(np.zeros((4, 5), np.float64)), "float64: uint8, uint16, float32"),
        (npy(np.zeros((0, 5), np.uint8)), "no image"),
        (npy(np.array([[object()]], dtype=object)), "pickle"),
        (npy(PHOTO)[:-5], "has more than"),
        (npy(np.zeros((600, 600), np.uint8)), "max_pixels=250000"),
        (npy(np.zeros((400, 400, 16), np.float32)), "above the limit of 2000000"),
        (tiff(np.zeros((400, 400, 16), np.float32), planarconfig="contig", compression="zlib"), "limit of 2000000"),
        (tiff(np.zeros((600, 600), np.uint16), compression="zlib"), "max_pixels=250000"),
        (tiff(np.zeros((9, 9), np.float64)), "float64 samples: uint8, uint16 and float32"),
        (tiff(np.zeros((9, 9), np.int16)), "int16 samples"),
        (tiff(np.zeros((70_000, 1), np.float32), rowsperstrip=1), "70000 strips or tiles, more than 65536"),
        (tiff(noise(17, "uint8"), planarconfig="contig"), "17 bands"),
        (tiff(DEEP, planarconfig="contig")[: DEEP.nbytes // 2], "cut short|overlap"),
    ],
)
def test_refused(data, reason):
    with pytest.raises(DecodeError, match=reason):
        read_multichannel(data, "unchanged", max_pixels=250_000)


def test_planes_of_an_unknown_layout_are_refused():
    """tifffile would return memory that it has not set."""
    data = bytearray(LOSSES["tiff 16"][0])
    tag = tifffile.TiffFile(io.BytesIO(data)).pages[0].tags[284]
    struct.pack_into("<H", data, tag.valueoffset, 256)
    with pytest.raises(DecodeError, match="planar configuration 256"):
        unchanged(bytes(data))


def test_many_large_directories_are_counted_in_little_time():
    """A hundred directories of 65,535 entries each may overlap in a small file."""
    size = 2 + 12 * 65_535
    data = bytearray(b"II*\0" + struct.pack("<I", 8) + b"\xff\xff" * (size // 2 + 4096))
    for i in range(100):
        struct.pack_into("<I", data, 8 + 40 * i + size, 8 + 40 * (i + 1))
    begin = time.process_time()
    with pytest.raises(DecodeError):
        read_header(bytes(data))
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("compression", ["lzw", "zlib", "lzma", "zstd"])
def test_a_strip_expands_to_no_more_than_its_pixels(compression):
    data = tiff(np.zeros((64, 64, 3), np.uint16), compression=compression)
    bomb = tiff(np.zeros((1, 32 << 20), np.uint8), compression=compression)
    strip = tifffile.TiffFile(io.BytesIO(bomb)).pages[0]
    page = tifffile.TiffFile(io.BytesIO(data)).pages[0]
    out = bytearray(data + bomb)
    for tag, value in ((273, len(data) + strip.dataoffsets[0]), (279, strip.databytecounts[0])):
        out[page.tags[tag].offset + 8 : page.tags[tag].offset + 12] = struct.pack("<I", value)
        struct.pack_into("<H", out, page.tags[tag].offset + 2, 4)
    before = forget_peak()
    try:
        assert not unchanged(bytes(out)).any()
    except DecodeError as error:
        assert "a strip or tile of the TIFF is damaged, or larger than its pixels" in str(error)
    assert peak_bytes() - before < 16 << 20


@pytest.mark.parametrize("module", ["tifffile", "imagecodecs"])
def test_a_missing_library_is_named_with_its_remedy(monkeypatch, module):
    deep, gray = LOSSES["tiff 16"][0], LOSSES["tiff 16 gray"][0]
    monkeypatch.setitem(sys.modules, module, None)  # the import fails as if it were not installed
    with pytest.raises(LoaderError, match=rf"this TIFF needs {module} .*: {re.escape(install_command('tiff'))}"):
        unchanged(deep)
    unchanged(gray)  # by Pillow


def test_a_loader_refuses_losses_unless_allowed():
    class Source:
        def __len__(self):
            return 1

        def read(self, index):
            return png16(DEEP), 0

    with cuaug.Loader(Source(), threads=1) as loader, pytest.raises(DecodeError, match="16-bit samples"):
        next(iter(loader))
    options = cuaug.DecodeOptions(lossy=True)
    with cuaug.Loader(Source(), threads=1, decode=options) as loader:
        ((images, _),) = loader
    expected = torch.from_numpy((DEEP >> 8).astype(np.uint8)).permute(2, 0, 1)
    assert (images[0].int() - expected.int()).abs().max() <= 1
    assert torch.equal(cuaug.decode(png16(DEEP), decode=options), images[0])
    with pytest.raises(LoaderError, match=r"^mode must be one of 'RGB', 'L', 'RGBA', 'unchanged', not 'CMYK'"):
        cuaug.DecodeOptions(mode="CMYK")
