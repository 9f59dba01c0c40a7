"""How much a loader slows training: a step on batches from memory, and the same step with loaders.

With a GPU: ResNet-50 (defined below, without torchvision) in mixed precision, with batches from cuaug on the GPU (as it
is; with JPEGs in the GPU's memory; with nvImageCodec), from cuaug on the CPU, and from DALI on the GPU.

A contender that is not installed is left out, and the result says why.

Without a GPU: a small convolutional network on the CPU, with batches from cuaug and its peers. The step and the loader
share the same cores, so the slowdown shows a loader's processor time; no loader can reach the step from memory.

All use the classification chain at 500 x 375. With a GPU an epoch repeats the files until it lasts two turns, so that
its start, without prefetched batches, falls before the timed steps.

    python benchmarks/training_step.py --out benchmarks/results
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import torch
from peers import CONTENDERS, Contender, Task, installed
from peers.dali import DaliOnGpu
from peers.ours import Cuaug
from report import circumstances, gpu_circumstances, in_turns, options, spread, write_json
from suites import prepare
from torch import Tensor, nn

import cuaug

CLASSES = 1000
MEMORY = "in memory"


def convolution(width_in: int, width: int, kernel: int, stride: int = 1, relu: bool = True) -> list[nn.Module]:
    layers = [nn.Conv2d(width_in, width, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(width)]
    return [*layers, nn.ReLU(inplace=True)] if relu else layers


class Bottleneck(nn.Module):
    """Convolutions 1 x 1, 3 x 3 (strided), 1 x 1 to four times the width, and a shortcut."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            *convolution(width_in, width, 1),
            *convolution(width, width, 3, stride),
            *convolution(width, 4 * width, 1, relu=False),
        )
        same = stride == 1 and width_in == 4 * width
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(*convolution(width_in, 4 * width, 1, stride, relu=False))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.block(x) + self.shortcut(x))


def resnet50(first_width: int) -> nn.Module:
    """He et al. 2015 with the stride in the 3 x 3 convolution; 25.6 million weights if the first width is 64."""
    layers, width_in = [*convolution(3, first_width, 7, 2), nn.MaxPool2d(3, 2, 1)], first_width
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = first_width << stage
        for block in range(blocks):
            layers.append(Bottleneck(width_in, width, 2 if stage and not block else 1))
            width_in = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width_in, CLASSES))


def small_network() -> nn.Module:
    """Four strided convolutions: about 0.35 GFLOP per image and step."""
    widths = (3, 32, 64, 128, 256)
    layers = [*convolution(3, 32, 7, 4)]
    for width_in, width in itertools.pairwise(widths[1:]):
        layers += convolution(width_in, width, 3, 2)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES))


