"""Decoding against Pillow: formats, orientations, regions, sizes."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import threading
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from cuaug.codec import CudaDecoder, HostDecoder, codec_version, gpu_decodes, read_header
from cuaug.codec.exif import orientation

H, W = 37, 53


def photo(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Smooth random colours, no two corners alike: (height, width, 3) uint8."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def encode(image: Image.Image, form: str, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def as_pillow(data: bytes) -> np.ndarray:
    """The reference: decoded, turned upright and converted by Pillow alone."""
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
    """A 16-bit PNG, which Pillow cannot write in colour, of (h, w, c) uint16 with 1 to 4 channels."""
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
    """(Adobe CMYK, the same without the Adobe marker, the same declared YCCK) as JPEG."""
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
    for mode in ("CMYK", "YCbCr"):
        files[f"tiff {mode}"] = encode(RGB.convert(mode), "TIFF")
    files["tiff two pages"] = encode(RGB, "TIFF", save_all=True, append_images=[RGB.rotate(180)])
    files["bigtiff"] = encode(RGB, "TIFF", big_tiff=True)
    files["jpeg2000 irreversible"] = encode(RGB, "JPEG2000", irreversible=True)
    files["jpeg2000 codestream"] = encode(RGB, "JPEG2000", no_jp2=True)
    files["jpeg2000 cmyk"] = encode(RGB.convert("CMYK"), "JPEG2000")
    files["gif"], files["ppm"], files["tga"] = encode(palette, "GIF"), encode(RGB, "PPM"), encode(RGB, "TGA")
    files["bmp 5-5-5"] = bmp_555()
    return files


FORMATS = formats()


@pytest.fixture(scope="module")
def decoder() -> HostDecoder:
    return HostDecoder()


@pytest.mark.parametrize("name", FORMATS)
def test_equals_pillow(name, decoder):
    data = FORMATS[name]
    expected = as_pillow(data)
    header = read_header(data)
    assert (header.height, header.width) == expected.shape[:2]
    pixels = decoder.decode(header)
    assert pixels.dtype == np.uint8 and pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, expected)
    np.testing.assert_array_equal(decoder.decode(header, (3, 5, 30, 41)), expected[3:30, 5:41])


def test_these_formats_are_not_left_to_pillow():
    """The speed rests on nvImageCodec; a wrong turn in the routing would only be slow."""
    for name in ("jpeg 4:20", "jpeg gray", "png rgba", "png p", "webp rgb"):
        assert read_header(FORMATS[name])._stream is not None, name


def test_jpeg2000_and_tiff_are_left_to_pillow():
    """A damaged JPEG 2000 crashes the process in nvImageCodec 0.9.0; a damaged TIFF comes back as a picture."""
    for name in ("jpeg2000 rgb", "jpeg2000 codestream", "tiff rgb", "tiff jpeg", "bigtiff"):
        assert read_header(FORMATS[name])._stream is None, name


def test_red_is_channel_zero(decoder):
    red = Image.new("RGB", (48, 32), (255, 0, 0))
    for form in ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "JPEG2000", "GIF"):
        mean = decoder.decode(read_header(encode(red, form))).reshape(-1, 3).mean(axis=0)
        assert mean[0] > 250 and mean[1] < 5 and mean[2] < 5, form


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_sixteen_bits_are_scaled(channels, decoder):
    """Pillow's I;16 to RGB clips at 255, a white picture; its 16-bit colour is scaled, as here."""
    deep = (photo(H, W).astype(np.uint16) * 257 + np.arange(W, dtype=np.uint16)[None, :, None]).clip(0, 65535)
    deep = np.concatenate([deep, deep[:, :, :1]], axis=2).astype(np.uint16)[:, :, :channels]
    expected = (deep[:, :, :1].repeat(3, 2) if channels < 3 else deep[:, :, :3]) / 257
    files = [png16(deep)]
    if channels == 1:
        files += [encode(Image.fromarray(deep[:, :, 0]), form) for form in ("TIFF", "JPEG2000", "PPM")]
    if channels == 3:
        files += [cv2.imencode(form, deep[:, :, ::-1])[1].tobytes() for form in (".tiff", ".ppm")]
        np.testing.assert_allclose(decoder.decode(read_header(files[0])).astype(int), as_pillow(files[0]), atol=1)
    for data in files:
        pixels = decoder.decode(read_header(data))
        assert np.abs(pixels - expected).max() <= 1


