"""The decoders: some images at a time into host memory, or a batch into device memory."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuaug.codec._nvimgcodec import decode_params, decoder_options, nv, open_streams, plain_jpeg
from cuaug.codec._pillow import pillow_decode
from cuaug.codec.header import NARROW, Header
from cuaug.codec.parts import JpegIndex, Part, cut_out_each, room_for
from cuaug.codec.pixels import Pixels
from cuaug.codec.probe import swaps_axes
from cuaug.codec.turns import Region, turned
from cuaug.errors import DecodeError
from cuaug.pages import pages

__all__ = ["CudaDecoder", "Decoded", "HostDecoder"]

_KEEP_BYTES = 64 << 20
_ORIENTATION = attrgetter("_orientation")
_PATIENCE = 256


class Decoded(NamedTuple):
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


class HostDecoder:
    """Decodes some images at a time on the CPU. One per thread and process: it must never be shared.

    Args:
        fancy_upsampling: smooth the chroma of subsampled JPEGs, as libjpeg and Pillow do. Without it decoding is
            somewhat faster, and colours differ by up to 24 levels beside sharp edges.

    Attributes:
        in_part, decoded_by: of the last image that `decode` gave, what `Decoded` tells.
    """

    def __init__(self, *, fancy_upsampling: bool = True) -> None:
        codec = nv()
        self._decoder = codec.Decoder(
            device_id=codec.NVIMGCODEC_DEVICE_CPU_ONLY,
            max_num_cpu_threads=1,
            backends=[codec.Backend(codec.BackendKind.CPU_ONLY)],
            options=decoder_options(fancy_upsampling),
        )
        self._as_stored = decode_params(False)
        self.decoded_by = ""
        self.in_part = False
        self._slots = [_Slot()]
        self._room = np.empty(0, dtype=np.uint8)  # for parts of files

    def decode(
        self, header: Header | Pixels, region: Region | None = None, *, index: JpegIndex | None = None
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
        headers: Sequence[Header | Pixels],
        regions: Sequence[Region | None],
        *,
        index: JpegIndex | None = None,
    ) -> list[Decoded | DecodeError]:
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
        outcomes: list[Decoded | DecodeError | None] = [None] * len(headers)
        wanted: list[_Wanted] = []
        for place, (header, region) in enumerate(zip(headers, regions, strict=True)):
            y0, x0, y1, x1 = region or (0, 0, header.height, header.width)
            if not (0 <= y0 < y1 <= header.height and 0 <= x0 < x1 <= header.width):
                size = f"{header.height} x {header.width}"
                raise ValueError(f"region (y0, x0, y1, x1) = {region} is empty or outside {size} pixels")
            if isinstance(header, Pixels):
                outcomes[place] = Decoded(header.array[y0:y1, x0:x1], "source")
            else:
                wanted.append(_Wanted(place, header, (y0, x0, y1, x1)))
        self._cut_out(wanted, index)
        wanted = [one for one in wanted if one.open()]
        while len(self._slots) < len(wanted):
            self._slots.append(_Slot())
        for one, slot in zip(wanted, self._slots, strict=False):
            slot.make_room(one.size if one.header._orientation == 1 else 2 * one.size)
        slots = self._slots[: len(wanted)]
        done = self._decoded([one.stream for one in wanted], [slot.image for slot in slots])
        for one, slot, well in zip(wanted, slots, done, strict=True):
            if well and slot.image.shape == one.shape:
                outcomes[one.place] = Decoded(one.pixels(slot), "cpu", one.in_part)
        return [
            _by_pillow(header, region) if outcome is None else outcome
            for outcome, header, region in zip(outcomes, headers, regions, strict=True)
        ]

    def _cut_out(self, wanted: Sequence[_Wanted], index: JpegIndex | None) -> None:
        """Has those decode a part of their file of which one is to be had."""
        some = [one for one in wanted if one.stored is not None and one.header.worth_cutting(one.stored, index)]
        if not some:
            return
        files = [one.header._data for one in some]
        if (size := room_for(files)) > len(self._room) or len(self._room) > _KEEP_BYTES:
            self._room = np.empty(size, dtype=np.uint8)
        parts = cut_out_each(files, [one.stored for one in some if one.stored], index, self._room)
        found = [(one, part) for one, part in zip(some, parts, strict=True) if part is not None]
        streams = open_streams([part.data for _, part in found]) if found else []
        for (one, part), stream in zip(found, streams, strict=True):
            one.take(part, stream)

    def _decoded(self, streams: list[Any], images: list[Any]) -> list[bool]:
        """Which of these nvImageCodec could decode."""
        if not streams:
            return []
        try:
            made = self._decoder.decode(streams, params=self._as_stored, images=images)
        except (RuntimeError, ValueError):  # it found more pixels than its own header says, or a damaged file
            if len(streams) == 1:
                return [False]
            return [well for one in zip(streams, images, strict=True) for well in self._decoded([one[0]], [one[1]])]
        return [image is not None for image in made]


class _Wanted:
    """A region of a picture that nvImageCodec is to decode.

    Attributes:
        place: which of those that were asked for.
        stored: the region as stored, if it is not all of the picture.
        stream: what is decoded, once `open` has said so.
        in_part: whether that is a part of the file.
        size: bytes of the pixels.
        shape: of these, as nvImageCodec gives them: as stored.
    """

    def __init__(self, place: int, header: Header, region: Region) -> None:
        y0, x0, y1, x1 = region
        self.place, self.header, self.region = place, header, region
        whole = y1 - y0 == header.height and x1 - x0 == header.width
        # A narrow one is cut from the pixels of all of it.
        self.narrow = not whole and min(y1 - y0, x1 - x0) < NARROW
        self.stored = None if whole or self.narrow else header.stored(region)
        self.stream: Any = None
        self.in_part = False
        height, width = (header.height, header.width) if self.stored is None else (y1 - y0, x1 - x0)
        self.size = height * width * 3
        self.shape = (width, height, 3) if swaps_axes(header._orientation) else (height, width, 3)

    def take(self, part: Part, stream: Any) -> None:
        """Decodes the region from this part of the file, if nvImageCodec could open it."""
        assert self.stored is not None
        if stream is not None:
            y0, x0, y1, x1 = self.stored
            top, left, _, _ = part.shows
            self.stream, self.in_part = stream, True
            self.stored = y0 - top, x0 - left, y1 - top, x1 - left

    def open(self) -> bool:
        """Whether nvImageCodec decodes it."""
        if self.stream is None:
            self.stream = self.header._stream
        if self.stream is not None and self.stored is not None:
            self.stream = self.stream.get_sub_code_stream(region=nv().Region(*self.stored))
        return self.stream is not None

    def pixels(self, slot: _Slot) -> NDArray[np.uint8]:
        """As displayed, from memory into which it was decoded."""
        made = slot.memory[: self.size].reshape(self.shape)
        # Turned here: nvImageCodec takes as long to turn as to decode, and turns the whole picture for a region.
        if self.header._orientation != 1:
            made = turned(made, self.header._orientation, slot.memory[self.size : 2 * self.size])
        if self.narrow:
            y0, x0, y1, x1 = self.region
            made = np.ascontiguousarray(made[y0:y1, x0:x1])
        return made


class _Slot:
    """Memory for one decoded image, wrapped for the decoder once: that takes 28 us."""

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
        capacity = -(-capacity // 3) * 3
        self._small_in_a_row = 0
        self.memory = pages(capacity)
        self.image = nv().as_image(self.memory.reshape(1, capacity // 3, 3))


def _by_pillow(header: Header | Pixels, region: Region | None) -> Decoded | DecodeError:
    assert isinstance(header, Header)
    try:
        return Decoded(pillow_decode(header, region), "pillow")
    except DecodeError as error:
        return error


class CudaDecoder:
    """Decodes batches of whole images into device memory. Used by one thread only.

    Args:
        device_id: the CUDA device.
        fancy_upsampling: as for `HostDecoder`.
        threads: CPU threads for the parts the GPU does not do, and for images that go to Pillow.
        load_hint: the share of JPEGs for the hardware engine, where there is one; the rest go to CUDA kernels. At 0 it
            is left out.
    """

    def __init__(
        self, device_id: int, *, fancy_upsampling: bool = True, threads: int = 4, load_hint: float = 0.65
    ) -> None:
        codec = nv()
        kinds = codec.BackendKind
        self._decoder = codec.Decoder(
            device_id=device_id,
            max_num_cpu_threads=threads,
            # The policy is FIXED: ADAPTIVE_MINIMIZE_IDLE_TIME moves the split from batch to batch and tells nobody.
            backends=([codec.Backend(kinds.HW_GPU_ONLY, load_hint=load_hint)] if load_hint > 0 else [])
            + [codec.Backend(kind) for kind in (kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU, kinds.CPU_ONLY)],
            options=decoder_options(fancy_upsampling),
        )
        self._shares = load_hint > 0
        self._as_stored, self._as_displayed = decode_params(False), decode_params(True)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="cuaug-pillow")  # starts no thread until used

    def prime(self, images: int, stream: int) -> None:
        """Has the hardware engine's share counted for batches of up to so many images, before anything is decoded.

        nvImageCodec counts it once, from the images of a decoder's first call: `load_hint` of a batch that happens to
        be small would be the engine's share of every later one.
        """
        if not self._shares:
            return
        streams = open_streams([plain_jpeg((0, 0, 0))] * images)
        with contextlib.suppress(RuntimeError, ValueError):  # what ails the decoder shows where it has to decode
            self._decoder.decode(streams, params=self._as_stored, cuda_stream=stream)

    def wrap(self, array: Any, stream: int) -> Any:
        """A slot for any decoder of the device to decode into; costs tens of microseconds, so make it once.

        Args:
            array: device memory with `__cuda_array_interface__`, (1, capacity // 3, 3) uint8, kept alive by the slot.
            stream: the cudaStream_t, as an integer, that will decode into it.
        """
        return nv().as_image(array, cuda_stream=stream)

    def decode(
        self, headers: Sequence[Header], slots: Sequence[Any], stream: int
    ) -> list[np.ndarray | DecodeError | None]:
        """Decode a batch on `stream`, of headers that were read with the same `apply_exif`.

        Image i goes to the start of `slots[i]`, packed as (height, width, 3) uint8 RGB. Before the call the host must
        have waited until nothing reads or writes the slots any more: the hardware engine may start before earlier work
        of its stream has ended.

        Returns:
            per image: None where the slot holds the picture; an (h, w, 3) uint8 host array for the caller to upload
            where Pillow had to decode it, also because its slot is too small; a DecodeError where nobody could.
        """
        if len(headers) != len(slots):
            raise ValueError(f"{len(headers)} images for {len(slots)} slots")
        outcomes: list[np.ndarray | DecodeError | None] = [None] * len(headers)
        done = [header._stream is not None for header in headers]
        if all(done):
            done = self._decoded(headers, slots, stream)
        else:
            mine = iter(self._decoded(list(compress(headers, done)), list(compress(slots, done)), stream))
            done = [one and next(mine) for one in done]
        left = [i for i, well in enumerate(done) if not well]
        for i, outcome in zip(left, self._pool.map(_on_host, [headers[i] for i in left]), strict=True):
            outcomes[i] = outcome
        return outcomes

    def _decoded(self, headers: Sequence[Header], slots: Sequence[Any], stream: int) -> list[bool]:
        """Which of the images nvImageCodec decoded, and to the size their headers promise."""
        if not headers:
            return []
        turned = max(map(_ORIENTATION, headers)) > 1
        try:
            images = self._decoder.decode(
                [header._stream for header in headers],
                images=slots,
                params=self._as_displayed if turned else self._as_stored,
                cuda_stream=stream,
            )
        except (RuntimeError, ValueError):  # one bad file must not take its neighbours with it
            if len(headers) == 1:
                return [False]
            ones = zip(headers, slots, strict=True)
            return [well for header, slot in ones for well in self._decoded([header], [slot], stream)]
        done = [image is not None for image in images]
        if not turned:  # the size is that as stored, on which all agree: asking is a turn at the interpreter for each
            return done
        all_three = zip(done, slots, headers, strict=True)
        return [well and slot.shape == (header.height, header.width, 3) for well, slot, header in all_three]


def _on_host(header: Header) -> np.ndarray | DecodeError:
    outcome = _by_pillow(header, None)
    return outcome if isinstance(outcome, DecodeError) else outcome.pixels
