"""`CpuDecoder`: decodes a few images at a time into host memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.huge_pages import pages
from cuaug._runtime.native import BYTES_DATA_OFFSET, address
from cuaug.codec._nvimgcodec_c import FROM_CROP, NativeDecoder
from cuaug.codec.exif import Region, apply_orientation
from cuaug.codec.image import MIN_CROP_SIDE, DecodedImage, EncodedImage
from cuaug.codec.jpeg_crop import JpegIndex
from cuaug.errors import DecodeError

__all__ = ["CpuDecoder", "DecodeResult", "thread_decoder"]

_per_thread = threading.local()
_MAX_KEPT_BYTES = 64 << 20
_SHRINK_AFTER = 256
_CROP_MARGIN = 80
"""Pixels by which a JPEG crop may extend beyond its region on each side: the distance of entry points plus the
neighbours that chroma smoothing reads."""


class DecodeResult(NamedTuple):
    """A decoded image.

    Attributes:
        pixels: (h, w, 3) uint8 RGB, read-only; the pixels of a row are packed. It may be a view of the given pixels, or
            of the decoder's memory, valid until the next `decode`.
        decoded_by: "cpu" (nvImageCodec), "pillow", or "source" for pixels that came decoded.
        cropped: whether a JPEG crop was decoded, found by restart markers or an index.
    """

    pixels: NDArray[np.uint8]
    decoded_by: str
    cropped: bool = False


class CpuDecoder:
    """Decodes a few images at a time on the CPU, in the calling thread.

    One decoder serves one thread of one process: it must never be shared.

    Args:
        fancy_upsampling: smooth the chroma of subsampled JPEGs, as libjpeg and Pillow do. Decoding without it is
            somewhat faster; colours at sharp edges then differ by up to 24 levels.

    Attributes:
        decoded_by, cropped: fields of the last `DecodeResult` that `decode` returned.
        messages: {position: lines that the image libraries printed} of the last `decode` or `decode_batch`.
    """

    def __init__(self, *, fancy_upsampling: bool = True) -> None:
        self._decoder = NativeDecoder(fancy_upsampling=fancy_upsampling)
        self.decoded_by = ""
        self.cropped = False
        self.messages: dict[int, list[str]] = {}
        self._slots = [_Slot()]

    def decode(
        self, image: EncodedImage | DecodedImage, region: Region | None = None, *, index: JpegIndex | None = None
    ) -> NDArray[np.uint8]:
        """Decode one image, or a region of it, like `decode_batch`.

        Raises:
            DecodeError: neither nvImageCodec nor Pillow decodes it; the cause is Pillow's.
            ValueError: the region is empty or reaches outside the image.
        """
        (outcome,) = self.decode_batch([image], [region], index=index)
        if isinstance(outcome, DecodeError):
            try:
                raise outcome
            finally:
                del outcome  # its traceback holds this frame
        self.decoded_by, self.cropped = outcome.decoded_by, outcome.cropped
        return outcome.pixels

    def decode_new(self, image: EncodedImage, region: Region | None = None) -> NDArray[np.uint8]:
        """Like `decode`, but the pixels are the caller's. Whole images are decoded into new memory, without a copy."""
        if region is not None or image.for_pillow or image._orientation != 1:
            return self.decode(image, region).copy()
        own, self._slots[0] = self._slots[0], _Slot(np.empty(image.height * image.width * 3, dtype=np.uint8))
        try:
            return self.decode(image)
        finally:
            self._slots[0] = own

    def decode_batch(
        self,
        images: Sequence[EncodedImage | DecodedImage],
        regions: Sequence[Region | None],
        *,
        index: JpegIndex | None = None,
    ) -> list[DecodeResult | DecodeError]:
        """Decode images, or a region of each. The thread takes the GIL once for all of them.

        Args:
            images: from `read_header`, or decoded already.
            regions: (y0, x0, y1, x1) in displayed pixels, the ends excluded; None: the whole image.
            index: entry points of JPEGs seen before, which let a region decode without the rest.

        Returns:
            A `DecodeError` with Pillow's cause for each image that neither nvImageCodec nor Pillow decodes.

        Raises:
            ValueError: a region is empty or reaches outside its image.
        """
        outcomes: list[DecodeResult | DecodeError | None] = [None] * len(images)
        requests: list[_Request] = []
        for position, (image, region) in enumerate(zip(images, regions, strict=True)):
            y0, x0, y1, x1 = region or (0, 0, image.height, image.width)
            if not (0 <= y0 < y1 <= image.height and 0 <= x0 < x1 <= image.width):
                size = f"{image.height} x {image.width}"
                raise ValueError(f"region (y0, x0, y1, x1) = {region} is empty or outside {size} pixels")
            if isinstance(image, DecodedImage):
                outcomes[position] = DecodeResult(image.array[y0:y1, x0:x1], "source")
            elif not image.for_pillow:
                requests.append(_Request(position, image, (y0, x0, y1, x1)))
        while len(self._slots) < len(requests):
            self._slots.append(_Slot())
        rows = [request.to_row(slot, index) for request, slot in zip(requests, self._slots, strict=False)]
        self.messages = {}
        decoded = self._decoder.decode(rows, index)
        for request, slot, (status, decoded_region, lines) in zip(requests, self._slots, decoded, strict=False):
            if lines:
                self.messages[request.position] = lines
            if status:
                pixels = request.load_pixels(slot, decoded_region)
                outcomes[request.position] = DecodeResult(pixels, "cpu", status == FROM_CROP)
        for position in [position for position, outcome in enumerate(outcomes) if outcome is None]:
            pixels_or_error, lines = cast(EncodedImage, images[position]).decode_with_pillow(regions[position])
            if isinstance(pixels_or_error, DecodeError):
                outcomes[position] = pixels_or_error
            else:
                outcomes[position] = DecodeResult(pixels_or_error, "pillow")
            if lines:
                self.messages[position] = self.messages.get(position, []) + lines
        return cast(list[DecodeResult | DecodeError], outcomes)


