"""The functions and structs of the kernel sources as ctypes types, so that Python repeats no declaration.

The sources keep to what is parsed here: an exported function's parameters end with `) {`; a struct ends with `};` on a
line of its own, and its methods take one line each.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np

_here = Path(__file__).parent.parent
#: The kernel sources: inside an installed wheel, or beside the package in a checkout.
KERNEL_DIRECTORY = _here / "_kernels" if (_here / "_kernels").is_dir() else _here.parent / "kernels"

_TYPES: dict[str, Any] = {
    **{
        "uint8": ctypes.c_uint8,
        "double": ctypes.c_double,
        "float": ctypes.c_float,
        "int": ctypes.c_int32,
        "void": None,
    },
    **{"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "uint32": ctypes.c_uint32},
    **{"int64_t": ctypes.c_int64, "int64": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "uint64": ctypes.c_uint64},
}


def parse_functions(text: str) -> dict[str, tuple[Any, list[Any]]]:
    """Result type and argument types of each EXPORT function; every pointer is a `c_void_p`."""
    found = re.findall(r"^EXPORT ([^()]+) ?(cuaug_\w+)\(([^{]*)\) \{", _without_comments(text), re.MULTILINE)
    return {
        name: (_parameter(result), [_parameter(parameter) for parameter in parameters.split(",") if parameter])
        for result, name, parameters in found
    }


def _parameter(declaration: str) -> Any:
    return ctypes.c_void_p if "*" in declaration else _TYPES[declaration.split()[0]]


def read_struct(header: str, name: str, *inner: type[ctypes.Structure]) -> type[Any]:
    """`parse_struct` of a header in kernels/."""
    return parse_struct((KERNEL_DIRECTORY / header).read_text(), name, *inner)


def parse_struct(text: str, name: str, *inner: type[ctypes.Structure]) -> type[Any]:
    """A struct as a ctypes type. A `char*` takes bytes or an address, every other pointer an address.

    Args:
        inner: the structs of which it has fields.

    Raises:
        KeyError: of the type of a field that is none of these.
    """
    types = _TYPES | {structure.__name__: structure for structure in inner}
    body = _without_comments(text).partition(f"struct {name} {{\n")[2].partition("\n};")[0]
    fields: list[tuple[str, Any]] = []
    for declaration in re.sub(r".*\{.*\}", "", body).split(";")[:-1]:
        kind, declarators = re.fullmatch(r"\s*(?:const )?(\w+)(.*)", declaration, re.DOTALL).groups()  # type: ignore[union-attr]
        for declarator in declarators.split(","):
            field, count = re.search(r"(\w+)(?:\[(\d+)\])?$", declarator).groups()  # type: ignore[union-attr]
            if "*" in declarator:
                field_type: Any = ctypes.c_char_p if kind == "char" else ctypes.c_void_p
            else:
                field_type = types[kind]
            fields.append((field, field_type * int(count) if count else field_type))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def struct_dtype(structure: type[ctypes.Structure]) -> np.dtype[Any]:
    """The struct as a NumPy dtype; an inner struct is a field of its own dtype, a pointer an int64."""
    names = [field[0] for field in structure._fields_]
    return np.dtype(
        {
            "names": names,
            "formats": [_format(field[1]) for field in structure._fields_],
            "offsets": [getattr(structure, name).offset for name in names],
            "itemsize": ctypes.sizeof(structure),
        }
    )


def _format(field_type: Any) -> Any:
    if issubclass(field_type, ctypes.Structure):
        return struct_dtype(field_type)
    return np.int64 if field_type in (ctypes.c_void_p, ctypes.c_char_p) else np.dtype(field_type)


def _without_comments(text: str) -> str:
    return re.sub(r"//.*", "", text)
