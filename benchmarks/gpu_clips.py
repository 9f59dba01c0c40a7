"""Clips of videos on a GPU: clips a second beside the CPU's loader, the times of the stages, and the YUV kernel alone.

FFmpeg decodes on CPU threads on both devices. The clips of both loaders are compared: they have the same bits. With
PyNvVideoCodec, a third loader decodes by NVDEC; how many of its clips have these bits is a result.

    python benchmarks/gpu_clips.py --out benchmarks/results/gpu_clips.json
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from typing import Any

import numpy as np
import torch
from gpu_kernels import Clock
from report import gpu_circumstances, options, settings_of, spread, write_json
from synthetic_videos import write_videos

import cuaug
from cuaug import transforms as T
from cuaug.codec.video.yuv import VideoFrame, describe_frames
from cuaug.devices import cuda
from cuaug.devices.workspace import LaunchStream, Workspace
from cuaug.sources import Videos

#: height, width, bits per second
SIZES = {"340x256": (256, 340, 400_000), "1280x720": (720, 1280, 2_000_000)}
FRAMES, STRIDE, KEY_DISTANCE = 16, 4, 32
CHAIN = [T.RandomResizedCrop(112), T.RandomHorizontalFlip(), T.Normalize([0.45] * 3, [0.225] * 3)]


def measure_loaders(paths: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Clips a second on each device, which take turns, and milliseconds by stage on CUDA.

    Raises:
        AssertionError: the devices' clips differ.
    """
    source = Videos(paths, frames=FRAMES, stride=STRIDE, clips_per_video=max(1, args.clips // len(paths)))
    loaders = {device: _loader(source, device, args) for device in ("cuda", "cpu")}
    # The first epoch compiles kernels and makes the indices.
    for got, want in zip(loaders["cuda"], loaders["cpu"], strict=True):
        assert got.images.is_cuda and torch.equal(got.images.cpu(), want.images), "the CPU's clips differ"
    nvdec: dict[str, Any] = {"left_out": "PyNvVideoCodec is not installed"}
    if importlib.util.find_spec("PyNvVideoCodec"):
        loaders["cuda"].set_epoch(0)
        loaders["nvdec"] = _loader(source, "cuda", args, decode=cuaug.DecodeOptions(video_decoder="nvdec"))
        pairs = zip(loaders["nvdec"], loaders["cuda"], strict=True)
        equal = [bool(same) for got, want in pairs for same in (got.images == want.images).flatten(1).all(1)]
        nvdec = {"clips": len(equal), "equal": sum(equal), "decoded_by": loaders["nvdec"].stats().decoded_by}
    before = loaders["cuda"].stats()
    rates: dict[str, list[float]] = {device: [] for device in loaders}
    for _ in range(args.epochs):
        for device, loader in loaders.items():
            count, start = 0, time.perf_counter()
            for clips, _ in loader:
                count += len(clips)
            if device != "cpu":
                torch.cuda.synchronize()
            rates[device].append(count / (time.perf_counter() - start))
    stats = loaders["cuda"].stats().since(before)
    print(stats)
    for loader in loaders.values():
        loader.close()
    stages = {name: 1000 * seconds / stats.samples for name, seconds in stats.seconds.items()}
    return {
        "nvdec": nvdec,
        "clips_per_second": {device: spread(values) for device, values in rates.items()},
        "ms_per_clip": {name: round(value, 4) for name, value in stages.items()},
    }


def _loader(source: Videos, device: str, args: argparse.Namespace, **options: Any) -> cuaug.Loader:
    options |= {"batch_size": args.batch_size, "threads": args.threads, "device": device}
    return cuaug.Loader(source, CHAIN, shuffle=True, seed=0, **options)


def measure_conversion(height: int, width: int, frames: int, repetitions: int) -> dict[str, float]:
    """The time of `convert_yuv` for whole frames of yuv420p, and the bytes that it reads and writes a second."""
    device = torch.device("cuda", torch.cuda.current_device())
    size = height * width * 3 // 2
    planes, table = Workspace(device), Workspace(device)
    (memory,) = planes.upload(np.random.default_rng(0).integers(0, 256, frames * size, dtype=np.uint8))
    target = planes.intermediate_memory(frames * height * width * 3)
    chroma = (width + 1) // 2
    images = []
    for start in range(memory.data_ptr(), memory.data_ptr() + frames * size, size):
        u = start + height * width
        places = [(start, width), (u, chroma), (u + chroma * (height // 2), chroma)]
        images.append(VideoFrame(places, height, width, "yuv420p", "bt709", False, True, memory))
    targets = [target + 3 * height * width * i for i in range(frames)]
    (rows,) = table.upload(describe_frames(images, (0, 0, height, width), targets, 3 * width))
    kernel, stream = cuda.convert_kernel(device.index), LaunchStream(torch.cuda.current_stream().cuda_stream)
    launch = (frames, height, 1), (cuda.THREADS, 1, 1), (np.uint64(rows.data_ptr()),)
    clock = Clock(repetitions, warm_up_seconds=0.2, flush_bytes=256 << 20)
    milliseconds = clock.milliseconds(lambda: kernel(*launch, shared_mem=0, stream=stream))
    moved = frames * (size + 3 * height * width)
    return {"frames": frames, "ms": milliseconds, "gigabytes_per_second": moved / max(milliseconds, 1e-9) / 1e6}


def main() -> None:
    parser = options(
        __doc__, data="videos", videos=8, clips=(64, "of an epoch"), batch_size=8, threads=6, epochs=3,
        repetitions=(50, "of the kernel"),
    )  # fmt: skip
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    args = parser.parse_args()
    result: dict[str, Any] = gpu_circumstances(["av"])
    result |= {"settings": settings_of(args), "sizes": {}}
    result |= {"frames": FRAMES, "stride": STRIDE, "key_distance": KEY_DISTANCE}
    for name in args.sizes:
        height, width, bitrate = SIZES[name]
        folder = args.data / f"videos-{name}-{KEY_DISTANCE}"
        paths = write_videos(folder, args.videos, height, width, key_distance=KEY_DISTANCE, bitrate=bitrate)
        row = measure_loaders(paths, args)
        row["conversion"] = measure_conversion(height, width, args.batch_size * FRAMES, args.repetitions)
        result["sizes"][name] = row
        rates = ", ".join(f"{device} {rate['median']:.1f}" for device, rate in row["clips_per_second"].items())
        print(f"{name}: clips/s: {rates}; conversion {row['conversion']['ms']:.3f} ms", flush=True)
    write_json(args.out, result)


if __name__ == "__main__":
    main()
