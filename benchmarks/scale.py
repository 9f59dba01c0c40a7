"""1,000 ranks, 10 million samples and elastic restarts, in one process, without data.

Orders, steps and states are those of `cuaug.sampling`. Requests follow the rules of a remote source's read-ahead:
groups of a quarter of the memory, neighbors within 128 KiB in one request, requests of 4 MiB at most. Storage is a
model: an answer begins after a latency that is uniform in a range, then bytes arrive at 100 MB/s a connection.

    python benchmarks/scale.py --out benchmarks/results/scale.json      # also writes docs/scale/*.svg
"""

from __future__ import annotations

import heapq
import json
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from report import ROOT, circumstances, parse, write_json

from cuaug.sampling import Epoch, Progress, ShardSampler, ShuffledOrder, Steps

SAMPLE_BYTES = 110_000  # a photo of 500 x 375 and its tar header
IMAGES_PER_SECOND = 2_000  # that a rank trains with
BATCH = 128
CONNECTION_BYTES_PER_SECOND = 100e6
GAP, LARGEST, GROUPS = 128 << 10, 4 << 20, 4  # as cuaug's read-ahead
LATENCIES = ((0.02, 0.02), (0.05, 0.05), (0.08, 0.08))
MIXED = (0.02, 0.08)
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
READAHEAD = (0, 16 << 20, 32 << 20, 64 << 20, 128 << 20, 256 << 20, 512 << 20)
#: Ranks after each restart, as parts of the first number; the job dies after these parts of the epoch.
RESTARTS = ((1.0, 0.11), (0.992, 0.3), (0.5, 0.52), (1.0, 0.75), (1.024, 1.0))


def elastic_epoch(sampler: Any, samples: int, ranks: int, batch: int, seed: int = 0) -> dict[str, Any]:
    """Loads an epoch with restarts on other numbers of ranks, and counts each sample.

    Each job continues from the state that the last one saved, through JSON.

    Raises:
        AssertionError: a sample was lost or came twice, or ranks disagree on the number of steps.
    """
    counts = np.zeros(samples, dtype=np.uint8)
    state: Any = None
    jobs = []
    for share, until in RESTARTS:
        world = max(1, round(ranks * share))
        progress = Progress(sampler, samples, seed, None)
        if state is not None:
            progress.load_state_dict(json.loads(state))
        epoch, start = progress.begin()
        steps = [Steps(samples, batch, "partial", rank=r, world_size=world, start=start) for r in range(world)]
        assert len({len(own) for own in steps}) == 1, "all ranks make the same number of steps"
        done = 0
        for step in range(len(steps[0])):
            if steps[0][step].end > until * samples:
                break
            slices = [own[step] for own in steps]
            assert len({one.end for one in slices}) == 1
            for one in slices:
                np.add.at(counts, epoch.indices[one.positions[one.valid]], 1)
            progress.advance(epoch, slices[0].end)
            done += 1
        state = json.dumps(progress.state_dict())
        jobs.append({"ranks": world, "steps": done, "start": start, "end": progress.consumed[1]})
    assert jobs[-1]["end"] == samples and (counts == 1).all(), "each sample comes once"
    return {"jobs": jobs, "state_bytes": len(state), "samples_once": int((counts == 1).sum())}


def cost_of_order(sampler: Any) -> dict[str, float]:
    """Seconds, peak and lasting memory of one epoch's order; each rank pays them."""
    begin = time.process_time()
    sampler.order(0, 1)
    seconds = time.process_time() - begin
    tracemalloc.start()
    order = sampler.order(0, 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"seconds": round(seconds, 2), "peak_MB": round(peak / 1e6), "lasting_MB": round(order.nbytes / 1e6)}


def batches_of_rank(order: np.ndarray, rank: int, ranks: int, limit: int) -> list[np.ndarray]:
    """The sample indices of a rank's first batches."""
    epoch = Epoch(0, 0, order)
    steps = Steps(len(order), BATCH, "drop", rank=rank, world_size=ranks)
    return [epoch.indices[steps[i].positions] for i in range(min(limit, len(steps)))]


