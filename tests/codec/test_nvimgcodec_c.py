"""nvImageCodec by its C interface: what is loaded of it, and what becomes of a picture that is not as it was said."""

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
from cuaug.codec._nvimgcodec_c import FROM_FILE, FROM_PART, NativeDecoder, load_codec, stored_size
from cuaug.errors import DeviceError
from tests.codec.jpeg_crops import jpeg, smallest, within
from tests.codec.memory import allocated
from tests.codec.pictures import JPEG, PHOTO, RGB, as_pillow, encode

H, W = RGB.height, RGB.width
PACKAGE = _nvimgcodec_c._folder()
PNG = encode(Image.fromarray(PHOTO), "PNG")


def test_the_version_is_that_of_the_python_interface():
    assert nv().__version__.split(".")[:3] == codec_version().split(".")


def test_no_copies():
    """A copy would free the same memory again."""
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="decoder"):
            make(NativeDecoder(fancy_upsampling=True))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_frees_nothing():
    """A thread may have been decoding at the fork: what it was changing is half changed in the child."""
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
    """Has the codec be loaded anew, from another folder."""

    def install(folder: Path | None) -> None:
        found = None if folder is None else SimpleNamespace(submodule_search_locations=[str(folder)])
        monkeypatch.setattr(_nvimgcodec_c, "find_spec", lambda name: found)
        monkeypatch.setattr(_nvimgcodec_c, "_loaded", None)

    return install


def test_it_is_not_installed(installed, monkeypatch):
    def nothing_of_nvidia(name: str) -> None:
        raise ModuleNotFoundError("No module named 'nvidia'")

    installed(None)
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match=r"nvidia-nvimgcodec-cu12>=0\.9,<0\.10"):
            load_codec()
        monkeypatch.setattr(_nvimgcodec_c, "find_spec", nothing_of_nvidia)


def test_a_part_of_it_is_missing(installed, tmp_path):
    installed(tmp_path)
    with pytest.raises(DeviceError, match=f"nvImageCodec in {tmp_path} has no libnvimgcodec.so"):
        load_codec()
    for part in PACKAGE.glob("libnvimgcodec.so*"):
        shutil.copy(part, tmp_path)
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


class Wanted:
    """Rows for `NativeDecoder`, and the memory that they lead to."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.kept: list[Any] = []

    def add(self, data: bytes, size: tuple[int, int], region: tuple[int, int, int, int]) -> np.ndarray:
        room = np.full((region[2] - region[0], region[3] - region[1], 3), 7, dtype=np.uint8)
        self.rows.append((id(data) + BYTES_DATA_OFFSET, len(data), *size, *region, address(room), room.nbytes, False))
        self.kept += [data, room]
        return room


def test_what_is_wrong_with_one_does_not_reach_the_others():
    decoder, want, right = NativeDecoder(fancy_upsampling=True), as_pillow(JPEG), (0, 0, H, W)
    for _ in range(3):  # what was opened is used anew
        wanted = Wanted()
        whole = wanted.add(JPEG, (H, W), right)
        taller = wanted.add(JPEG, (H + 1, W), (0, 0, H + 1, W))
        narrower = wanted.add(JPEG, (H, W - 1), (0, 0, H, W - 1))
        wanted.add(JPEG[: len(JPEG) // 2], (H, W), right)
        wanted.add(b"no picture" * 9, (H, W), right)
        part = wanted.add(JPEG, (H, W), (8, 16, H - 3, W - 1))
        other = wanted.add(PNG, PHOTO.shape[:2], (0, 0, *PHOTO.shape[:2]))
        done = [done for done, _, _ in decoder.decode(wanted.rows)]
        assert done == [FROM_FILE, 0, 0, 0, 0, FROM_FILE, FROM_FILE]
        assert (whole == want).all() and (part == want[8 : H - 3, 16 : W - 1]).all() and (other == PHOTO).all()
        assert (taller == 7).all() and (narrower == 7).all()
    assert decoder.decode([]) == []


@pytest.mark.parametrize("missing", [0, 1])
def test_all_of_a_part_is_decoded_if_there_is_room(missing):
    """And else its region; nothing is written behind either."""
    stored, region = (120, 400), (40, 100, 70, 130)
    file = jpeg(*stored, interval=5)
    part = smallest(stored, 0x221111, 1, region, (16, 5 * 16))
    shape = (part[2] - part[0], part[3] - part[1], 3)
    pixels = np.full(math.prod(shape) + 64, 7, dtype=np.uint8)
    row = (id(file) + BYTES_DATA_OFFSET, len(file), *stored, *region, address(pixels), math.prod(shape) - missing, True)
    ((done, shown, _),) = NativeDecoder(fancy_upsampling=True).decode([row])
    assert done == FROM_PART and shown == (region if missing else part)
    top, left, bottom, right = shown
    count = 3 * (bottom - top) * (right - left)
    decoded = pixels[:count].reshape(bottom - top, right - left, 3)
    y0, x0, y1, x1 = region
    assert (decoded[y0 - top : y1 - top, x0 - left : x1 - left] == within(as_pillow(file), region)).all()
    assert (pixels[count:] == 7).all()
