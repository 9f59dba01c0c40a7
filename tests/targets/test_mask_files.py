"""PIL masks, and masks that labels name by path."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug import DecodeError, DecodeOptions, Loader, TransformError
from cuaug import transforms as T
from tests.support.codec.encoded_images import chunk, encode

H, W = 20, 30
VALUES = np.arange(H * W).reshape(H, W)
#: Values and dtype of each mode, and the dtype that a Loader gives.
MODES = {
    "1": (VALUES % 3 == 0, torch.bool),
    "L": ((VALUES % 256).astype(np.uint8), torch.uint8),
    "P": ((VALUES % 21).astype(np.uint8), torch.uint8),
    "I": (VALUES.astype(np.int32) * 1000, torch.int32),
    "I;16": ((VALUES * 109).astype(np.uint16), torch.int32),
    "F": (VALUES.astype(np.float32) / 7, torch.float32),
}


def pil_mask(mode: str) -> Image.Image:
    image = Image.fromarray(MODES[mode][0])
    if mode == "P":
        image.putpalette([255 - i % 256 for i in range(63)])
    assert image.mode == mode
    return image


def write(folder: Path, mask: Any, name: str = "0") -> list[tuple[str, Any]]:
    Image.new("RGB", (W, H)).save(folder / f"{name}.png")
    return [(str(folder / f"{name}.png"), mask)]


def load(files: Any, chain: Any = (), **options: Any) -> Any:
    with Loader(files, chain, device="cpu", **options) as loader:
        return next(iter(loader)).labels


FLIP = T.RandomHorizontalFlip(1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["mask", "depth"])
def test_pil_masks_stay_pil_masks(mode, name):
    image = pil_mask(mode)
    chain = T.Compose([FLIP, T.Pad((2, 0, 0, 0))], masks=("depth",))
    got = chain(np.zeros((H, W, 3), np.uint8), {name: image})[1][name]
    assert got.mode == mode and got.size == (W + 2, H) and got.getpalette() == image.getpalette()
    np.testing.assert_array_equal(np.asarray(got)[:, 2:], MODES[mode][0][:, ::-1])
    assert not np.asarray(got)[:, :2].any()


@pytest.mark.parametrize("mode", MODES)
def test_pil_masks_become_tensors_in_a_loader(tmp_path, mode):
    values, dtype = MODES[mode]
    mask = load(write(tmp_path, {"mask": pil_mask(mode)}), [FLIP])["mask"]
    assert mask.dtype == dtype and mask.shape == (1, H, W)
    np.testing.assert_array_equal(mask[0].numpy(), values[:, ::-1])


@pytest.mark.parametrize("mode", ["RGB", "LA", "RGBA"])
def test_color_images_are_no_masks(tmp_path, mode):
    image = Image.new(mode, (W, H))
    with pytest.raises(TransformError, match=rf"mask must be \(H, W\) .* not a PIL image of mode '{mode}'"):
        FLIP(np.zeros((H, W, 3), np.uint8), {"mask": image})
    image.save(tmp_path / "mask.png")
    for mask in (image, str(tmp_path / "mask.png")):
        with pytest.raises(DecodeError, match=f"mask.* of mode '{mode}'"):
            load(write(tmp_path, {"mask": mask}))


@pytest.mark.parametrize("mode", ["1", "L", "P", "I;16"])
@pytest.mark.parametrize("kind", [str, Path, lambda path: path.read_bytes()], ids=["str", "Path", "bytes"])
@pytest.mark.parametrize("cache", [None, "decoded"])
def test_mask_files_are_read_as_class_numbers(tmp_path, mode, kind, cache):
    values, dtype = MODES[mode]
    pil_mask(mode).save(tmp_path / "mask.png")
    files = write(tmp_path, {"mask": kind(tmp_path / "mask.png"), "number": 3})
    with Loader(files, [FLIP], device="cpu", cache=cache) as loader:
        for _ in range(2):
            ((_, labels),) = loader
            assert labels["mask"].dtype == dtype and labels["number"].tolist() == [3]
            np.testing.assert_array_equal(labels["mask"][0].numpy(), values[:, ::-1])
    assert isinstance(files[0][1]["mask"], (str, Path, bytes)), "the source's label is not written to"


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_gray_pngs_of_few_bits_are_not_scaled(tmp_path, bits):
    """Pillow scales 2 and 4 bits to 8: class 1 of 16 would become 17."""
    values = VALUES % (1 << min(bits, 9))

    rows = b""
    for row in values.tolist():
        line = "".join(f"{value:0{bits}b}" for value in row)
        rows += b"\0" + int(line.ljust(-(-len(line) // 8) * 8, "0"), 2).to_bytes(-(-len(line) // 8), "big")
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, bits, 0, 0, 0, 0))
    png += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    np.testing.assert_array_equal(load(write(tmp_path, {"mask": png}))["mask"][0], values)


def test_masks_by_other_names_and_in_nested_labels(tmp_path):
    pil_mask("P").save(tmp_path / "mask.png")
    path = str(tmp_path / "mask.png")
    label = ({"deep": {"seg": path, "mask": path}, "camera": {"mask": path}, "text": path}, 3)
    chain = T.Compose([FLIP], masks=("seg",), pass_through=("camera",))
    got, number = load(write(tmp_path, label), chain)
    for name in ("seg", "mask"):
        np.testing.assert_array_equal(got["deep"][name][0], MODES["P"][0][:, ::-1])
    assert got["camera"]["mask"] == [path] and got["text"] == [path] and number.tolist() == [3]


def test_exif_does_not_turn_masks(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 3
    pil_mask("P").save(tmp_path / "mask.png", exif=exif)
    got = load(write(tmp_path, {"mask": tmp_path / "mask.png"}))["mask"][0]
    np.testing.assert_array_equal(got, MODES["P"][0])


@pytest.mark.parametrize(
    ("mask", "reason", "options"),
    [
        ("missing.png", r"missing\.png' \(sample 1\): its mask: No such file", {}),
        (b"not an image", "its mask: not an image", {}),
        (encode(pil_mask("L"), "PNG")[:60], "its mask: ", {}),
        (
            encode(pil_mask("L"), "TIFF", save_all=True, append_images=[pil_mask("L")]),
            "its mask: a mask must be one image, but the file has 2 frames",
            {},
        ),
        (encode(Image.new("L", (W, H + 1)), "PNG"), r"mask must be \(H, W\) .* not of shape \(21, 30\)", {}),
        (encode(Image.new("L", (99, 99)), "PNG"), "above the limit max_pixels=1000", {"max_pixels": 1000}),
    ],
    ids=["missing", "no image", "truncated", "frames", "another size", "max_pixels"],
)
def test_a_mask_that_cannot_be_read_costs_its_sample(tmp_path, monkeypatch, mask, reason, options):
    monkeypatch.chdir(tmp_path)
    valid = encode(pil_mask("L"), "PNG")
    files = [*write(tmp_path, {"mask": valid}), *write(tmp_path, {"mask": mask}, "1")]
    errors: list[DecodeError] = []
    with Loader(files, batch_size=2, device="cpu", on_error="skip", error_callback=errors.append,
                decode=DecodeOptions(**options)) as loader:  # fmt: skip
        assert next(iter(loader)).indices.tolist() == [0]
    with pytest.raises(DecodeError, match=reason):
        raise errors[0]
    assert errors[0].index == 1


def test_the_limit_on_bytes_holds_for_masks(tmp_path):
    pil_mask("L").save(tmp_path / "mask.png")
    size = (tmp_path / "mask.png").stat().st_size
    files = write(tmp_path, {"mask": tmp_path / "mask.png"})
    assert load(files, decode=DecodeOptions(max_bytes=size))["mask"].shape == (1, H, W)
    with pytest.raises(DecodeError, match=r"mask\.png'.* above the limit max_bytes="):
        load(files, decode=DecodeOptions(max_bytes=size - 1))


def test_a_jpeg_mask_is_logged_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("cuaug.codec.masks._warned", set())
    pil_mask("L").save(tmp_path / "mask.jpg")
    for _ in range(2):
        load(write(tmp_path, {"mask": str(tmp_path / "mask.jpg")}))
    (line,) = [record.getMessage() for record in caplog.records]
    assert "mask.jpg: a JPEG changes the class numbers of a mask near edges" in line


@pytest.mark.parametrize("name", ["mask", "masks", "depth"])
@pytest.mark.parametrize("value", ["1.png", Path("1.png"), b"1"])
def test_only_a_loader_reads_files(name, value):
    chain = T.Compose([FLIP], masks=("depth",))
    with pytest.raises(TransformError, match=f"{name} is a file, .*1.*only a Loader reads files"):
        chain(np.zeros((H, W, 3), np.uint8), {name: value})


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("label", [lambda path: path, lambda path: (path, 3)])
def test_a_label_that_is_an_images_path_is_refused(tmp_path, on_error, label):
    pil_mask("P").save(tmp_path / "mask.png")

    class Source:
        def __len__(self) -> int:
            return 1

        def read(self, index: int) -> Any:
            return write(tmp_path, label(str(tmp_path / "mask.png")))[index]

    with pytest.raises(TransformError, match=r"0\.png' \(sample 0\): the label '.*mask\.png' is the path .*Pairs"):
        load(Source(), on_error=on_error)
