"""`cuaug.decode`: pixels, regions, batches, errors."""

from __future__ import annotations

import io
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.errors import ArgumentError, DecodeError
from tests.codec.test_messages import EXTRA
from tests.support.codec.encoded_images import as_pillow, encode, formats, photo, tagged_files
from tests.support.codec.jpeg_crops import MCU, jpeg
from tests.support.loader.further_pictures import Bytes

FILE = encode(Image.fromarray(photo(61, 83)), "JPEG", quality=90)
SIZES = ((61, 83), (40, 95), (77, 52), (90, 90))
FILES = [encode(Image.fromarray(photo(*size, seed)), "JPEG", quality=90) for seed, size in enumerate(SIZES)]


def pixels(image: torch.Tensor) -> np.ndarray:
    """(H, W, 3) of an image (3, H, W)."""
    assert image.dtype == torch.uint8 and image.ndim == 3 and image.shape[0] == 3
    return image.permute(1, 2, 0).numpy()


@pytest.mark.parametrize("form", sorted(formats()))
def test_every_format_is_as_a_loader_gives_it(form):
    data, options = formats()[form], cuaug.DecodeOptions(lossy=True)
    image = cuaug.decode(data, decode=options)
    assert torch.equal(image, next(iter(cuaug.Loader(Bytes(data), decode=options))).images[0])
    assert torch.equal(cuaug.decode([data], decode=options)[0], image)


def test_every_kind_of_input(tmp_path):
    path = tmp_path / "a photo.jpg"
    path.write_bytes(FILE)
    array = np.frombuffer(FILE, np.uint8)
    inputs = [
        *(str(path), path, FILE, bytearray(FILE), memoryview(FILE)),
        *(array, np.repeat(array, 2)[::2], torch.from_numpy(array.copy())),
    ]
    expected = as_pillow(FILE)
    for value in inputs:
        np.testing.assert_array_equal(pixels(cuaug.decode(value)), expected)
    for several in (inputs, tuple(inputs)):
        images = cuaug.decode(several)
        assert isinstance(images, list)
        for image in images:
            np.testing.assert_array_equal(pixels(image), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(orientation):
    for data in tagged_files(orientation).values():
        for decoded in (cuaug.decode(data), cuaug.decode([data])[0]):
            assert tuple(decoded.shape[1:]) == as_pillow(data).shape[:2]
        stored = cuaug.decode(data, decode=cuaug.DecodeOptions(apply_exif=False))
        assert tuple(stored.shape[1:]) == as_pillow(tagged_files(1)["jpeg"]).shape[:2]


@given(st.data(), st.integers(1, 90), st.integers(1, 90), st.sampled_from(list(MCU)), st.integers(1, 8))
def test_a_region_is_decode_then_crop(data, height, width, sampling, orientation):
    file = jpeg(height, width, sampling, interval=data.draw(st.sampled_from([1, 4])), orientation=orientation)
    whole = cuaug.decode(file)
    rows, columns = whole.shape[1:]
    top, left = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    region = top, left, data.draw(st.integers(1, rows - top)), data.draw(st.integers(1, columns - left))
    crop = whole[:, top : top + region[2], left : left + region[3]]
    assert torch.equal(cuaug.decode(file, region=region), crop)
    each = [(0, 0, 1, 1), region]
    for regions in (region, each, np.array(each)):  # one for all, or one each
        first, second = cuaug.decode([file, file], region=regions)
        assert torch.equal(first, crop if regions is region else whole[:, :1, :1]) and torch.equal(second, crop)
    chain = T.Compose([T.Resize((17, 13)), T.RandomHorizontalFlip(0.5)])
    torch.manual_seed(3)
    resized = cuaug.decode(file, chain, region=region)
    torch.manual_seed(3)
    assert torch.equal(resized, cuaug.decode(encode(Image.fromarray(pixels(crop)), "PNG"), chain))


DEEP = np.random.default_rng(5).integers(0, 65536, (20, 30, 5), dtype=np.uint16)


@pytest.mark.parametrize("mode", ["L", "RGBA", "unchanged"])
def test_modes(mode):
    """As read by Pillow, or as an array was saved."""
    rgba = np.random.default_rng(3).integers(0, 256, (20, 30, 4), dtype=np.uint8)
    file = encode(Image.fromarray(rgba), "PNG")
    expected = np.asarray(Image.open(io.BytesIO(file)).convert("L"))[..., None] if mode == "L" else rgba
    for options in ({"mode": mode}, {"decode": cuaug.DecodeOptions(mode=mode)}):
        one, (first, other) = cuaug.decode(file, **options), cuaug.decode([file, file], **options)
        for image in (one, first, other):
            np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), expected)
    region = (3, 4, 5, 6)
    for image in (cuaug.decode(file, mode=mode, region=region), *cuaug.decode([file], mode=mode, region=region)):
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), expected[3:8, 4:10])
    flipped = cuaug.decode([file, file], [T.RandomHorizontalFlip(1.0)], mode=mode)[1]
    np.testing.assert_array_equal(flipped.permute(1, 2, 0).numpy(), expected[:, ::-1])


