"""`PendingCacheEntry`: an image that the decoded cache lacks, and the plan that scales it to its size there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cuaug.cache import DecodedCache, shrunken_size
from cuaug.codec import CpuDecoder, DecodedImage, EncodedImage
from cuaug.devices.cpu import CpuExecutor
from cuaug.errors import DecodeError
from cuaug.plan import CompiledPlan, Layout, Plan, Type

__all__ = ["PendingCacheEntry", "plan_shrinking"]


class PendingCacheEntry:
    """A sample for the decoded cache, planned at its size in the cache.

    The sample looks the same whether the cache has room for it or not.

    Attributes:
        index: the sample's index.
        encoded: the image to decode.
        height, width: size in the cache, in pixels.
    """

    __slots__ = ("encoded", "height", "index", "width")

    def __init__(self, index: int, encoded: EncodedImage | DecodedImage, short_side: int | None) -> None:
        self.index, self.encoded = index, encoded
        self.height, self.width = shrunken_size(encoded.height, encoded.width, short_side)

    @property
    def shrinks(self) -> bool:
        return (self.height, self.width) != (self.encoded.height, self.encoded.width)

    def decode(self, decoder: CpuDecoder, cache: DecodedCache) -> NDArray[np.uint8]:
        """Decodes, shrinks and caches the image: (height, width, 3) uint8, valid until the decoder's next call."""
        pixels = decoder.decode(self.encoded)
        if self.shrinks:
            try:
                small = np.empty((self.height, self.width, 3), dtype=np.uint8)
                CpuExecutor(plan_shrinking([self])).run(0, pixels, small.ctypes.data)
            except MemoryError as error:
                raise DecodeError(f"not enough memory to scale it down for the cache: {error}") from error
            pixels = small
        kept = cache.put(self.index, pixels)
        return pixels if kept is None else kept


def plan_shrinking(samples: list[PendingCacheEntry]) -> CompiledPlan:
    """The plan that scales decoded samples to their cached sizes, (height, width, 3) uint8."""
    plan = Plan([sample.encoded.height for sample in samples], [sample.encoded.width for sample in samples])
    plan.resize([sample.height for sample in samples], [sample.width for sample in samples])
    return plan.compile(Type.UINT8, Layout.HWC)
