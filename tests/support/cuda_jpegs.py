"""A batch of JPEGs on a GPU, decoded by our kernels alone: for tests, compute-sanitizer and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from cuaug.codec import DeviceJpegs, JpegIndex, memory_bound, read_header
from cuaug.codec.sniff import Region
from cuaug.devices import cuda
from cuaug.devices.nvrtc import JpegKernels
from cuaug.devices.workspace import LaunchStream
from tests.support.codec.jpeg_crops import MCU
from tests.support.codec.jpeg_crops import jpeg as encode

#: OpenCV's name of the sampling factors -> its share of the files.
_SAMPLINGS = dict(zip(MCU, (2, 2, 4, 1, 1, 1), strict=True))


def draw_jpeg(seed: int, largest: int = 400) -> bytes:
    """A file of a random size, subsampling, quality, noise and EXIF orientation; half have restart markers."""
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, largest + 1, 2).tolist()
    shares = np.array([*_SAMPLINGS.values()])
    return encode(
        height,
        width,
        int(rng.choice([*_SAMPLINGS], p=shares / shares.sum())),
        int(rng.integers(30, 101)),
        noise=int(rng.integers(0, 129)),
        optimize=int(rng.integers(2)),
        interval=int(rng.choice([0, 0, 0, 4, 9, 70])),
        orientation=int(rng.choice([1, 1, 1, *range(1, 9)])),
    )


def random_region(seed: int, height: int, width: int) -> Region:
    """A random region, y0, x0, y1, x1."""
    rng = np.random.default_rng(seed)
    y0, x0 = int(rng.integers(height)), int(rng.integers(width))
    return y0, x0, int(rng.integers(y0, height)) + 1, int(rng.integers(x0, width)) + 1


class CudaJpegs:
    """N JPEGs in pinned memory, which `upload` copies to the device and `launch` decodes there.

    Each allocation has exactly the size that the kernels may use.

    Args:
        regions: displayed, y0, x0, y1, x1; None: whole images.
        index: entry points, or those of each image; None: the kernels find them.
        fancy_upsampling: interpolate chroma.
        short: the memory for pixels lacks this many bytes.

    Attributes:
        regions: of all images.
        is_added: (N,) whether the kernels decode it.
        prepared: counts and sizes.
        pinned: the upload, (n,) uint8.
        addresses: (N,) device addresses of the pixels; 0: not added.
    """

    def __init__(
        self,
        files: Sequence[bytes],
        regions: Sequence[Region] | None = None,
        *,
        index: JpegIndex | Sequence[JpegIndex] | None,
        fancy_upsampling: bool = True,
        short: int = 0,
    ) -> None:
        self._headers = headers = [read_header(data) for data in files]
        self.regions = [(0, 0, its.height, its.width) for its in headers] if regions is None else list(regions)
        table = np.concatenate([header.region_row(its) for header, its in zip(headers, self.regions, strict=True)])
        self.pinned = torch.empty(memory_bound(table), dtype=torch.uint8).pin_memory()
        options = {"fancy_upsampling": fancy_upsampling, "scan": index is None}
        batch = DeviceJpegs(self.pinned.numpy(), len(files), **options)
        indexes = list(index) if isinstance(index, Sequence) else [index] * len(files)
        self.is_added = np.zeros(len(files), dtype=np.bool_)
        for each in dict.fromkeys(indexes):
            numbers = np.array([i for i, its in enumerate(indexes) if its is each])
            self.is_added[numbers] = batch.add(numbers, table[numbers], each)
        self.prepared = launch = batch.prepare()
        self.pinned = self.pinned[: launch.upload_bytes]
        self._short = short
        sizes = len(self.pinned), launch.sample_bytes, 0, launch.lookup_bytes, launch.scan_bytes
        memories = [_device(size) for size in sizes]
        # The kernels write no padding after the last image's pixels.
        targets = batch.finish(*(memory.data_ptr() for memory in memories)) - np.uint64(memories[2].data_ptr())
        ends = [int(at) + self._bytes(i) for i, at in enumerate(targets) if self.is_added[i]]
        memories[2] = _device(max(ends, default=0) - short)
        self.addresses = batch.finish(*(memory.data_ptr() for memory in memories))
        self._upload, _, self._pixels, self._lookups, _ = self._memories = memories
        self._launches = self._record()

    def _bytes(self, i: int) -> int:
        y0, x0, y1, x1 = self.regions[i]
        return 3 * (y1 - y0) * (x1 - x0)

    @property
    def upload_address(self) -> int:
        """Where `pinned` is copied to."""
        return self._upload.data_ptr()

    def upload(self) -> None:
        """Queues the copy to the device, which clears the statuses, on torch's current stream."""
        self._upload.copy_(self.pinned, non_blocking=True)

    def _record(self) -> dict[str, Callable[[], None]]:
        """The launches of `decode_jpegs` by name, without launching."""
        launches: dict[str, Callable[[], None]] = {}
        device = self._upload.device
        kernels = cuda.jpeg_kernels(device.index)

        def recording(name: str, function: Any) -> Any:
            def record(*arguments: Any, stream: Any, **options: Any) -> None:
                def launch() -> None:
                    current = LaunchStream(torch.cuda.current_stream(device).cuda_stream)
                    function(*arguments, stream=current, **options)

                launches[name] = launch

            return record

        recorded = JpegKernels(*map(recording, kernels._fields, kernels))
        with mock.patch.object(cuda, "jpeg_kernels", lambda index: recorded):
            cuda.decode_jpegs(device, self.prepared, self._upload.data_ptr(), self._lookups.data_ptr())
        return launches

    @property
    def kernels(self) -> list[str]:
        """The kernels that decode the batch, in order."""
        return list(self._launches)

    def launch(self, names: Iterable[str] | None = None) -> None:
        """Queues these kernels, or all, on torch's current stream."""
        for name in self._launches if names is None else names:
            self._launches[name]()

    def decode(self) -> tuple[list[NDArray[np.uint8] | None], NDArray[np.int32]]:
        """Uploads and decodes: the pixels, (h, w, 3) each or None if not added, and the statuses, (N,)."""
        self.upload()
        self.launch()
        pixels = np.pad(self._pixels.cpu().numpy(), (0, self._short))
        images = [self._image(pixels, i) if self.is_added[i] else None for i in range(len(self.regions))]
        return images, self.statuses()

    def statuses(self) -> NDArray[np.int32]:
        """(N,) as the kernels on the current stream leave them."""
        return self._upload[self.prepared.statuses_at :][: 4 * len(self.regions)].cpu().numpy().view(np.int32)

    def _image(self, pixels: NDArray[np.uint8], i: int) -> NDArray[np.uint8]:
        y0, x0, y1, x1 = self.regions[i]
        begin = int(self.addresses[i]) - self._pixels.data_ptr()
        return pixels[begin : begin + self._bytes(i)].reshape(y1 - y0, x1 - x0, 3)


def _device(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def damage_data(batch: CudaJpegs, images: Iterable[int], seed: int) -> None:
    """Changes a byte of the entropy-coded data of some images in pinned memory, after their segments were found."""
    rng, launch = np.random.default_rng(seed), batch.prepared
    memory = batch.pinned.numpy()
    table = memory[launch.images_at : launch.blocks_at][
        : (launch.blocks_at - launch.images_at) // launch.images * launch.images
    ]
    begins = table.reshape(launch.images, -1)[:, :8].copy().view(np.uint64)[:, 0]  # the first field of `JpegImage`
    order = np.flatnonzero(batch.is_added).tolist()
    for i in images:
        begin = int(begins[order.index(i)]) - batch.upload_address
        memory[begin + int(rng.integers(16))] ^= rng.integers(1, 256, dtype=np.uint8)