def test_bands_and_depth_are_kept():
    file = io.BytesIO()
    np.save(file, DEEP)
    for image in (cuaug.decode(file.getvalue(), mode="unchanged"), *cuaug.decode([file.getvalue()], mode="unchanged")):
        assert image.dtype == torch.uint16
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), DEEP)
    batch = cuaug.decode([file.getvalue()] * 2, T.CenterCrop(10), mode="unchanged")
    np.testing.assert_array_equal(batch[1].permute(1, 2, 0).numpy(), DEEP[5:15, 10:20])
    with pytest.raises(cuaug.DecodeError):
        cuaug.decode(file.getvalue())


def test_transforms_are_as_in_a_loader(tmp_path):
    paths = [tmp_path / f"{i}.jpg" for i in range(len(FILES))]
    for path, data in zip(paths, FILES, strict=True):
        path.write_bytes(data)
    chain = [T.Resize(40), T.CenterCrop(32), T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]
    batch = cuaug.decode(paths, chain)
    expected = next(iter(cuaug.Loader(paths, chain, batch_size=len(paths)))).images
    assert batch.dtype == torch.float32 and torch.equal(batch, expected) and batch.is_contiguous()
    one = cuaug.decode(paths[2], chain)
    assert torch.equal(one, expected[2]) and one.is_contiguous()


def test_a_batch_where_the_chain_makes_one_size_and_else_a_list():
    same = [FILES[0], FILES[0]]
    for transform in (T.RandomResizedCrop(24), T.CenterCrop(900), T.RandomCrop((20, 30)), T.Resize((30, 40))):
        assert cuaug.decode(FILES, transform).shape[:2] == (len(FILES), 3), transform
    for transform in (T.Resize(30), T.RandomHorizontalFlip(), T.Pad(4), T.Compose([])):
        images = cuaug.decode(same, transform)
        assert isinstance(images, list) and images[0].shape == images[1].shape, transform
    crops = cuaug.decode(FILES, [T.Resize(40), T.TenCrop(32)])
    assert crops.shape == (len(FILES), 10, 3, 32, 32)
    assert torch.equal(cuaug.decode(FILES[1], [T.Resize(40), T.TenCrop(32)]), crops[1])
    means = cuaug.decode(FILES, [T.CenterCrop(40), T.Lambda(lambda images: images.float().mean((1, 2, 3)))])
    assert means.shape == (len(FILES),)


def test_a_function_is_a_chain():
    flipped = cuaug.decode(FILE, lambda images: images.flip(-1))
    np.testing.assert_array_equal(pixels(flipped), as_pillow(FILE)[:, ::-1])


def test_a_large_crop_needs_large_images():
    data = encode(Image.new("RGB", (1300, 1200)), "PNG")
    assert cuaug.decode([data, data], T.RandomCrop(1100)).shape == (2, 3, 1100, 1100)
    with pytest.raises(cuaug.TransformError, match=r"^sample 0: crop of 20000 x 20000"):
        cuaug.decode(FILES, T.RandomCrop(20_000))


def test_draws_follow_torch_and_the_generator():
    chain = T.Compose([T.RandomResizedCrop(24), T.ColorJitter(0.4)])
    torch.manual_seed(1)
    first, other = cuaug.decode(FILES, chain), cuaug.decode(FILES, chain)
    torch.manual_seed(1)
    assert torch.equal(first, cuaug.decode(FILES, chain)) and not torch.equal(first, other)
    seeded = [
        cuaug.decode(FILES, T.Compose(chain.transforms, generator=torch.Generator().manual_seed(5))) for _ in range(2)
    ]
    assert torch.equal(*seeded)
    torch.manual_seed(1)
    region = cuaug.decode(FILES, chain, region=(0, 0, 40, 52))
    assert not torch.equal(region, first)


def test_results_do_not_share_memory():
    first = cuaug.decode(FILE)
    kept = first.clone()
    second = cuaug.decode(FILES[1])
    second.zero_()
    cuaug.decode(FILES)
    assert torch.equal(first, kept)
    images = cuaug.decode([FILE, FILE])
    images[0].zero_()
    assert torch.equal(images[1], kept)


