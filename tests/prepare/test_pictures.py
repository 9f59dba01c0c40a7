"""Which JPEGs get restart markers, and that they stay the same pictures; with jpegtran itself where it is installed."""

from __future__ import annotations

import io
import shutil

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

import cuaug
from cuaug import transforms as T
from cuaug.codec.jpeg_crop import crop_jpeg
from cuaug.commands.cli import main
from cuaug.commands.prepare import with_restarts
from tests.codec.pictures import adobe_cmyk, app1, as_pillow, encode, photo, tiff_block
from tests.prepare.stand_in import LARGE, MARKED, PLAIN, TURNED

needs_jpegtran = pytest.mark.skipif(shutil.which("jpegtran") is None, reason="jpegtran is not installed")

SEVERAL = encode(LARGE, "MPO", save_all=True, append_images=[LARGE.rotate(180)])
OTHER = encode(Image.fromarray(photo(200, 410, seed=1)), "JPEG", quality=85, subsampling=2, restart_marker_blocks=2)


@pytest.mark.parametrize(
    ("data", "answer", "why"),
    [
        (PLAIN[:-400] + b"\xff\xd9", None, "jpegtran: not known"),
        (PLAIN[:900], None, "always decoded as a whole"),
        (b"\xff\xd8\xff\xe0not a picture", None, "Truncated File Read"),
        (adobe_cmyk()[0], None, "always decoded as a whole"),
        (TURNED, None, "jpegtran: not known"),
        (TURNED, OTHER, "jpegtran would change the picture"),
        (TURNED, MARKED, "jpegtran would change the picture"),
        (TURNED, b"", "damaged: "),
        (TURNED, encode(LARGE, "JPEG", quality=85, subsampling=2, progressive=True), "does not set restart markers"),
        (TURNED, PLAIN, "does not set restart markers"),
        (SEVERAL, None, "MPO, a file of several pictures"),
    ],
    ids=[
        "no end",
        "cut short",
        "no picture",
        "CMYK",
        "it fails",
        "other pixels",
        "other EXIF",
        "nothing",
        "progressive",
        "no markers",
        "several pictures",
    ],
)
def test_what_stays_as_it_is(stand_in, tmp_path, capsys, data, answer, why):
    """It is copied, and told of by name."""
    source, target = tmp_path / "photos", tmp_path / "prepared"
    source.mkdir()
    (source / "a.jpg").write_bytes(data)
    (source / "b.jpg").write_bytes(PLAIN)
    if answer is not None:
        stand_in.answer(data, answer)
    assert main(["prepare", str(source), str(target), "--jpegtran", stand_in.path]) == 0
    told = capsys.readouterr()
    assert "1 JPEGs with restart markers" in told.out and "1 kept as they were" in told.out
    assert told.err.count("\n") == 1 and str(source / "a.jpg") in told.err and why in told.err
    assert (target / "a.jpg").read_bytes() == data and (target / "b.jpg").read_bytes() == MARKED


@pytest.mark.parametrize("more", [b"\0\0\0", b"a video \xff\xd9 and its end", PLAIN])
def test_what_follows_a_picture_stays(prepared, photos, more):
    (photos / "cats" / "a.jpg").write_bytes(PLAIN + more)
    _, target, told, _ = prepared(photos)
    assert "2 JPEGs with" in told and (target / "cats" / "a.jpg").read_bytes() == MARKED + more


def test_exif_without_a_value(prepared, stand_in, photos):
    """Zero divided by zero equals nothing, not even itself."""
    exif = Image.Exif()
    exif[0x011A] = IFDRational(0, 0)
    data, marked = (
        encode(LARGE, "JPEG", quality=85, subsampling=2, exif=exif, **options)
        for options in ({}, {"restart_marker_blocks": 2})
    )
    (photos / "cats" / "a.jpg").write_bytes(data)
    stand_in.answer(data, marked)
    _, target, told, _ = prepared(photos)
    assert "2 JPEGs with" in told and (target / "cats" / "a.jpg").read_bytes() == marked


def test_the_same_batches(tmp_path):
    """A loader gives the same bits from prepared files, of which it decodes parts."""
    images = [Image.fromarray(photo(200, 410, seed=i)) for i in range(6)]
    for folder, options in (("plain", {}), ("marked", {"restart_marker_blocks": 2})):
        (tmp_path / folder).mkdir()
        for i, image in enumerate(images):
            (tmp_path / folder / f"{i}.jpg").write_bytes(encode(image, "JPEG", subsampling=2, **options))
    batches = {}
    for folder in ("plain", "marked"):
        files = sorted(map(str, (tmp_path / folder).glob("*.jpg")))
        chain = [T.RandomResizedCrop(64), T.RandomHorizontalFlip()]
        with cuaug.Loader(files, chain, batch_size=3, device="cpu", seed=5) as loader:
            batches[folder] = np.concatenate([batch.images.numpy() for batch in loader])
            assert (loader.stats().parts > 0) == (folder == "marked")
    np.testing.assert_array_equal(batches["plain"], batches["marked"])


@needs_jpegtran
@pytest.mark.parametrize("size", [(200, 410), (375, 500), (331, 331), (8, 8), (64, 1040), (100, 2)])
@pytest.mark.parametrize("kind", ["4:2:0", "4:4:4", "progressive", "gray", "turned"])
def test_jpegtran(size, kind):
    image = Image.fromarray(photo(*size))
    options = {"4:4:4": {"subsampling": 0}, "progressive": {"progressive": True}}.get(kind, {})
    data = encode(image.convert("L") if kind == "gray" else image, "JPEG", comment=b"a comment", **options)
    orientation = 6 if kind == "turned" else 1
    data = data[:2] + app1(tiff_block(orientation)) + data[2:]
    written = with_restarts(data)
    np.testing.assert_array_equal(as_pillow(written), as_pillow(data))
    assert Image.open(io.BytesIO(written)).info["comment"] == b"a comment"
    if min(size) > 80:
        height, width = as_pillow(data).shape[:2]
        region = height // 2, width // 2, height // 2 + 9, width // 2 + 9
        part, (high, wide), _ = crop_jpeg(written, region, (height, width), orientation)
        assert as_pillow(part.tobytes()).shape == (high, wide, 3) and high * wide < 0.6 * height * width
