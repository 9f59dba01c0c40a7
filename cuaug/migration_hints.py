"""Arguments and attributes of other libraries' loaders, and their counterparts in a `Loader`."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

__all__ = ["LOADER_ARGUMENTS", "LOADER_ATTRIBUTES", "suggest_arguments"]

Function = TypeVar("Function", bound=Callable[..., Any])

_THREADS = "threads= sets their number; they are threads, not processes"
_EPOCHS = "not needed: each `for` loop is the next epoch"
_LAST = 'last_batch="drop", "partial" (the default) or "pad"'
_ON_DEVICE = "not needed: images and labels are on the Loader's device"
_RANK = "not needed under torchrun; else rank= and world_size="
LOADER_ARGUMENTS = {
    # cuaug.DecodeOptions
    "apply_exif": "decode=cuaug.DecodeOptions(apply_exif=False)",
    "decode_threads": "decode=cuaug.DecodeOptions(decode_threads=4)",
    "decoder": 'decode=cuaug.DecodeOptions(decoder="nvimgcodec")',
    "fancy_upsampling": "decode=cuaug.DecodeOptions(fancy_upsampling=False)",
    "index_bytes": "decode=cuaug.DecodeOptions(index_bytes=0)",
    "load_hint": "decode=cuaug.DecodeOptions(load_hint=1.0)",
    "lossy": "decode=cuaug.DecodeOptions(lossy=True)",
    "max_bytes": "decode=cuaug.DecodeOptions(max_bytes=100_000_000)",
    "max_pixels": "decode=cuaug.DecodeOptions(max_pixels=50_000_000)",
    "mode": 'decode=cuaug.DecodeOptions(mode="unchanged")',
    "video_decoder": 'decode=cuaug.DecodeOptions(video_decoder="nvdec")',
    # torch.utils.data.DataLoader
    "batch_sampler": "sampler= and batch_size=",
    "dataset": "files, the first argument, accepts a Dataset too",
    "drop_last": 'last_batch="drop" leaves out an incomplete last batch; "partial" (the default) keeps it',
    "generator": "seed= seeds all random numbers",
    "in_order": "not needed: batches come in order",
    "multiprocessing_context": _THREADS,
    "num_workers": _THREADS,
    "persistent_workers": "not needed: threads live as long as the Loader",
    "pin_memory": _ON_DEVICE,
    "pin_memory_device": _ON_DEVICE,
    "prefetch_factor": "prefetch=, in batches",
    "timeout": "timeout_seconds=",
    "worker_init_fn": "not needed: random numbers depend on seed= and the sample, not on threads",
    # torchvision's data sets
    "root": "files, the first argument, is the folder",
    "transform": "transforms=",
    "target_transform": "collate_fn=, or labels from your own source",
    # DALI's pipelines, readers and iterators
    "auto_reset": _EPOCHS,
    "device_id": 'device="cuda:0", "cuda:1", ...',
    "file_list": "files, the first argument, accepts the name of a list file",
    "file_root": "files, the first argument, is the folder",
    "hw_decoder_load": "decode=cuaug.DecodeOptions(load_hint=1.0)",
    "initial_fill": "not needed: shuffle=True shuffles the whole epoch",
    "last_batch_policy": _LAST,
    "num_shards": _RANK,
    "num_threads": "threads=, and on a GPU decode=cuaug.DecodeOptions(decode_threads=4)",
    "pad_last_batch": 'last_batch="pad"',
    "prefetch_queue_depth": "prefetch=, in batches",
    "random_shuffle": "shuffle=True",
    "shard_id": _RANK,
    # FFCV's Loader
    "distributed": _RANK,
    "order": "shuffle=True, or sampler=",
    "os_cache": 'cache="encoded" keeps encoded files in memory, "decoded" keeps pixels',
    "pipelines": "transforms=, for the images",
}

#: Attributes of DataLoader and of tensors that a Loader lacks.
LOADER_ATTRIBUTES = {
    **dict.fromkeys(("to", "cuda", "cpu"), "batches are made on Loader(device=...); batch.to(device) moves a batch"),
    "collate_fn": "Loader(collate_fn=...) merges labels",
    "generator": "see loader.seed",
    "imgs": "see loader.source.paths and loader.source.labels",
    "persistent_workers": "threads live as long as the Loader",
    "prefetch_factor": "see loader.prefetch, in batches",
    "samples": "see loader.source.paths and loader.source.labels",
    "targets": "loader.source.label(i) gives each label, where the source stores labels",
    "timeout": "see loader.timeout_seconds",
    "worker_init_fn": "there are no worker processes",
}


def suggest_arguments(replacements: Mapping[str, str]) -> Callable[[Function], Function]:
    """Decorates an `__init__` to raise a TypeError that names the replacement of a foreign or misspelled argument."""

    def decorate(init: Function) -> Function:
        own = inspect.signature(init).parameters

        def hint(name: str) -> str | None:
            """What to write instead of an argument that there is not; None if nothing is like it."""
            similar = difflib.get_close_matches(name, [name for name in own if name != "self"], n=1, cutoff=0.8)
            return replacements.get(name) or (f"do you mean {similar[0]}=?" if similar else None)

        @functools.wraps(init)
        def checked(self: Any, *args: Any, **options: Any) -> None:
            hints = {name: hint(name) for name in options if name not in own}
            foreign = [f"{name!r}: {text}" for name, text in hints.items() if text]
            if foreign:
                raise TypeError(f"{type(self).__name__} has no argument {'; nor '.join(foreign)}")
            init(self, *args, **options)

        return cast(Function, checked)

    return decorate
