"""A fake of PyNvVideoCodec that decodes with PyAV, and keeps the rules of the library's decoder.

The surfaces belong to the decoder: each `Decode` writes the frames that it gives from the first surface on. It takes
H.264 and HEVC in Annex B form alone, and gives frames late. A surface that is read after the next `Decode` has other
pixels; one that is read or written in no order fails by `FakeDriver`.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import types
from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import Any, ClassVar

import av
import numpy as np
import torch

from cuaug.codec.video import nvdec
from tests.support.fake_streams import driver

_DELAY = 3  # frames that the parser holds back


class PyNvVCException(Exception):
    """In place of the library's error."""


class PyNvVCExceptionUnsupported(Exception):
    """In place of the library's error for what the GPU cannot decode."""


class PixelFormat(Enum):
    NV12 = 1
    P016 = 2
    YUV444 = 3


class PacketData:
    """In place of the library's packet; `bsl` is the size, `bsl_data` the address."""

    def __init__(self) -> None:
        self.bsl = self.bsl_data = self.pts = self.decode_flag = 0


class Surface:
    """In place of the library's DecodedFrame: a view of a surface."""

    def __init__(self, memory: np.ndarray, pts: int, height: int, width: int, form: PixelFormat) -> None:
        self._memory, self._pts, self.format = memory, pts, form
        self._shape = [height, width + width % 2, 1]

    def getPTS(self) -> int:  # the library's names
        return self._pts

    def GetPtrToPlane(self, plane: int) -> int:
        assert plane == 0
        return int(self._memory.ctypes.data)

    def cuda(self) -> list[Any]:
        return [SimpleNamespace(shape=self._shape)]


class FakeNvdec:
    """In place of the library's decoder.

    Attributes:
        made: number of decoders.
        failing: raise `PyNvVCException` at this packet of a decoder's life; -1: never.
        decoded: frames that all decoders gave.
        freed_early: why a surface was freed too early.
    """

    made: ClassVar[int] = 0
    failing: ClassVar[int] = -1
    decoded: ClassVar[int] = 0
    freed_early: ClassVar[list[str]] = []

    def __init__(self, codec: str, stream: int) -> None:
        assert stream, "stream 0 makes the decoder wait after each frame"
        self.codec, self.stream = codec, driver().find_stream(stream, "opening NVDEC")
        self.surfaces: list[np.ndarray] = []
        self.held: list[Any] = []
        self.packets, self.size, self.thread = 0, (0, 0), threading.Lock()
        self.open()
        type(self).made += 1

    def open(self) -> None:
        self.context = av.CodecContext.create("libdav1d" if self.codec == "av1" else self.codec, "r")
        self.context.thread_count = 1

    def Decode(self, packet: PacketData) -> list[Surface]:
        assert self.thread.acquire(blocking=False), "two threads use one decoder"
        try:
            return self._decode(packet)
        finally:
            self.thread.release()

    def _decode(self, packet: PacketData) -> list[Surface]:
        self.packets += 1
        if self.packets - 1 == self.failing:
            raise PyNvVCException("CUDA driver API error CUDA_ERROR_UNKNOWN\nin a file")
        data = ctypes.string_at(packet.bsl_data, packet.bsl) if packet.bsl else b""
        if data and self.codec in ("h264", "hevc"):
            assert data.startswith((b"\0\0\1", b"\0\0\0\1")), "the parser takes Annex B alone"
        encoded = av.Packet(data)
        encoded.pts, encoded.time_base = packet.pts, Fraction(1)
        with contextlib.suppress(av.FFmpegError):  # damage is concealed
            self.held += self.context.decode(encoded if data else None)
        if not data:  # the end of the stream: other packets may follow
            self.open()
        count = max(len(self.held) - _DELAY, 0) if data else len(self.held)
        frames, self.held = self.held[:count], self.held[count:]
        return [self._show(slot, frame) for slot, frame in enumerate(frames)]

    def _show(self, slot: int, frame: Any) -> Surface:
        """Writes a frame to a surface."""
        name = frame.format.name
        if name not in ("yuv420p", "yuvj420p", "yuv420p10le"):
            raise PyNvVCExceptionUnsupported("Codec not supported on this GPU")
        self.size = self.size if self.size[0] else (frame.height, frame.width)
        assert self.size == (frame.height, frame.width), "the library scales frames of another size"
        pixels = surface_bytes(frame)
        if slot == len(self.surfaces):
            self.surfaces.append(np.empty(len(pixels), dtype=np.uint8))
            driver().allocate(torch.from_numpy(self.surfaces[slot]))
            driver().freed.discard(self.surfaces[slot].ctypes.data)
        surface = self.surfaces[slot]
        address = surface.ctypes.data
        driver().check_order(address, self.stream, "decoding into a surface")
        self.stream.work.append("decode")
        driver().use(address, self.stream)
        surface[:] = pixels
        type(self).decoded += 1
        form = PixelFormat.P016 if name.endswith("10le") else PixelFormat.NV12
        return Surface(surface, frame.pts, frame.height, frame.width, form)

    def __del__(self) -> None:
        for surface in self.surfaces:
            try:
                driver().check_idle(surface.ctypes.data, "freeing a surface")
            except AssertionError as error:  # Python only prints an exception here
                self.freed_early.append(str(error))
            driver().freed.add(surface.ctypes.data)


