"""LitData's optimized chunks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from cuaug.errors import SourceError
from cuaug.sources._record_files import Field, RecordFile, RecordSource, path_below, read_index

__all__ = ["LitData"]

# Other kinds of these names differ from MDS's.
_KINDS = ("bool", "bytes", "float", "int", "jpeg", "pil", "str")


class LitData(RecordSource):
    """Samples in chunks that `litdata.optimize` wrote, from a local folder that holds all of them.

        source = cuaug.sources.LitData("imagenet/train", image="image", label="label")
        loader = cuaug.Loader(source, chain, batch_size=256, shuffle=True)

    Images are read as they are stored, as "jpeg", "bytes" or "pil". litdata is not needed. Compressed and encrypted
    chunks are refused.

    Args:
        folder: the folder with index.json.
        image: name of the image in a sample. Samples that are dicts have their keys as names, nested ones such as
            "a.b"; samples that are tuples or lists have "0", "1", ....
        label: name of the label: a number, bool or text; a list of names for dict labels with these keys; None: a
            sample's label is its index.

    Raises:
        LoaderError: the index or a chunk is missing, truncated, compressed or encrypted, or a name is missing or of an
            encoding that is not read.
    """

    def __init__(
        self, folder: str | os.PathLike[str], image: str = "image", label: str | Sequence[str] | None = "label"
    ) -> None:
        folder = os.fspath(folder)
        index = read_index(folder)
        try:
            config = index["config"]
            for name in ("compression", "encryption"):
                if config.get(name):
                    raise SourceError(f"{folder!r}: the chunks have {name} ({config[name]}): write them without")
            if config.get("item_loader", "PyTreeLoader") != "PyTreeLoader":
                raise ValueError(f"item_loader is {config['item_loader']!r}")
            names = list(_names(json.loads(config["data_spec"])[1]))
            kinds = [kind.partition(":")[0] for kind in config["data_format"]]
            fields = [
                Field(name, kind if kind in _KINDS else f"LitData {kind}")
                for name, kind in zip(names, kinds, strict=True)
            ]
            files = []
            for chunk in index["chunks"]:
                path = path_below(folder, os.path.basename(chunk["filename"]))
                size = _file_size(path, int(chunk["chunk_bytes"]))
                files.append(RecordFile(path, int(chunk["chunk_size"]), size))
        except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise SourceError(f"{folder!r}: index.json is no index of LitData chunks: {error!r}") from error
        super().__init__("litdata", files, fields, image, label)


def _file_size(path: str, claimed: int) -> int:
    """The size of a chunk; some versions of litdata claim it without the chunk's header."""
    return max(claimed, os.path.getsize(path) if os.path.exists(path) else 0)


def _names(spec: Any, prefix: str = "") -> Iterator[str]:
    """The names of a sample's values, in the order of their storage."""
    if spec["type"] is None:
        yield prefix.removesuffix(".") or "0"
        return
    children = spec["children_spec"]
    keys = json.loads(spec["context"]) if spec["type"].endswith("dict") else range(len(children))
    for key, child in zip(keys, children, strict=True):
        yield from _names(child, f"{prefix}{key}.")
