"""`CpuDecoder`: decodes an image at a time into host memory."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from cuaug._runtime.huge_pages import pages
from cuaug.codec._nvimgcodec_c import FROM_CROP, Decoded, NativeDecoder
from cuaug.codec.image import DecodedImage, EncodedImage
from cuaug.codec.jpeg_index import JpegIndex
from cuaug.codec.sniff import Region
from cuaug.errors import DecodeError

_per_thread = threading.local()
_MAX_KEPT_BYTES = 64 << 20
_SHRINK_AFTER = 256


class DecodeResult(NamedTuple):
    """Decoded pixels: (h, w, 3) uint8 RGB, or (T, h, w, 3) of a clip, and the decoder's name."""

    pixels: NDArray[np.uint8]
    decoded_by: str


class CpuDecoder:
    """Decodes an image at a time on the CPU, in the calling thread.

    One decoder serves one thread of one process: it must never be shared.

    Args:
        fancy_upsampling: smooth the chroma of subsampled JPEGs, as libjpeg and Pillow do. Decoding without it is
            somewhat faster; colors at sharp edges then differ by up to 24 levels.

    Attributes:
        decoded_by: decoder of the last image: "cpu" (nvImageCodec), "pillow", or "source" for pixels that came
            decoded.
        cropped: whether a JPEG crop was decoded, found by restart markers or an index.
        lines: lines that the image libraries printed about the last image.
    """

    def __init__(self, *, fancy_upsampling: bool = True) -> None:
        self._decoder = NativeDecoder(fancy_upsampling=fancy_upsampling)
        self.decoded_by = ""
        self.cropped = False
        self.lines: list[str] = []
        self._memory, self._needed = _Memory(), 0

    def decode(
        self, image: EncodedImage | DecodedImage, region: Region | None = None, *, index: JpegIndex | None = None
    ) -> NDArray[np.uint8]:
        """Decode an image, or a region of it.

        Args:
            image: from `read_header`, or decoded already.
            region: (y0, x0, y1, x1) in displayed pixels, the ends excluded; None: the whole image.
            index: entry points of JPEGs seen before, which let a region decode without the rest.

        Returns:
            (h, w, 3) uint8 RGB; the pixels of a row are packed. It may be a view of the given pixels, or of the
            decoder's memory, valid until the next call.

        Raises:
            DecodeError: neither nvImageCodec nor Pillow decodes it; the cause is Pillow's.
            ValueError: the region is empty or reaches outside the image.
        """
        y0, x0, y1, x1 = region = region or (0, 0, image.height, image.width)
        if not (0 <= y0 < y1 <= image.height and 0 <= x0 < x1 <= image.width):
            size = f"{image.height} x {image.width}"
            raise ValueError(f"region (y0, x0, y1, x1) = {region} is empty or outside {size} pixels")
        self.decoded_by, self.cropped, self.lines = "source", False, []
        if isinstance(image, DecodedImage):
            return image.array[y0:y1, x0:x1]
        self.decoded_by = "cpu"
        if not image.for_pillow:
            row = image.region_row(region)
            self._memory.reserve(self._needed)  # may shrink, after a giant image
            decoded = self._decoder.decode(row, index, self._memory.array)
            self._needed = decoded.needed
            if decoded.needed > len(self._memory.array):
                self._memory.reserve(decoded.needed)
                decoded = self._decoder.decode(row, index, self._memory.array)
            self.lines = decoded.lines
            if decoded.status:
                self.cropped = decoded.status == FROM_CROP
                return self._pixels(decoded, y1 - y0, x1 - x0)
        self.decoded_by = "pillow"
        outcome, lines = image.decode_with_pillow(region)
        self.lines = self.lines + lines
        if isinstance(outcome, DecodeError):
            try:
                raise outcome
            finally:
                del outcome  # its traceback holds this frame
        return outcome

    def decode_new(self, image: EncodedImage, region: Region | None = None) -> NDArray[np.uint8]:
        """Like `decode`, but the pixels are the caller's. Whole images are decoded into new memory, without a copy."""
        if region is not None or image.for_pillow or image._orientation != 1:
            return self.decode(image, region).copy()
        own, self._memory = self._memory, _Memory(image.height * image.width * 3)
        try:
            return self.decode(image)
        finally:
            self._memory = own

    def _pixels(self, decoded: Decoded, height: int, width: int) -> NDArray[np.uint8]:
        return as_strided(self._memory.array[decoded.offset :], (height, width, 3), (decoded.pitch, 3, 1))


class _Memory:
    """Reusable memory for one decoded image."""

    def __init__(self, size: int = 3 << 18) -> None:
        self.array = pages(size)
        self._small_uses = 0

    def reserve(self, size: int) -> None:
        """Grow to `size` bytes. A giant image's memory is freed after `_SHRINK_AFTER` smaller images in a row."""
        capacity = len(self.array)
        if size > capacity:
            self._allocate(max(size, min(2 * capacity, _MAX_KEPT_BYTES)))
        elif capacity > _MAX_KEPT_BYTES:
            self._small_uses = self._small_uses + 1 if size <= _MAX_KEPT_BYTES else 0
            if self._small_uses == _SHRINK_AFTER:
                self._allocate(_MAX_KEPT_BYTES)

    def _allocate(self, capacity: int) -> None:
        self._small_uses = 0
        self.array = pages(capacity)


def thread_decoder(fancy_upsampling: bool) -> CpuDecoder:
    """The calling thread's decoder: sharing one between threads corrupts the heap."""
    decoders: dict[bool, CpuDecoder] = _per_thread.__dict__.setdefault("decoders", {})
    if fancy_upsampling not in decoders:
        decoders[fancy_upsampling] = CpuDecoder(fancy_upsampling=fancy_upsampling)
    return decoders[fancy_upsampling]
