"""Batches on the CPU: each worker decodes its samples and runs their plans straight into their slots of the batch."""

from __future__ import annotations

import threading
import time

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.codec import Header, HostDecoder
from cuaug.devices import HostProgram
from cuaug.errors import DecodeError
from cuaug.pipeline.job import Job
from cuaug.plan import Layout, Tables

__all__ = ["HostJob"]

_per_thread = threading.local()


def _decoder(fancy_upsampling: bool) -> HostDecoder:
    """This thread's own decoder: one shared by two threads corrupts the heap."""
    decoders: dict[bool, HostDecoder] = _per_thread.__dict__.setdefault("decoders", {})
    if fancy_upsampling not in decoders:
        decoders[fancy_upsampling] = HostDecoder(fancy_upsampling=fancy_upsampling)
    return decoders[fancy_upsampling]


class HostJob(Job):
    """A batch in host memory."""

    _images: torch.Tensor | None = None
    _kept: NDArray[np.int64]

    def result(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Waits for the batch: (images, labels) of its good samples, in order; None where there are none.

        Raises:
            whatever a stage raised that was not one sample's fault.
        """
        self.wait()
        if self._failure is not None:
            raise self._failure
        if self._images is None or len(self._kept) == 0:
            return None, None
        return self._images, self._good_labels(self._kept)

    def _run(self, good: NDArray[np.int64], headers: list[Header], tables: Tables, channels: int) -> None:
        images = self._empty(tables, channels, "cpu")
        program = HostProgram(tables)
        regions = tables.regions().tolist()
        address, step = images.data_ptr(), images.stride(0) * images.element_size()
        fancy_upsampling = self.settings.fancy_upsampling

        def decode_and_run(part: range) -> None:
            decoder, decode, augment = _decoder(fancy_upsampling), 0.0, 0.0
            for i in part:
                if self._cancelled:
                    return
                start = time.perf_counter()
                region = regions[i]
                try:
                    pixels = decoder.decode(headers[i], tuple(region))
                except DecodeError as error:
                    self._fail(int(good[i]), error)
                    continue
                decode += (now := time.perf_counter()) - start
                program.run(i, pixels, address + i * step, y=region[0], x=region[1])
                augment += time.perf_counter() - now
            self._recorder.add_seconds(decode=decode, augment=augment)

        def finish() -> None:
            decoded = np.array([int(k) not in self.errors for k in good])
            self._kept = good[decoded]
            whole = images if self.settings.layout == Layout.CHW else images.permute(0, 3, 1, 2)
            self._images = whole if decoded.all() else whole[torch.from_numpy(decoded)]
            self._headers = []  # the encoded bytes
            self._done.set()

        self._each_part(len(headers), decode_and_run, finish)

    def _finish_empty(self) -> None:
        self._done.set()