def test_a_damaged_image_is_named_by_position_and_path(tmp_path):
    good, bad = tmp_path / "good.jpg", tmp_path / "bad.jpg"
    good.write_bytes(FILE)
    bad.write_bytes(FILE[:300])
    with pytest.raises(cuaug.DecodeError, match=r"bad\.jpg' \(sample 2\)") as caught:
        cuaug.decode([good, FILE, bad, good])
    assert caught.value.index == 2 and caught.value.path == str(bad)
    with pytest.raises(cuaug.DecodeError, match=r"^cannot decode \(sample 1\): ") as caught:
        cuaug.decode([FILE, FILE[:300], b"text"], T.RandomResizedCrop(8))
    assert caught.value.index == 1 and caught.value.path is None
    for missing in ([good, tmp_path / "none.jpg"], [tmp_path / "none.jpg", good], tmp_path / "none.jpg"):
        with pytest.raises(cuaug.DecodeError, match=r"none\.jpg'.*No such file") as caught:
            cuaug.decode(missing)
        assert caught.value.index == (missing.index(tmp_path / "none.jpg") if isinstance(missing, list) else None)
    for value in (bad, FILE[:300]):
        for transforms in (None, T.Resize(8)):
            with pytest.raises(cuaug.DecodeError) as caught:
                cuaug.decode(value, transforms)
            assert caught.value.index is None and caught.value.path == (str(bad) if value is bad else None)


@pytest.mark.parametrize("transforms", [None, T.Resize(20)])
def test_limits(tmp_path, transforms):
    (tmp_path / "a.jpg").write_bytes(FILE)
    for value in (FILE, [FILE], tmp_path / "a.jpg", [tmp_path / "a.jpg"]):
        with pytest.raises(cuaug.DecodeError, match="max_pixels=1000"):
            cuaug.decode(value, transforms, decode=cuaug.DecodeOptions(max_pixels=1000))
        with pytest.raises(cuaug.DecodeError, match="max_bytes=100"):
            cuaug.decode(value, transforms, decode=cuaug.DecodeOptions(max_bytes=100))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([[]], {}, r"^paths_or_bytes is empty"),
        ([3], {}, r"^paths_or_bytes: input 0 must be a path.* not 3"),
        ([[FILE, None]], {}, r"^paths_or_bytes: input 1 must be a path.* not None"),
        ([torch.zeros(3, 4, 4)], {}, r"^paths_or_bytes: input 0 has the shape \(3, 4, 4\).*decoded image"),
        ([np.zeros(4)], {}, r"^paths_or_bytes: input 0 .*float64"),
        (["https://example.org/a.jpg"], {}, r"^paths_or_bytes: input 0 is the URL .*give its bytes"),
        ([FILE], {"mode": "CMYK"}, r"^mode must be "),
        ([FILE], {"threads": 0}, r"^threads must be an integer of at least 1"),
        ([FILE], {"threads": 2**31}, r"^threads must be at most 4096, not 2147483648$"),
        ([FILE], {"decode": {"apply_exif": False}}, r"^decode must be a cuaug\.DecodeOptions"),
        ([FILE], {"region": 3}, r"^region must be \(top, left, height, width\), four integers, not 3"),
        ([FILE], {"region": (0, 0, 5)}, r"^region must be .*four integers"),
        ([FILE], {"region": [(0, 0, 5, 5)]}, r"^region must be .*four integers"),
        ([[FILE]], {"region": (0, 0.5, 5, 5)}, r"^region must be .*or a list with one such region per image"),
        ([[FILE]], {"region": [(0, 0, 5, 5)] * 2}, r"^region has 2 regions for 1 images"),
        ([FILE], {"region": {0, 1, 5, 6}}, r"^region must be .*four integers"),  # in no order
        ([FILE], {"region": b"\0\0\5\5"}, r"^region must be .*four integers"),
        ([[FILE]], {"region": torch.zeros(4, device="meta")}, r"^region must be .*four integers"),
        ([FILE], {"region": (0, 0, 2**63, 1)}, r"^region .* reaches outside the image"),
        ([[FILE]], {"region": (-(2**70), 0, 1, 1)}, r"region .* reaches outside the image"),
        ([[FILE]], {"region": np.array([[0, 0, 2**64 - 1, 1]], np.uint64)}, r"region .* reaches outside the image"),
        ([torch.zeros(9, dtype=torch.uint8, device="meta")], {}, r"^paths_or_bytes: input 0 .*not a tensor on meta"),
        ([torch.zeros(9, dtype=torch.uint8).to_sparse()], {}, r"^paths_or_bytes: input 0 .*torch.sparse_coo"),
        ([FILE, "resize"], {}, r"^transforms must hold"),
    ],
)
def test_arguments(arguments, options, message):
    with pytest.raises((cuaug.LoaderError, cuaug.TransformError), match=message):
        cuaug.decode(*arguments, **options)


