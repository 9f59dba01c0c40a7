"""`CudaDecoder`: decodes a batch at a time into device memory."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np

from cuaug.codec._nvimgcodec import decode_params, decoder_options, nv, open_streams, plain_jpeg
from cuaug.codec.image import EncodedImage
from cuaug.errors import DecodeError

__all__ = ["CudaDecoder"]

_ORIENTATION = attrgetter("_orientation")


class CudaDecoder:
    """Decodes batches of whole images into device memory. One thread uses it.

    Args:
        device_id: the CUDA device.
        fancy_upsampling: as for `CpuDecoder`.
        threads: CPU threads for the parts of decoding that the GPU leaves to the CPU, and for Pillow.
        load_hint: share of JPEGs for the hardware engine, if the GPU has one; CUDA kernels decode the rest. 0 turns the
            engine off.

    Attributes:
        messages: {position: lines that the image libraries printed} for images that Pillow decoded in the last
            `decode_batch`.
    """

    def __init__(
        self, device_id: int, *, fancy_upsampling: bool = True, threads: int = 4, load_hint: float = 0.65
    ) -> None:
        codec = nv()
        kinds = codec.BackendKind
        self._decoder = codec.Decoder(
            device_id=device_id,
            max_num_cpu_threads=threads,
            # The policy stays FIXED: ADAPTIVE_MINIMIZE_IDLE_TIME changes the split between batches without notice.
            backends=([codec.Backend(kinds.HW_GPU_ONLY, load_hint=load_hint)] if load_hint > 0 else [])
            + [codec.Backend(kind) for kind in (kinds.GPU_ONLY, kinds.HYBRID_CPU_GPU, kinds.CPU_ONLY)],
            options=decoder_options(fancy_upsampling),
        )
        self.messages: dict[int, list[str]] = {}
        self._uses_engine = load_hint > 0
        self._stored_params, self._displayed_params = decode_params(False), decode_params(True)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="cuaug-pillow")  # starts threads on first use

    def prime(self, images: int, stream: int) -> None:
        """Fix the hardware engine's share, before the first batch, for batches of up to `images` images.

        nvImageCodec computes the share once, from the size of a decoder's first call. A small first batch would fix too
        small a share for all later ones.
        """
        if not self._uses_engine:
            return
        streams = open_streams([plain_jpeg((0, 0, 0))] * images)
        with contextlib.suppress(RuntimeError, ValueError):  # the first batch reports a broken decoder
            self._decoder.decode(streams, params=self._stored_params, cuda_stream=stream)

    def wrap(self, array: Any, stream: int) -> Any:
        """Make a slot that any decoder of the device can decode into. It takes tens of microseconds: make it once.

        Args:
            array: device memory with `__cuda_array_interface__`, (1, capacity // 3, 3) uint8. The slot keeps it alive.
            stream: the cudaStream_t that will decode into it, as an integer.
        """
        return nv().as_image(array, cuda_stream=stream)

    def decode_batch(
        self, images: Sequence[EncodedImage], slots: Sequence[Any], stream: int
    ) -> list[np.ndarray | DecodeError | None]:
        """Decode whole images on `stream`. Their headers must have been read with the same `apply_exif`.

        Image i is written to the start of `slots[i]`, packed as (height, width, 3) uint8 RGB. The caller must first
        wait on the host until nothing reads or writes the slots: the hardware engine may start before earlier work of
        its stream has ended.

        Returns:
            Per image: None if the slot holds its pixels; an (h, w, 3) uint8 host array to upload if Pillow decoded it,
            also because its slot is too small; a DecodeError if both failed.
        """
        if len(images) != len(slots):
            raise ValueError(f"slots: {len(slots)} were given for {len(images)} images; one per image is needed")
        outcomes: list[np.ndarray | DecodeError | None] = [None] * len(images)
        done = [image._stream is not None for image in images]
        if all(done):
            done = self._run_nvimgcodec(images, slots, stream)
        else:
            decoded = iter(self._run_nvimgcodec(list(compress(images, done)), list(compress(slots, done)), stream))
            done = [has_stream and next(decoded) for has_stream in done]
        remaining = [i for i, is_done in enumerate(done) if not is_done]
        self.messages = {}
        pillow_outcomes = self._pool.map(EncodedImage.decode_with_pillow, [images[i] for i in remaining])
        for i, (outcome, lines) in zip(remaining, pillow_outcomes, strict=True):
            outcomes[i] = outcome
            if lines:
                self.messages[i] = lines
        return outcomes

    def _run_nvimgcodec(self, images: Sequence[EncodedImage], slots: Sequence[Any], stream: int) -> list[bool]:
        """Whether nvImageCodec decoded each image, to the size that its header claims."""
        if not images:
            return []
        oriented = max(map(_ORIENTATION, images)) > 1
        try:
            decoded = self._decoder.decode(
                [image._stream for image in images],
                images=slots,
                params=self._displayed_params if oriented else self._stored_params,
                cuda_stream=stream,
            )
        except (RuntimeError, ValueError):  # one bad file must not fail its neighbours
            if len(images) == 1:
                return [False]
            pairs = zip(images, slots, strict=True)
            return [is_done for image, slot in pairs for is_done in self._run_nvimgcodec([image], [slot], stream)]
        done = [image is not None for image in decoded]
        if not oriented:  # the stored size is certain, and reading each slot's shape takes the GIL
            return done
        triples = zip(done, slots, images, strict=True)
        return [is_done and slot.shape == (image.height, image.width, 3) for is_done, slot, image in triples]
