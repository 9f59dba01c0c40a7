"""Any size and any region, after any earlier decode."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cuaug.codec import CpuDecoder, EncodedJpeg, read_header
from tests.fuzz.mutations import join, split
from tests.support.codec.encoded_images import JPEG, H, W, app1, as_pillow, encode, photo, tiff_block
from tests.support.codec.jpeg_crops import draw_region, slice_region

JPEG_OPTIONS: list[dict] = [{"subsampling": 2}, {"subsampling": 0}, {"restart_marker_rows": 1}, {"progressive": True}]


@given(st.data())
def test_any_size_and_region(decoder, data):
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
    region = data.draw(draw_region(h, w))
    header = read_header(encoded)
    expected = as_pillow(encoded)
    np.testing.assert_array_equal(decoder.decode(header), expected)
    np.testing.assert_array_equal(decoder.decode(header, region), slice_region(expected, region))


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
    """libjpeg smooths their blocks with their neighbors, which a region lacks."""
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
