"""`CudaDecoder`: a batch at a time, into device memory."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np

from cuaug.codec._nvimgcodec import decode_params, decoder_options, nv, open_streams, plain_jpeg
from cuaug.codec.cpu import by_pillow
from cuaug.codec.image import EncodedImage
from cuaug.errors import DecodeError

__all__ = ["CudaDecoder"]

_ORIENTATION = attrgetter("_orientation")


class CudaDecoder:
    """Decodes batches of whole images into device memory. Used by one thread only.

    Args:
        device_id: the CUDA device.
        fancy_upsampling: as for `CpuDecoder`.
        threads: CPU threads for the parts the GPU does not do, and for images that go to Pillow.
        load_hint: the share of JPEGs for the hardware engine, where there is one; the rest go to CUDA kernels. At 0 it
            is left out.

    Attributes:
        messages: lines that the image libraries printed in the last `decode` where Pillow decoded, by place.
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
        self.messages: dict[int, list[str]] = {}
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

    def decode_batch(
        self, headers: Sequence[EncodedImage], slots: Sequence[Any], stream: int
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
        self.messages = {}
        for i, (outcome, lines) in zip(left, self._pool.map(_on_host, [headers[i] for i in left]), strict=True):
            outcomes[i] = outcome
            if lines:
                self.messages[i] = lines
        return outcomes

    def _decoded(self, headers: Sequence[EncodedImage], slots: Sequence[Any], stream: int) -> list[bool]:
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


def _on_host(header: EncodedImage) -> tuple[np.ndarray | DecodeError, list[str]]:
    outcome, lines = by_pillow(header, None)
    return outcome if isinstance(outcome, DecodeError) else outcome.pixels, lines