def surface_bytes(frame: Any) -> np.ndarray:
    """A 4:2:0 frame as NV12 or P016 with packed rows of an even number of pixels, (bytes,) uint8."""
    deep = frame.format.name.endswith("10le")
    planes = []
    for plane in frame.planes:
        rows = np.frombuffer(plane, np.uint8).reshape(plane.height, -1)
        planes.append(rows.view(np.uint16 if deep else np.uint8)[:, : plane.width] << (6 if deep else 0))
    luma, u, v = planes
    luma = np.pad(luma, ((0, 0), (0, luma.shape[1] % 2)), mode="edge")
    return np.concatenate([luma.ravel(), np.stack([u, v], axis=-1).ravel()]).view(np.uint8)


def _copy(target: int, source: int, size: int, kind: int, handle: int) -> None:
    """In place of cudaMemcpyAsync between two places of the GPU."""
    driver().check_device("a copy")
    stream = driver().find_stream(handle, "a copy")
    places = [driver().containing(address) for address in (target, target + size - 1, source, source + size - 1)]
    assert None not in places and places[0] == places[1] and places[2] == places[3], "a copy leaves its memory"
    for place in (target, source):
        driver().check_order(driver().containing(place) or 0, stream, "a copy")
    ctypes.memmove(target, source, size)
    stream.work.append("copy")
    for place in (target, source):
        driver().use(driver().containing(place) or 0, stream)


def replace_nvdec(
    replace: Callable[[Any, str, Any], None], replace_item: Callable[[Any, str, Any], None], fake_torch: Any
) -> type[FakeNvdec]:
    """Replaces PyNvVideoCodec, after `replace_cuda`.

    Args:
        replace, replace_item: `setattr` and `operator.setitem`, or pytest's `monkeypatch.setattr` and `.setitem`.
    """
    import cupy

    def create(
        *, gpuid: int | None, codec: str, cudacontext: int, cudastream: int, usedevicememory: bool, outputColorType: str
    ) -> FakeNvdec:
        assert gpuid in (None, driver().gpu) and cudacontext == 0 and usedevicememory and outputColorType == "native"
        return FakeNvdec(codec, cudastream)

    library: Any = types.ModuleType("PyNvVideoCodec")
    vars(library).update(
        __spec__=ModuleSpec("PyNvVideoCodec", None),
        PyNvVCException=PyNvVCException,
        PyNvVCExceptionUnsupported=PyNvVCExceptionUnsupported,
        PacketData=PacketData,
        CreateDecoder=create,
        Pixel_Format=PixelFormat,
        OutputColorType=SimpleNamespace(NATIVE="native"),
        cudaVideoCodec=SimpleNamespace(H264="h264", HEVC="hevc", VP9="vp9", AV1="av1"),
    )
    replace_item(sys.modules, "PyNvVideoCodec", library)
    replace(nvdec, "torch", fake_torch)
    replace(cupy.cuda.runtime, "memcpyAsync", _copy)
    for name, value in (("made", 0), ("failing", -1), ("decoded", 0), ("freed_early", [])):
        replace(FakeNvdec, name, value)
    return FakeNvdec
