"""nvImageCodec through its C interface: loading, and images that differ from their request."""

from __future__ import annotations

import copy
import os
import pickle
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from cuaug._runtime.native import data_address, library
from cuaug.codec import _nvimgcodec_c, codec_version, nv
from cuaug.codec._nvimgcodec_c import FROM_CROP, FROM_FILE, NativeDecoder, load_codec, stored_size
from cuaug.errors import DeviceError
from tests.support.codec.encoded_images import JPEG, PHOTO, PNG, H, W, as_pillow
from tests.support.codec.jpeg_crops import jpeg, slice_region
from tests.support.codec.memory import allocated

PACKAGE = _nvimgcodec_c._folder()


def test_the_version_is_that_of_the_python_interface():
    assert nv().__version__.split(".")[:3] == codec_version().split(".")


def test_a_decoder_cannot_be_copied():
    """A copy would free the same memory twice."""
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="decoder"):
            make(NativeDecoder(fancy_upsampling=True))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_frees_nothing():
    """A thread may have been decoding at the fork, in the middle of a change."""
    decoder = library.cuaug_decoder_new(load_codec(), b"")
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        before = allocated()
        library.cuaug_decoder_delete(decoder)
        os._exit(0 if allocated() >= before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    before = allocated()
    library.cuaug_decoder_delete(decoder)
    assert allocated() < before


@pytest.fixture
def installed(monkeypatch):
    """Makes the codec load again, from another folder."""

    def install(folder: Path | None) -> None:
        found = None if folder is None else SimpleNamespace(submodule_search_locations=[str(folder)])
        monkeypatch.setattr(_nvimgcodec_c, "find_spec", lambda name: found)
        monkeypatch.setattr(_nvimgcodec_c, "_loaded", None)

    return install


def test_a_missing_installation(installed, monkeypatch):
    def find_no_nvidia(name: str) -> None:
        raise ModuleNotFoundError("No module named 'nvidia'")

    installed(None)
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match=r"nvidia-nvimgcodec-cu12>=0\.9,<0\.10"):
            load_codec()
        monkeypatch.setattr(_nvimgcodec_c, "find_spec", find_no_nvidia)


@pytest.mark.parametrize("version", [-1, 800, 1000])
def test_another_version_is_refused(installed, monkeypatch, version):
    installed(PACKAGE)
    monkeypatch.setattr(library, "cuaug_codec_version", lambda functions: version)
    with pytest.raises(DeviceError, match=f"has version number {version}, not 9xx"):
        load_codec()


def test_sizes_as_stored():
    assert stored_size(JPEG) == (H, W) and stored_size(PNG) == PHOTO.shape[:2]
    assert stored_size(b"") is None and stored_size(b"no picture" * 9) is None


def region_row(data: bytes, size: tuple[int, int], region: tuple[int, int, int, int], interval: int = 0) -> np.ndarray:
    """An `EncodedRegion` of an upright image; the caller keeps `data`."""
    row = (data_address(data), len(data), *size, 1, interval, data[:2] == b"\xff\xd8", *region)
    return np.array(row, dtype=np.int64)


def test_a_bad_request_does_not_affect_the_others():
    decoder, expected, all_of_it = NativeDecoder(fancy_upsampling=True), as_pillow(JPEG), (0, 0, H, W)
    wrong = [(JPEG, (H + 1, W)), (JPEG, (H, W - 1)), (JPEG[: len(JPEG) // 2], (H, W)), (b"no picture" * 9, (H, W))]
    memory = np.empty(1 << 20, dtype=np.uint8)
    for data, size in wrong * 3:  # nvImageCodec objects are reused
        memory.fill(7)
        assert decoder.decode(region_row(data, size, (0, 0, *size)), None, memory).status == 0
        assert len(data) < len(JPEG) or (memory == 7).all()  # nothing of an image of another size is written
        for sound, pixels, region in ((JPEG, expected, all_of_it), (JPEG, expected, (8, 16, H - 3, W - 1)),
                                      (PNG, PHOTO, (0, 0, *PHOTO.shape[:2]))):  # fmt: skip
            y0, x0, y1, x1 = region
            decoded = decoder.decode(region_row(sound, pixels.shape[:2], region), None, memory)
            assert decoded.status == FROM_FILE
            shape, strides = (y1 - y0, x1 - x0, 3), (decoded.pitch, 3, 1)
            assert (as_strided(memory[decoded.offset :], shape, strides) == pixels[y0:y1, x0:x1]).all()


def test_too_little_memory_is_not_written():
    memory = np.full(3 * H * W - 1, 7, dtype=np.uint8)
    decoded = NativeDecoder(fancy_upsampling=True).decode(region_row(JPEG, (H, W), (0, 0, H, W)), None, memory)
    assert decoded.status == 0 and decoded.needed == 3 * H * W and (memory == 7).all()


def test_a_crop_writes_its_own_memory_alone():
    stored, region = (120, 400), (40, 100, 70, 130)
    file = jpeg(*stored, interval=5)
    row, decoder = region_row(file, stored, region, interval=5), NativeDecoder(fancy_upsampling=True)
    needed = decoder.decode(row, None, np.empty(0, dtype=np.uint8)).needed
    pixels = np.full(needed + 64, 7, dtype=np.uint8)
    decoded = decoder.decode(row, None, pixels)
    assert decoded.status == FROM_CROP
    shape = region[2] - region[0], region[3] - region[1], 3
    found = as_strided(pixels[decoded.offset :], shape, (decoded.pitch, 3, 1))
    assert (found == slice_region(as_pillow(file), region)).all() and (pixels[needed:] == 7).all()
