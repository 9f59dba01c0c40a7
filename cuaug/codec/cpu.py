"""`CpuDecoder`: some images at a time, into host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cuaug._runtime.huge_pages import pages
from cuaug._runtime.native import BYTES_DATA_OFFSET, address
from cuaug.codec._nvimgcodec_c import FROM_PART, NativeDecoder
from cuaug.codec._pillow import pillow_decode
from cuaug.codec.exif import Region, turned
from cuaug.codec.image import NARROW, EncodedImage
from cuaug.codec.jpeg_crop import JpegIndex
from cuaug.codec.messages import captured
from cuaug.codec.pixels import DecodedImage
from cuaug.errors import DecodeError

__all__ = ["CpuDecoder", "DecodeResult", "by_pillow"]

_KEEP_BYTES = 64 << 20
_PATIENCE = 256
_BESIDE = 80
"""Pixels by which a part that is decoded as a whole may reach beyond its region on each side: what lies between an
index's places, and what smoothing chroma takes."""


class DecodeResult(NamedTuple):
    """A decoded image.

    Attributes:
        pixels: (h, w, 3) uint8 RGB, the pixels of a row packed. It may be a view of the decoder's memory, valid until
            its next `decode`, or of the pixels that were given: not to be written to.
        by: "cpu" (nvImageCodec), "pillow", or the "source", which gave pixels.
        in_part: whether it was decoded from a part of its file, by restart markers or an index.
    """

    pixels: NDArray[np.uint8]
    by: str
    in_part: bool = False


class CpuDecoder:
    """Decodes some images at a time on the CPU. One per thread and process: it must never be shared.

    Args:
        fancy_upsampling: smooth the chroma of subsampled JPEGs, as libjpeg and Pillow do. Without it decoding is
            somewhat faster, and colours differ by up to 24 levels beside sharp edges.

    Attributes:
        in_part, decoded_by: of the last image that `decode` gave, what `DecodeResult` tells.
        messages: lines that the image libraries printed in the last `decode` or `decode_each`, by place.
    """

    def __init__(self, *, fancy_upsampling: bool = True) -> None:
        self._decoder = NativeDecoder(fancy_upsampling=fancy_upsampling)
        self.decoded_by = ""
        self.in_part = False
        self.messages: dict[int, list[str]] = {}
        self._slots = [_Slot()]

    def decode(
        self, header: EncodedImage | DecodedImage, region: Region | None = None, *, index: JpegIndex | None = None
    ) -> NDArray[np.uint8]:
        """The pixels of an image, or of one region of it, as `decode_each` gives them.

        Raises:
            DecodeError: neither nvImageCodec nor Pillow can decode it; the cause is Pillow's.
            ValueError: the region is empty or reaches outside the picture.
        """
        (outcome,) = self.decode_each([header], [region], index=index)
        if isinstance(outcome, DecodeError):
            try:
                raise outcome
            finally:
                del outcome  # whose traceback has this frame
        self.decoded_by, self.in_part = outcome.by, outcome.in_part
        return outcome.pixels

    def decode_each(
        self,
        headers: Sequence[EncodedImage | DecodedImage],
        regions: Sequence[Region | None],
        *,
        index: JpegIndex | None = None,
    ) -> list[DecodeResult | DecodeError]:
        """The pixels of images, or of one region of each. For all that is decoded together a thread waits once for its
        turn at the interpreter.

        Args:
            headers: from `read_header`, or pixels that are decoded already.
            regions: (y0, x0, y1, x1), the end excluded, in pixels of the picture as displayed; None: all of it.
            index: where the rows of JPEGs begin that came before, so that a region can be decoded without the rest.

        Returns:
            for what neither nvImageCodec nor Pillow can decode an error, whose cause is Pillow's.

        Raises:
            ValueError: a region is empty or reaches outside its picture.
        """
        outcomes: list[DecodeResult | DecodeError | None] = [None] * len(headers)
        wanted: list[_Wanted] = []
        for place, (header, region) in enumerate(zip(headers, regions, strict=True)):
            y0, x0, y1, x1 = region or (0, 0, header.height, header.width)
            if not (0 <= y0 < y1 <= header.height and 0 <= x0 < x1 <= header.width):
                size = f"{header.height} x {header.width}"
                raise ValueError(f"region (y0, x0, y1, x1) = {region} is empty or outside {size} pixels")
            if isinstance(header, DecodedImage):
                outcomes[place] = DecodeResult(header.array[y0:y1, x0:x1], "source")
            elif not header.for_pillow:
                wanted.append(_Wanted(place, header, (y0, x0, y1, x1)))
        while len(self._slots) < len(wanted):
            self._slots.append(_Slot())
        rows = [one.row(slot, index) for one, slot in zip(wanted, self._slots, strict=False)]
        self.messages = {}
        decoded = self._decoder.decode(rows, index)
        for one, slot, (done, shown, lines) in zip(wanted, self._slots, decoded, strict=False):
            if lines:
                self.messages[one.place] = lines
            if done:
                outcomes[one.place] = DecodeResult(one.pixels(slot, shown), "cpu", done == FROM_PART)
        for place in [place for place, outcome in enumerate(outcomes) if outcome is None]:
            outcomes[place], lines = by_pillow(headers[place], regions[place])
            if lines:
                self.messages[place] = self.messages.get(place, []) + lines
        return cast(list[DecodeResult | DecodeError], outcomes)


