"""The decoders: one image at a time into host memory, or a batch into device memory."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np

from cuaug.codec._nvimgcodec import decode_params, decoder_options, nv, open_streams, plain_jpeg
from cuaug.codec._pillow import pillow_decode
from cuaug.codec.header import NARROW, Header
from cuaug.codec.parts import JpegIndex
from cuaug.codec.pixels import Pixels
from cuaug.codec.probe import swaps_axes
from cuaug.codec.turns import Region, turned, turned_region
from cuaug.errors import DecodeError
from cuaug.pages import pages

__all__ = ["CudaDecoder", "HostDecoder"]

_KEEP_BYTES = 64 << 20
_ORIENTATION = attrgetter("_orientation")
_PATIENCE = 256


class HostDecoder:
    """Decodes one image at a time on the CPU. One per thread and process: it must never be shared.

    Args:
        fancy_upsampling: smooth the chroma of subsampled JPEGs, as libjpeg and Pillow do. Without it decoding is
            somewhat faster, and colours differ by up to 24 levels beside sharp edges.

    Attributes:
        in_part: whether the last image was decoded from a part of its file, by restart markers or an index.
        decoded_by: who decoded the last image: "cpu" (nvImageCodec), "pillow", or the "source", which gave pixels.
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
        self._small_in_a_row = 0
        self.decoded_by = ""
        self.in_part = False
        self._allocate(3 << 18)

    def decode(
        self, header: Header | Pixels, region: Region | None = None, *, index: JpegIndex | None = None
    ) -> np.ndarray:
        """The pixels of an image, or of one region of it.

        Args:
            header: from `read_header`, or pixels that are decoded already.
            region: (y0, x0, y1, x1), the end excluded, in pixels of the picture as displayed.
            index: where the rows of JPEGs begin that came before, so that a region can be decoded without the rest.

        Returns:
            (h, w, 3) uint8 RGB, the pixels of a row packed. It may be a view of this decoder's buffer, valid until its
            next `decode`, or of the pixels that were given: not to be written to.

        Raises:
            DecodeError: neither nvImageCodec nor Pillow can decode it; the cause is Pillow's.
            ValueError: the region is empty or reaches outside the picture.
        """
        height, width = header.height, header.width
        y0, x0, y1, x1 = region or (0, 0, height, width)
        if not (0 <= y0 < y1 <= height and 0 <= x0 < x1 <= width):
            raise ValueError(f"region (y0, x0, y1, x1) = {region} is empty or outside {height} x {width} pixels")
        self.in_part = False
        if isinstance(header, Pixels):
            self.decoded_by = "source"
            return header.array[y0:y1, x0:x1]
        stream, turn, part = header._stream, header._orientation, None
        if region is not None:
            if stream is not None and min(y1 - y0, x1 - x0) < NARROW:
                return np.ascontiguousarray(self.decode(header)[y0:y1, x0:x1])
            if stream is not None and (y1 - y0 < height or x1 - x0 < width):
                part = header.part(region, index)
                alone, within = part or (header, region)
                stored = turned_region(within, (alone.height, alone.width), turn, back=True)
                stream = alone._stream.get_sub_code_stream(region=nv().Region(*stored))
            height, width = y1 - y0, x1 - x0
        if stream is not None:
            size = height * width * 3
            shape = (width, height, 3) if swaps_axes(turn) else (height, width, 3)
            # Turned here: nvImageCodec takes as long to turn as to decode, and turns the whole picture for a region.
            self._make_room(size if turn == 1 else 2 * size)
            try:
                done = self._decoder.decode([stream], params=self._as_stored, images=[self._image])[0]
            except (RuntimeError, ValueError):  # it found more pixels than its own header says, or a damaged file
                done = None
            if done is not None and self._image.shape == shape:
                self.decoded_by = "cpu"
                self.in_part = part is not None
                pixels = self._pixels[:size].reshape(shape)
                return pixels if turn == 1 else turned(pixels, turn, self._pixels[size : 2 * size])
        self.decoded_by = "pillow"
        return pillow_decode(header, region)

    def _make_room(self, size: int) -> None:
        capacity = len(self._pixels)
        if size > capacity:
            self._allocate(max(size, min(2 * capacity, _KEEP_BYTES)))
        elif capacity > _KEEP_BYTES:  # one giant image must not cost its memory for ever
            self._small_in_a_row = self._small_in_a_row + 1 if size <= _KEEP_BYTES else 0
            if self._small_in_a_row == _PATIENCE:
                self._allocate(_KEEP_BYTES)

    def _allocate(self, capacity: int) -> None:
        capacity = -(-capacity // 3) * 3
        self._small_in_a_row = 0
        self._pixels = pages(capacity)
        self._image = nv().as_image(self._pixels.reshape(1, capacity // 3, 3))  # 28 us: once per buffer, not per image


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
    try:
        return pillow_decode(header)
    except DecodeError as error:
        return error