class _Request:
    """A region of an image for nvImageCodec to decode.

    Attributes:
        position: in the batch.
        stored_region: the region to decode, as stored.
        capacity: bytes for its pixels, and for those around it in its JPEG crop.
    """

    def __init__(self, position: int, image: EncodedImage, region: Region) -> None:
        y0, x0, y1, x1 = region
        self.position, self.image, self.region = position, image, region
        self.is_whole = y1 - y0 == image.height and x1 - x0 == image.width
        self.is_narrow = not self.is_whole and min(y1 - y0, x1 - x0) < MIN_CROP_SIDE  # sliced from the whole image
        decodes_all = self.is_whole or self.is_narrow
        self.stored_region = (0, 0, *image.stored_size) if decodes_all else image.to_stored(region)
        self.capacity = 0

    def to_row(self, slot: _Slot, index: JpegIndex | None) -> tuple[int, ...]:
        """Make the row for `NativeDecoder.decode`, and reserve the slot's memory."""
        image, (top, left, bottom, right) = self.image, self.stored_region
        data, size = image._data, image.stored_size
        begin = id(data) + BYTES_DATA_OFFSET if isinstance(data, bytes) else address(np.asarray(data))
        crop = not (self.is_whole or self.is_narrow) and image.is_worth_cropping(self.stored_region, index)
        height, width = bottom - top, right - left
        oriented_bytes = 0 if image._orientation == 1 else height * width * 3
        if crop:
            height, width = min(height + 2 * _CROP_MARGIN, size[0]), min(width + 2 * _CROP_MARGIN, size[1])
        self.capacity = height * width * 3
        slot.reserve(self.capacity + oriented_bytes)
        return (begin, len(data), *size, *self.stored_region, slot.address, self.capacity, crop)

    def load_pixels(self, slot: _Slot, decoded_region: Region) -> NDArray[np.uint8]:
        """The region as displayed, from a slot that holds `decoded_region` as stored."""
        (top, left, bottom, right), (y0, x0, y1, x1) = decoded_region, self.stored_region
        pixels = slot.memory[: (bottom - top) * (right - left) * 3].reshape(bottom - top, right - left, 3)
        pixels = pixels[y0 - top : y1 - top, x0 - left : x1 - left]
        # We orient the pixels: nvImageCodec takes as long for that as for decoding, and orients the whole image.
        if self.image._orientation != 1:
            out = slot.memory[self.capacity : self.capacity + pixels.size]
            pixels = apply_orientation(pixels, self.image._orientation, out)
        if self.is_narrow:
            y0, x0, y1, x1 = self.region
            pixels = np.ascontiguousarray(pixels[y0:y1, x0:x1])
        return pixels


class _Slot:
    """Reusable memory for one decoded image."""

    def __init__(self, memory: NDArray[np.uint8] | None = None) -> None:
        self._small_uses = 0
        self._keep(pages(3 << 18) if memory is None else memory)

    def reserve(self, size: int) -> None:
        """Grow to `size` bytes. A giant image's memory is freed after `_SHRINK_AFTER` smaller images in a row."""
        capacity = len(self.memory)
        if size > capacity:
            self._allocate(max(size, min(2 * capacity, _MAX_KEPT_BYTES)))
        elif capacity > _MAX_KEPT_BYTES:
            self._small_uses = self._small_uses + 1 if size <= _MAX_KEPT_BYTES else 0
            if self._small_uses == _SHRINK_AFTER:
                self._allocate(_MAX_KEPT_BYTES)

    def _allocate(self, capacity: int) -> None:
        self._small_uses = 0
        self._keep(pages(capacity))

    def _keep(self, memory: NDArray[np.uint8]) -> None:
        self.memory, self.address = memory, address(memory)


def thread_decoder(fancy_upsampling: bool) -> CpuDecoder:
    """The calling thread's decoder: sharing one between threads corrupts the heap."""
    decoders: dict[bool, CpuDecoder] = _per_thread.__dict__.setdefault("decoders", {})
    if fancy_upsampling not in decoders:
        decoders[fancy_upsampling] = CpuDecoder(fancy_upsampling=fancy_upsampling)
    return decoders[fancy_upsampling]
