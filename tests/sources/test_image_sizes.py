"""`sources.sizes`: heights and widths from headers, as the Loader decodes them; kept on disk for the next run."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from cuaug import DecodeOptions, LoaderError, sources
from cuaug.codec import read_header
from cuaug.errors import DecodeError
from cuaug.sources import image_sizes
from cuaug.sources.file_bytes import FileRanges
from tests.support.loader.further_pictures import Arrays, Bytes, Memory, photo, write_photos
from tests.support.sources.loading import load
from tests.support.sources.writers import KINDS, samples


def jpeg(height: int, width: int, orientation: int = 0, before: bytes = b"", **options: Any) -> bytes:
    """A JPEG with an EXIF orientation, and other segments before it."""
    exif, out = Image.Exif(), io.BytesIO()
    if orientation:
        exif[0x0112] = orientation
    Image.fromarray(photo(height, width, 0)).save(out, "JPEG", exif=exif, **options)
    return b"\xff\xd8" + before + out.getvalue()[2:]


def segment(size: int) -> bytes:
    """A comment segment of this many bytes."""
    return b"\xff\xfe" + size.to_bytes(2, "big") + b"c" * (size - 2)


class InMemory(Memory):
    """Samples that only native code reads, or that only `read` gives."""

    def __init__(self, data: bytes, is_native: bool = True) -> None:
        super().__init__(1)
        self.data, self.is_native = data, is_native

    def locate(self, indices: np.ndarray) -> FileRanges | None:
        if not self.is_native:
            return None
        held = np.frombuffer(b"--" + self.data + b"--", np.uint8)
        states = np.array([[-1, len(held), held.ctypes.data, 0]])
        table = np.tile([0, 2, len(self.data), 0], (len(indices), 1, 1))
        return FileRanges([held], states, table, 0, lambda i, parts: 0)

    def read(self, index: int) -> Any:
        if self.is_native:
            raise DecodeError("native code left it")
        return self.data, 0


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CUAUG_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """An entry for each time that images were read to measure them."""
    seen: list[int] = []
    measure = image_sizes._measure
    monkeypatch.setattr(image_sizes, "_measure", lambda *arguments: seen.append(1) or measure(*arguments))
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_every_source(kind, tmp_path, cache):
    folder = tmp_path / "data"
    folder.mkdir()
    KINDS[kind].write(folder, samples())
    source = KINDS[kind].open(folder)
    for _ in range(2):  # the second time from disk
        found = sources.sizes(source, threads=2)
        assert found.dtype == np.int64 and found.tolist() == [[4, 5]] * len(source)


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(0, 9),
    st.lists(st.integers(2, 65_535), max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_headers_from_the_beginnings_of_files(height, width, orientation, comments, progressive, apply_exif):
    """With up to 400 kB of other segments first; from a path, a range of memory, and the whole file by Pillow."""
    data = jpeg(height, width, orientation, b"".join(map(segment, comments)), progressive=progressive)
    whole = read_header(data, apply_exif=apply_exif)
    with Image.open(io.BytesIO(data)) as image:
        turned = apply_exif and 5 <= orientation <= 8
        assert (whole.height, whole.width) == (image.size if turned else image.size[::-1])

    options = DecodeOptions(apply_exif=apply_exif)
    assert sources.sizes(InMemory(data), decode=options).tolist() == [[whole.height, whole.width]]


MODES = {"PNG": ["1", "L", "P", "RGB", "RGBA", "LA"], "WEBP": ["RGB", "RGBA"]}


@st.composite
def small_images(draw):
    """An upright PNG or WebP without EXIF, with text, profile or transparency."""
    form = draw(st.sampled_from(list(MODES)))
    mode, size = draw(st.sampled_from(MODES[form])), draw(st.tuples(st.integers(1, 300), st.integers(1, 300)))
    options: dict[str, Any] = {"icc_profile": draw(st.sampled_from([None, b"profile" * 50]))}
    if form == "WEBP":
        options["lossless"] = draw(st.booleans())
    else:
        text = PngInfo()
        for is_compressed, value in draw(st.lists(st.tuples(st.booleans(), st.text(max_size=50)), max_size=3)):
            text.add_itxt("Comment", value, zip=is_compressed)
        options |= {"pnginfo": text, "bits": draw(st.sampled_from([1, 2, 4, 8])) if mode == "P" else 8}
    out = io.BytesIO()
    Image.fromarray(photo(*size, 0)).convert(mode).save(out, form, **options)
    return out.getvalue()


@given(small_images())
def test_pngs_and_webps_by_their_chunks(data):
    image = read_header(data)
    assert sources.sizes(InMemory(data)).tolist() == [[image.height, image.width]]


@given(small_images(), st.data())
def test_a_changed_png_or_webp_has_no_other_size(data, drawn):
    """The whole file gives the same size, or an error for pixels that nobody read."""
    changed = bytearray(data[: drawn.draw(st.integers(1, len(data)))])
    for _ in range(drawn.draw(st.integers(0, 3))):
        changed[drawn.draw(st.integers(0, min(len(changed), 80) - 1))] = drawn.draw(st.integers(0, 255))
    native, whole = (sources.sizes(InMemory(bytes(changed), is_native)).tolist() for is_native in (True, False))
    assert [[0, 0]] in (native, whole) or native == whole


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
@pytest.mark.parametrize("kind", ["exif", "animated", "deep"])
def test_unusual_pngs_and_webps_are_read_whole(form, kind):
    out, exif = io.BytesIO(), Image.Exif()
    image = Image.fromarray(photo(30, 40, 0))
    if kind == "exif":
        exif[0x0112] = 6
        image.save(out, form, exif=exif)
    elif kind == "animated":
        image.save(out, form, save_all=True, append_images=[Image.fromarray(photo(30, 40, 1))])
    elif form == "PNG":
        Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40)).save(out, form)
    else:
        image.save(out, form)
        out = io.BytesIO(out.getvalue()[:-30])  # ends too early
    assert sources.sizes(InMemory(out.getvalue())).tolist() == [[0, 0]]


def test_sizes_of_files_are_those_of_decoded_images(tmp_path, cache):
    """JPEGs of each orientation, other formats, CMYK, a long color profile; and names that need care."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for orientation in range(10):
        (folder / f"{orientation}.jpg").write_bytes(jpeg(30, 40 + orientation, orientation))
    (folder / "profile.jpg").write_bytes(jpeg(31, 47, 6, segment(65_000) * 20))
    Image.new("CMYK", (21, 32)).save(folder / "cmyk.jpg")
    Image.new("L", (22, 33)).save(folder / "gray ä\udcff.jpg", "JPEG")
    for form in ("png", "webp", "bmp", "tiff"):
        Image.new("RGB", (23, 34)).save(folder / f"other.{form}")
    paths = sorted(str(path) for path in folder.iterdir())
    for apply_exif in (True, False):
        options = DecodeOptions(apply_exif=apply_exif)
        found = sources.sizes(paths, decode=options)
        images = load(paths, decode=options, stack=False).images
        assert found.tolist() == [list(image.shape[1:]) for image in images]


