"""nvImageCodec through its C interface: loading, and images that differ from their request."""

from __future__ import annotations

import copy
import math
import os
import pickle
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cuaug._runtime.native import BYTES_DATA_OFFSET, address, library
from cuaug.codec import _nvimgcodec_c, codec_version, nv
from cuaug.codec._nvimgcodec_c import FROM_CROP, FROM_FILE, NativeDecoder, load_codec, stored_size
from cuaug.errors import DeviceError
from tests.codec.images import JPEG, PHOTO, RGB, as_pillow, encode
from tests.codec.jpeg_crops import expected_crop, jpeg, slice_region
from tests.codec.memory import allocated

H, W = RGB.height, RGB.width
PACKAGE = _nvimgcodec_c._folder()
PNG = encode(Image.fromarray(PHOTO), "PNG")


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
        signal.alarm(10)
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


def test_an_incomplete_installation(installed, tmp_path):
    installed(tmp_path)
    with pytest.raises(DeviceError, match=f"nvImageCodec in {tmp_path} has no libnvimgcodec.so"):
        load_codec()
    for path in PACKAGE.glob("libnvimgcodec.so*"):
        shutil.copy(path, tmp_path)
    with pytest.raises(DeviceError, match=f"nvImageCodec in {tmp_path}/extensions has no libjpeg_turbo_ext.so"):
        load_codec()


@pytest.mark.parametrize("version", [-1, 800, 1000])
def test_another_version_is_refused(installed, monkeypatch, version):
    installed(PACKAGE)
    monkeypatch.setattr(library, "cuaug_codec_version", lambda functions: version)
    with pytest.raises(DeviceError, match=f"has version number {version}, not 9xx"):
        load_codec()


def test_sizes_as_stored():
    assert stored_size(JPEG) == (H, W) and stored_size(PNG) == PHOTO.shape[:2]
    assert stored_size(b"") is None and stored_size(b"no picture" * 9) is None


class Requests:
    """Rows for `NativeDecoder`, and the memory behind their addresses."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.kept: list[Any] = []

    def add(self, data: bytes, size: tuple[int, int], region: tuple[int, int, int, int]) -> np.ndarray:
        pixels = np.full((region[2] - region[0], region[3] - region[1], 3), 7, dtype=np.uint8)
        self.rows.append(
            (id(data) + BYTES_DATA_OFFSET, len(data), *size, *region, address(pixels), pixels.nbytes, False)
        )
        self.kept += [data, pixels]
        return pixels


def test_a_bad_request_does_not_affect_the_others():
    decoder, expected, all_of_it = NativeDecoder(fancy_upsampling=True), as_pillow(JPEG), (0, 0, H, W)
    for _ in range(3):  # nvImageCodec objects are reused
        requests = Requests()
        whole = requests.add(JPEG, (H, W), all_of_it)
        taller = requests.add(JPEG, (H + 1, W), (0, 0, H + 1, W))
        narrower = requests.add(JPEG, (H, W - 1), (0, 0, H, W - 1))
        requests.add(JPEG[: len(JPEG) // 2], (H, W), all_of_it)
        requests.add(b"no picture" * 9, (H, W), all_of_it)
        region = requests.add(JPEG, (H, W), (8, 16, H - 3, W - 1))
        other = requests.add(PNG, PHOTO.shape[:2], (0, 0, *PHOTO.shape[:2]))
        statuses = [status for status, _, _ in decoder.decode(requests.rows)]
        assert statuses == [FROM_FILE, 0, 0, 0, 0, FROM_FILE, FROM_FILE]
        assert (
            (whole == expected).all() and (region == expected[8 : H - 3, 16 : W - 1]).all() and (other == PHOTO).all()
        )
        assert (taller == 7).all() and (narrower == 7).all()
    assert decoder.decode([]) == []


@pytest.mark.parametrize("missing", [0, 1])
def test_a_whole_crop_is_decoded_if_it_fits(missing):
    """Else the region alone; nothing is written beyond."""
    stored, region = (120, 400), (40, 100, 70, 130)
    file = jpeg(*stored, interval=5)
    cropped = expected_crop(stored, 0x221111, 1, region, (16, 5 * 16))
    shape = (cropped[2] - cropped[0], cropped[3] - cropped[1], 3)
    pixels = np.full(math.prod(shape) + 64, 7, dtype=np.uint8)
    row = (id(file) + BYTES_DATA_OFFSET, len(file), *stored, *region, address(pixels), math.prod(shape) - missing, True)
    ((status, decoded_region, _),) = NativeDecoder(fancy_upsampling=True).decode([row])
    assert status == FROM_CROP and decoded_region == (region if missing else cropped)
    top, left, bottom, right = decoded_region
    count = 3 * (bottom - top) * (right - left)
    decoded = pixels[:count].reshape(bottom - top, right - left, 3)
    y0, x0, y1, x1 = region
    assert (decoded[y0 - top : y1 - top, x0 - left : x1 - left] == slice_region(as_pillow(file), region)).all()
    assert (pixels[count:] == 7).all()
