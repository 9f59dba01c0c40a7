"""Any size and any region, after any earlier decode."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cuaug.codec import CpuDecoder, DecodedImage, EncodedImage, EncodedJpeg, JpegIndex, read_header
from cuaug.errors import DecodeError
from tests.codec.images import FORMATS, JPEG, PHOTO, PNG, H, W, app1, as_pillow, encode, photo, tiff_block
from tests.codec.mutations import join, split

JPEG_OPTIONS: list[dict] = [{"subsampling": 2}, {"subsampling": 0}, {"restart_marker_rows": 1}, {"progressive": True}]


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


_decoders: list[CpuDecoder] = []


def _shared() -> CpuDecoder:
    """Hypothesis refuses function fixtures, and a decoder costs milliseconds."""
    if not _decoders:
        _decoders.append(CpuDecoder())
    return _decoders[0]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_batch_equals_single_decodes(data):
    """All formats, rotated and damaged files, narrow and cropped regions, and decoded images."""
    one_by_one, together, index = _shared(), CpuDecoder(), JpegIndex(1 << 20)
    large = Image.fromarray(photo(200, 300))
    exif_blocks = [app1(tiff_block(orientation))[4:] for orientation in (1, 6)]
    jpegs = [
        encode(large, "JPEG", exif=exif, quality=95, **options) for exif in exif_blocks for options in JPEG_OPTIONS
    ]
    files = [*jpegs, *FORMATS.values(), jpegs[0][:-2000], PNG[:-100]]
    for _ in range(2):
        headers: list[EncodedImage | DecodedImage] = []
        regions = []
        for file in data.draw(st.lists(st.none() | st.sampled_from(files), max_size=9)):
            headers.append(header := DecodedImage(PHOTO) if file is None else read_header(file, lossy=True))
            y0, x0 = data.draw(st.integers(0, header.height - 1)), data.draw(st.integers(0, header.width - 1))
            y1, x1 = data.draw(st.integers(y0 + 1, header.height)), data.draw(st.integers(x0 + 1, header.width))
            regions.append(data.draw(st.sampled_from([None, (y0, x0, y1, x1)])))
        outcomes = together.decode_batch(headers, regions, index=index)
        for outcome, header, region in zip(outcomes, headers, regions, strict=True):
            try:
                expected = one_by_one.decode(header, region)
            except DecodeError as error:
                assert isinstance(outcome, DecodeError) and outcome.cause == error.cause
            else:
                assert outcome.decoded_by == one_by_one.decoded_by
                np.testing.assert_array_equal(outcome.pixels, expected)


def test_damaged_files_do_not_harm_their_neighbours(decoder):
    """Damage behind a sound header may make nvImageCodec fail for a whole call."""
    damaged = [read_header(data) for data in (JPEG[:-200], PNG[:-300])]
    outcomes = decoder.decode_batch([read_header(JPEG), *damaged, read_header(PNG)], [None] * 4)
    np.testing.assert_array_equal(outcomes[0].pixels, as_pillow(JPEG))
    np.testing.assert_array_equal(outcomes[3].pixels, PHOTO)
    assert all(isinstance(outcome, DecodeError) for outcome in outcomes[1:3])


def test_narrow_regions_of_subsampled_jpegs(decoder):
    """libjpeg does not smooth the chroma of a crop one pixel wide; `test_any_size_and_region` found it."""
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


@pytest.mark.parametrize("fancy", [True, False])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_progressive_files_that_lack_scans(mode, fancy):
    """libjpeg smooths their blocks with their neighbours, which a region lacks."""
    file = encode(Image.fromarray(photo(90, 120)).convert(mode), "JPEG", progressive=True, quality=95)
    parts, decoder = split(file), CpuDecoder(fancy_upsampling=fancy)
    scans = [i for i, part in enumerate(parts) if part.name == b"\xda"]
    for last in scans[1:]:
        header = read_header(join(file, parts[:last]))
        whole = decoder.decode(header).copy()
        np.testing.assert_array_equal(whole, as_pillow(join(file, parts[:last])))
        for y0, x0, y1, x1 in ((20, 28, 38, 42), (0, 50, 40, 120), (33, 0, 60, 90)):
            np.testing.assert_array_equal(decoder.decode(header, (y0, x0, y1, x1)), whole[y0:y1, x0:x1])
    assert isinstance(read_header(file), EncodedJpeg)


@pytest.mark.parametrize(
    "region", [(0, 0, 0, 5), (5, 5, 5, 9), (-1, 0, 5, 5), (0, 0, H + 1, 5), (0, 9, 5, W + 1), (9, 0, 3, 5)]
)
def test_a_region_outside_the_image_is_refused(region, decoder):
    with pytest.raises(ValueError, match="outside 37 x 53"):
        decoder.decode(read_header(JPEG), region)


def test_neighbours_do_not_matter(decoder):
    """A file gives the same pixels after any other file, sound or damaged."""
    order = np.random.default_rng(0).integers(0, len(FORMATS), 120)
    names = list(FORMATS)
    expected = {name: as_pillow(data) for name, data in FORMATS.items()}
    for i in order:
        np.testing.assert_array_equal(
            decoder.decode(read_header(FORMATS[names[i]], lossy=True)), expected[names[i]], names[i]
        )


def test_constant_colours_of_every_size():
    decoder = CpuDecoder()
    rng = np.random.default_rng(1)
    for gray in rng.integers(0, 256, 100).tolist():
        size = tuple(rng.integers(1, 200, 2).tolist())
        pixels = decoder.decode(read_header(encode(Image.new("RGB", size, (gray,) * 3), "JPEG")))
        assert pixels.shape == (size[1], size[0], 3) and np.ptp(pixels) == 0 and abs(int(pixels.flat[0]) - gray) <= 1


def test_the_buffer_grows_and_shrinks(monkeypatch):
    monkeypatch.setattr("cuaug.codec.cpu._MAX_KEPT_BYTES", 1 << 20)
    monkeypatch.setattr("cuaug.codec.cpu._SHRINK_AFTER", 5)
    decoder = CpuDecoder()
    large = Image.new("RGB", (1000, 900), (10, 200, 30))
    np.testing.assert_array_equal(decoder.decode(read_header(encode(large, "PNG"))), np.asarray(large))
    assert len(decoder._slots[0].memory) >= 2_700_000
    for _ in range(5):
        np.testing.assert_array_equal(decoder.decode(read_header(PNG)), PHOTO)
    assert len(decoder._slots[0].memory) <= (1 << 20) + 3
    np.testing.assert_array_equal(decoder.decode(read_header(encode(large, "PNG"))), np.asarray(large))


def test_fancy_upsampling_is_a_switch(decoder):
    data = encode(Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)), "JPEG")
    plain = CpuDecoder(fancy_upsampling=False).decode(read_header(data))
    assert (plain != decoder.decode(read_header(data))).any()
