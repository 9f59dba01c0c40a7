"""How much a loader slows training: a step on batches from memory, and the same step fed by loaders.

With a GPU: ResNet-50 (written out below; torchvision is not needed), mixed precision, fed by cuaug on the GPU, by the
same where only the hardware engine decodes (`load_hint=1`), which leaves the multiprocessors to training, and by cuaug
on the CPU. Without: a small convolutional network on the CPU, fed by cuaug and its peers; there the step and the loader
share the same cores, so what is shown is the processor time that a loader takes from training, and the step from memory
is a bound that no loader can reach. The classification chain at 500 x 375. With a GPU an epoch has each file so often
that it is as long as two turns: it begins, with nothing made ahead, before steps that are not timed.

    python benchmarks/training_step.py --out benchmarks/results
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from end_to_end import prepare
from peers import CONTENDERS, Contender, Task
from peers.ours import Cuaug
from report import Bar, bar_plot, circumstances, spread, write_json
from torch import Tensor, nn

CLASSES = 1000
PASSES = 16  # with a GPU, how often an epoch has each file
MEMORY = "in memory"


def convolution(width_in: int, width: int, kernel: int, stride: int = 1, relu: bool = True) -> list[nn.Module]:
    layers = [nn.Conv2d(width_in, width, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(width)]
    return [*layers, nn.ReLU(inplace=True)] if relu else layers


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 (which strides), 1 x 1 to four times the width, and the way around them."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            *convolution(width_in, width, 1),
            *convolution(width, width, 3, stride),
            *convolution(width, 4 * width, 1, relu=False),
        )
        same = stride == 1 and width_in == 4 * width
        self.around = nn.Identity() if same else nn.Sequential(*convolution(width_in, 4 * width, 1, stride, relu=False))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.block(x) + self.around(x))


def resnet50() -> nn.Module:
    """He et al. 2015 with the stride in the 3 x 3 convolution; 25.6 million weights."""
    layers, width_in = [*convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            layers.append(Bottleneck(width_in, width, 2 if stage and not block else 1))
            width_in = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width_in, CLASSES))


def small_network() -> nn.Module:
    """Four strided convolutions: about 0.35 GFLOP for a step, per image."""
    widths = (3, 32, 64, 128, 256)
    layers = [*convolution(3, 32, 7, 4)]
    for width_in, width in itertools.pairwise(widths[1:]):
        layers += convolution(width_in, width, 3, 2)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES))


def trainer(device: str) -> Callable[[Tensor, Tensor], Tensor]:
    """One step of stochastic gradient descent; its loss stays on the device, so that nothing waits for it."""
    cuda = device == "cuda"
    torch.backends.cudnn.benchmark = cuda  # as training does where shapes stay; the warm-up pays for it
    model = (resnet50() if cuda else small_network()).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device, enabled=cuda)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        images = images.to(device, memory_format=torch.channels_last, non_blocking=True)
        labels = labels.to(device, torch.int64, non_blocking=True) % CLASSES
        with torch.autocast(device, torch.float16 if cuda else torch.bfloat16, enabled=cuda):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


class InMemory(Contender):
    """The same batch again and again, where the training is."""

    name, package, module = MEMORY, "torch", "torch"
    device: ClassVar[str] = "cpu"

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        task = self.task
        batch = torch.randn(task.batch_size, 3, task.size, task.size, device=self.device)
        return itertools.repeat((batch, torch.arange(task.batch_size, device=self.device)))

    def close(self) -> None:
        pass


class InGpuMemory(InMemory):
    device = "cuda"


class CuaugOnGpu(Cuaug):
    device = "cuda"


class CuaugByEngine(CuaugOnGpu):
    load_hint = 1.0


def entrants(device: str) -> dict[str, type[Contender]]:
    if device == "cuda":
        return {MEMORY: InGpuMemory, "cuaug, CUDA": CuaugOnGpu, "cuaug, engine": CuaugByEngine, "cuaug, CPU": Cuaug}
    return {MEMORY: InMemory} | {name: CONTENDERS[name] for name in ("cuaug", "dali", "pillow", "opencv")}


def seconds_per_step(
    step: Callable[..., Tensor], batches: Iterator[Any], untimed: int, steps: int, cuda: bool
) -> float:
    for batch in itertools.islice(batches, untimed):
        loss = step(*batch)
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for batch in itertools.islice(batches, steps):
        loss = step(*batch)
    if cuda:
        torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    if not loss.isfinite():
        raise AssertionError(f"the loss is {loss}")
    return elapsed / steps


def measure(task: Task, kinds: dict[str, type[Contender]], device: str, repetitions: int, steps: int) -> dict[str, Any]:
    """Seconds per step, one turn after the other; each loader runs on from where its last turn ended."""
    step = trainer(device)
    seen: dict[str, list[float]] = {name: [] for name in kinds}
    contenders: dict[str, Contender] = {}
    try:
        for name, kind in kinds.items():
            contenders[name] = kind(task)
        feeds = {
            name: itertools.chain.from_iterable(map(lambda _, one=one: one.epoch(), itertools.count()))
            for name, one in contenders.items()
        }
        for repetition in range(repetitions + 1):
            for name, batches in feeds.items():
                value = seconds_per_step(step, batches, contenders[name].ahead + 1, steps, device == "cuda")
                if repetition:  # the first is the warm-up
                    seen[name].append(value)
            if repetition:
                line = ", ".join(f"{name} {1e3 * values[-1]:.0f}" for name, values in seen.items())
                print(f"  {repetition}/{repetitions}: ms per step: {line}", flush=True)
        feeds.clear()
    finally:
        for contender in contenders.values():
            contender.close()
    rows = {}
    for name, values in seen.items():
        slower = [100 * (value / base - 1) for value, base in zip(values, seen[MEMORY], strict=True)]
        rates = [task.batch_size / value for value in values]
        rows[name] = {"ms": spread([1e3 * value for value in values]), "slower_percent": spread(slower)}
        rows[name]["images_per_second"] = spread(rates)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("bench-data"), help="where the photo set is or goes")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2, help="threads of a loader, or worker processes")
    parser.add_argument("--batch-size", type=int, help="default: 64, with a GPU 256")
    parser.add_argument("--steps", type=int, help="timed steps per turn; default: 8, with a GPU 60")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write training_step_DEVICE.json and a plot into this folder")
    args = parser.parse_args()
    cuda = args.device == "cuda"
    batch_size, steps = args.batch_size or (256 if cuda else 64), args.steps or (60 if cuda else 8)

    result: dict[str, Any] = circumstances(["torch", "cuaug", CONTENDERS["dali"].package, "pillow"])
    result["device"] = torch.cuda.get_device_name() if cuda else "cpu"
    result["settings"] = {"threads": args.threads, "batch_size": batch_size, "steps": steps}
    result["network"] = "ResNet-50, mixed precision" if cuda else "four convolutions, float32"
    task = prepare(args.data, "500x375", batch_size, args.threads, None)
    if cuda:
        task = replace(task, samples=PASSES * task.samples)
    rows = result["step"] = measure(task, entrants(args.device), args.device, args.repetitions, steps)
    print(f"  {'':14}{'ms per step':>12}{'images/s':>10}{'slower by':>11}{'min - max':>17}")
    for name, row in rows.items():
        slower = row["slower_percent"]
        print(
            f"  {name:14}{row['ms']['median']:12.1f}{row['images_per_second']['median']:10.0f}"
            f"{slower['median']:10.1f}%{slower['min']:9.1f} -{slower['max']:5.1f}%"
        )
    if args.out:
        path = args.out / f"training_step_{args.device}.json"
        write_json(path, result)
        bars = [Bar(name, row["ms"], name.startswith("cuaug")) for name, row in rows.items()]
        bar_plot(path.with_suffix(".svg"), f"Training step: {result['network']}", f"ms per {batch_size} images", bars)
        print(f"written to {path}")


if __name__ == "__main__":
    main()
