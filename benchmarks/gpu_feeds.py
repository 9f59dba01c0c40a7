"""The loaders of `gpu_end_to_end.py`: JPEG files to float16 [N, 3, 224, 224] on the GPU.

All: RandomResizedCrop(224), antialiased, a flip for half of the images, Normalize.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import torch

import cuaug
from cuaug import transforms as T

__all__ = ["MEAN", "SIZE", "STD", "Cuaug", "Dali", "Feed", "Settings", "Torchvision"]

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SIZE = 224


@dataclass(frozen=True)
class Settings:
    paths: list[str]
    batch_size: int
    threads: int
    fancy_upsampling: bool = True


class Feed(Protocol):
    def epoch(self) -> Iterator[torch.Tensor]:
        """Batches of images on the GPU."""

    def close(self) -> None: ...


class Cuaug:
    """cuaug's loader.

    Args:
        device_bytes: limit of a cache of encoded JPEGs in the GPU's memory; None: no cache.
        decode: fields of `cuaug.DecodeOptions`.
    """

    def __init__(self, settings: Settings, *, device_bytes: int | None = None, **decode: Any) -> None:
        chain = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)]
        self.loader = cuaug.Loader(
            settings.paths,
            chain,
            batch_size=settings.batch_size,
            device="cuda",
            threads=settings.threads,
            decode=cuaug.DecodeOptions(fancy_upsampling=settings.fancy_upsampling, **decode),
            shuffle=True,
            last_batch="drop",
            dtype=torch.float16,
            prefetch=3,
            cache=None if device_bytes is None else cuaug.EncodedCache(device_bytes),
        )

    def epoch(self) -> Iterator[torch.Tensor]:
        return (images for images, _ in self.loader)

    def close(self) -> None:
        self.loader.close()


class Dali:
    """DALI's GPU pipeline; batches arrive by DLPack without a copy.

    Args:
        region: decode only the crop.
    """

    device = "mixed"  # "cpu" in a dry run, which has no GPU

    def __init__(self, settings: Settings, hw_decoder_load: float, region: bool) -> None:
        from nvidia.dali import fn, pipeline_def, types

        paths = settings.paths
        crop = {"random_area": [0.08, 1.0], "random_aspect_ratio": [3 / 4, 4 / 3]}
        decoding = {"device": self.device, "hw_decoder_load": hw_decoder_load}
        decoding["jpeg_fancy_upsampling"] = settings.fancy_upsampling
        resizing = {"interp_type": types.DALIInterpType.INTERP_LINEAR, "antialias": True}

        @pipeline_def(
            batch_size=settings.batch_size,
            num_threads=settings.threads,
            device_id=None if self.device == "cpu" else 0,
            seed=0,
            prefetch_queue_depth=3,
            exec_dynamic=True,
        )
        def chain():  # type: ignore[no-untyped-def]
            encoded, _ = fn.readers.file(files=paths, random_shuffle=True, initial_fill=min(2048, len(paths)))
            if region:
                images = fn.decoders.image_random_crop(encoded, **decoding, **crop)
                images = fn.resize(images, size=[SIZE, SIZE], **resizing)
            else:
                images = fn.decoders.image(encoded, **decoding)
                images = fn.random_resized_crop(images, size=[SIZE, SIZE], **crop, **resizing)
            return fn.crop_mirror_normalize(
                images,
                dtype=types.FLOAT16,
                output_layout="CHW",
                mean=[255 * value for value in MEAN],
                std=[255 * value for value in STD],
                mirror=fn.random.coin_flip(),
            )

        self.pipeline, self.batches = chain(), len(paths) // settings.batch_size

    def epoch(self) -> Iterator[torch.Tensor]:
        for _ in range(self.batches):
            (images,) = self.pipeline.run()
            yield torch.from_dlpack(images.as_tensor()).to("cuda")

    def close(self) -> None:
        del self.pipeline


class Torchvision:
    """`torchvision.io.decode_jpeg` on the GPU in batches, then a crop of each image.

    Threads read files and decode, each a batch of its own; the consumer's thread augments.

    Args:
        kornia: augment by Kornia, not by torchvision.transforms.v2.
    """

    def __init__(self, settings: Settings, kornia: bool) -> None:
        from torchvision.io import decode_jpeg, read_file

        self.settings, self.decode_jpeg, self.read_file = settings, decode_jpeg, read_file
        self.pool = ThreadPoolExecutor(settings.threads)
        self.streams = threading.local()
        self.augment = self.by_kornia() if kornia else self.by_torchvision()
        self.random = random.Random(0)

    @staticmethod
    def by_torchvision() -> Any:
        from torchvision.transforms import v2

        crop = v2.RandomResizedCrop(SIZE, antialias=True)
        flip = v2.RandomHorizontalFlip()
        finish = v2.Compose([v2.ToDtype(torch.float16, scale=True), v2.Normalize(MEAN, STD)])
        return lambda images: finish(torch.stack([flip(crop(image)) for image in images]))

    @staticmethod
    def by_kornia() -> Any:
        from kornia import augmentation as K

        crop = K.RandomResizedCrop((SIZE, SIZE), scale=(0.08, 1.0), cropping_mode="slice")
        finish = torch.nn.Sequential(K.RandomHorizontalFlip(), K.Normalize(torch.tensor(MEAN), torch.tensor(STD)))

        def augment(images: list[torch.Tensor]) -> torch.Tensor:
            return finish(torch.cat([crop(image[None].float() / 255) for image in images])).half()

        return augment

    def decode(self, paths: list[str]) -> tuple[list[torch.Tensor], Any]:
        if not hasattr(self.streams, "stream"):
            self.streams.stream = torch.cuda.Stream()
        with torch.cuda.stream(self.streams.stream):
            images = self.decode_jpeg([self.read_file(path) for path in paths], mode="RGB", device="cuda")
            event = torch.cuda.Event()
            event.record()
        return images, event

    def epoch(self) -> Iterator[torch.Tensor]:
        paths, size = self.settings.paths.copy(), self.settings.batch_size
        self.random.shuffle(paths)
        batches = [paths[begin : begin + size] for begin in range(0, len(paths) - size + 1, size)]
        ahead = self.settings.threads + 1
        waiting = [self.pool.submit(self.decode, batch) for batch in batches[:ahead]]
        for number in range(len(batches)):
            images, event = waiting.pop(0).result()
            if number + ahead < len(batches):
                waiting.append(self.pool.submit(self.decode, batches[number + ahead]))
            stream = torch.cuda.current_stream()
            stream.wait_event(event)
            for image in images:
                image.record_stream(stream)
            yield self.augment(images)

    def close(self) -> None:
        self.pool.shutdown()