def trainer(device: str, width: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A step of stochastic gradient descent, whose loss stays on the device."""
    cuda = device == "cuda"
    torch.backends.cudnn.benchmark = cuda  # usual for training with constant shapes; the warm-up pays for it
    model = (resnet50(width) if cuda else small_network()).to(device, memory_format=torch.channels_last)
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
    """The same batch each time, on the training device."""

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


class CuaugInGpuMemory(CuaugOnGpu):
    """Its JPEGs are in the GPU's memory, encoded, before the first step."""

    def __init__(self, task: Task) -> None:
        super().__init__(task, cache=cuaug.EncodedCache(8 << 30))
        for _ in self.epoch():
            pass


class CuaugByNvimgcodec(CuaugOnGpu):
    def __init__(self, task: Task) -> None:
        super().__init__(task, decode=cuaug.DecodeOptions(decoder="nvimgcodec"))


def contenders_on(device: str) -> dict[str, type[Contender]]:
    if device == "cuda":
        return {
            MEMORY: InGpuMemory,
            "cuaug, CUDA": CuaugOnGpu,
            "cuaug, CUDA, cached": CuaugInGpuMemory,
            "cuaug, CUDA, nvimgcodec": CuaugByNvimgcodec,
            "cuaug, CPU": Cuaug,
            "DALI, CUDA": DaliOnGpu,
        }
    return {MEMORY: InMemory} | {name: CONTENDERS[name] for name in ("cuaug", "dali", "pillow", "opencv")}


def for_ever(contender: Contender) -> Iterator[Any]:
    while True:
        yield from contender.epoch()


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


def measure(
    task: Task,
    kinds: dict[str, type[Contender]],
    device: str,
    step: Callable[..., Tensor],
    repetitions: int,
    steps: int,
) -> dict[str, Any]:
    """Seconds per step, in turns; each loader continues where its last turn ended."""
    contenders: dict[str, Contender] = {}
    try:
        for name, kind in kinds.items():
            contenders[name] = kind(task)
        calls = {
            name: partial(seconds_per_step, step, for_ever(contender), contender.ahead + 1, steps, device == "cuda")
            for name, contender in contenders.items()
        }
        print("  ms per step:")
        times = in_turns(calls, repetitions, show=lambda seconds: f"{1e3 * seconds:.0f}")
        calls.clear()  # ends the epochs
        decoded_by = {
            name: contender.loader.stats().decoded_by
            for name, contender in contenders.items()
            if isinstance(contender, Cuaug)
        }
    finally:
        for contender in contenders.values():
            contender.close()
    rows = {}
    for name, values in times.items():
        slower = [100 * (value / base - 1) for value, base in zip(values, times[MEMORY], strict=True)]
        rows[name] = {"ms": spread(1e3 * value for value in values), "slower_percent": spread(slower)}
        rows[name]["images_per_second"] = spread(task.batch_size / value for value in values)
        if name in decoded_by:
            rows[name]["decoded_by"] = decoded_by[name]
    return rows


def main() -> None:
    parser = options(
        __doc__,
        data="photos",
        out="write training_step_DEVICE.json into this folder",
        threads=(2, "of a loader, or worker processes"),
        repetitions=3,
        files=(2048, "with a GPU"),
        passes=(16, "uses of each file per epoch, with a GPU"),
        size=(224, "height and width of the network's input, with a GPU"),
        width=(64, "the first channels of ResNet-50, with a GPU"),
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, help="default: 64, with a GPU 256")
    parser.add_argument("--steps", type=int, help="timed steps per turn; default: 8, with a GPU 60")
    args = parser.parse_args()
    cuda = args.device == "cuda"
    batch_size, steps = args.batch_size or (256 if cuda else 64), args.steps or (60 if cuda else 8)

    result: dict[str, Any]
    if cuda:
        result = gpu_circumstances([DaliOnGpu.package, "nvidia-dali-cuda130"])
    else:
        result = circumstances(["torch", "cuaug", CONTENDERS["dali"].package, "pillow"]) | {"device": "cpu"}
    result["settings"] = {"threads": args.threads, "batch_size": batch_size, "steps": steps}
    if cuda:
        result["settings"] |= {"width": args.width, "size": args.size}
    result["network"] = "ResNet-50, mixed precision" if cuda else "four convolutions, float32"
    if cuda:
        from gpu_photos import origin, write_files

        result["photos"] = origin()
        files = write_files(args.data, args.files)[: args.files // batch_size * batch_size] * args.passes
        samples = tuple((path, number) for number, path in enumerate(files))
        task = Task(samples, batch_size, args.size, args.threads)
    else:
        task = prepare(args.data, "500x375", batch_size, args.threads, None)
    kinds, result["left_out"] = installed(contenders_on(args.device))
    rows = result["step"] = measure(task, kinds, args.device, trainer(args.device, args.width), args.repetitions, steps)
    print(f"  {'':24}{'ms per step':>12}{'images/s':>10}{'slower by':>11}{'min - max':>17}")
    for name, row in rows.items():
        slower = row["slower_percent"]
        print(
            f"  {name:24}{row['ms']['median']:12.1f}{row['images_per_second']['median']:10.0f}"
            f"{slower['median']:10.1f}%{slower['min']:9.1f} -{slower['max']:5.1f}%"
        )
    write_json(args.out, result, f"training_step_{args.device}.json")


if __name__ == "__main__":
    main()