# ------------------------------------------------------------------------------------------------------------ EXIF


def tiff_block(value: int, order: str = "<", kind: int = 3, count: int = 1, copies: int = 1) -> bytes:
    """An EXIF block with the orientation tag and nothing else."""
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


@pytest.mark.parametrize("value", range(1, 9))
def test_orientations(value, decoder):
    for name, data in tagged_files(value).items():
        expected = as_pillow(data)
        header = read_header(data)
        assert (header.height, header.width) == expected.shape[:2] == ((W, H) if value >= 5 else (H, W)), name
        np.testing.assert_array_equal(decoder.decode(header), expected, name)
        for y0, x0, y1, x1 in ((0, 0, 10, 10), (3, 5, 20, 30), (header.height - 3, 2, header.height, header.width)):
            region = decoder.decode(header, (y0, x0, y1, x1))
            np.testing.assert_array_equal(region, expected[y0:y1, x0:x1], f"{name} {y0, x0, y1, x1}")


@pytest.mark.parametrize("value", [1, 2, 6, 8])
def test_orientation_can_be_ignored(value, decoder):
    for name, data in tagged_files(value).items():
        plain = next(v for k, v in tagged_files(1).items() if k == name)
        header = read_header(data, apply_exif=False)
        assert (header.height, header.width) == (H, W)
        expected = as_pillow(plain) if name != "jpeg, two blocks" else as_pillow(JPEG)
        np.testing.assert_array_equal(decoder.decode(header), expected, name)
        np.testing.assert_array_equal(decoder.decode(header, (3, 5, 20, 30)), expected[3:20, 5:30], name)


ODD_BLOCKS = {
    "empty": b"",
    "short": b"II",
    "no such byte order": b"XX" + tiff_block(6)[2:],
    "cut in the entry": tiff_block(6)[:14],
    "cut in the value": tiff_block(6)[:20],
    "directory at 0": b"II*\0\0\0\0\0" + tiff_block(6)[8:],
    "directory far away": b"II*\0\xff\xff\xff\xff" + tiff_block(6)[8:],
    "too many entries": tiff_block(6)[:8] + b"\xff\xff" + tiff_block(6)[10:],
    "value 0": tiff_block(0),
    "value 9": tiff_block(9),
    "as BYTE": tiff_block(6, kind=1),
    "count 0": tiff_block(6, count=0),
    "twice": tiff_block(6, copies=2),
}


@pytest.mark.parametrize("name", ODD_BLOCKS)
def test_odd_exif_never_costs_the_picture(name, decoder):
    """As Pillow reads it, where Pillow reads it; the stored picture where even Pillow gives up."""
    block = ODD_BLOCKS[name]
    for data, stored in ((jpeg_with(app1(block)), as_pillow(JPEG)), (png_with(block), PHOTO)):
        try:
            expected = as_pillow(data)
        except Exception:
            expected = stored
        np.testing.assert_array_equal(decoder.decode(read_header(data)), expected)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_parser_survives_anything(data):
    base = data.draw(st.sampled_from([jpeg_with(app1(tiff_block(6))), png_with(tiff_block(6)), FORMATS["webp rgba"]]))
    form = {0xFF: "jpeg", 0x89: "png", 0x52: "webp"}[base[0]]
    damaged = bytearray(base[: data.draw(st.integers(0, 400))])
    for at, value in data.draw(st.lists(st.tuples(st.integers(2, 120), st.integers(0, 255)), max_size=4)):
        if at < len(damaged):
            damaged[at] = value
    assert orientation(bytes(damaged), form) in (None, 1, 2, 3, 4, 5, 6, 7, 8)


def test_orientation_in_xmp_is_not_read(decoder):
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r tiff:Orientation="6"/></x:xmpmeta>'
    cmyk = adobe_cmyk()[0]
    for data in (JPEG, cmyk):
        tagged = data[:2] + app1(xmp, b"http://ns.adobe.com/xap/1.0/\0") + data[2:]
        np.testing.assert_array_equal(decoder.decode(read_header(tagged)), as_pillow(data))