def test_the_second_run_reads_no_image(tmp_path, cache, calls):
    paths = write_photos(tmp_path, 20, form="JPEG")
    first = sources.sizes(paths)
    assert [*map(tuple, first.tolist())] == [Image.open(path).size[::-1] for path in paths]
    kept = [*tmp_path.glob(".sizes-*")]
    assert len(kept) == 1
    calls.clear()
    assert (sources.sizes(paths) == first).all() and not calls
    assert (sources.sizes(paths, decode=DecodeOptions(apply_exif=False)) == first).all() and calls, "other options"
    calls.clear()
    data = kept[0].read_bytes()
    for damaged in (data[:-1], data[:-1] + b"!", b"", data + b"!"):
        kept[0].write_bytes(damaged)
        assert (sources.sizes(paths) == first).all() and calls and kept[0].read_bytes() == data
        calls.clear()
    os.utime(paths[3], (0, 0))
    Image.new("RGB", (7, 8)).save(paths[3])
    assert sources.sizes(paths)[3].tolist() == [8, 7] and calls, "a changed file"


def test_sizes_are_kept_in_the_cache_of_the_user_if_the_folder_is_read_only(tmp_path, cache, monkeypatch, caplog):
    folder = tmp_path / "photos"
    folder.mkdir()
    paths = write_photos(folder, 3, form="JPEG")
    refuse = image_sizes._KeptSizes._open

    def read_only(self: Any, is_beside: bool) -> Any:
        if is_beside:
            raise PermissionError(13, "Permission denied", str(folder))
        return refuse(self, is_beside)

    monkeypatch.setattr(image_sizes._KeptSizes, "_open", read_only)
    first = sources.sizes(paths)
    assert len([*(cache / "indexes").glob(".sizes-*")]) == 1 and not [*folder.glob(".sizes-*")]
    monkeypatch.setattr(image_sizes, "_measure", None)
    assert (sources.sizes(paths) == first).all() and not caplog.records


