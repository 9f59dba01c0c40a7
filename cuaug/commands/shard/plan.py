"""Which samples go into which shard, and the record of the finished ones: the plan and the manifest of a set."""

from __future__ import annotations

import json
import re
import string
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cuaug.errors import ArgumentError
from cuaug.sampling.orders import ShuffledOrder
from cuaug.sources import Source, optional_method

__all__ = ["PLAN_FIELDS", "Plan", "ShardNames", "check_fields", "compare_arguments", "describe_source", "read_json"]

_VERSION = 1
#: Types of a plan's fields in JSON.
PLAN_FIELDS: Mapping[str, type] = {"version": int, "arguments": dict, "samples": int, "shards": int}


@dataclass(frozen=True)
class ShardNames:
    """The files of a set, from a pattern such as "out/train-{:05d}.tar".

    Raises:
        LoaderError: the pattern is remote, has no place for the number, or its folder is missing.
    """

    pattern: str

    def __post_init__(self) -> None:
        if "://" in self.pattern:
            raise ArgumentError(f"OUT: {self.pattern!r} is remote: write to a local folder, then upload the files")
        try:
            fields = [
                (field, spec) for _, field, spec, _ in string.Formatter().parse(self.pattern) if field is not None
            ]
            is_valid = (
                len(fields) == 1
                and fields[0][0] == ""
                and re.fullmatch(r"0\d+d?", fields[0][1] or "") is not None
                and self.pattern.count("{") == 1 == self.pattern.count("}")  # no literal "{{"
            )
        except ValueError:
            is_valid = False
        if not is_valid or not self.pattern.endswith((".tar", ".parquet")) or "{" not in Path(self.pattern).name:
            raise ArgumentError(
                f"OUT is {self.pattern!r}: expected a file name with {{:05d}} for the shard's number, and .tar or "
                ".parquet at its end, such as out/train-{:05d}.tar"
            )
        if not self.folder.is_dir():
            raise ArgumentError(f"OUT: there is no folder {str(self.folder)!r}; make it first")

    @property
    def folder(self) -> Path:
        return Path(self.pattern).parent

    @property
    def stem(self) -> str:
        """The name before the number: "train"."""
        return Path(self.pattern).name.partition("{")[0].rstrip("-_.") or "shards"

    @property
    def partial(self) -> Path:
        """The folder of unfinished files."""
        return self.folder / f"{self.stem}.partial"

    @property
    def plan(self) -> Path:
        return self.partial / "plan.json"

    @property
    def manifest(self) -> Path:
        return self.folder / f"{self.stem}.manifest.json"

    @property
    def checksums(self) -> Path:
        return self.folder / f"{self.stem}.crc32"

    def shard(self, number: int) -> Path:
        return Path(self.pattern.format(number))

    def all_of(self, count: int) -> str:
        """The pattern of all shards, which sources expand.

        Raises:
            LoaderError: the numbers need more digits, so that names would not sort.
        """
        first, last = self.pattern.format(0), self.pattern.format(count - 1)
        if len(first) != len(last):
            raise ArgumentError(f"OUT is {self.pattern!r}, which has too few digits for {count} shards")
        spec = re.search(r"\{.*?\}", self.pattern)
        assert spec is not None  # __post_init__ checks it
        numbers = ("{0:" + spec[0][2:]).format(0), ("{0:" + spec[0][2:]).format(count - 1)
        return self.pattern.replace(spec[0], "{" + "..".join(numbers) + "}") if count > 1 else first


@dataclass(frozen=True)
class Plan:
    """Divides the samples into shards.

    Attributes:
        arguments: by name, those that decide the files' bytes.
        samples: in the source.
        shards: number of shards, with as many samples each; counts differ by at most one.
        schema: of Parquet files, else None.
    """

    arguments: Mapping[str, Any]
    samples: int
    shards: int
    schema: str | None

    def order(self) -> np.ndarray:
        """(samples,) the samples in the order of the set."""
        seed = self.arguments["--shuffle"]
        return np.arange(self.samples) if seed is None else ShuffledOrder(self.samples).order(seed, 0)

    def span(self, shard: int) -> slice:
        """The places of a shard's samples in that order."""
        return slice(shard * self.samples // self.shards, (shard + 1) * self.samples // self.shards)

    def to_json(self) -> dict[str, Any]:
        return {"version": _VERSION, **self.__dict__}

    @classmethod
    def read(cls, path: Path, arguments: Mapping[str, Any]) -> Plan:
        """Reads the plan of a set that was begun with these arguments.

        Raises:
            LoaderError: it is damaged, or of other arguments.
        """
        values = read_json(path, PLAN_FIELDS)
        assert values is not None  # no process removes the plan of an unfinished set
        compare_arguments(path, values, arguments)
        plan = cls(arguments, values["samples"], values["shards"], values.get("schema"))
        if plan.samples != arguments["SOURCE"][0] or not 1 <= plan.shards <= plan.samples:
            raise ArgumentError(f"{str(path)!r} is damaged: {plan.shards} shards of {plan.samples} samples")
        return plan


def describe_source(source: Source) -> list[Any]:
    """Number of samples, fingerprint and cache key: they tell sources apart, and a source before and after a change."""
    methods = (optional_method(source, name) for name in ("fingerprint", "cache_key"))
    return [len(source), *(None if method is None else method() for method in methods)]


def compare_arguments(path: Path, stored: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Checks that a set was begun with the same arguments.

    Raises:
        LoaderError: it was not; the message names the first argument that differs.
    """
    if stored.get("version") != _VERSION:
        raise ArgumentError(f"{str(path)!r} is of another version of cuaug: finish the set with that version")
    for name, value in arguments.items():
        before = stored["arguments"].get(name)
        if before != value:
            change = "is another source, or has changed," if name == "SOURCE" else f"is {value!r} now but {before!r}"
            raise ArgumentError(
                f"{name} {change} since these shards were begun ({str(path)!r}): give what was given before, or "
                "another OUT"
            )


def read_json(path: Path, fields: Mapping[str, type]) -> dict[str, Any] | None:
    """The content of a JSON file with these fields; None if there is no such file.

    Raises:
        LoaderError: it is no JSON, or a field is missing or of another type.
    """
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{str(path)!r} is damaged: {error}") from error
    check_fields(path, values, fields)
    return values


def check_fields(path: Path, values: Any, fields: Mapping[str, type]) -> None:
    """Checks the types of a JSON object's fields; integers are sizes or counts.

    Raises:
        LoaderError: a field is missing, of another type or no size, or `values` is no object.
    """
    for name, kind in fields.items():
        value = values.get(name) if isinstance(values, dict) else None
        if not isinstance(value, kind) or (isinstance(value, int) and not 0 <= value <= sys.maxsize):
            raise ArgumentError(f"{str(path)!r} is damaged: {name!r} is missing, or no valid {kind.__name__}")