# ------------------------------------------------------------------------------------------- sizes, regions, buffers


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_size_and_region(data):
    decoder = _shared()
    h, w = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 70))
    image = Image.fromarray(photo(h, w, seed=h * 71 + w))
    form, options = data.draw(
        st.sampled_from(
            [("JPEG", {"subsampling": s}) for s in (0, 1, 2)]
            + [("JPEG", {"progressive": True}), ("PNG", {}), ("WEBP", {}), ("TIFF", {"compression": "tiff_lzw"})]
            + [("JPEG2000", {}), ("BMP", {})]
        )
    )
    encoded = encode(image, form, **options)
    y0, x0 = data.draw(st.integers(0, h - 1)), data.draw(st.integers(0, w - 1))
    y1, x1 = data.draw(st.integers(y0 + 1, h)), data.draw(st.integers(x0 + 1, w))
    header = read_header(encoded)
    expected = as_pillow(encoded)
    np.testing.assert_array_equal(decoder.decode(header), expected)
    np.testing.assert_array_equal(decoder.decode(header, (y0, x0, y1, x1)), expected[y0:y1, x0:x1])


_decoders: list[HostDecoder] = []


def _shared() -> HostDecoder:
    """Hypothesis refuses function fixtures, and a decoder costs milliseconds."""
    if not _decoders:
        _decoders.append(HostDecoder())
    return _decoders[0]


def test_narrow_regions_of_subsampled_jpegs(decoder):
    """libjpeg drops the chroma smoothing in a crop one pixel wide; found by the test above."""
    for value in (1, 6):
        for subsampling in (1, 2, "4:1:1"):
            data = encode(Image.fromarray(photo(40, 50)), "JPEG", subsampling=subsampling)
            header = read_header(data[:2] + app1(tiff_block(value)) + data[2:])
            whole = decoder.decode(header).copy()
            for at in range(0, 32):
                for thin in (1, 2, 5, 8):
                    rows = decoder.decode(header, (at, 3, at + thin, 33))
                    np.testing.assert_array_equal(rows, whole[at : at + thin, 3:33])
                    columns = decoder.decode(header, (3, at, 33, at + thin))
                    np.testing.assert_array_equal(columns, whole[3:33, at : at + thin])


@pytest.mark.parametrize(
    "region", [(0, 0, 0, 5), (5, 5, 5, 9), (-1, 0, 5, 5), (0, 0, H + 1, 5), (0, 9, 5, W + 1), (9, 0, 3, 5)]
)
def test_a_region_outside_is_refused(region, decoder):
    with pytest.raises(ValueError, match="outside 37 x 53"):
        decoder.decode(read_header(JPEG), region)


def test_neighbours_do_not_matter(decoder):
    """Whatever was decoded before, well or badly, a file gives the same pixels."""
    order = np.random.default_rng(0).integers(0, len(FORMATS), 120)
    names = list(FORMATS)
    expected = {name: as_pillow(data) for name, data in FORMATS.items()}
    for i in order:
        np.testing.assert_array_equal(decoder.decode(read_header(FORMATS[names[i]])), expected[names[i]], names[i])


def test_constant_colours_of_every_size():
    decoder = HostDecoder()
    rng = np.random.default_rng(1)
    for gray in rng.integers(0, 256, 100).tolist():
        size = tuple(rng.integers(1, 200, 2).tolist())
        pixels = decoder.decode(read_header(encode(Image.new("RGB", size, (gray,) * 3), "JPEG")))
        assert pixels.shape == (size[1], size[0], 3) and np.ptp(pixels) == 0 and abs(int(pixels.flat[0]) - gray) <= 1


def test_the_buffer_grows_and_is_given_back(monkeypatch):
    monkeypatch.setattr("cuaug.codec.decoders._KEEP_BYTES", 1 << 20)
    monkeypatch.setattr("cuaug.codec.decoders._PATIENCE", 5)
    decoder = HostDecoder()
    large = Image.new("RGB", (1000, 900), (10, 200, 30))
    np.testing.assert_array_equal(decoder.decode(read_header(encode(large, "PNG"))), np.asarray(large))
    assert len(decoder._pixels) >= 2_700_000
    for _ in range(5):
        np.testing.assert_array_equal(decoder.decode(read_header(PNG)), PHOTO)
    assert len(decoder._pixels) <= (1 << 20) + 3
    np.testing.assert_array_equal(decoder.decode(read_header(encode(large, "PNG"))), np.asarray(large))


