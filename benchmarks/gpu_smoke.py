"""One epoch of a loader on the GPU: whether it works at all, and the first figures. For less than a minute.

python benchmarks/gpu_smoke.py --out benchmarks/results/gpu_smoke.json
"""

from __future__ import annotations

import time
from typing import Any

import torch
from gpu_photos import origin, write_files
from report import gpu_circumstances, options, write_json

import cuaug
from cuaug import transforms as T

#: Chains whose results on both devices have the same bits.
EXACT = {
    "evaluation": T.Compose([T.Resize(256), T.CenterCrop(224), T.Normalize(0.5, 0.2)], pillow=13),
    "training": T.Compose([T.RandomResizedCrop(224, interpolation="bicubic"), T.Normalize(0.5, 0.2)], pillow=13),
    "patches": T.Compose(
        [T.ResizeToMultiple(28, 56 * 56, 448 * 448), T.Normalize(0.5, 0.2), T.Patches(14, merge=2, temporal=2)],
        pillow=13,
    ),
}


def has_same_bits(paths: list[str], chain: T.Compose) -> bool:
    """Whether the GPU gives a batch every bit of the CPU's, and so of Pillow's."""
    batches = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(0)
        batch = cuaug.decode(paths, chain, device=device)
        batches.append((batch[0] if isinstance(batch, tuple) else batch).cpu())
    return torch.equal(*batches)


def main() -> None:
    args = options(__doc__, data="photos", files=512, batch_size=128, threads=6).parse_args()
    result: dict[str, Any] = gpu_circumstances([])
    print(f"{result['device']}, driver {result['driver']}, torch {result['versions']['torch']}", flush=True)
    paths = write_files(args.data, args.files)
    chain = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize(0.5, 0.2)]
    samples = [(path, number) for number, path in enumerate(paths)]
    start = time.perf_counter()
    loader = cuaug.Loader(
        samples, chain, batch_size=args.batch_size, device="cuda", threads=args.threads, dtype=torch.float16
    )
    epochs = []
    for _ in range(2):  # the first starts the decoder and compiles or loads the kernels
        begin, first, seen = time.perf_counter(), 0.0, []
        for images, labels in loader:
            if not first:
                torch.cuda.synchronize()
                first = time.perf_counter() - begin
            assert images.is_cuda and images.dtype == torch.float16 and images.shape[1:] == (3, 224, 224)
            assert bool(images.isfinite().all()) and 0.05 < float(images.float().std()) < 3, "implausible pixels"
            seen += labels.tolist()
        seconds = time.perf_counter() - begin
        assert sorted(seen) == list(range(len(paths))), "not each file once"
        epochs.append({"images_per_second": round(len(seen) / seconds), "first_batch_seconds": round(first, 3)})
    stats = loader.stats()
    loader.close()
    result |= {"photos": origin(), "files": len(paths), "batch_size": args.batch_size, "threads": args.threads}
    result["same_bits_as_cpu"] = {name: has_same_bits(paths[:64], chain) for name, chain in EXACT.items()}
    print(f"same bits as on the CPU: {result['same_bits_as_cpu']}")
    result |= {"epochs": epochs, "decoded_by": stats.decoded_by, "seconds": round(time.perf_counter() - start, 2)}
    print(stats)
    print(f"epochs: {epochs}; decoded by: {stats.decoded_by}")
    write_json(args.out, result)


if __name__ == "__main__":
    main()
