"""Arguments that other libraries' loaders have, and what to give a `Loader` in their place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

__all__ = ["LOADER_ARGUMENTS", "suggest_arguments"]

Function = TypeVar("Function", bound=Callable[..., Any])

_THREADS = "threads= says how many; they are threads, not processes"
_EPOCHS = "not needed: each `for` is the next epoch"
_LAST = 'last_batch="drop", "partial" (the default) or "pad"'
_ON_DEVICE = "not needed: images come on the Loader's device"
_RANK = "not needed under torchrun; else rank= and world_size="
LOADER_ARGUMENTS = {
    # torch.utils.data.DataLoader
    "batch_sampler": "sampler= and batch_size=",
    "dataset": "files, the first argument, takes a Dataset, too",
    "drop_last": 'last_batch="drop" leaves out what fills no batch; "partial" (the default) does not',
    "generator": "seed= decides what is drawn",
    "in_order": "not needed: batches come in order",
    "multiprocessing_context": _THREADS,
    "num_workers": _THREADS,
    "persistent_workers": "not needed: threads live as long as the Loader",
    "pin_memory": _ON_DEVICE,
    "pin_memory_device": _ON_DEVICE,
    "prefetch_factor": "prefetch=, in batches",
    "timeout": "timeout_seconds=",
    "worker_init_fn": "not needed: what is drawn depends on seed= and the sample, not on threads",
    # torchvision's data sets
    "root": "files, the first argument, is the folder",
    "transform": "transforms=",
    "target_transform": "collate_fn=, or the labels of a source of your own",
    # DALI's pipelines, readers and iterators
    "auto_reset": _EPOCHS,
    "device_id": 'device="cuda:0", "cuda:1", ...',
    "file_list": "files, the first argument, takes a list file's name",
    "file_root": "files, the first argument, is the folder",
    "hw_decoder_load": "load_hint=",
    "initial_fill": "not needed: shuffle=True shuffles the whole epoch",
    "last_batch_policy": _LAST,
    "num_shards": _RANK,
    "num_threads": "threads=, and on a GPU decode_threads=",
    "pad_last_batch": 'last_batch="pad"',
    "prefetch_queue_depth": "prefetch=, in batches",
    "random_shuffle": "shuffle=True",
    "shard_id": _RANK,
    # FFCV's Loader
    "distributed": _RANK,
    "order": "shuffle=True, or sampler=",
    "os_cache": 'cache="encoded" keeps files in memory, "decoded" pixels',
    "pipelines": "transforms=, of the images",
}


def suggest_arguments(instead: Mapping[str, str]) -> Callable[[Function], Function]:
    """Has a class's `__init__` say what to use instead of arguments that it does not have.

    Raises:
        TypeError: when it is called with some of these.
    """

    def told(init: Function) -> Function:
        own = inspect.signature(init).parameters

        @functools.wraps(init)
        def checked(self: Any, *args: Any, **options: Any) -> None:
            foreign = [f"{name!r}: {instead[name]}" for name in options if name not in own and name in instead]
            if foreign:
                raise TypeError(f"{type(self).__name__} has no argument {'; nor '.join(foreign)}")
            init(self, *args, **options)

        return cast(Function, checked)

    return told
