"""Remote tar shards beside the same local ones, WebDataset and LitData: images/s with 30 ms of latency.

cuaug runs on two threads; WebDataset and LitData with two worker processes, from the same server (remote_peers.py says
how). The server (range_server.py) runs on the same CPUs, so its CPU time counts against the remote side. All take
turns, and ratios are of the same turn: remote / local, where 1.0 means that read-ahead hides the network, and remote /
peer. WebDataset's shuffle is a buffer of 500 samples, LitData's one of whole chunks; both stand beside "windows" and
"full shuffle". A peer that is not installed is left out.

In so small a set, a full shuffle's neighbors within the read-ahead share requests; "requests per image" tells it.

    python benchmarks/remote.py [--images 3000] [--latency 0.03] [--turns 5] [--out benchmarks/results/remote.json]
"""

from __future__ import annotations

import importlib.util
import io
import os
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from report import circumstances, in_turns, options, ratios, settings_of, write_json

import cuaug
from cuaug import transforms as T
from cuaug.sources import RemoteOptions, TarShards

SHARDS = 4
PEERS = ("webdataset", "litdata")


def photo(number: int) -> bytes:
    """A JPEG of 500 x 375 pixels and about 57 kB."""
    rng = np.random.default_rng(number)
    coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8)).resize((500, 375), Image.Resampling.BICUBIC)
    pixels = np.clip(np.asarray(coarse).astype(np.int16) + rng.integers(-12, 12, (375, 500, 3)), 0, 255)
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG", quality=88)
    return file.getvalue()


def shard_samples(shard: int, images: int) -> list[bytes]:
    """The JPEGs of a shard."""
    photos = [photo(number) for number in range(20)]
    return [photos[(i + shard) % 20] for i in range(images // SHARDS)]


def write_shards(folder: Path, images: int) -> None:
    for shard in range(SHARDS):
        with tarfile.open(folder / f"train-{shard}.tar", "w") as archive:
            for i, image in enumerate(shard_samples(shard, images)):
                for name, data in ((f"{shard}{i:05d}.jpg", image), (f"{shard}{i:05d}.cls", b"3")):
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


def installed_peers() -> list[str]:
    """The peers that are installed; says which ones are left out."""
    found = [name for name in PEERS if importlib.util.find_spec(name)]
    for name in sorted({*PEERS} - {*found}):
        print(f"{name} is not installed, and left out")
    return found


def peer_rate(name: str, *arguments: str) -> float:
    """Images/s of a peer's epoch, in a new process: forked workers hang once obstore has run in their parent."""
    script = Path(__file__).with_name("remote_peers.py")
    command = [sys.executable, str(script), name, *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout
    return float(output.split()[-1]) if output else 0.0


def main() -> None:
    arguments = options(__doc__, images=3000, latency=(0.03, "seconds"), turns=5).parse_args()
    peers, images = installed_peers(), arguments.images // SHARDS * SHARDS
    results: dict[str, Any] = {"settings": settings_of(arguments)}
    with tempfile.TemporaryDirectory() as root:
        os.environ |= {"CUAUG_CACHE_DIR": f"{root}/cache", "CUAUG_BENCH_FOLDER": root}
        folder = Path(root, "objects", "bucket")
        folder.mkdir(parents=True)
        write_shards(folder, images)
        if "litdata" in peers:
            peer_rate("write-litdata", str(folder), str(folder / "litdata"))
        port = free_port()
        script = Path(__file__).with_name("range_server.py")
        command = [sys.executable, str(script), str(folder.parent), str(port), str(arguments.latency)]
        server = subprocess.Popen(command)
        try:
            time.sleep(1)
            endpoint = f"http://127.0.0.1:{port}"
            storage = {"access_key_id": "a", "secret_access_key": "b", "endpoint": endpoint, "region": "us-east-1"}
            local = TarShards(folder)
            remote = TarShards("s3://bucket/train-{0..3}.tar", remote=RemoteOptions(storage_options=storage))
            orders = {"file order": {}, "windows": {"sampler": cuaug.ShardSampler(local.shard_sizes, 500)}}
            for name, order in {**orders, "full shuffle": {"shuffle": True}}.items():
                peer_order = "shuffled" if order else "in-order"
                calls = {"local": partial(rate, local, order), "remote": partial(rate, remote, order)}
                calls |= {peer: partial(peer_rate, peer, endpoint, str(images), peer_order) for peer in peers}
                before = remote.remote_counts()["requests"]
                print(f"{name}: images/s")
                rates = in_turns(calls, arguments.turns, warm_up=0, show=lambda value: f"{value:.0f}")
                row = results[name] = {side: statistics.median(values) for side, values in rates.items()}
                sides = ("local", *peers)
                row["remote_ratio_to"] = {side: ratios(rates["remote"], rates[side])["median"] for side in sides}
                row["requests_per_image"] = (remote.remote_counts()["requests"] - before) / arguments.turns / images
                print(f"  {row}", flush=True)
        finally:
            server.kill()
            server.wait()
    packages = ["torch", "numpy", "obstore", "nvidia-nvimgcodec-cu12", *PEERS]
    write_json(arguments.out, circumstances(packages) | results)


if __name__ == "__main__":
    main()