def test_a_folder_that_others_can_write_decides_nothing(tmp_path, cache, calls):
    """Sizes that another user may have written are ignored."""
    paths = write_photos(tmp_path, 3, form="JPEG")
    first = sources.sizes(paths)
    (kept,) = tmp_path.glob(".sizes-*")
    kept.chmod(0o666)
    calls.clear()
    assert (sources.sizes(paths) == first).all() and calls


def test_a_damaged_file_has_no_size_and_one_error(tmp_path, cache, caplog):
    paths = write_photos(tmp_path, 600, form="JPEG")
    whole = Path(paths[1]).read_bytes()
    Path(paths[1]).write_bytes(b"no image")
    Path(paths[7]).write_bytes(b"")
    Path(paths[550]).unlink()
    Path(paths[560]).write_bytes(Path(paths[560]).read_bytes()[:100])
    steps: list[tuple[int, int]] = []
    errors: list[DecodeError] = []
    for _ in range(2):  # from disk, too: damaged files are read again
        found = sources.sizes(
            paths, threads=1, error_callback=errors.append, progress=lambda done, count: steps.append((done, count))
        )
        assert np.flatnonzero((found == 0).all(axis=1)).tolist() == [1, 7, 550, 560]
        assert [(error.index, error.path) for error in errors] == [(i, paths[i]) for i in (1, 7, 550, 560)]
        assert "No such file" in errors[2].cause and "empty" in errors[1].cause
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert record.getMessage() == f"4 of 600 images have no size; the first: {errors[0]}"
        caplog.clear()
        errors.clear()
    assert steps == [(512, 600), (600, 600), (600, 600)]
    Path(paths[1]).write_bytes(whole)
    assert sources.sizes(paths)[1].tolist() == list(Image.open(paths[1]).size[::-1])


def test_limits_are_those_of_the_loader(tmp_path, cache):
    """An image that the Loader refuses has no size."""
    write_photos(tmp_path, 1, form="JPEG")
    (path,) = paths = [str(tmp_path / "0.jpg")]
    height, width = sources.sizes(paths)[0].tolist()
    for name, limit in (("max_pixels", height * width), ("max_bytes", os.path.getsize(path))):
        for value, is_refused in ((limit, False), (limit - 1, True)):
            options: Any = {"decode": DecodeOptions(**{name: value})}
            assert (sources.sizes(paths, **options) == 0).all() == is_refused
            if is_refused:
                with pytest.raises(LoaderError, match="replacements in a row"):
                    load(paths, **options, on_error="skip")
            else:
                assert load(paths, **options).images.shape[-2:] == (height, width)


def test_decoded_pixels_and_modes():
    arrays = Arrays(np.zeros((3, 4, 3), np.uint8), np.zeros((5, 6), np.uint8))
    assert sources.sizes(arrays).tolist() == [[3, 4], [5, 6]]
    out = io.BytesIO()
    np.save(out, np.zeros((9, 8, 5), np.uint16))
    found = sources.sizes(Bytes(out.getvalue(), jpeg(7, 6)), decode=DecodeOptions(mode="unchanged"))
    assert found.tolist() == [[9, 8], [7, 6]]
    assert sources.sizes(Bytes()).shape == (0, 2)


def test_sizes_in_annotations_are_not_believed(tmp_path, cache):
    """A COCO file may describe other images, which the Loader refuses."""
    shutil.copy(write_photos(tmp_path, 1, form="JPEG")[0], tmp_path / "a.jpg")
    annotations = tmp_path / "a.json"
    image = {"id": 1, "file_name": "a.jpg", "height": 9, "width": 9}
    annotations.write_text(json.dumps({"images": [image], "annotations": [], "categories": []}))
    source = sources.Coco(tmp_path, annotations)
    assert source.picture_size(0) == (9, 9)
    assert tuple(sources.sizes(source)[0].tolist()) == Image.open(tmp_path / "a.jpg").size[::-1]


def test_sources_without_samples_by_index_are_refused():
    with pytest.raises(LoaderError, match="read by index"):
        sources.sizes(sources.FromIterable([], length=3))
