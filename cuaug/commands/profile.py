"""`cuaug profile`: throughput of a loader, and the time of each stage."""

from __future__ import annotations

import argparse
from typing import TextIO

from torch.utils.data import RandomSampler

from cuaug.commands.open_paths import open_paths
from cuaug.commands.preview import chain_of
from cuaug.errors import CuaugError
from cuaug.loader import Loader

__all__ = ["profile"]


def profile(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """Prints the profile and returns the exit status; errors are one line on `errors`."""
    try:
        source = open_paths(options.files, {"frames": options.frames, "stride": options.stride, "pad": "last"})
        # One epoch, however few the files: the starts of many short ones would dominate the measurement.
        samples = RandomSampler(range(len(source)), num_samples=options.batches * options.batch_size)
        with Loader(
            source,
            chain_of(options.transforms),
            batch_size=options.batch_size,
            sampler=samples,
            device=options.device,
            threads=options.threads,
            prefetch=options.prefetch,
        ) as loader:
            next(iter(loader))  # warm-up: opens decoders
            with loader.profile() as measured:
                for _ in loader:
                    pass
        print(measured, file=out)
        if options.html:
            measured.export_html(options.html)
        if options.trace:
            measured.export_chrome_trace(options.trace)
    except (CuaugError, OSError) as error:
        print(f"cuaug profile: {error}", file=errors)
        return 1
    return 0
