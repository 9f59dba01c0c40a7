"""Where a loader's time goes, from the command line: `cuaug profile`."""

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
    """The command: prints the table, and returns the exit status. What is wrong is said in one line on `errors`."""
    try:
        source = open_paths(options.files)
        # One epoch, however few the files are: beginning many short ones would be most of what is measured.
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
            next(iter(loader))  # decoders are opened
            with loader.profile() as taken:
                for _ in loader:
                    pass
        print(taken, file=out)
        if options.html:
            taken.export_html(options.html)
        if options.trace:
            taken.export_chrome_trace(options.trace)
    except (CuaugError, OSError) as error:
        print(f"cuaug profile: {error}", file=errors)
        return 1
    return 0


def open_paths(paths: list[str]) -> Source:
    """The source of what a command is given: pictures, or one folder, list file, tar, ...

    Raises:
        LoaderError: there is nothing such.
    """
    one = paths[0]
    is_picture = one.lower().endswith(EXTENSIONS) and not os.path.isdir(one)
    return open_source(one if len(paths) == 1 and not is_picture else paths)
