"""`cuaug shard` writes the samples of any source as tars in WebDataset's layout, or as Parquet files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TextIO

from cuaug._runtime.cpu_limits import allowed_cpus
from cuaug._runtime.distributed import own_rank
from cuaug.cache.limits import format_bytes
from cuaug.codec.jpegtran import check_jpegtran
from cuaug.commands.open_paths import open_paths
from cuaug.commands.progress import Progress
from cuaug.commands.shard.build import Builder
from cuaug.commands.shard.partial_files import open_partial_folder
from cuaug.commands.shard.plan import (
    PLAN_FIELDS,
    ShardNames,
    check_fields,
    compare_arguments,
    describe_source,
    read_json,
)
from cuaug.errors import ArgumentError, CuaugError, DecodeError, SourceError
from cuaug.sources._record_files import path_below

__all__ = ["shard"]

# Types of the manifest's fields in JSON, and of its entries'.
_MANIFEST_FIELDS = {**PLAN_FIELDS, "shards": list, "skipped": list, "bytes": int, "opens_with": str}
_ENTRY_FIELDS = {"name": str, "bytes": int}


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
    names, (rank, ranks) = ShardNames(options.out), own_rank()
    source = open_paths(options.source, {"frames": 1, "sampling": "uniform"}, _fields(options))
    if getattr(source, "clip_sampler", None) is not None:
        raise SourceError("SOURCE holds videos: shards are made of images")
    if options.restart_markers:
        check_jpegtran(options.jpegtran)
    arguments = {
        "--image": options.image,  # before SOURCE, which differs with them
        "--label": options.label,
        "SOURCE": describe_source(source),
        "OUT": names.shard(0).name,
        "--size": options.size,
        "--short-side": options.short_side,
        "--restart-markers": options.restart_markers,
        "--checksums": options.checksums,
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

    builder = Builder(
        source,
        names,
        arguments,
        jpegtran=options.jpegtran,
        threads=options.threads or allowed_cpus()[0],
        skip_damaged=options.on_error == "skip",
        on_sample=on_sample,
    )
    with open_partial_folder(names.partial, names.plan, names.manifest):
        manifest = read_json(names.manifest, _MANIFEST_FIELDS)
        if manifest is None:
            manifest = _build(builder, rank, ranks, out, progress)
        else:
            compare_arguments(names.manifest, manifest, arguments)
            _check_files(names, manifest)
    if manifest is None:
        print(f"the shards of rank {rank} are finished; other ranks are at work", file=out)
        return 0
    skipped = f", {len(manifest['skipped'])} left out" if manifest["skipped"] else ""
    total = f"{len(manifest['shards'])} shards, {manifest['samples']:,} samples{skipped}"
    print(f"{names.manifest}: {total}, {format_bytes(manifest['bytes'])}; {manifest['opens_with']}", file=out)
    return 0


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of the source that --image and --label give."""
    fields: dict[str, Any] = {} if options.image is None else {"image": options.image}
    if options.label is not None:
        several = len(options.label) > 1
        fields["label"] = options.label if several else options.label[0] or None
    return fields


def _build(builder: Builder, rank: int, ranks: int, out: TextIO, progress: Progress) -> dict[str, Any] | None:
    """Makes the shards of this rank; returns the manifest if all ranks' are finished."""
    plan = builder.make_plan()
    missing = [number for number in range(rank, plan.shards, ranks) if builder.record(number) is None]
    progress.total = sum(plan.span(number).stop - plan.span(number).start for number in missing)
    for wait in (False, True):  # first the shards that no other process writes
        for number in list(missing):
            record = builder.make_shard(number, wait=wait)
            if record is not None:
                missing.remove(number)
                progress.clear()
                print(f"{record['name']}: {record['samples']:,} samples, {format_bytes(record['bytes'])}", file=out)
    return builder.finish()


def _check_files(names: ShardNames, manifest: dict[str, Any]) -> None:
    """Checks that a finished set has its files.

    Raises:
        LoaderError: a shard is missing or has another size, or the manifest names a file elsewhere.
    """
    for entry in manifest["shards"]:
        check_fields(names.manifest, entry, _ENTRY_FIELDS)
        try:
            path = Path(path_below(str(names.folder), entry["name"]))
        except ValueError as error:
            raise ArgumentError(f"{str(names.manifest)!r} is damaged: {error}") from error
        if not path.is_file() or path.stat().st_size != entry["bytes"]:
            raise SourceError(
                f"{str(path)!r} of a finished set is missing, or has not the {entry['bytes']:,} bytes of the manifest: "
                "restore it, or remove the set and make it again"
            )
