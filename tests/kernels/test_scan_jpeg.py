"""First visits of JPEGs on the CPU build of the GPU's kernels: they find the CPU's entry points."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cuaug.codec import JpegIndex
from tests.kernels.test_decode_jpeg import assert_is, jpegs, stored
from tests.support.codec.encoded_images import encode_jpeg, photo
from tests.support.codec.jpeg_crops import draw_region, slice_region
from tests.support.device_jpegs import decode
from tests.support.jpeg_writer import FACTORS, JpegWriter, every_kind
from tests.support.scanned_jpegs import FirstVisit, records_of, visit

KINDS = {name: data for name, data in every_kind().items() if "restarts" not in name}


def textured(height: int, width: int, seed: int, noise: float) -> Image.Image:
    """Noise whose amplitude falls with the frequency, as in photos."""
    rng = np.random.default_rng(seed)
    spectrum = np.fft.rfft2(rng.normal(0, 1, (height, width, 3)), axes=(0, 1))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    texture = np.fft.irfft2(
        spectrum / np.maximum(frequency, 1 / max(height, width))[..., None], (height, width), (0, 1)
    )
    pixels = photo(height, width, seed) + texture / texture.std() * noise
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def compare(files: list[bytes], pixels: int = 16) -> FirstVisit:
    """The index after a first visit by the kernels is the CPU's; what is not damaged has Pillow's pixels."""
    visits: list[FirstVisit] = []
    found = records_of(lambda index: visits.append(visit(files, index=index)), files[0], pixels)
    assert found == records_of(lambda index: decode(files, index=index), files[0], pixels)
    for outcome, data in zip(visits[0].outcomes, files, strict=True):
        if outcome.pixels is not None and not outcome.is_damaged:
            assert_is(outcome, stored(data))
    return visits[0]


OPTIONS = {
    f"{name}, quality {quality}, optimize={optimize}": {"quality": quality, "optimize": optimize, **options}
    for name, options in {
        "4:4:4": {"subsampling": 0}, "4:2:2": {"subsampling": 1}, "4:2:0": {"subsampling": 2},
        "RGB": {"keep_rgb": True}, "gray": {},
    }.items()
    for quality in (50, 75, 92, 98)
    for optimize in (False, True)
}  # fmt: skip


def photo_files(height: int = 200, width: int = 300) -> dict[str, bytes]:
    files = {}
    for number, (name, options) in enumerate(OPTIONS.items()):
        image = textured(height, width, number, 20)
        files[name] = encode_jpeg(image.convert("L") if "gray" in name else image, **options)
    return files


PHOTOS = photo_files()


def test_photos_and_the_rounds_they_take(record_property):
    found = compare(list(PHOTOS.values()))
    assert not any(outcome.is_damaged for outcome in found.outcomes)
    rounds = dict(zip(PHOTOS, found.rounds.tolist(), strict=True))
    record_property("rounds", str(rounds))
    print(sorted(Counter(rounds.values()).items()))
    # Where all blocks use the same tables, bits and coefficients synchronize alone.
    alike = [count for name, count in rounds.items() if ("gray" in name or "RGB" in name) and "98" not in name]
    assert max(alike) <= 8
    assert max(rounds.values()) <= 40


@pytest.mark.parametrize("pixels", [16, 32, 64])
@pytest.mark.parametrize("sampling", [0, 1, 2])
def test_every_distance_of_entry_points(pixels, sampling):
    data = encode_jpeg(textured(70, 310, 1, 20), subsampling=sampling)
    (record,) = records_of(lambda index: visit([data], index=index), data, pixels)
    assert record.distance * (8 if sampling == 0 else 16) == pixels
    assert not compare([data], pixels).outcomes[0].is_damaged


@given(st.lists(jpegs, min_size=1, max_size=3), st.sampled_from([16, 32, 64]))
def test_drawn_jpegs(files, pixels):
    found = compare(files, pixels)
    assert len(found.rounds) <= len(files)


def test_long_runs_have_several_cells():
    """Of more than 512 x 512 bytes: a run that is read again stops at the end of a cell."""
    files = [encode_jpeg(textured(500, 700, seed, 40), quality=96, subsampling=seed) for seed in range(3)]
    files.append(encode_jpeg(textured(900, 1200, 3, 30).convert("L"), quality=98))
    assert min(map(len, files)) > 270_000
    assert not any(outcome.is_damaged for outcome in compare(files).outcomes)


def test_every_kind_in_one_batch():
    assert not any(outcome.is_damaged for outcome in compare(list(KINDS.values())).outcomes)


@given(st.data(), st.sampled_from(list(PHOTOS) + list(KINDS)))
def test_regions(data, name):
    file = (PHOTOS | KINDS)[name]
    expected = stored(file)
    region = data.draw(draw_region(*expected.shape[:2]))
    (outcome,) = visit([file], [region]).outcomes
    assert_is(outcome, slice_region(expected, region))


def white_noise() -> bytes:
    """With one code for all tables but of different symbols, it hardly synchronizes."""
    noise = np.random.default_rng(0).integers(0, 256, (100, 200, 3), dtype=np.uint8)
    return encode_jpeg(Image.fromarray(noise), quality=100, subsampling=1, optimize=True)


def test_files_that_do_not_synchronize_are_indexed_on_the_cpu():
    data = white_noise()
    index = JpegIndex(1 << 30)
    first, again = visit([data], index=index), visit([data], index=index)
    assert first.outcomes[0].is_damaged and first.rounds.tolist() == [128]
    assert not len(again.rounds) and index.stats().made == 1
    assert_is(again.outcomes[0], stored(data))
    compare([data])


def test_a_file_is_scanned_once():
    files = list(KINDS.values())
    index = JpegIndex(1 << 30)
    first, again = visit(files, index=index), visit(files, index=index)
    assert len(first.rounds) == len(files) == index.stats().made and not len(again.rounds)
    for one, other in zip(first.outcomes, again.outcomes, strict=True):
        np.testing.assert_array_equal(one.pixels, other.pixels)


def test_without_an_index_and_without_room():
    full = JpegIndex(100)
    for index in (None, full, full):
        found = visit([KINDS["4:2:0"]], index=index)
        assert len(found.rounds) == 1
        assert_is(found.outcomes[0], stored(KINDS["4:2:0"]))
    assert full.stats().made == 0 and full.has_stopped


# --- damaged files ---------------------------------------------------------------------------------------------------


def pillow_pixels(data: bytes) -> np.ndarray | None:
    try:
        return stored(data)
    except (OSError, SyntaxError):
        return None


def mutants(data: bytes, rng: np.random.Generator, count: int) -> list[bytes]:
    """Bytes of the entropy-coded data changed, removed or inserted; EOI stays in place."""
    begin = data.index(b"\xff\xda") + 14
    changed = []
    for _ in range(count):
        out = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(begin, len(out) - 2))
            kind = rng.integers(4)
            if kind == 0:
                out[at] = int(rng.integers(255))
            elif kind == 1:
                del out[at : min(at + int(rng.integers(1, 40)), len(out) - 2)]
            elif kind == 2:
                out[at:at] = bytes(rng.integers(0, 255, int(rng.integers(1, 40)), dtype=np.uint8))
            else:
                del out[at:-2]
            if len(out) - begin < 8:
                break
        changed.append(bytes(out))
    return changed


@pytest.mark.parametrize("name", ["4:2:0", "4:4:4", "gray", "RGB"])
def test_damaged_data_gives_the_cpus_entry_points_and_pixels(name):
    """A scan accepts what EntryPoints::build accepts; fine images have Pillow's pixels."""
    files = mutants(KINDS.get(name, KINDS["4:2:2"]), np.random.default_rng(len(name)), 60)
    outcomes = [compare_mutant(data) for data in files]
    assert True in outcomes and False in outcomes, "some are damaged and some fine"


