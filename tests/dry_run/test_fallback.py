"""JPEGs that the GPU cannot decode: decoded on the CPU, counted, and warned of once."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage

from cuaug import DecodeOptions
from cuaug.codec import NvImageCodecDecoder, nv
from cuaug.pipeline.cuda import producer
from tests.dry_run import CHAIN
from tests.support.codec.encoded_images import without_segments
from tests.support.loader.further_pictures import photo

_CPU_ONLY = -99999  # nvImageCodec's NVIMGCODEC_DEVICE_CPU_ONLY


class Image:
    """In place of nvImageCodec's Image around a slot."""

    def __init__(self, array: torch.Tensor) -> None:
        self.memory = array.view(-1)
        self.shape: tuple[int, ...] = ()


class FakeCodec:
    """nvImageCodec whose GPU decoders run on the CPU and fail for some streams.

    Attributes:
        failing: how many of the JPEGs of each call fail, from the first on.
    """

    BackendKind = SimpleNamespace(**{kind: kind for kind in ("HW_GPU_ONLY", "GPU_ONLY", "HYBRID_CPU_GPU", "CPU_ONLY")})
    failing: ClassVar[int] = 0

    @staticmethod
    def Backend(kind: str, load_hint: float) -> str:
        return kind

    @staticmethod
    def as_image(array: torch.Tensor, cuda_stream: int) -> Image:
        return Image(array)

    class Decoder:
        def __init__(self, device_id: Any, max_num_cpu_threads: int, backends: list[str], options: str) -> None:
            self.for_jpegs = "CPU_ONLY" not in backends
            kinds = nv().BackendKind
            self.real = nv().Decoder(device_id=_CPU_ONLY, backends=[nv().Backend(kinds.CPU_ONLY)], options=options)

        def decode(self, streams: Any, *, images: list[Image], params: Any, cuda_stream: int) -> list[Image | None]:
            results: list[Image | None] = []
            for i, (stream, image) in enumerate(zip(streams, images, strict=True)):
                decoded = None if self.for_jpegs and i < FakeCodec.failing else self.real.decode(stream, params=params)
                if decoded is not None:
                    pixels = np.asarray(decoded.cpu())
                    image.shape = pixels.shape
                    image.memory[: pixels.size] = torch.from_numpy(pixels.reshape(-1).copy())
                results.append(None if decoded is None else image)
            return results


@pytest.fixture
def codec(fake, monkeypatch):
    """The real `NvImageCodecDecoder` on `FakeCodec`, without the engine."""
    monkeypatch.setattr(producer, "NvImageCodecDecoder", NvImageCodecDecoder)
    monkeypatch.setattr("cuaug.codec.nvimgcodec_decoder.nv", lambda: FakeCodec)
    monkeypatch.setattr(NvImageCodecDecoder, "prime", lambda self, images, stream: None)  # it allocates device memory
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 << 20, 80 << 30))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(FakeCodec, "failing", 0)
    return FakeCodec


@pytest.fixture
def files(tmp_path):
    """24 files of many sizes: 18 JPEGs of three subsamplings and gray, three PNG and three BMP."""
    paths = []
    for i in range(24):
        suffix = {6: "png", 7: "bmp"}.get(i % 8, "jpg")
        paths.append(str(tmp_path / f"{i}.{suffix}"))
        image = PillowImage.fromarray(photo(30 + 5 * i, 90 - 2 * i, i))
        options = {"quality": 90, "subsampling": ("4:2:0", "4:2:2", "4:4:4")[i % 3]} if suffix == "jpg" else {}
        (image.convert("L") if i % 5 == 4 else image).save(paths[-1], **options)
    return paths


OPTIONS = {"batch_size": 8, "decode": DecodeOptions(decoder="nvimgcodec")}


def warnings_of(caplog: Any) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_without_failures_nothing_is_warned_of(codec, equal_loaders, files, caplog):
    gpu = equal_loaders(files, CHAIN, **OPTIONS)
    assert not warnings_of(caplog) and set(gpu.stats().decoded_by) == {"gpu", "cpu", "pillow"}


@pytest.mark.parametrize("failing", [1, 100])
def test_failing_jpegs_are_decoded_on_the_cpu(codec, equal_loaders, files, caplog, monkeypatch, failing):
    """With the same pixels as on the CPU. Each kind of failure is warned of once, with a name and the cause."""
    monkeypatch.setattr(codec, "failing", failing)
    gpu = equal_loaders(files, CHAIN, epochs=2, **OPTIONS)
    counts = gpu.stats().decoded_by
    fallbacks = 6 if failing == 1 else 36  # of three batches with six JPEGs each, twice
    assert Counter(counts) == Counter(cpu_fallback=fallbacks, gpu=36 - fallbacks, cpu=6, pillow=6)
    assert f"cpu_fallback {fallbacks}" in str(gpu.stats())
    (text,) = warnings_of(caplog)
    assert "3 MiB of device memory were free" in text and "(sample " in text and "cpu_fallback" in text
    assert ("none of a batch's JPEGs" in text) == (failing == 100)


def test_a_damaged_file_is_no_fallback(codec, loader_on, files, caplog):
    jpegs = [path for path in files if path.endswith(".jpg")]
    path = Path(jpegs[2])
    path.write_bytes(without_segments(path.read_bytes(), 0xDB))  # sound markers, so that the GPU is given the file
    loader = loader_on(True, jpegs[:8], CHAIN, on_error="skip", **OPTIONS)
    (batch,) = loader
    assert batch.indices.tolist() == [0, 1, 3, 4, 5, 6, 7]
    stats = loader.stats()
    assert stats.failed == 1 and stats.decoded_by == {"gpu": 7}
    texts = warnings_of(caplog)
    assert "skipped" in texts[-1] and not any("cpu_fallback" in text for text in texts)


def test_a_jpeg_that_nvimagecodec_cannot_open_is_a_fallback(codec, loader_on, files, monkeypatch, caplog):
    monkeypatch.setattr("cuaug.codec.image.open_streams", lambda files: [None] * len(files))
    jpegs = [path for path in files if path.endswith(".jpg")][:4]
    loader = loader_on(True, jpegs, CHAIN, **OPTIONS)
    list(loader)
    assert loader.stats().decoded_by == {"cpu_fallback": 4}
    assert "nvImageCodec cannot read the file" in warnings_of(caplog)[0]
