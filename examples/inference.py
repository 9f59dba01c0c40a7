"""Inference: a batcher that collects images from many threads and answers each.

A service gets images one at a time; a network is fastest on batches. `Batcher` waits a few milliseconds for a batch,
decodes it in parallel with `cuaug.decode`, runs the network once, and hands every caller its own row.

    python examples/inference.py photo.jpg ...
"""

from __future__ import annotations

import argparse
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import cuaug
from cuaug import transforms as T

CHAIN = T.Compose([T.Resize(256), T.CenterCrop(224), T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])


class Request(NamedTuple):
    """An encoded image and the answer that its caller waits for."""

    data: bytes
    answer: Future[Tensor]


class Batcher:
    """Answers images from many threads in batches. A context manager.

    Args:
        model: maps (N, 3, H, W) to N rows; called in one thread.
        transforms: a chain that makes one size.
        max_batch: most images of a batch.
        max_wait: seconds that the first image of a batch waits for others.
    """

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        transforms: T.Transform = CHAIN,
        *,
        max_batch: int = 32,
        max_wait: float = 0.005,
    ) -> None:
        self.model, self.transforms = model, transforms
        self.max_batch, self.max_wait = max_batch, max_wait
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="batcher")
        self._thread.start()

    def __enter__(self) -> Batcher:
        return self

    def __exit__(self, *exception: object) -> None:
        """Answers the requests that have been made, and ends the thread."""
        self._requests.put(None)
        self._thread.join()

    def submit(self, data: bytes) -> Future[Tensor]:
        """The future row of an encoded image; a damaged one raises its `cuaug.DecodeError` there."""
        answer: Future[Tensor] = Future()
        self._requests.put(Request(data, answer))
        return answer

    def _run(self) -> None:
        is_open = True
        while is_open and (first := self._requests.get()) is not None:
            batch, end = [first], time.monotonic() + self.max_wait
            while len(batch) < self.max_batch:
                try:
                    request = self._requests.get(timeout=max(0.0, end - time.monotonic()))
                except queue.Empty:
                    break
                if request is None:
                    is_open = False
                    break
                batch.append(request)
            self._answer(batch)

    def _answer(self, batch: list[Request]) -> None:
        while batch:
            try:
                images = cuaug.decode([request.data for request in batch], self.transforms)
                with torch.inference_mode():
                    rows = self.model(images).cpu()
            except cuaug.DecodeError as error:  # of one image: answer it, and decode the others
                assert error.index is not None
                batch.pop(error.index).answer.set_exception(error)
                continue
            except Exception as error:
                for request in batch:
                    request.answer.set_exception(error)
                return
            for request, row in zip(batch, rows, strict=True):
                request.answer.set_result(row)
            return


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="+", type=Path)
    paths = parser.parse_args(arguments).images
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10)).eval()  # in place of yours
    with Batcher(model) as batcher, ThreadPoolExecutor(8) as clients:
        for path, answer in zip(paths, clients.map(lambda path: batcher.submit(path.read_bytes()), paths), strict=True):
            error = answer.exception()
            print(f"{path}: {error or f'class {int(answer.result().argmax())}'}")


if __name__ == "__main__":
    main()
