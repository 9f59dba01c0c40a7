"""nvImageCodec on the CPU, through its C interface.

The Python interface, which the GPU decoders use (`_nvimgcodec.py`), takes the GIL several times per image, and loading
it may create a CUDA context. This module loads the CPU decoders alone.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.fork import renew_after_fork
from cuaug._runtime.native import address, library
from cuaug.codec._nvimgcodec import DecoderPaths, import_lock, quiet_opencv
from cuaug.codec.jpeg_index import JpegIndex
from cuaug.codec.messages import TEXT_BYTES, split_lines
from cuaug.errors import DeviceError

# In the order of `Functions` in kernels/jpeg/nvimgcodec.h.
FUNCTIONS = (
    "nvimgcodecGetProperties",
    "nvimgcodecInstanceCreate",
    "nvimgcodecExtensionCreate",
    "nvimgcodecDecoderCreate",
    "nvimgcodecDecoderDestroy",
    "nvimgcodecCodeStreamCreateFromHostMem",
    "nvimgcodecCodeStreamGetSubCodeStream",
    "nvimgcodecCodeStreamDestroy",
    "nvimgcodecCodeStreamGetImageInfo",
    "nvimgcodecImageCreate",
    "nvimgcodecImageDestroy",
    "nvimgcodecDecoderDecode",
    "nvimgcodecFutureWaitForAll",
    "nvimgcodecFutureGetProcessingStatus",
    "nvimgcodecFutureDestroy",
)
FROM_FILE, FROM_CROP = 1, 2  # `Status` in kernels/jpeg/decode.h
# For JPEG; for PNG and WebP.
_EXTENSIONS = ("libjpeg_turbo_ext", "libopencv_ext")

_loaded: tuple[int, int] | None = None  # codec handle, version


def load_codec() -> int:
    """Load nvImageCodec for the CPU, once per process, and return its handle.

    Raises:
        ModuleNotFoundError: it is not installed.
        DeviceError: another version, or an incomplete installation.
    """
    global _loaded
    if _loaded is None:
        with import_lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded[0]


def _forget() -> None:
    """A forked child loads nvImageCodec anew: the codec's threads stay with the parent."""
    global _loaded
    _loaded = None


renew_after_fork(_forget)


def codec_version() -> str:
    """The version of nvImageCodec, for example '0.9.0'."""
    load_codec()
    assert _loaded is not None
    version = _loaded[1]
    return f"{version // 1000}.{version // 100 % 10}.{version % 100}"


def _load() -> tuple[int, int]:
    folder = _folder()
    interface = _load_library(folder, "libnvimgcodec")
    functions = _addresses(interface, FUNCTIONS)
    version = library.cuaug_codec_version(functions)
    if not 900 <= version < 1000:
        raise DeviceError(f"nvImageCodec in {folder} has version number {version}, not 9xx: install 0.9")
    with quiet_opencv():
        extensions = [_load_library(folder / "extensions", name) for name in _EXTENSIONS]
    entries = [_addresses(extension, ["nvimgcodecExtensionModuleEntry"])[0] for extension in extensions]
    codec = library.cuaug_codec_new(functions, (ctypes.c_void_p * len(entries))(*entries), len(entries))
    if codec is None:
        raise DeviceError(f"nvImageCodec in {folder} gives no decoders for the CPU")
    return codec, version


def _folder() -> Path:
    try:
        package = find_spec("nvidia.nvimgcodec")
    except ModuleNotFoundError:  # the package nvidia is missing too
        package = None
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError(
            "nvImageCodec is not installed: pip install 'nvidia-nvimgcodec-cu12>=0.9,<0.10'", name="nvidia.nvimgcodec"
        )
    return Path(package.submodule_search_locations[0])


def _load_library(folder: Path, name: str) -> ctypes.CDLL:
    paths = sorted(folder.glob(f"{name}.so*"))
    if not paths:
        raise DeviceError(f"nvImageCodec in {folder} has no {name}.so")
    return ctypes.CDLL(str(paths[0]))


def _addresses(lib: ctypes.CDLL, names: Sequence[str]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(names))(*(ctypes.cast(getattr(lib, name), ctypes.c_void_p) for name in names))


def stored_size(data: bytes) -> tuple[int, int] | None:
    """(height, width) of an encoded image, as stored; None if nvImageCodec cannot read it."""
    size = np.empty(2, dtype=np.int64)
    if not library.cuaug_codec_size(load_codec(), data, len(data), address(size)):
        return None
    height, width = size.tolist()
    return height, width


class Decoded(NamedTuple):
    """Where a decoded region lies.

    Attributes:
        status: FROM_FILE, FROM_CROP or 0 if it failed.
        offset: of the region's first pixel, in the memory.
        pitch: bytes between rows.
        needed: bytes of memory; with less it fails.
        lines: that the libraries printed.
    """

    status: int
    offset: int
    pitch: int
    needed: int
    lines: list[str]


class NativeDecoder:
    """Decodes in the calling thread; one thread at a time may use it.

    Args:
        fancy_upsampling: as for `CpuDecoder`.
    """

    def __init__(self, *, fancy_upsampling: bool) -> None:
        self._handle = library.cuaug_decoder_new(
            load_codec(), DecoderPaths(fancy_upsampling=fancy_upsampling).options.encode()
        )
        if self._handle is None:
            raise DeviceError("nvImageCodec gives no decoder for the CPU: is there memory for it?")
        weakref.finalize(self, library.cuaug_decoder_delete, self._handle).atexit = False  # threads may use it at exit

    def __reduce__(self) -> NoReturn:
        raise TypeError("a decoder is memory of this process: it can be neither copied nor pickled")

    def decode(self, row: NDArray[np.int64], index: JpegIndex | None, memory: NDArray[np.uint8]) -> Decoded:
        """Decode a region of an image.

        Args:
            row: an `EncodedRegion` (kernels/jpeg/decode_region.h). The caller keeps the file behind its address.
            index: entry points for JPEGs without restart markers.
            memory: receives the pixels.
        """
        out, text = (ctypes.c_int64 * 4)(), ctypes.create_string_buffer(TEXT_BYTES)
        handle = None if index is None else index.handle_for(row[None])
        target = address(memory), len(memory), out, text, TEXT_BYTES
        status = library.cuaug_decode_region(self._handle, address(row), handle, *target)
        offset, pitch, needed, length = out
        return Decoded(status, offset, pitch, needed, split_lines(text.raw[:length]) if length else [])
