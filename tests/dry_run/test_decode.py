"""`cuaug.decode` and `cuaug.ray.Augment` on CUDA give the CPU's images, from threads that share decoders."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import cuaug
import cuaug.ray
from cuaug import decoding
from cuaug import transforms as T
from cuaug.pipeline import shared
from cuaug.pipeline.config import choose
from cuaug.pipeline.cuda.cuda_pipeline import CudaPipeline
from cuaug.profiling.recorder import Recorder


@pytest.fixture
def on_gpu(fake, monkeypatch):
    """Makes `decode(device="cuda")` use the CUDA pipeline with fakes."""
    made = {}

    def on_fakes(device: torch.device, threads: int | None, options: cuaug.DecodeOptions) -> CudaPipeline:
        key = threads, options
        if key not in made:
            config = shared.call_config(
                decoding._Inputs([b""], "RGB"), T.Compose([]), options, device, stack=False, max_images=shared.GPU_BATCH
            )
            runtime = replace(choose("cpu", 1, 2, 1), device="cuda")
            made[key] = CudaPipeline(config, Recorder(runtime), 2, torch.device("cpu"))
        return made[key]

    own = shared.shared_pipeline
    for module in (decoding, cuaug.ray):
        monkeypatch.setattr(module, "_device", lambda device, _: torch.device("cuda" if device == "cuda" else "cpu"))
        monkeypatch.setattr(
            module, "shared_pipeline", lambda device, *key: (on_fakes if device.type == "cuda" else own)(device, *key)
        )
    yield made
    for pipeline in made.values():
        pipeline.close()


CHAIN = T.Compose([T.Resize(24), T.CenterCrop(20), T.Normalize(0.5, 0.25)])


def test_the_images_are_those_of_the_cpu(on_gpu, image_files):
    assert torch.equal(cuaug.decode(image_files[1], device="cuda"), cuaug.decode(image_files[1], device="cpu"))
    for options in ({}, {"region": (3, 2, 15, 17)}):
        got, want = (cuaug.decode(image_files, device=device, **options) for device in ("cuda", "cpu"))
        assert len(got) == len(want) and all(map(torch.equal, got, want))
        assert got[0].shape[0] == 3
    got, want = (cuaug.decode(image_files, CHAIN, device=device) for device in ("cuda", "cpu"))
    torch.testing.assert_close(got, want)
    assert len(on_gpu) == 1, "one decoder for all calls"


def test_the_rows_of_ray_are_those_of_the_cpu(on_gpu, image_files):
    batch = {"id": np.arange(len(image_files)), "bytes": np.array(image_files, dtype=object)}
    batch["bytes"][3] = b"no image"
    settings = {"threads": 2, "on_error": "skip", "seed": 4}
    got, want = (
        cuaug.ray.Augment([T.RandomResizedCrop(20), T.Normalize(0.5, 0.25)], device=device, **settings)(batch)
        for device in ("cuda", "cpu")
    )
    assert got["id"].tolist() == want["id"].tolist() and 3 not in got["id"]
    np.testing.assert_allclose(got["bytes"], want["bytes"], rtol=0, atol=1e-5)
    assert len(on_gpu) == 1


def test_damaged_images_and_threads(on_gpu, image_files):
    Path(image_files[4]).write_bytes(b"no image")
    with pytest.raises(cuaug.DecodeError) as caught:
        cuaug.decode(image_files, device="cuda")
    assert caught.value.index == 4 and caught.value.path == image_files[4]

    def work(k: int) -> None:
        for i in range(k, 30, 3):
            if i != 4:
                (image,) = cuaug.decode([image_files[i]], device="cuda")
                assert torch.equal(image, cuaug.decode(image_files[i], device="cpu"))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
