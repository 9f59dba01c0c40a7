"""nvImageCodec on the CPU, by its C interface: for all pictures of a call, a thread waits once for the interpreter.

By its Python interface, which the decoders of a GPU use (`_nvimgcodec.py`), that is several times for each picture, and
loading it may make a CUDA context. This here loads what decodes on the CPU, and nothing else.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.fork import renew_after_fork
from cuaug._runtime.native import address, library
from cuaug.codec._nvimgcodec import decoder_options, import_lock, quiet_opencv
from cuaug.codec.jpeg_crop import JpegIndex
from cuaug.codec.messages import TEXT_BYTES, lines_of
from cuaug.errors import DeviceError

__all__ = ["FROM_FILE", "FROM_PART", "NativeDecoder", "codec_version", "load_codec", "stored_size"]

# As kernels/jpeg/nvimgcodec.h has them.
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
FROM_FILE, FROM_PART = 1, 2
# JPEG, then PNG and WebP.
_EXTENSIONS = ("libjpeg_turbo_ext", "libopencv_ext")

_loaded: tuple[int, int] | None = None  # the codec, the version


def load_codec() -> int:
    """nvImageCodec for the CPU, loaded with the first call of a process.

    Raises:
        ModuleNotFoundError: it is not installed.
        DeviceError: it is, and is not what cuaug was written for.
    """
    global _loaded
    if _loaded is None:
        with import_lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded[0]


def _forget() -> None:
    """A forked child loads its own: the codec's threads stay with the parent."""
    global _loaded
    _loaded = None


renew_after_fork(_forget)


def codec_version() -> str:
    """The version of nvImageCodec, such as '0.9.0'."""
    load_codec()
    assert _loaded is not None
    version = _loaded[1]
    return f"{version // 1000}.{version // 100 % 10}.{version % 100}"


def _load() -> tuple[int, int]:
    folder = _folder()
    interface = _loaded_library(folder, "libnvimgcodec")
    functions = _addresses(interface, FUNCTIONS)
    version = library.cuaug_codec_version(functions)
    if not 900 <= version < 1000:
        raise DeviceError(f"nvImageCodec in {folder} has version number {version}, not 9xx, that is 0.9")
    with quiet_opencv():
        extensions = [_loaded_library(folder / "extensions", name) for name in _EXTENSIONS]
    entries = [_addresses(extension, ["nvimgcodecExtensionModuleEntry"])[0] for extension in extensions]
    codec = library.cuaug_codec_new(functions, (ctypes.c_void_p * len(entries))(*entries), len(entries))
    if codec is None:
        raise DeviceError(f"nvImageCodec in {folder} gives no decoders for the CPU")
    return codec, version


def _folder() -> Path:
    try:
        package = find_spec("nvidia.nvimgcodec")
    except ModuleNotFoundError:  # there is no nvidia either
        package = None
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError(
            "nvImageCodec is not installed: pip install 'nvidia-nvimgcodec-cu12>=0.9,<0.10'", name="nvidia.nvimgcodec"
        )
    return Path(package.submodule_search_locations[0])


def _loaded_library(folder: Path, name: str) -> ctypes.CDLL:
    found = sorted(folder.glob(f"{name}.so*"))
    if not found:
        raise DeviceError(f"nvImageCodec in {folder} has no {name}.so")
    return ctypes.CDLL(str(found[0]))


def _addresses(loaded: ctypes.CDLL, names: Sequence[str]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(names))(*(ctypes.cast(getattr(loaded, name), ctypes.c_void_p) for name in names))


def stored_size(data: bytes) -> tuple[int, int] | None:
    """(height, width) of an encoded picture, as stored; None where nvImageCodec cannot tell."""
    size = np.empty(2, dtype=np.int64)
    if not library.cuaug_codec_size(load_codec(), data, len(data), address(size)):
        return None
    height, width = size.tolist()
    return height, width


class NativeDecoder:
    """Decodes with the calling thread alone; for one thread at a time.

    Args:
        fancy_upsampling: as for `CpuDecoder`.
    """

    def __init__(self, *, fancy_upsampling: bool) -> None:
        self._handle = library.cuaug_decoder_new(load_codec(), decoder_options(fancy_upsampling).encode())
        if self._handle is None:
            raise DeviceError("nvImageCodec gives no decoder for the CPU: is there memory for it?")
        weakref.finalize(self, library.cuaug_decoder_delete, self._handle).atexit = False  # threads may use it at exit

    def __reduce__(self) -> NoReturn:
        raise TypeError("a decoder is memory of this process: it can be neither copied nor pickled")

    def decode(
        self, wanted: Sequence[tuple[int, ...]], index: JpegIndex | None = None
    ) -> list[tuple[int, tuple[int, int, int, int], list[str]]]:
        """Decodes some pictures, or regions of them. What addresses lead to must be kept until then.

        Args:
            wanted: of each the address and bytes of the file, its picture's height and width as stored, the top, left,
                bottom and right of a region, the ends excluded, the address of room for pixels, (h, w, 3) bytes, how
                many bytes that is, and whether the smallest part of the file that decodes to the same pixels is to be
                cut out and decoded, if it has restart markers at the right places or is in the index, and not nearly
                all of it is needed. All that a part shows is decoded if there is room for it, else the region.

        Returns:
            of each whether it was decoded, FROM_FILE, FROM_PART or 0, the top, left, bottom and right of what its
            pixels show, which holds the region, and the lines that decoders printed about it.
        """
        if not wanted:
            return []
        rows: NDArray[np.int64] = np.array(wanted, dtype=np.int64)
        n, done = len(rows), np.empty(len(rows), dtype=np.uint8)
        text, lengths = np.empty((n, TEXT_BYTES), dtype=np.uint8), np.empty(n, dtype=np.int64)
        handle, printed = None if index is None else index.handle, (address(text), TEXT_BYTES, address(lengths))
        library.cuaug_decode(self._handle, address(rows), n, handle, address(done), *printed)
        lines = [lines_of(text[i, :length].tobytes()) if length else [] for i, length in enumerate(lengths.tolist())]
        return list(zip(done.tolist(), map(tuple, rows[:, 4:8].tolist()), lines, strict=True))
