"""`scan_jpeg` of cuda/decode_jpeg.cu emulated on a CPU: the CPU build's entry points, whichever thread runs first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.test_decode_jpeg import jpegs
from tests.kernels.test_emulated_jpeg import Emulation, assert_shows, build
from tests.kernels.test_scan_jpeg import KINDS, textured
from tests.support.builds import copy_patched
from tests.support.codec.encoded_images import encode_jpeg
from tests.support.device_jpegs import decode
from tests.support.scanned_jpegs import FirstVisit, records_of, visit


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulation:
    return Emulation(build(tmp_path_factory.mktemp("emulated")))


def compare(emulated: Emulation, files: list[bytes], may_be_damaged: bool = False) -> None:
    """Compares pixels with the CPU build's first visit, and the index with EntryPoints::build's."""
    wanted = visit(files).outcomes
    assert may_be_damaged or not any(outcome.is_damaged for outcome in wanted)
    expected = records_of(lambda index: decode(files, index=index), files[0])
    for backward in (False, True):
        emulated.run_backward(backward)
        visits: list[FirstVisit] = []
        found = records_of(lambda index: visits.append(visit(files, index=index, kernels=emulated)), files[0])  # noqa: B023
        for got, want in zip(visits[0].outcomes, wanted, strict=True):
            assert got.is_damaged == want.is_damaged and (got.pixels is None) == (want.pixels is None)
            if want.pixels is not None and not want.is_damaged:
                np.testing.assert_array_equal(got.pixels, want.pixels)
        assert found == expected


def photos() -> list[bytes]:
    """Of one run, of more runs than the emulated block has threads, and of several cells a run; RGB and gray."""
    small, large = textured(40, 70, 0, 20), textured(220, 300, 1, 20)
    files = [
        encode_jpeg(small, subsampling=2),
        encode_jpeg(large, subsampling=2, quality=92),
        encode_jpeg(large, keep_rgb=True),
    ]
    files += [
        encode_jpeg(large.convert("L"), optimize=True),
        encode_jpeg(textured(600, 700, 2, 60), quality=97, subsampling=1),
    ]
    assert len(files[-1]) > 512 * 512
    return files


def compare_photos(emulated: Emulation) -> None:
    compare(emulated, photos())


def test_photos(emulated):
    compare_photos(emulated)


def test_every_kind(emulated):
    compare(emulated, list(KINDS.values()))


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.lists(jpegs, min_size=1, max_size=2))
def test_drawn_jpegs(emulated, files):
    compare(emulated, files, may_be_damaged=True)


@pytest.mark.slow
def test_a_missing_barrier_shows(tmp_path):
    mistake = "block.sync();  // before blocks are summed", ""
    library = build(tmp_path, copy_patched(tmp_path / "kernels", "core/scan_jpeg.h", *mistake))
    assert_shows("test_emulated_scan", "compare_photos", library)
