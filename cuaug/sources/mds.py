"""MosaicML's MDS shards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from cuaug.errors import SourceError
from cuaug.sources._record_files import Field, RecordFile, RecordSource, path_below, read_index

__all__ = ["Mds"]


class Mds(RecordSource):
    """Samples in MDS shards of mosaicml-streaming, from a local folder that holds all of them.

        source = cuaug.sources.Mds("imagenet/train", image="image", label="label")
        loader = cuaug.Loader(source, chain, batch_size=256, shuffle=True)

    Images are read as they are stored, in a column of "jpeg", "png", "bytes" or "pil". mosaicml-streaming is not
    needed. Columns of "pkl" can run code and are refused, as are compressed shards without their uncompressed files.

    Args:
        folder: the folder with index.json.
        image: column with the image.
        label: column with the label: a number, text or JSON; a list of columns for dict labels with these keys; None:
            a sample's label is its index.

    Raises:
        LoaderError: the index or a shard is missing, truncated or of another format, or a column is missing or of an
            encoding that is not read.
    """

    def __init__(
        self, folder: str | os.PathLike[str], image: str = "image", label: str | Sequence[str] | None = "label"
    ) -> None:
        folder = os.fspath(folder)
        try:
            shards = read_index(folder)["shards"]
            columns = [_columns(shard) for shard in shards]
            files = [
                RecordFile(
                    path_below(folder, shard["raw_data"]["basename"]),
                    int(shard["samples"]),
                    int(shard["raw_data"]["bytes"]),
                )
                for shard in shards
            ]
        except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise SourceError(f"{folder!r}: index.json is no index of MDS shards: {error!r}") from error
        for shard, file, fields in zip(shards, files, columns, strict=True):
            if shard.get("compression") and not os.path.exists(file.path):
                raise SourceError(f"{file.path!r} is compressed ({shard['compression']}): decompress the shards first")
            if fields != columns[0]:
                raise SourceError(f"{file.path!r} has other columns than {files[0].path!r}")
        super().__init__("mds", files, columns[0] if columns else [], image, label)


def _columns(shard: Any) -> list[Field]:
    if (shard["format"], shard["version"]) != ("mds", 2):
        raise ValueError(f"format {shard['format']!r}, version {shard['version']!r}; MDS version 2 is read")
    columns = zip(shard["column_names"], shard["column_encodings"], shard["column_sizes"], strict=True)
    return [Field(str(name), str(kind), int(size) if size else None) for name, kind, size in columns]
