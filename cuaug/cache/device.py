"""Decoded pixels in a GPU's memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

import torch

from cuaug.cache.limits import CacheStats

__all__ = ["DeviceImage", "DeviceStore"]

log = logging.getLogger("cuaug")

# Asked for at once, and filled from one end to the other.
_BLOCK_BYTES = 64 << 20
# Where a picture begins: the kernels read single bytes, but aligned ones share fewer memory transactions.
_ALIGN = 128


class DeviceImage:
    """A decoded picture in device memory.

    Attributes:
        height, width: in pixels.
        tensor: (height, width, 3) uint8, contiguous. Not to be written to.
    """

    __slots__ = ("height", "tensor", "width")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.height, self.width = tensor.shape[:2]
        self.tensor = tensor


class DeviceStore:
    """Pictures one behind the other in large blocks of device memory."""

    def __init__(self, limit_bytes: int, device: torch.device) -> None:
        self._limit_bytes, self._device = limit_bytes, device
        self._bytes = 0
        self._free = torch.empty(0, dtype=torch.uint8, device=device)
        self._pictures: dict[int, DeviceImage] = {}
        self._lock = threading.Lock()

    def get(self, index: int) -> DeviceImage | None:
        return self._pictures.get(index)

    def put(self, pictures: Mapping[int, torch.Tensor]) -> None:
        """Copies what fits of some samples' pictures, (h, w, 3) uint8 on the device.

        It waits for the copies: whoever finds a picture here may read it, on any stream.
        """
        taken = {}
        with self._lock:
            for index, picture in pictures.items():
                place = None if index in self._pictures else self._take(picture.nelement())
                if place is not None:
                    taken[index] = place.view(picture.shape)
                    taken[index].copy_(picture)
        if taken:
            torch.cuda.current_stream(self._device).synchronize()
            self._pictures.update((index, DeviceImage(tensor)) for index, tensor in taken.items())

    def _take(self, size: int) -> torch.Tensor | None:
        room = -(-size // _ALIGN) * _ALIGN
        if room > self._limit_bytes - self._bytes:
            return None
        if room > len(self._free):
            block = max(room, min(_BLOCK_BYTES, self._limit_bytes - self._bytes))
            try:
                self._free = torch.empty(block, dtype=torch.uint8, device=self._device)
            except torch.cuda.OutOfMemoryError:
                log.warning(
                    "the decoded cache takes no more samples: the GPU has no memory beyond %d bytes", self._bytes
                )
                self._limit_bytes = self._bytes
                return None
        place, self._free = self._free[:size], self._free[room:]
        self._bytes += room
        return place

    def stats(self) -> CacheStats:
        return CacheStats(len(self._pictures), self._bytes, self._limit_bytes)