class _Wanted:
    """A region of a picture that nvImageCodec is to decode.

    Attributes:
        place: which of those that were asked for.
        stored: what is to be decoded, as stored.
        room: bytes for that; with what may be beside it in its part of the file.
    """

    def __init__(self, place: int, header: EncodedImage, region: Region) -> None:
        y0, x0, y1, x1 = region
        self.place, self.header, self.region = place, header, region
        self.whole = y1 - y0 == header.height and x1 - x0 == header.width
        # A narrow one is cut from the pixels of all of it.
        self.narrow = not self.whole and min(y1 - y0, x1 - x0) < NARROW
        self.stored = (0, 0, *header.stored_size) if self.whole or self.narrow else header.stored(region)
        self.room = 0

    def row(self, slot: _Slot, index: JpegIndex | None) -> tuple[int, ...]:
        """What `NativeDecoder` is told of it; the memory has room for it then."""
        header, (top, left, bottom, right) = self.header, self.stored
        data, size = header._data, header.stored_size
        begin = id(data) + BYTES_DATA_OFFSET if isinstance(data, bytes) else address(np.asarray(data))
        cut = not (self.whole or self.narrow) and header.worth_cutting(self.stored, index)
        height, width = bottom - top, right - left
        turned_room = 0 if header._orientation == 1 else height * width * 3
        if cut:
            height, width = min(height + 2 * _BESIDE, size[0]), min(width + 2 * _BESIDE, size[1])
        self.room = height * width * 3
        slot.make_room(self.room + turned_room)
        return (begin, len(data), *size, *self.stored, slot.address, self.room, cut)

    def pixels(self, slot: _Slot, shown: Region) -> NDArray[np.uint8]:
        """As displayed, from memory into which this was decoded."""
        (top, left, bottom, right), (y0, x0, y1, x1) = shown, self.stored
        made = slot.memory[: (bottom - top) * (right - left) * 3].reshape(bottom - top, right - left, 3)
        made = made[y0 - top : y1 - top, x0 - left : x1 - left]
        # Turned here: nvImageCodec takes as long to turn as to decode, and turns the whole picture for a region.
        if self.header._orientation != 1:
            made = turned(made, self.header._orientation, slot.memory[self.room : self.room + made.size])
        if self.narrow:
            y0, x0, y1, x1 = self.region
            made = np.ascontiguousarray(made[y0:y1, x0:x1])
        return made


class _Slot:
    """Memory for one decoded image."""

    def __init__(self) -> None:
        self._small_in_a_row = 0
        self._allocate(3 << 18)

    def make_room(self, size: int) -> None:
        capacity = len(self.memory)
        if size > capacity:
            self._allocate(max(size, min(2 * capacity, _KEEP_BYTES)))
        elif capacity > _KEEP_BYTES:  # one giant image must not cost its memory for ever
            self._small_in_a_row = self._small_in_a_row + 1 if size <= _KEEP_BYTES else 0
            if self._small_in_a_row == _PATIENCE:
                self._allocate(_KEEP_BYTES)

    def _allocate(self, capacity: int) -> None:
        self._small_in_a_row = 0
        self.memory = pages(capacity)
        self.address = address(self.memory)


def by_pillow(
    header: EncodedImage | DecodedImage, region: Region | None
) -> tuple[DecodeResult | DecodeError, list[str]]:
    """The pixels or the error, and the lines that were printed about it."""
    assert isinstance(header, EncodedImage)
    outcome: DecodeResult | DecodeError
    with captured() as lines:
        try:
            outcome = DecodeResult(pillow_decode(header, region), "pillow")
        except DecodeError as error:
            outcome = error
    return outcome, lines
