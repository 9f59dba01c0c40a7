"""cuaug/plan/layout.py agrees with kernels/plan.h: a C++ program prints sizes, offsets and enumerators.

What the CPU writes for CUDA's kernels, in plan.h and jpeg_batch.h, has one layout for both compilers.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess

import numpy as np
import pytest

from cuaug._runtime.c_headers import KERNEL_DIRECTORY
from cuaug.devices import nvrtc
from cuaug.errors import DeviceError
from cuaug.pipeline import native_work
from cuaug.plan import layout
from cuaug.plan.pass_table import PassTablePointers

STRUCTS = {"Sample": layout.SAMPLE, "Axis": layout.AXIS, "Grid": layout.GRID, "Op": layout.OP}
STRUCTS["YuvImage"] = layout.YUV_IMAGE
INNER = {"Source": "source", "Target": "target", "Padding": "before", "Field": "field", "Statistic": "measure"}
STRUCTS |= {name: layout.SAMPLE[field] for name, field in INNER.items()}
ENUMS = (
    layout.Filter, layout.Antialias, layout.Measure, layout.Neighborhood, layout.Border, layout.Type, layout.Layout,
    layout.OpCode,
)  # fmt: skip
HEADER, JPEG_HEADER = (
    re.sub(r"//.*", "", (KERNEL_DIRECTORY / name).read_text()) for name in ("plan.h", "jpeg_batch.h")
)
JPEG_STRUCTS = re.findall(r"(?<!>\n)struct (?:alignas\(8\) )?(\w+) {", JPEG_HEADER)  # no template
INCLUDES = '#include "plan.h"\n#include "jpeg_batch.h"\n'
CODES = [operation.name for operation in layout.POINT_OPERATIONS]


def body(kind: str, name: str) -> str:
    match = re.search(rf"\b{kind} (?:alignas\(8\) )?{name} {{(.*?)}};", HEADER + JPEG_HEADER, re.DOTALL)
    assert match, f"the headers have no {kind} {name}"
    return match[1]


def field_names(struct: str) -> list[str]:
    return re.findall(r"(\w+)(?:\[\w+\])*\s*[,;]", body("struct", struct))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[str, tuple[int, ...]]:
    """Struct.field -> (offset, size, is_float, is_signed); Struct -> (size, alignment); Enum.NAME -> (value,)."""
    lines = []
    for struct in (*STRUCTS, *JPEG_STRUCTS):
        lines.append(f'printf("{struct} %zu %zu\\n", sizeof({struct}), alignof({struct}));')
        for field in field_names(struct):
            place = f"offsetof({struct}, {field}), sizeof({struct}::{field})"
            element = f"std::remove_all_extents_t<decltype({struct}::{field})>"
            kind = f"std::is_floating_point_v<{element}>, std::is_signed_v<{element}>"
            lines.append(f'printf("{struct}.{field} %zu %zu %d %d\\n", {place}, {kind});')
    for enum in ENUMS:
        names = CODES if enum is layout.OpCode else re.findall(r"\w+", body("enum", enum.__name__))
        for name in names:
            lines.append(f'printf("{enum.__name__}.{name} %d\\n", int({name}));')
    folder = tmp_path_factory.mktemp("layout")
    includes = f"#include <cstddef>\n#include <cstdio>\n#include <type_traits>\n{INCLUDES}"
    (folder / "layout.cpp").write_text(includes + "int main() {\n" + "\n".join(lines) + "\n}\n")
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-Wno-invalid-offsetof", f"-I{KERNEL_DIRECTORY}"]
    subprocess.run([*command, folder / "layout.cpp", "-o", folder / "layout"], check=True)
    printed = subprocess.run([folder / "layout"], check=True, capture_output=True, text=True).stdout
    return {name: tuple(map(int, numbers)) for name, *numbers in map(str.split, printed.splitlines())}


def describe(name: str, dtype: np.dtype) -> dict[str, tuple[int, ...]]:
    """The entries of `compiled` for a struct with this dtype."""
    result: dict[str, tuple[int, ...]] = {name: (dtype.itemsize, dtype.alignment)}
    for field in dtype.names:
        kind, offset = dtype.fields[field][:2]
        if kind.names:  # a struct inside Sample is neither float nor signed
            result[f"{name}.{field}"] = (offset, kind.itemsize, 0, 0)
        else:
            result[f"{name}.{field}"] = (offset, kind.itemsize, kind.base.kind == "f", kind.base.kind in "fi")
    return result


@pytest.mark.parametrize("name", STRUCTS)
def test_every_field_lies_where_the_kernels_read_it(name, compiled):
    header = {key: value for key, value in compiled.items() if key.split(".")[0] == name}
    assert describe(name, STRUCTS[name]) == header


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.__name__)
def test_enumerations_have_the_same_values(enum, compiled):
    header = {key: value for key, value in compiled.items() if key.startswith(f"{enum.__name__}.")}
    assert {f"{enum.__name__}.{member.name}": (member.value,) for member in enum} == header


def test_cuda_has_the_same_layout(compiled, monkeypatch):
    pytest.importorskip("cupy")
    asserts = []
    for name, values in compiled.items():
        struct, _, field = name.partition(".")
        offset = f"__INTADDR__(&(({struct}*)0)->{field})"  # as NVCC's offsetof, which NVRTC lacks
        places = offset, f"sizeof({struct}::{field})"
        measures = places if field else (f"sizeof({struct})", f"alignof({struct})")
        if len(values) > 1:  # else an enumerator
            asserts += [f"static_assert({what} == {value});" for what, value in zip(measures, values, strict=False)]
    headers = nvrtc.sources()[1]

    def compile_for_cuda(lines: str) -> None:
        text = f"namespace cuaug {{\n{INCLUDES}}}\nusing namespace cuaug;\n{lines}"
        monkeypatch.setattr(nvrtc, "sources", lambda *_: (text, headers))
        nvrtc.compile(90)

    compile_for_cuda("\n".join(asserts))
    with pytest.raises(DeviceError, match="static assertion failed"):
        compile_for_cuda(f"static_assert(sizeof(YuvImage) == {layout.YUV_IMAGE.itemsize + 1});")


WORK = ("_BatchWork", "_PlanTables", "_ReadWork", "_RunWork", "_StagingWork")
ROWS = ("_FILE_ROW", "_SAMPLE_ROW", "_ORIGIN", "_REGION")
NATIVE = {"PassTable": PassTablePointers}
NATIVE |= {struct.__name__: struct for struct in (getattr(native_work, name) for name in (*WORK, *ROWS))}


def test_ctypes_structs_have_the_compilers_layout(tmp_path):
    lines = ["#include <cstddef>", '#include "cpu/c_api.cpp"']
    for name, struct in NATIVE.items():
        lines.append(f"static_assert(sizeof({name}) == {ctypes.sizeof(struct)});")
        for field, *_ in struct._fields_:
            place = getattr(struct, field)
            lines.append(f"static_assert(offsetof({name}, {field}) == {place.offset});")
            lines.append(f"static_assert(sizeof({name}::{field}) == {place.size});")
    (tmp_path / "structs.cpp").write_text("\n".join(lines))
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-fsyntax-only", "-Wno-psabi", f"-I{KERNEL_DIRECTORY}"]
    subprocess.run([*command, tmp_path / "structs.cpp"], check=True)
