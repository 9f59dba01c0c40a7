"""Loaders on the CUDA pipeline, with fakes for CUDA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug.devices.cuda import availability_error
from cuaug.errors import DeviceError
from cuaug.pipeline.cuda import cuda_pipeline as pipeline
from cuaug.profiling.recorder import Recorder
from tests.support.fake_cuda import replace_cuda
from tests.support.same_batches import assert_same_batches
from tests.support.video.videos import write_copies


@pytest.fixture
def fake(monkeypatch):
    pytest.importorskip("cupy")
    return replace_cuda(monkeypatch.setattr)


@pytest.fixture
def loader_on(fake, monkeypatch):
    """Makes a loader on the CPU pipeline, or on the CUDA pipeline with fakes."""
    loaders = []

    def make(gpu: bool, files: Any, transforms: Any, **options: Any) -> cuaug.Loader:
        def make_pipeline(self: cuaug.Loader, config: Any) -> pipeline.CudaPipeline:
            if reason := availability_error(torch.device("cuda", fake.torch.driver.gpu)):  # as `resolve_device`
                raise DeviceError(reason)
            self._recorder = Recorder(replace(self._runtime, device="cuda"))
            return pipeline.CudaPipeline(config, self._recorder, self.threads, torch.device("cpu"))

        with monkeypatch.context() as patch:
            if gpu:
                patch.setattr(cuaug.Loader, "_make_pipeline", make_pipeline)
            loaders.append(cuaug.Loader(files, transforms, device="cpu", **{"seed": 0, "threads": 2} | options))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


@pytest.fixture
def equal_loaders(loader_on):
    """Makes a loader on each pipeline, compares their epochs, and returns the one on the CUDA pipeline."""

    def compare(files: Any, transforms: Any, *, epochs: int = 1, **options: Any) -> cuaug.Loader:
        gpu, cpu = (loader_on(on, files, transforms, **options) for on in (True, False))
        for _ in range(epochs):
            assert_same_batches(gpu, cpu)
        return gpu

    return compare


@pytest.fixture
def image_files(tmp_path):
    """Image files of many sizes: PNG, and BMP, which Pillow decodes."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(37):
        h, w = rng.integers(20, 90, 2)
        paths.append(str(tmp_path / f"{i}.{'bmp' if i % 7 == 0 else 'png'}"))
        Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)).save(paths[-1])
    return paths


@pytest.fixture(scope="session")
def paths(tmp_path_factory) -> list[str]:
    """Five equal videos."""
    return write_copies(tmp_path_factory.mktemp("videos"), "h264 mp4", 5)
