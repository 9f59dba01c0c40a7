"""One epoch of WebDataset or LitData from the server of remote.py, in a process of its own: prints images/s.

Two worker processes decode with Pillow and augment as `PillowImages` of the examples. The rate is taken from the first
batch to the last, so the start of the workers does not count. WebDataset reads through curl, its default for http.
LitData downloads chunks through obstore and boto3 into a new folder.

    python benchmarks/remote_peers.py write-litdata FOLDER_OF_TARS FOLDER
    python benchmarks/remote_peers.py webdataset|litdata ENDPOINT IMAGES in-order|shuffled
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from baseline import PillowImages

BATCH, WORKERS, SHUFFLED = 64, 2, 500
MEAN = (0.5, 0.5, 0.5)
IMAGES = PillowImages((), 224, mean=MEAN, std=MEAN)


def augment(data: bytes) -> torch.Tensor:
    with Image.open(io.BytesIO(data)) as image:
        return IMAGES.normalize(np.array(IMAGES.augment(image.convert("RGB"))))


def from_tar(sample: dict[str, Any]) -> tuple[torch.Tensor, int]:
    return augment(sample["jpg"]), int(sample["cls"])


def from_chunk(sample: dict[str, Any]) -> tuple[torch.Tensor, int]:
    return augment(sample["image"]), sample["label"]


def webdataset(endpoint: str, is_shuffled: bool) -> Iterable[Any]:
    import webdataset as wds

    urls = f"{endpoint}/bucket/train-{{0..3}}.tar"
    dataset = wds.WebDataset(urls, shardshuffle=100 if is_shuffled else False, empty_check=False)
    if is_shuffled:
        dataset = dataset.shuffle(SHUFFLED)
    dataset = dataset.map(from_tar).batched(BATCH)
    return wds.WebLoader(dataset, batch_size=None, num_workers=WORKERS, prefetch_factor=4)


def litdata(endpoint: str, is_shuffled: bool) -> Iterable[Any]:
    import litdata as ld
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # its only way to a server without TLS
    credentials = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    dataset = ld.StreamingDataset(
        "s3://bucket/litdata",
        cache_dir=tempfile.mkdtemp(dir=os.environ["CUAUG_BENCH_FOLDER"]),
        shuffle=is_shuffled,
        storage_options={"endpoint_url": endpoint, **credentials},
        transform=from_chunk,
        max_pre_download=4,
    )
    return ld.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, prefetch_factor=4)


def write_litdata(tars: str, folder: str) -> None:
    """Chunks with the samples of the tars, about as large as a tar each."""
    from litdata.streaming import Cache

    paths = sorted(Path(tars).glob("*.tar"))
    cache = Cache(folder, chunk_bytes=max(path.stat().st_size for path in paths))
    index = 0
    for path in paths:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith(".jpg") and (file := archive.extractfile(member)) is not None:
                    cache[index] = {"image": file.read(), "label": 3}
                    index += 1
    cache.done()
    cache.merge()


def rate(batches: Iterable[Any], images: int) -> float:
    seen = first = 0
    begin = 0.0
    for pixels, labels in batches:
        assert pixels.shape[1:] == (3, 224, 224) and pixels.dtype == torch.float32 and set(labels.tolist()) == {3}
        seen += len(pixels)
        if not first:
            first, begin = seen, time.perf_counter()
    assert seen == images, f"{seen} images of {images}"
    return (seen - first) / (time.perf_counter() - begin)


def main(peer: str, place: str, images: str, order: str = "") -> None:
    if peer == "write-litdata":
        write_litdata(place, images)
        return
    torch.set_num_threads(1)
    loaders = {"webdataset": webdataset, "litdata": litdata}
    print(rate(loaders[peer](place, order == "shuffled"), int(images)))


if __name__ == "__main__":
    main(*sys.argv[1:])
