"""`cuaug prepare` on JPEGs: which files get restart markers, and that their pixels stay the same."""

from __future__ import annotations

import io
import shutil

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

import cuaug
from cuaug import transforms as T
from cuaug.codec.jpeg_index import crop_jpeg
from cuaug.commands.cli import main
from cuaug.commands.prepare import with_restarts
from tests.support.codec.encoded_images import adobe_cmyk, app1, as_pillow, encode, photo, tiff_block
from tests.support.prepare.fake_jpegtran import LARGE, MARKED, PLAIN, ROTATED

needs_jpegtran = pytest.mark.skipif(shutil.which("jpegtran") is None, reason="jpegtran is not installed")

SEVERAL = encode(LARGE, "MPO", save_all=True, append_images=[LARGE.rotate(180)])
OTHER = encode(Image.fromarray(photo(200, 410, seed=1)), "JPEG", quality=85, subsampling=2, restart_marker_blocks=2)


@pytest.mark.parametrize(
    ("data", "answer", "reason"),
    [
        (PLAIN[:-400] + b"\xff\xd9", None, "jpegtran: not known"),
        (PLAIN[:900], None, "always decoded as a whole"),
        (b"\xff\xd8\xff\xe0not a picture", None, "Truncated File Read"),
        (adobe_cmyk()[0], None, "always decoded as a whole"),
        (ROTATED, None, "jpegtran: not known"),
        (ROTATED, OTHER, "jpegtran would change the image"),
        (ROTATED, MARKED, "jpegtran would change the image"),
        (ROTATED, b"", "damaged: "),
        (ROTATED, encode(LARGE, "JPEG", quality=85, subsampling=2, progressive=True), "does not set restart markers"),
        (ROTATED, PLAIN, "does not set restart markers"),
        (SEVERAL, None, "MPO, a file of several images"),
    ],
    ids=[
        "no end",
        "cut short",
        "no picture",
        "CMYK",
        "jpegtran fails",
        "other pixels",
        "other EXIF",
        "nothing",
        "progressive",
        "no markers",
        "several pictures",
    ],
)
def test_files_that_are_copied_unchanged_and_reported(jpegtran, tmp_path, capsys, data, answer, reason):
    source, target = tmp_path / "photos", tmp_path / "prepared"
    source.mkdir()
    (source / "a.jpg").write_bytes(data)
    (source / "b.jpg").write_bytes(PLAIN)
    if answer is not None:
        jpegtran.add_answer(data, answer)
    assert main(["prepare", str(source), str(target), "--jpegtran", jpegtran.path]) == 0
    captured = capsys.readouterr()
    assert "1 JPEGs with restart markers" in captured.out and "1 copied unchanged" in captured.out
    assert captured.err.count("\n") == 1 and str(source / "a.jpg") in captured.err and reason in captured.err
    assert (target / "a.jpg").read_bytes() == data and (target / "b.jpg").read_bytes() == MARKED


@pytest.mark.parametrize("appended", [b"\0\0\0", b"a video \xff\xd9 and its end", PLAIN])
def test_bytes_after_an_image_stay(prepared, photos, appended):
    (photos / "cats" / "a.jpg").write_bytes(PLAIN + appended)
    _, target, output, _ = prepared(photos)
    assert "2 JPEGs with" in output and (target / "cats" / "a.jpg").read_bytes() == MARKED + appended


def test_exif_with_a_rational_of_zero_by_zero(prepared, jpegtran, photos):
    """0 / 0 is not equal to itself."""
    exif = Image.Exif()
    exif[0x011A] = IFDRational(0, 0)
    data, marked = (
        encode(LARGE, "JPEG", quality=85, subsampling=2, exif=exif, **options)
        for options in ({}, {"restart_marker_blocks": 2})
    )
    (photos / "cats" / "a.jpg").write_bytes(data)
    jpegtran.add_answer(data, marked)
    _, target, output, _ = prepared(photos)
    assert "2 JPEGs with" in output and (target / "cats" / "a.jpg").read_bytes() == marked


def test_the_same_batches(tmp_path):
    """A loader gives the same bits from prepared files, whose JPEG crops it decodes."""
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
@pytest.mark.parametrize("kind", ["4:2:0", "4:4:4", "progressive", "gray", "rotated"])
def test_the_real_jpegtran_keeps_pixels_and_comments(size, kind):
    image = Image.fromarray(photo(*size))
    options = {"4:4:4": {"subsampling": 0}, "progressive": {"progressive": True}}.get(kind, {})
    data = encode(image.convert("L") if kind == "gray" else image, "JPEG", comment=b"a comment", **options)
    orientation = 6 if kind == "rotated" else 1
    data = data[:2] + app1(tiff_block(orientation)) + data[2:]
    prepared = with_restarts(data)
    np.testing.assert_array_equal(as_pillow(prepared), as_pillow(data))
    assert Image.open(io.BytesIO(prepared)).info["comment"] == b"a comment"
    if min(size) > 80:
        height, width = as_pillow(data).shape[:2]
        region = height // 2, width // 2, height // 2 + 9, width // 2 + 9
        crop, (h, w), _ = crop_jpeg(prepared, region, (height, width), orientation)
        assert as_pillow(crop.tobytes()).shape == (h, w, 3) and h * w < 0.6 * height * width
