"""Remote tar shards beside the same local ones: images/s with 30 ms of latency, on two threads.

The server (range_server.py) runs on the same CPUs, so its CPU time counts against the remote side. Local and remote
take turns; the ratio is remote / local of the same turn. 1.0 means that read-ahead hides the network.

    python benchmarks/remote.py [--images 3000] [--latency 0.03] [--turns 5] [--out benchmarks/results/remote.json]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import cuaug
from cuaug import transforms as T
from cuaug.sources import RemoteOptions, TarShards

SHARDS = 4


def photo(number: int) -> bytes:
    """A JPEG of 500 x 375 pixels and about 57 kB."""
    rng = np.random.default_rng(number)
    coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8)).resize((500, 375), Image.Resampling.BICUBIC)
    pixels = np.clip(np.asarray(coarse).astype(np.int16) + rng.integers(-12, 12, (375, 500, 3)), 0, 255)
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG", quality=88)
    return file.getvalue()


def write_shards(folder: Path, images: int) -> None:
    photos = [photo(number) for number in range(20)]
    for shard in range(SHARDS):
        with tarfile.open(folder / f"train-{shard}.tar", "w") as archive:
            for i in range(images // SHARDS):
                for name, data in ((f"{shard}{i:05d}.jpg", photos[(i + shard) % 20]), (f"{shard}{i:05d}.cls", b"3")):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


def rate(source: TarShards, order: dict[str, Any]) -> float:
    """Images/s of an epoch."""
    chain = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize((0.5,) * 3, (0.5,) * 3)]
    with cuaug.Loader(source, chain, batch_size=64, device="cpu", threads=2, seed=0, **order) as loader:
        begin = time.perf_counter()
        images = sum(len(batch.indices) for batch in loader)
        return images / (time.perf_counter() - begin)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--latency", type=float, default=0.03)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as root:
        os.environ["CUAUG_CACHE_DIR"] = f"{root}/cache"
        folder = Path(root, "objects", "bucket")
        folder.mkdir(parents=True)
        write_shards(folder, arguments.images)
        port = free_port()
        script = Path(__file__).with_name("range_server.py")
        command = [sys.executable, str(script), str(folder.parent), str(port), str(arguments.latency)]
        server = subprocess.Popen(command)
        try:
            time.sleep(1)
            options = {"key": "a", "secret": "b", "endpoint_url": f"http://127.0.0.1:{port}"}
            local = TarShards(folder)
            remote = TarShards("s3://bucket/train-{0..3}.tar", remote=RemoteOptions(storage_options=options))
            orders = {"file order": {}, "windows": {"sampler": cuaug.ShardSampler(local.shard_sizes, 500)}}
            for name, order in {**orders, "full shuffle": {"shuffle": True}}.items():
                pairs = [(rate(local, order), rate(remote, order)) for _ in range(arguments.turns)]
                ratio = statistics.median(there / here for here, there in pairs)
                here, there = (statistics.median(side) for side in zip(*pairs, strict=True))
                results[name] = {"local": here, "remote": there, "ratio": ratio}
                print(f"{name}: local {here:.0f} images/s, remote {there:.0f}, ratio {ratio:.2f}", flush=True)
        finally:
            server.kill()
            server.wait()
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