def test_fancy_upsampling_is_a_switch(decoder):
    data = encode(Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)), "JPEG")
    plain = HostDecoder(fancy_upsampling=False).decode(read_header(data))
    assert (plain != decoder.decode(read_header(data))).any()


# ---------------------------------------------------------------------------------------------- threads, forks, import


def test_one_decoder_per_thread():
    expected = {name: as_pillow(data) for name, data in FORMATS.items() if "jpeg" in name or "png" in name}
    failures = []

    def work(seed: int) -> None:
        try:
            decoder = HostDecoder()
            names = np.random.default_rng(seed).permutation(list(expected))
            for name in names:
                if (decoder.decode(read_header(FORMATS[name])) != expected[name]).any():
                    failures.append(name)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_decodes(decoder):
    decoder.decode(read_header(JPEG))
    child = os.fork()
    if child == 0:
        same = (HostDecoder().decode(read_header(JPEG)) == as_pillow(JPEG)).all()
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_import_and_failures_print_nothing():
    program = """
import io, os, sys
import cuaug.codec
assert "nvidia.nvimgcodec" not in sys.modules
from PIL import Image
from cuaug.codec import HostDecoder, read_header
from cuaug.errors import DecodeError
decoder = HostDecoder()
assert "OPENCV_LOG_LEVEL" not in os.environ
for form in ("JPEG", "WEBP", "JPEG2000", "BMP"):
    out = io.BytesIO()
    Image.radial_gradient("L").convert("RGB").save(out, form)
    try:
        decoder.decode(read_header(out.getvalue()[:len(out.getvalue()) // 2]))
    except DecodeError:
        continue
    raise AssertionError(form)
"""
    environment = {k: v for k, v in os.environ.items() if k != "OPENCV_LOG_LEVEL"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_version():
    assert codec_version().startswith("0.9.")


# ---------------------------------------------------------------------------------------------------------------- GPU


def _why_no_gpu() -> str:
    if not gpu_decodes(0)[0]:
        return gpu_decodes(0)[1]
    try:
        import cupy  # noqa: F401
    except ImportError as error:
        return str(error)
    return ""


@pytest.fixture
def cupy():
    why = _why_no_gpu()
    if why:
        (pytest.fail if os.environ.get("CUAUG_REQUIRE_CUDA") == "1" else pytest.skip)(why)
    import cupy

    return cupy


def test_gpu_decodes_says_why_not():
    able, text = gpu_decodes(0)
    assert isinstance(able, bool) and text and "\n" not in text


@pytest.mark.cuda
def test_cuda_batches(cupy):
    """Every format in one batch, a bad file among them. JPEG decoders may differ by rounding."""
    files = dict(FORMATS) | {f"{name} {v}": data for v in (3, 6) for name, data in tagged_files(v).items()}
    bad = JPEG[: len(JPEG) // 2]
    headers = [read_header(data) for data in files.values()] + [read_header(bad)]
    stream = cupy.cuda.Stream(non_blocking=True)
    memory = [cupy.full((1, 4096, 3), 77, cupy.uint8) for _ in headers]
    cupy.cuda.Device().synchronize()
    cuda = CudaDecoder(cupy.cuda.Device().id)
    slots = [cuda.wrap(array, stream.ptr) for array in memory]
    outcomes = cuda.decode(headers, slots, stream.ptr)
    stream.synchronize()
    assert "truncated" in str(outcomes.pop())
    for (name, data), header, array, outcome in zip(files.items(), headers, memory, outcomes, strict=False):
        pixels = array.get().reshape(-1)[: header.height * header.width * 3] if outcome is None else outcome
        off = np.abs(pixels.reshape(header.height, header.width, 3).astype(int) - as_pillow(data))
        assert off.max() <= (6 if "jpeg" in name or "webp" in name or "mpo" in name else 1), name