def compare_mutant(data: bytes) -> bool:
    visits: list[FirstVisit] = []
    found = records_of(lambda index: visits.append(visit([data], index=index)), data)
    on_cpu = records_of(lambda index: decode([data], index=index), data)
    assert not found or found == on_cpu  # without EOI after the data it is not scanned
    (outcome,) = visits[0].outcomes
    if outcome.pixels is None or outcome.is_damaged:
        return False
    expected = pillow_pixels(data)
    assert expected is not None
    assert_is(outcome, expected)
    return True


@pytest.mark.parametrize("cut", range(1, 9))
def test_truncated_data_is_damaged(cut):
    for data in KINDS.values():
        (outcome,) = visit([data[: -2 - cut] + b"\xff\xd9"]).outcomes
        assert outcome.pixels is None or outcome.is_damaged


def test_files_without_a_scan():
    """Neither EOI after the data nor any data."""
    data = KINDS["4:4:4"]
    begin = data.index(b"\xff\xda") + 14
    for broken in (data[:-2] + b"\xff\xd0", data[:begin] + b"\xff\xd9"):
        found = visit([broken, data])
        assert len(found.rounds) == 1 and found.outcomes[0].pixels is None
        assert_is(found.outcomes[1], stored(data))


@given(st.integers(0, 1 << 32), st.integers(1, 400))
def test_any_uploaded_bytes_leave_the_neighbors_memory(seed, count):
    """Bytes that changed after the file was described: `visit` checks guards around all memory."""
    rng = np.random.default_rng(seed)

    def damage(uploaded: np.ndarray) -> None:
        places = rng.integers(0, len(uploaded), count)
        uploaded[places] = rng.integers(0, 256, count) if seed % 2 else 255

    visit([KINDS["4:2:0"], PHOTOS["4:2:0, quality 92, optimize=False"]], damage=damage)


@pytest.mark.parametrize("side", [(1, 1), (8, 8), (9, 17), (1, 300), (300, 1)])
def test_small_sides(side):
    writers = [JpegWriter(factors) for factors in FACTORS.values()]
    files = [writer.write(*side, seed) for seed, writer in enumerate(writers)]
    assert not any(outcome.is_damaged for outcome in compare(files).outcomes)
    index = JpegIndex(1 << 30)
    for _ in range(3):
        decode(files, index=index)
    assert index.stats().made == len(files) and not index.stats().damaged
