"""`DeviceStore`: decoded pixels in a GPU's memory. `DeviceBlocks`: the memory of caches there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

import torch

from cuaug.cache.limits import CacheStats

__all__ = ["DeviceBlocks", "DeviceImage", "DeviceStore"]

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


class DeviceBlocks:
    """Large blocks of device memory, filled one after the other.

    They grow up to `limit_bytes`, counting each piece rounded up to 128 bytes, and stop growing if the GPU runs out of
    memory.

    Args:
        name: of the cache, for a warning.

    Attributes:
        bytes: in use.
        limit_bytes: limit on these.
    """

    def __init__(self, limit_bytes: int, device: torch.device, name: str) -> None:
        self.limit_bytes, self._device, self._name = limit_bytes, device, name
        self.bytes = 0
        self._free = torch.empty(0, dtype=torch.uint8, device=device)

    def has_room(self, size: int) -> bool:
        return -(-size // _ALIGN_BYTES) * _ALIGN_BYTES <= self.limit_bytes - self.bytes

    def allocate(self, size: int) -> torch.Tensor | None:
        """(size,) uint8, from a multiple of 128 bytes on; None if it does not fit."""
        if not self.has_room(size):
            return None
        aligned_size = -(-size // _ALIGN_BYTES) * _ALIGN_BYTES
        if aligned_size > len(self._free):
            block_size = max(aligned_size, min(_BLOCK_BYTES, self.limit_bytes - self.bytes))
            try:
                self._free = torch.empty(block_size, dtype=torch.uint8, device=self._device)
            except torch.cuda.OutOfMemoryError:
                log.warning("the %s takes no more samples: GPU out of memory beyond %d bytes", self._name, self.bytes)
                self.limit_bytes = self.bytes
                return None
        memory, self._free = self._free[:size], self._free[aligned_size:]
        self.bytes += aligned_size
        return memory


class DeviceStore:
    """Keeps decoded images in `DeviceBlocks`. It belongs to one process and one GPU."""

    def __init__(self, limit_bytes: int, device: torch.device) -> None:
        self._device = device
        self._blocks = DeviceBlocks(limit_bytes, device, "decoded cache")
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
                memory = None if index in self._images else self._blocks.allocate(image.nelement())
                if memory is not None:
                    copies[index] = memory.view(image.shape)
                    copies[index].copy_(image)
        if copies:
            torch.cuda.current_stream(self._device).synchronize()
            self._images.update((index, DeviceImage(tensor)) for index, tensor in copies.items())

    def stats(self) -> CacheStats:
        return CacheStats(len(self._images), self._blocks.bytes, self._blocks.limit_bytes)