@pytest.mark.parametrize("region", [(0, 0, 62, 10), (-1, 0, 10, 10), (0, 80, 10, 10), (0, 0, 0, 5), (61, 0, 1, 1)])
def test_a_region_outside_the_image(region):
    for value in (FILE, [FILE, FILE]):
        for transforms in (None, T.Resize(8)):
            with pytest.raises(cuaug.TransformError, match=r"region .* outside the image of 61 x 83 pixels"):
                cuaug.decode(value, transforms, region=region)
    with pytest.raises(cuaug.TransformError, match=r"^sample 1: region"):
        cuaug.decode([FILE, FILE], region=[(0, 0, 5, 5), region])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12: a fork of a process with threads
def test_a_forked_child_decodes():
    expected = cuaug.decode([FILE, FILE], T.Resize((9, 9)))
    child = os.fork()
    if not child:
        status = 1
        try:
            same = torch.equal(cuaug.decode([FILE, FILE], T.Resize((9, 9))), expected)
            status = 0 if same and cuaug.decode(FILE).shape == (3, 61, 83) else 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_library_warnings_are_logged(caplog, tmp_path):
    (tmp_path / "a.jpg").write_bytes(EXTRA)
    cuaug.decode(tmp_path / "a.jpg")
    for _ in range(2):  # other requests have the same position
        cuaug.decode([FILE, EXTRA])
    line = "Corrupt JPEG data: 1 extraneous bytes before marker 0xd9"
    names = [repr(str(tmp_path / "a.jpg")), "sample 1", "sample 1"]
    assert [record.getMessage() for record in caplog.records] == [f"{name}: {line}" for name in names]


# --- damaged images in a list -----------------------------------------------------------------------------------------

JPEG, PNG = FILES[0], encode(Image.fromarray(photo(50, 60)), "PNG")
CUT = JPEG[: len(JPEG) // 2]


@pytest.mark.parametrize("mode", ["RGB", "L", "unchanged"])
@pytest.mark.parametrize("region", [None, (0, 0, 8, 9), [(0, 0, 8, 9)] * 4])
def test_errors_of_single_images_leave_the_others(mode, region):
    errors: list[DecodeError] = []
    files = [JPEG, b"no image", PNG, b""]
    images = cuaug.decode(files, mode=mode, region=region, errors=errors, device="cpu")
    assert [error.index for error in errors] == [1, 3] and all(error.path is None for error in errors)
    if isinstance(region, list):
        region = region[::2]
    for image, want in zip(images, cuaug.decode([JPEG, PNG], mode=mode, region=region, device="cpu"), strict=True):
        assert torch.equal(image, want)


def test_a_batch_has_the_sound_images(tmp_path):
    chain = [T.Resize((8, 9)), T.Normalize(0.5, 0.2)]
    errors: list[DecodeError] = []
    files = [PNG, str(tmp_path / "missing.jpg"), CUT, JPEG]
    images = cuaug.decode(files, chain, errors=errors, device="cpu")
    assert torch.equal(images, cuaug.decode([PNG, JPEG], chain, device="cpu"))
    assert [(error.index, error.path) for error in errors] == [(1, files[1]), (2, None)]
    assert cuaug.decode([CUT, b""], chain, errors=errors, device="cpu").shape == (0, 3, 8, 9) and len(errors) == 4
    assert cuaug.decode([CUT], errors=errors, device="cpu") == []


def test_errors_of_one_image_are_raised():
    with pytest.raises(ArgumentError, match="errors is for a list of images"):
        cuaug.decode(CUT, errors=[], device="cpu")


def test_threads_decode_at_once_and_keep_their_errors():
    """As requests do that a server's threads answer."""
    chain = T.Compose([T.Resize((8, 9))])
    want, wholes = cuaug.decode([JPEG, PNG], chain, device="cpu"), cuaug.decode(FILES)

    def answer(number: int) -> bool:
        errors: list[DecodeError] = []
        files = [JPEG, CUT, PNG] if number % 2 else [JPEG, PNG]
        images = cuaug.decode(files, chain, errors=errors, threads=2, device="cpu")
        first = number % len(FILES)
        rotated = zip(cuaug.decode(FILES[first:] + FILES[:first]), wholes[first:] + wholes[:first], strict=True)
        return (
            torch.equal(images, want)
            and [error.index for error in errors] == [1] * (number % 2)
            and all(torch.equal(image, whole) for image, whole in rotated)
            and torch.equal(cuaug.decode(FILES[first]), wholes[first])
        )

    before = threading.active_count()
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(answer, range(64)))
    assert threading.active_count() <= before + 2, "calls share their threads"
