"""Where a loader's time goes, from the command line: `cuaug profile`."""

from __future__ import annotations

import argparse
import os
from typing import TextIO

from torch.utils.data import RandomSampler

from cuaug.commands.preview import chain_of
from cuaug.errors import CuaugError
from cuaug.loader import Loader
from cuaug.sources import open_source
from cuaug.sources.files import EXTENSIONS

__all__ = ["profile"]


def profile(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """The command: prints the table, and returns the exit status. What is wrong is said in one line on `errors`."""
    one = options.files[0] if len(options.files) == 1 else ""
    try:
        source = open_source(one if one and not _is_picture(one) else options.files)
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


def _is_picture(path: str) -> bool:
    return path.lower().endswith(EXTENSIONS) and not os.path.isdir(path)
