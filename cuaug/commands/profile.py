"""`cuaug profile`: throughput of a loader, and the time of each stage."""

from __future__ import annotations

import argparse
import os
from typing import TextIO

from torch.utils.data import RandomSampler

from cuaug.commands.preview import chain_of
from cuaug.errors import CuaugError
from cuaug.loader import Loader
from cuaug.sources import Source, open_source
from cuaug.sources.files import EXTENSIONS

__all__ = ["open_paths", "profile"]


def profile(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """Prints the profile and returns the exit status; errors are one line on `errors`."""
    try:
        source = open_paths(options.files)
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


def open_paths(paths: list[str]) -> Source:
    """The source for a command's paths: image files, or one folder, list file, tar, ...

    Raises:
        LoaderError: a path does not exist or is not supported.
    """
    first = paths[0]
    is_image = first.lower().endswith(EXTENSIONS) and not os.path.isdir(first)
    return open_source(first if len(paths) == 1 and not is_image else paths)
