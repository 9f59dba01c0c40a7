"""Inputs of the pages' code blocks: files in the working directory, and names that the pages leave open.

`python -m tests.support.page_setups README.md docs/video.md` runs pages, each in a folder below the working directory.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.commands import demo
from tests.support import pages
from tests.support.codec.encoded_images import encode, photo
from tests.support.sources import writers

ROOT = Path(__file__).parents[2]
# Pages whose Python blocks another file runs and examines.
ELSEWHERE = {
    "docs/building_shards.md": "tests/sources/test_building_shards.py",
    "docs/design.md": "tests/kernels/test_worked_example.py",
    "docs/frameworks.md": "tests/loader/test_frameworks.py",
    "docs/programs.md": "tests/front_door/test_programs_page.py",
    "docs/serving.md": "tests/front_door/test_serving_page.py",
    "docs/recipes.md": "tests/loader/test_recipes.py",
    "docs/sources.md": "tests/sources/test_sources_page.py",
    "docs/your_own.md": "tests/transforms/test_own.py",
}
# Sets of shards that would be too large, and what stands for them.
SMALLER = {"{000..127}": "{000..003}", "{00000..16399}": "{00000..00003}"}


def _common(count: int) -> dict[str, Any]:
    """Photos in two class folders, and a chain for them."""
    Path("cat.jpg").write_bytes(encode(Image.fromarray(photo(200, 410)), "JPEG"))
    for number in range(count):
        file = Path("photos/train", "dog" if number % 2 else "cat", f"{number}.jpg")
        file.parent.mkdir(parents=True, exist_ok=True)
        os.link("cat.jpg", file)
    os.link("cat.jpg", "dog.jpg")
    chain = [T.RandomResizedCrop(32), T.Normalize(0.5, 0.5)]
    return {"chain": chain, "files": ["cat.jpg", "dog.jpg"]}


def _readme() -> dict[str, Any]:
    boxes, masks = np.array([[5, 5, 40, 30]], np.float32), np.ones((1, 200, 410), np.uint8)
    return {"image": Image.open("cat.jpg"), "boxes": boxes, "masks": masks}


def _bucket() -> dict[str, Any]:
    """Four shards in an S3 bucket on this machine; the environment names the server, as users' environments do."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    secrets = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ |= secrets | {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true"}
    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    content = writers.samples(40)
    for number in range(4):
        members = {f"{sample.name}.png": sample.data for sample in content[number::4]}
        writers.write_tar(Path("shard.tar"), members | {f"{name[:-4]}.cls": b"1" for name in members})
        data = Path("shard.tar").read_bytes()
        for digits in (3, 5):
            client.put_object(Bucket="bucket", Key=f"train-{number:0{digits}}.tar", Body=data, ACL="public-read")
    return {}


def _videos() -> dict[str, Any]:
    import av

    for name in ("a.mp4", "b.mkv"):
        with av.open(name, "w") as container:
            stream = container.add_stream("mpeg4", rate=30)
            stream.width, stream.height, stream.pix_fmt = 96, 80, "yuv420p"
            for t in range(320):
                picture = np.full((80, 96, 3), (80, t % 256, 0), np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
        for number in range(4):
            file = Path("clips/train", "ab"[number % 2], f"{number}{name}")
            file.parent.mkdir(parents=True, exist_ok=True)
            os.link(name, file)
    Path("train.txt").write_text("a.mp4 0\nb.mkv 1 0 5.5\n")
    return {}


def _coco() -> dict[str, Any]:
    """Annotations in COCO's format: one object in each of six images."""
    names = [f"{i}.jpg" for i in range(6)]
    box, polygon = [10, 10, 60, 50], [[10, 10, 70, 10, 70, 60, 10, 60]]
    content = {
        "images": [{"id": i, "file_name": name, "height": 200, "width": 410} for i, name in enumerate(names)],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 1, "bbox": box, "segmentation": polygon} for i in range(6)
        ],
        "categories": [{"id": 1, "name": "thing"}],
    }
    images, annotations = Path("coco/train2017"), Path("coco/annotations")
    images.mkdir(parents=True)
    annotations.mkdir()
    for name in names:
        os.link("cat.jpg", images / name)
    (annotations / "instances_train2017.json").write_text(json.dumps(content))
    return {}


def _training() -> dict[str, Any]:
    """A loader of the photos, and the names of a training."""
    loader = cuaug.Loader("photos/train", _CHAIN, batch_size=4)
    model = torch.nn.Linear(2, 2)
    return {"loader": loader, "train": lambda images, labels: None, "model": model, "path": "checkpoint.pt"}


def _promises() -> dict[str, Any]:
    content = {sample.name.encode(): sample.data for sample in writers.samples()}
    writers.write_environment(Path("train.lmdb"), content)
    return _training()


def _hugging_face() -> dict[str, Any]:
    """A stand-in of the library's column of images, which hold bytes or paths once decoding is off."""

    class Dataset(torch.utils.data.Dataset):
        def cast_column(self, name: str, feature: Any) -> Dataset:
            assert name == "image" and not feature.decode
            return self

        def __len__(self) -> int:
            return 260

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"image": {"bytes": Path("cat.jpg").read_bytes(), "path": None}, "label": index % 2}

    library: Any = SimpleNamespace(Image=lambda decode: SimpleNamespace(decode=decode))
    sys.modules["datasets"] = library
    return {"dataset": Dataset()}


_CHAIN = [T.RandomResizedCrop(32)]
SETUPS: dict[str, Callable[[], dict[str, Any]]] = {
    "README.md": _readme,
    "docs/migrating/datasets.md": _hugging_face,
    "docs/performance.md": _training,
    "docs/promises.md": _promises,
    "docs/remote_shards.md": _bucket,
    "docs/scale.md": _bucket,
    "docs/targets.md": _coco,
    "docs/video.md": _videos,
}


def _run(page: str) -> None:
    """Prepares a new folder below the working directory, and runs the page's blocks there."""
    folder = Path(page.replace("/", "-"))
    folder.mkdir()
    os.chdir(folder)
    demo._COUNT, demo._EPOCHS = 128, 1
    torch.manual_seed(0)
    count = 256 if 'last_batch="drop"' in (ROOT / page).read_text() else 12  # else there is no batch
    names = _common(count) | SETUPS.get(page, dict)()
    pages.run(ROOT / page, names, python=page not in ELSEWHERE, replace=SMALLER)


def main(names: list[str]) -> int:
    """Runs each page in a fork of this process, which has imported torch, and returns how many failed."""
    failed = 0
    for page in names:
        process = multiprocessing.get_context("fork").Process(target=_run, args=[page])
        print(f"== {page}", flush=True)
        process.start()
        process.join()
        if process.exitcode:
            failed += 1
            print(f"{page} failed", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