def requests_of(
    batches: Sequence[np.ndarray], begins: np.ndarray, shard_of: np.ndarray, readahead: int
) -> list[list[tuple[int, int]]]:
    """(shard, bytes) of each batch's requests; neighbors in a group of batches make one.

    Args:
        begins: (n + 1,) offsets of all samples, one shard after another.
        shard_of: (n,) shard of each sample.
    """
    found: list[list[tuple[int, int]]] = [[] for _ in batches]
    first = 0
    while first < len(batches):
        end, size = first, 0
        while end < len(batches) and (end == first or size < readahead // GROUPS):
            size += int((begins[batches[end] + 1] - begins[batches[end]]).sum())
            end += 1
        samples = np.concatenate(batches[first:end])
        numbers = np.repeat(np.arange(first, end), [len(batch) for batch in batches[first:end]])
        by_place = np.argsort(samples, kind="stable")
        open_request: list[int] | None = None  # shard, begin, end, the first batch that needs it
        done: list[list[int]] = []
        for i in by_place.tolist():
            sample, number = int(samples[i]), int(numbers[i])
            shard, begin, stop = int(shard_of[sample]), int(begins[sample]), int(begins[sample + 1])
            if (
                open_request is not None
                and open_request[0] == shard
                and begin - open_request[2] <= GAP
                and stop - open_request[1] <= LARGEST
            ):
                open_request[2], open_request[3] = stop, min(open_request[3], number)
            else:
                open_request = [shard, begin, stop, number]
                done.append(open_request)
        for shard, begin, stop, number in done:
            found[number].append((shard, stop - begin))
        first = end
    return found


def simulate(
    requests: Sequence[Sequence[int]],
    connections: int,
    latency: tuple[float, float],
    readahead: int,
    images_per_second: float,
    rng: np.random.Generator,
) -> dict[str, float]:
    """One rank's reads against the model of storage.

    Args:
        requests: sizes in bytes of each batch's requests, in order.
        latency: (min, max) seconds.
        readahead: bytes that may be requested before their batch is taken. A batch is always requested whole.
        images_per_second: of training; infinite to learn what storage can give.

    Returns:
        "stalled": part of the time in which training waits, after the first batch. "images_per_second": reached.
        "first_batch_seconds".
    """
    free = [0.0] * connections
    heapq.heapify(free)
    taken = [0.0]  # taken[k]: when k batches have been taken
    sums = [0]  # bytes of the first k batches
    claimed, freed, stalled = 0, 0, 0.0
    compute = BATCH / images_per_second
    first_batch = 0.0
    for number, sizes in enumerate(requests):
        ready = 0.0
        for size in sizes:
            claimed += size
            while freed < number and claimed - sums[freed] > readahead:
                freed += 1
            begin = max(heapq.heappop(free), taken[freed])
            end = begin + rng.uniform(*latency) + size / CONNECTION_BYTES_PER_SECOND
            heapq.heappush(free, end)
            ready = max(ready, end)
        wanted = taken[-1] + (compute if number else 0.0)
        if number:
            stalled += max(0.0, ready - wanted)
        else:
            first_batch = ready
        taken.append(max(ready, wanted))
        sums.append(claimed)
    seconds = taken[-1] - first_batch
    return {
        "stalled": round(stalled / seconds, 4),
        "images_per_second": round((len(requests) - 1) * BATCH / seconds),
        "first_batch_seconds": round(first_batch, 3),
    }


def layouts(samples: int) -> dict[str, tuple[Any, int]]:
    """Orders to compare: (sampler, samples per shard)."""
    gib, small = (1 << 30) // SAMPLE_BYTES, (64 << 20) // SAMPLE_BYTES

    def sizes(count: int) -> list[int]:
        return [count] * (samples // count) + ([samples % count] if samples % count else [])

    return {
        "full shuffle, 1 GiB shards": (ShuffledOrder(samples), gib),
        "window 10,000, 1 GiB shards": (ShardSampler(sizes(gib)), gib),
        "window 128, 1 GiB shards": (ShardSampler(sizes(gib), window=BATCH), gib),
        "window 128, 64 MiB shards": (ShardSampler(sizes(small), window=BATCH), small),
        "window 16, 64 MiB shards": (ShardSampler(sizes(small), window=16), small),
    }


def placement(
    order: np.ndarray, ranks: int, per_shard: int, readahead: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Requests of a sample of ranks, the shards that one step of all ranks reads, and what storage gives a rank."""
    sizes = rng.lognormal(np.log(SAMPLE_BYTES) - 0.125, 0.5, len(order)).astype(np.int64)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    shard_of = np.arange(len(order)) // per_shard
    step = order[: min(ranks * BATCH, len(order))]
    per_step = np.bincount(shard_of[step])
    chosen = sorted({0, ranks // 3, ranks - 1})
    requests = [requests_of(batches_of_rank(order, r, ranks, 40), begins, shard_of, readahead) for r in chosen]
    images = BATCH * sum(map(len, requests))
    flat = [size for rank in requests for batch in rank for _, size in batch]
    wanted = sum(int(sizes[batch].sum()) for r in chosen for batch in batches_of_rank(order, r, ranks, 40))
    own_sizes = [[size for _, size in batch] for batch in requests[0]]
    per_image = len(flat) / images
    return {
        "requests_per_image": round(per_image, 3),
        "requests_per_second_per_rank": round(per_image * IMAGES_PER_SECOND, 1),
        "requests_per_second": round(per_image * IMAGES_PER_SECOND * ranks),
        "MB_per_second_per_rank": round(sum(flat) / images * IMAGES_PER_SECOND / 1e6),
        "bytes_read_per_byte_used": round(sum(flat) / wanted, 3),
        "shards_per_step": int((per_step > 0).sum()),
        "requests_per_second_of_busiest_shard": round(
            per_step.max() / len(step) * per_image * IMAGES_PER_SECOND * ranks
        ),
        "GB_per_second_of_busiest_shard": round(
            float(per_step.max() / len(step) * sum(flat) / images * IMAGES_PER_SECOND * ranks / 1e9), 2
        ),
        "by_connections": {
            f"{low * 1000:.0f} ms": {
                n: simulate(own_sizes, n, (low, high), readahead, float("inf"), rng)["images_per_second"]
                for n in CONNECTIONS
            }
            for low, high in LATENCIES
        },
        "by_readahead": {
            f"{n} connections": {
                readahead >> 20: simulate(own_sizes, n, MIXED, readahead, IMAGES_PER_SECOND, rng)
                for readahead in READAHEAD
            }
            for n in (16, 128)
        },
    }


def draw(result: dict[str, Any], folder: Path) -> None:
    """Writes the plots."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cuaug"})
    folder.mkdir(parents=True, exist_ok=True)
    shown = ("full shuffle, 1 GiB shards", "window 16, 64 MiB shards")

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    for name, style in zip(shown, ("--", "-"), strict=True):
        for (latency, rates), color in zip(
            result["layouts"][name]["by_connections"].items(), ("#2a7f62", "#c28f2c", "#a33b3b"), strict=True
        ):
            axes.plot(
                list(rates), list(rates.values()), style, color=color, label=f"{name.partition(',')[0]}, {latency}"
            )
    axes.axhline(IMAGES_PER_SECOND, color="#44505a", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="connections of a rank", ylabel="images a second from storage")
    axes.set_xticks(CONNECTIONS, [str(n) for n in CONNECTIONS], minor=False)
    axes.legend(fontsize="small", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "connections.svg", metadata={"Date": None})

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    for name, style in zip(shown, ("--", "-"), strict=True):
        for (connections, rows), color in zip(
            result["layouts"][name]["by_readahead"].items(), ("#a33b3b", "#2a7f62"), strict=True
        ):
            waits = [100 * row["stalled"] for row in rows.values()]
            axes.plot(
                range(len(rows)), waits, style + "o", color=color, label=f"{name.partition(',')[0]}, {connections}"
            )
    axes.set_xticks(range(len(READAHEAD)), [str(size >> 20) for size in READAHEAD])
    axes.set(xlabel="read-ahead, MiB", ylabel="time that training waits, %", ylim=(0, 100))
    axes.legend(fontsize="small", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "readahead.svg", metadata={"Date": None})
    pyplot.close("all")


def main() -> None:
    args = parse(__doc__, samples=10_000_000, ranks=1_000)
    rng = np.random.default_rng(0)
    result: dict[str, Any] = circumstances(["numpy", "torch"])
    result["settings"] = {key: value for key, value in vars(args).items() if key != "out"}
    result["layouts"] = {}
    for name, (sampler, per_shard) in layouts(args.samples).items():
        row = {"order": cost_of_order(sampler)}
        if per_shard > 1_000:  # the sampler of small shards is the same class
            begin = time.process_time()
            row["elastic"] = elastic_epoch(sampler, args.samples, args.ranks, BATCH)
            row["elastic"]["seconds"] = round(time.process_time() - begin, 1)
        row |= placement(sampler.order(0, 0), args.ranks, per_shard, 256 << 20, rng)
        result["layouts"][name] = row
        print(name)
        for key, value in row.items():
            print(f"    {key}: {value}")
    begin = time.perf_counter()
    steps = Steps(args.samples, BATCH, "drop", rank=args.ranks // 2, world_size=args.ranks)
    count = sum(1 for _ in steps)
    result["microseconds_per_step_and_rank"] = round((time.perf_counter() - begin) / max(count, 1) * 1e6, 1)
    print("microseconds per step and rank:", result["microseconds_per_step_and_rank"])
    if args.out:
        write_json(args.out, result)
        draw(result, ROOT / "docs" / "scale")


if __name__ == "__main__":
    main()
