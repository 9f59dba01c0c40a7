"""`NvdecPool`: the NVDEC decoders of a loader, one for each thread that decodes."""

from __future__ import annotations

import threading

import torch

from cuaug.codec.nvdec import DeviceFrames, NvdecDecoder, load_nvdec
from cuaug.devices import streams
from cuaug.pipeline.clips import EncodedClip

__all__ = ["NvdecPool"]


class NvdecPool:
    """Lends decoders to worker threads. Each decoder has a stream of its own.

    Raises:
        LoaderError: PyNvVideoCodec is not installed.
        DeviceError: it cannot be used on this machine.
    """

    def __init__(self, device: torch.device) -> None:
        load_nvdec()
        self._device = device
        self._unused: list[NvdecDecoder] = []
        self._is_closed = False
        self._lock = threading.Lock()

    def decode(self, clip: EncodedClip) -> DeviceFrames:
        """Decode a clip's frames on the GPU.

        Raises:
            NvdecError: FFmpeg should try.
            OSError: the file cannot be read.
        """
        decoder = self._take()
        try:
            return decoder.decode(clip.file, clip.index, clip.numbers)
        finally:
            self._give_back(decoder)

    def close(self) -> None:
        """Ends the sessions, now or when a thread gives its decoder back."""
        with self._lock:
            self._is_closed = True
            unused, self._unused = self._unused, []
        for decoder in unused:
            decoder.close()

    def _take(self) -> NvdecDecoder:
        with self._lock:
            if self._unused:
                return self._unused.pop()
        return NvdecDecoder(self._device, streams.acquire(self._device))

    def _give_back(self, decoder: NvdecDecoder) -> None:
        with self._lock:
            if not self._is_closed:
                self._unused.append(decoder)
                return
        decoder.close()
