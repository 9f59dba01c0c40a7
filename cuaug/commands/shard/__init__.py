"""`cuaug shard` writes the samples of any source as tars in WebDataset's layout.

build.py          builds a set of shards; a killed run is resumed by running it again
writers.py        the files of a set of shards, and the manifest, which knows each by size and SHA-256
shard_samples.py  encodes the samples of a source as the files of a shard: an image and a label
"""

from __future__ import annotations

import argparse
from typing import Any, TextIO

from cuaug._runtime.cpus import allowed_cpus
from cuaug.cache.cache_limits import format_bytes
from cuaug.codec.jpegtran import check_jpegtran
from cuaug.commands.open_paths import open_paths
from cuaug.commands.progress_bar import Progress
from cuaug.commands.shard.build import Builder
from cuaug.commands.shard.shard_samples import SampleEncoder
from cuaug.commands.shard.writers import Manifest, ShardNames, describe_source, open_files
from cuaug.errors import CuaugError, DecodeError, SourceError

__all__ = ["shard"]


def shard(options: argparse.Namespace, out: TextIO, errors: TextIO) -> int:
    """Runs the command: prints the outcome and returns the exit status."""
    progress = Progress(errors, unit="samples")
    try:
        return _shard(options, out, errors, progress)
    except (CuaugError, OSError) as error:
        progress.clear()
        print(f"cuaug shard: {error}", file=errors)
        return 1


def _shard(options: argparse.Namespace, out: TextIO, errors: TextIO, progress: Progress) -> int:
    names = ShardNames(options.out)
    source = open_paths(options.source, {"frames": 1, "sampling": "uniform"}, _fields(options))
    if getattr(source, "clip_sampler", None) is not None:
        raise SourceError("SOURCE holds videos: shards are made of images")
    if options.restart_markers:
        check_jpegtran(options.jpegtran)
    arguments = {
        "--image": options.image,  # before SOURCE, which differs with them
        "--label": options.label,
        "SOURCE": describe_source(source),
        "OUT": names.shard(0),
        "--size": options.size,
        "--short-side": options.short_side,
        "--restart-markers": options.restart_markers,
        "--shuffle": options.shuffle,
    }

    def on_sample(index: int, error: DecodeError | None, unmarked: str) -> None:
        if error is not None:
            progress.clear()
            print(f"cuaug shard: sample {index} is left out: {error}", file=errors)
        if unmarked:
            progress.clear()
            print(f"cuaug shard: sample {index} gets no restart markers: {unmarked}", file=errors)
        progress.advance()

    encoder = SampleEncoder(source, options.short_side, options.jpegtran if options.restart_markers else None)
    with open_files(names.folder) as files:
        builder = Builder(
            encoder,
            names,
            files,
            arguments,
            threads=options.threads or allowed_cpus()[0],
            skip_damaged=options.on_error == "skip",
            on_sample=on_sample,
        )
        _build(builder, out, progress)
    print(f"{names.folder / names.manifest}: {_summary(builder.manifest)}", file=out)
    return 0


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of the source that --image and --label give."""
    fields: dict[str, Any] = {} if options.image is None else {"image": options.image}
    if options.label is not None:
        several = len(options.label) > 1
        fields["label"] = options.label if several else options.label[0] or None
    return fields


def _build(builder: Builder, out: TextIO, progress: Progress) -> None:
    """Makes the missing shards, and completes the manifest."""
    spans = map(builder.manifest.span, builder.missing)
    progress.total = sum(span.stop - span.start for span in spans)
    for number in builder.missing:
        entry = builder.make_shard(number)
        progress.clear()
        print(f"{entry['name']}: {entry['samples']:,} samples, {format_bytes(entry['bytes'])}", file=out)
    builder.finish()


def _summary(manifest: Manifest) -> str:
    left_out = sum(len(entry["skipped"]) for entry in manifest.shards.values())
    skipped = f", {left_out} left out" if left_out else ""
    total = f"{len(manifest.shards)} shards, {manifest.total('samples'):,} samples{skipped}"
    return f"{total}, {format_bytes(manifest.total('bytes'))}; {manifest.opens_with}"
