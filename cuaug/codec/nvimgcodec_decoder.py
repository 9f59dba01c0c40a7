"""`NvImageCodecDecoder`: decodes a batch at a time into device memory. `CpuFallback`: the images that a GPU leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from cuaug._runtime.threads import map_in_threads
from cuaug.codec._nvimgcodec import (
    JPEG_BACKENDS,
    OTHER_BACKENDS,
    PLAIN_SIZE,
    DecoderPaths,
    decode_params,
    nv,
    open_streams,
    plain_jpeg,
)
from cuaug.codec.cpu_decoder import thread_decoder
from cuaug.codec.image import EncodedImage
from cuaug.errors import DecodeError

_AMPLE_BYTES = 2 << 30
"""With more free device memory, a failure to decode is not for lack of it."""


class CpuFallback:
    """Decodes on the CPU what a GPU does not, with the pixels of `CpuDecoder`.

    Args:
        fancy_upsampling: as for `CpuDecoder`.
        threads: that decode at once, the caller's among them.
    """

    def __init__(self, *, fancy_upsampling: bool, threads: int) -> None:
        self._fancy_upsampling, self._threads = fancy_upsampling, threads

    def decode(self, images: Sequence[EncodedImage]) -> list[tuple[np.ndarray | DecodeError, list[str]]]:
        """Per image: (h, w, 3) uint8 or the error, and the lines that the image libraries printed."""
        return map_in_threads(self._decode, images, self._threads)

    def _decode(self, image: EncodedImage) -> tuple[np.ndarray | DecodeError, list[str]]:
        if not image.for_gpu:
            return image.decode_with_pillow()
        decoder = thread_decoder(self._fancy_upsampling)
        outcome: np.ndarray | DecodeError
        try:
            outcome = decoder.decode_new(image)
        except DecodeError as error:
            outcome = error.with_traceback(None)  # its frames hold the image
        return outcome, decoder.lines


class NvImageCodecDecoder:
    """Decodes batches of whole images into device memory. One thread uses it.

    The GPU decodes JPEGs, without a silent fallback. A JPEG that fails is tried once more; if little memory is left,
    torch frees its cached memory first. The CPU decodes a JPEG that fails again, with the pixels of `CpuDecoder`.

    Args:
        device_id: the CUDA device.
        paths: which of nvImageCodec's decoders it uses.
        threads: CPU threads for the parts of decoding that the GPU leaves to the CPU, and for whole images.

    Attributes:
        messages: {position: lines that the image libraries printed} for images that the CPU decoded in the last
            `decode_batch`.
        fallbacks: positions of JPEGs that the CPU decoded in the last `decode_batch`, because the GPU failed.
        cause: why the GPU failed, as far as nvImageCodec tells; for a log.
    """

    def __init__(self, device_id: int, paths: DecoderPaths | None = None, *, threads: int = 4) -> None:
        self._device_id, self._paths, self._threads = device_id, paths or DecoderPaths(), threads
        self._jpeg_decoder = self._open(JPEG_BACKENDS)
        self._other_decoder: Any = None  # few data sets hold other formats
        self.messages: dict[int, list[str]] = {}
        self.fallbacks: list[int] = []
        self.cause = ""
        self._empty_cache_below = _AMPLE_BYTES
        self._stored_params, self._displayed_params = decode_params(False), decode_params(True)
        self._fallback = CpuFallback(fancy_upsampling=self._paths.fancy_upsampling, threads=threads)

    def _open(self, backends: Sequence[str]) -> Any:
        import torch

        if torch.cuda.mem_get_info(self._device_id)[0] < _AMPLE_BYTES:
            torch.cuda.empty_cache()  # nvJPEG allocates outside of torch
        codec = nv()
        return codec.Decoder(
            device_id=self._device_id,
            max_num_cpu_threads=self._threads,
            # The engine takes all that it can, the fastest on one H200 (docs/cuda.md), and the policy stays FIXED:
            # ADAPTIVE_MINIMIZE_IDLE_TIME changes the split between batches without notice.
            backends=[codec.Backend(getattr(codec.BackendKind, kind), load_hint=1.0) for kind in backends],
            options=self._paths.options,
        )

    def prime(self, images: int, stream: int) -> None:
        """Fix the hardware engine's share, before the first batch, for batches of up to `images` images.

        nvImageCodec computes the share once, from the size of a decoder's first call. A small first batch would fix too
        small a share for all later ones. The images go to memory of our own: the engine may write them as soon as it is
        called, whatever the stream waits for.
        """
        import torch

        device = torch.device("cuda", self._device_id)
        memory = torch.empty((images, 1, PLAIN_SIZE[0] * PLAIN_SIZE[1], 3), dtype=torch.uint8, device=device)
        slots = [self.wrap(array, stream) for array in memory]
        streams = open_streams([plain_jpeg((0, 0, 0))] * images)
        torch.cuda.synchronize(device)  # the memory's last use may be queued on any stream
        with contextlib.suppress(RuntimeError, ValueError):  # the first batch reports a broken decoder
            self._jpeg_decoder.decode(streams, images=slots, params=self._stored_params, cuda_stream=stream)
        torch.cuda.synchronize(device)  # before the memory is freed

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
        its stream has ended. Images that are `for_pillow` need no slot.

        Returns:
            Per image: None if the slot holds its pixels; an (h, w, 3) uint8 host array to upload if the CPU decoded it,
            also because its slot is too small; a DecodeError if both failed.
        """
        if len(images) != len(slots):
            raise ValueError(f"slots: {len(slots)} were given for {len(images)} images; one per image is needed")
        failed = [i for i, image in enumerate(images) if image._stream is None]
        jpegs = [i for i, image in enumerate(images) if image.for_gpu and image._stream is not None]
        if len(failed) + len(jpegs) < len(images):
            others = [i for i, image in enumerate(images) if not image.for_gpu and image._stream is not None]
            if self._other_decoder is None:
                self._other_decoder = self._open(OTHER_BACKENDS)
            failed += self._run(self._other_decoder, images, slots, others, stream)
        self.cause = "nvImageCodec cannot read the file"
        failed_jpegs = self._run(self._jpeg_decoder, images, slots, jpegs, stream)
        failed += self._retry(images, slots, failed_jpegs, stream) if failed_jpegs else []
        return self._decode_on_cpu(images, sorted(failed))

    def _run(
        self, decoder: Any, images: Sequence[EncodedImage], slots: Sequence[Any], positions: list[int], stream: int
    ) -> list[int]:
        """Decode the images at `positions`. Return those that fail, or have another size than their header claims."""
        if not positions:
            return []
        oriented = max(images[i]._orientation for i in positions) > 1
        try:
            decoded = decoder.decode(
                [images[i]._stream for i in positions],
                images=[slots[i] for i in positions],
                params=self._displayed_params if oriented else self._stored_params,
                cuda_stream=stream,
            )
        except (RuntimeError, ValueError) as error:  # one bad file must not fail its neighbors
            if len(positions) == 1:
                self.cause = f"{type(error).__name__}: {error}"
                return positions
            return [i for position in positions for i in self._run(decoder, images, slots, [position], stream)]
        failed = {i for i, image in zip(positions, decoded, strict=True) if image is None}
        if oriented:  # else the stored size is certain, and reading each slot's shape takes the GIL
            failed |= {i for i in positions if slots[i].shape != (images[i].height, images[i].width, 3)}
        return [i for i in positions if i in failed]

    def _retry(
        self, images: Sequence[EncodedImage], slots: Sequence[Any], positions: list[int], stream: int
    ) -> list[int]:
        """Decode JPEGs that failed once more, with more memory; return those that fail again.

        Other causes than memory may have passed, too, so the JPEGs are tried again in any case. Emptying torch's cache
        stalls training: without success, it is done again only when much less memory is free.
        """
        import torch

        self.cause = "nvImageCodec gave no reason; with PYNVIMGCODEC_VERBOSITY=1 set it prints one"
        torch.cuda.synchronize(self._device_id)  # the GPU may still write to the slots
        free, _ = torch.cuda.mem_get_info(self._device_id)
        if is_emptied := free < self._empty_cache_below:
            torch.cuda.empty_cache()
        failed = self._run(self._jpeg_decoder, images, slots, positions, stream)
        if len(failed) == len(positions) and is_emptied:
            self._empty_cache_below = free // 2
        self.cause = f"{self.cause}; {free >> 20} MiB of device memory were free"
        return failed

    def _decode_on_cpu(
        self, images: Sequence[EncodedImage], positions: list[int]
    ) -> list[np.ndarray | DecodeError | None]:
        """The outcomes of `decode_batch`, once the images at `positions` are decoded on the CPU."""
        outcomes: list[np.ndarray | DecodeError | None] = [None] * len(images)
        self.messages, self.fallbacks = {}, []
        decoded = self._fallback.decode([images[i] for i in positions])
        for i, (outcome, lines) in zip(positions, decoded, strict=True):
            outcomes[i] = outcome
            if lines:
                self.messages[i] = lines
            if images[i].for_gpu and not isinstance(outcome, DecodeError):
                self.fallbacks.append(i)
        return outcomes
