"""FFCV: a compiled pipeline on threads, from a file in its format that holds the same JPEGs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from peers.task import Batch, Contender, Task

__all__ = ["Ffcv"]


class Ffcv(Contender):
    name, package, module, chains = "FFCV", "ffcv", "ffcv", ("classification",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

        mean, std = (255 * np.array(values) for values in (task.mean, task.std))
        images = [RandomResizedCropRGBImageDecoder((task.size, task.size)), RandomHorizontalFlip()]
        images += [NormalizeImage(mean, std, np.float32), ToTensor(), ToTorchImage(convert_back_int16=False)]
        self.loader = Loader(
            str(_write_dataset(task.samples)),
            batch_size=task.batch_size,
            num_workers=task.threads,
            os_cache=True,
            order=OrderOption.RANDOM,
            custom_fields={"image": _jpeg_field()},
            pipelines={"image": images, "label": [IntDecoder(), ToTensor(), Squeeze()]},
        )

    def epoch(self) -> Iterator[Batch]:
        return iter(self.loader)

    def close(self) -> None:
        del self.loader


def _jpeg_field() -> type:
    """A field that stores JPEGs unchanged; FFCV's own field encodes decoded images."""
    from ffcv.fields.rgb_image import IMAGE_MODES, RGBImageField

    class JpegField(RGBImageField):
        def encode(self, destination: Any, image: Any, malloc: Any) -> None:
            data = np.fromfile(image, dtype=np.uint8)
            destination["mode"] = IMAGE_MODES["jpg"]
            destination["width"], destination["height"] = Image.open(image).size
            destination["data_ptr"], memory = malloc(data.nbytes)
            memory[:] = data

    return JpegField


def _write_dataset(samples: Sequence[tuple[str, int]]) -> Path:
    """Write these samples in FFCV's format beside their folder, unless the file exists; return its path."""
    from ffcv.fields import IntField
    from ffcv.writer import DatasetWriter

    folder = Path(samples[0][0]).parent
    path = folder.with_name(f"{folder.name}-{len(samples)}.beton")
    if not path.exists():
        writer = DatasetWriter(str(path), {"image": _jpeg_field()(), "label": IntField()}, num_workers=1)
        writer.from_indexed_dataset(samples)
    return path
