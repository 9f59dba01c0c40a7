"""Where a loader's time goes, from the command line: `cuaug profile`."""

from __future__ import annotations

import argparse
import itertools
from typing import TextIO

from cuaug.errors import CuaugError
from cuaug.loader import Loader
from cuaug.preview import chain_of

__all__ = ["profile"]


def profile(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """The command: prints the table, and returns the exit status. What is wrong is said in one line on `errors`."""
    files = options.files[0] if len(options.files) == 1 else options.files
    try:
        with Loader(
            files,
            chain_of(options.transforms),
            batch_size=options.batch_size,
            shuffle=True,
            device=options.device,
            threads=options.threads,
            prefetch=options.prefetch,
        ) as loader:
            next(iter(loader))  # decoders are opened
            with loader.profile() as taken:
                epochs = itertools.chain.from_iterable(itertools.repeat(loader))
                for _ in itertools.islice(epochs, options.batches):
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
