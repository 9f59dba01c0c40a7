"""`DeviceStore`: decoded pixels in a GPU's memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

import torch

from cuaug.cache.limits import CacheStats

__all__ = ["DeviceImage", "DeviceStore"]

log = logging.getLogger("cuaug")

# Device memory is allocated in blocks of this size and filled from one end.
_BLOCK_BYTES = 64 << 20
# Alignment of each image: kernels read single bytes, but aligned ones share memory transactions.
_ALIGN_BYTES = 128


class DeviceImage:
    """A decoded image in device memory.

    Attributes:
        height, width: in pixels.
        tensor: (height, width, 3) uint8, contiguous. Do not write to it.
    """

    __slots__ = ("height", "tensor", "width")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.height, self.width = tensor.shape[:2]
        self.tensor = tensor


class DeviceStore:
    """Keeps decoded images in large blocks of device memory, one after the other.

    It grows block by block up to `limit_bytes`, counting each image rounded up to 128 bytes, and stops growing if the
    GPU runs out of memory. It belongs to one process and one GPU.
    """

    def __init__(self, limit_bytes: int, device: torch.device) -> None:
        self._limit_bytes, self._device = limit_bytes, device
        self._bytes = 0
        self._free = torch.empty(0, dtype=torch.uint8, device=device)
        self._images: dict[int, DeviceImage] = {}
        self._lock = threading.Lock()

    def get(self, index: int) -> DeviceImage | None:
        return self._images.get(index)

    def put(self, images: Mapping[int, torch.Tensor]) -> None:
        """Copies the samples' images, (h, w, 3) uint8 on the device, as far as they fit.

        It waits for the copies, so that any stream may read an image found here.
        """
        copies = {}
        with self._lock:
            for index, image in images.items():
                memory = None if index in self._images else self._allocate(image.nelement())
                if memory is not None:
                    copies[index] = memory.view(image.shape)
                    copies[index].copy_(image)
        if copies:
            torch.cuda.current_stream(self._device).synchronize()
            self._images.update((index, DeviceImage(tensor)) for index, tensor in copies.items())

    def _allocate(self, size: int) -> torch.Tensor | None:
        aligned_size = -(-size // _ALIGN_BYTES) * _ALIGN_BYTES
        if aligned_size > self._limit_bytes - self._bytes:
            return None
        if aligned_size > len(self._free):
            block_size = max(aligned_size, min(_BLOCK_BYTES, self._limit_bytes - self._bytes))
            try:
                self._free = torch.empty(block_size, dtype=torch.uint8, device=self._device)
            except torch.cuda.OutOfMemoryError:
                log.warning("the decoded cache takes no more samples: GPU out of memory beyond %d bytes", self._bytes)
                self._limit_bytes = self._bytes
                return None
        memory, self._free = self._free[:size], self._free[aligned_size:]
        self._bytes += aligned_size
        return memory

    def stats(self) -> CacheStats:
        return CacheStats(len(self._images), self._bytes, self._limit_bytes)
