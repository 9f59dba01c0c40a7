"""Values of Arrow columns: encoded images, and labels of any type."""

from __future__ import annotations

from typing import Any

import numpy as np

from cuaug._runtime.extras import require_module
from cuaug.errors import DecodeError, SourceError

__all__ = ["check_label_type", "image_bytes", "is_image_type", "to_hashable", "to_label"]


def is_image_type(kind: Any) -> bool:
    """Whether a column of this type holds encoded images: binary, or Hugging Face's struct {bytes, path}."""
    types = require_module("pyarrow", "parquet").types
    if types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and is_image_type(kind.field(index).type)
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)


def image_bytes(value: Any) -> bytes:
    """The encoded image of a scalar.

    Raises:
        DecodeError: it is null.
    """
    is_struct = value.is_valid and isinstance(value.type, require_module("pyarrow", "parquet").StructType)
    data = value["bytes"] if is_struct else value
    if data.is_valid:
        return data.as_py()
    path = _to_python(value["path"], "path") if is_struct and value.type.get_field_index("path") >= 0 else None
    hint = "" if path is None else f": the file holds only its path, {path!r:.200}, and is not followed"
    raise DecodeError(f"the image is null{hint}")


def check_label_type(kind: Any, where: str) -> None:
    """Refuses a column's type of which no value can be a label.

    Raises:
        SourceError: a struct has two fields of one name, or a time zone is unknown.
    """
    arrow = require_module("pyarrow", "parquet")
    if arrow.types.is_timestamp(kind):
        try:
            arrow.scalar(0, kind).as_py()
        except Exception as error:  # pyarrow raises errors of several kinds
            raise SourceError(f"{where} has the type {kind}, which cannot be converted: {error}") from error
    fields = [kind.field(i) for i in range(kind.num_fields)]
    if arrow.types.is_struct(kind) and len({field.name for field in fields}) < len(fields):
        raise SourceError(f"{where} has the type {kind}, two fields of one name: write the file with different names")
    for field in fields:
        check_label_type(field.type, where)


def to_label(value: Any, name: str) -> Any:
    """A scalar as a label: numbers, bools and text as in Python; lists of numbers as arrays; structs as dicts.

    Raises:
        DecodeError: it is null, a list holds null, or Python has no such value: a year beyond 9999, text that is no
            UTF-8.
    """
    if not value.is_valid:
        raise DecodeError(f"label {name!r} is null")
    types, kind = require_module("pyarrow", "parquet").types, value.type
    if types.is_struct(kind):
        return {field.name: to_label(value[field.name], f"{name}.{field.name}") for field in kind}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _to_list(value.values, name)
    return _to_python(value, f"label {name!r}")


def _to_python(value: Any, what: str) -> Any:
    """The Python value of a scalar.

    Raises:
        DecodeError: it has none.
    """
    arrow = require_module("pyarrow", "parquet")
    try:
        result = value.as_py()
        # Times of day wrap, and lose nanoseconds.
        is_exact = not arrow.types.is_time(value.type) or value.equals(arrow.scalar(result, value.type))
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what} is no UTF-8 text: {error}") from error
    except Exception as error:  # pyarrow raises errors of several kinds
        raise DecodeError(f"{what} is a {value.type} without a counterpart in Python: {error}") from error
    if not is_exact:
        raise DecodeError(f"{what} is a {value.type} without a counterpart in Python")
    return result


def _to_list(values: Any, name: str) -> Any:
    """An array (n, ...) of numbers, or a list where items are no numbers or differ in length."""
    types, kind = require_module("pyarrow", "parquet").types, values.type
    if values.null_count:
        raise DecodeError(f"label {name!r} holds null")
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return np.array(values.to_numpy(zero_copy_only=False))  # a copy: a view would keep the row group in memory
    if types.is_fixed_size_list(kind) and not len(values):
        return _empty(kind)
    items = [to_label(value, name) for value in values]
    shapes = {item.shape if isinstance(item, np.ndarray) else None for item in items}
    return np.stack(items) if len(shapes) == 1 and None not in shapes else items


def _empty(kind: Any) -> Any:
    """No items of a list type of fixed size: of boxes an array (0, 4), of masks (0, H, W); of text a list."""
    types, sizes = require_module("pyarrow", "parquet").types, [0]
    while types.is_fixed_size_list(kind):
        sizes.append(kind.list_size)
        kind = kind.value_type
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return np.empty(sizes, kind.to_pandas_dtype()) if is_number else []


def to_hashable(column: Any) -> Any:
    """A column as an array of numbers or a list, for fingerprints."""
    types, kind = require_module("pyarrow", "parquet").types, column.type
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return column.to_numpy() if is_number and not column.null_count else column.to_pylist()
