"""Loaders on the CUDA pipeline with CUDA replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cuaug
from cuaug.pipeline import cuda as pipeline
from cuaug.profiling.recorder import Recorder
from tests.support.fake_cuda import replace_cuda


@pytest.fixture
def fake(monkeypatch):
    pytest.importorskip("cupy")
    return replace_cuda(monkeypatch.setattr)


@pytest.fixture
def loader_on(fake, monkeypatch):
    """Makes a loader on the real CPU pipeline or on the fake GPU's."""
    made = []

    def make(gpu: bool, files: Any, transforms: Any, **options: Any) -> cuaug.Loader:
        def make_pipeline(self: cuaug.Loader, config: Any) -> pipeline.CudaPipeline:
            self._recorder = Recorder(replace(self._runtime, device="cuda"))
            return pipeline.CudaPipeline(config, self._recorder, self.threads, torch.device("cpu"))

        with monkeypatch.context() as patch:
            if gpu:
                patch.setattr(cuaug.Loader, "_make_pipeline", make_pipeline)
            made.append(cuaug.Loader(files, transforms, device="cpu", threads=2, **options))
        return made[-1]

    yield make
    for loader in made:
        loader.close()


@pytest.fixture
def pictures(tmp_path):
    """Files of many sizes: PNG, and BMP, which Pillow decodes."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(37):
        h, w = rng.integers(20, 90, 2)
        paths.append(str(tmp_path / f"{i}.{'bmp' if i % 7 == 0 else 'png'}"))
        Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)).save(paths[-1])
    return paths
