"""kernels/jpeg/nvimgcodec.h declares the same C interface as the header of the installed nvImageCodec."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

from cuaug._runtime.native import KERNEL_DIRECTORY
from cuaug.codec._nvimgcodec_c import FUNCTIONS, _folder

OURS = KERNEL_DIRECTORY / "jpeg/nvimgcodec.h"
HEAD = ("struct_type", "struct_size", "struct_next")
TEXT = OURS.read_text()
CONSTANTS = re.findall(r"(\w+) = -?\w+[,;]", TEXT.split("\nconstexpr", 1)[1])


def _fields(body: str) -> list[str]:
    """The names of a structure's fields, after its head."""
    without_inner = re.sub(r"{.*?}", "", body, flags=re.DOTALL)
    return re.findall(r"(\w+)(?:\[\d+\])?[,;]", without_inner)


# The fields of each structure. The names are those of nvimgcodec.h, without its prefix.
STRUCTURES = {
    name: _fields(body)
    for name, body in re.findall(r"^struct (\w+) {[^{}]* Head head;\n(.*?)^};", TEXT, re.MULTILINE | re.DOTALL)
}
# Compares the number of arguments of two functions, the size of each, and whether both are pointers or both numbers.
_ALIKE = """
template <class A, class B>
constexpr bool alike_each = sizeof(A) == sizeof(B) && std::is_pointer<A>::value == std::is_pointer<B>::value;
template <class A, class B>
struct Alike : std::false_type {};
template <class A, class B, class... As, class... Bs>
struct Alike<A (*)(As...), B (*)(Bs...)>
    : std::integral_constant<bool, sizeof...(As) == sizeof...(Bs) && alike_each<A, B>> {
    static_assert((alike_each<As, Bs> && ...), "an argument differs");
};
"""


def _compile(folder: Path, checks: list[str]) -> subprocess.CompletedProcess[str]:
    (folder / "cuda_runtime_api.h").write_text("typedef struct CUstream_st* cudaStream_t;\n")  # all that it needs
    source = folder / "check.cpp"
    includes = "<cstddef>", "<cstdint>", "<type_traits>", "<nvimgcodec.h>", f'"{OURS}"'
    lines = [f"#include {name}" for name in includes]
    source.write_text("\n".join([*lines, _ALIKE, *(f"static_assert({check});" for check in checks)]))
    folders = [f"-I{folder}", f"-I{_folder() / 'include'}"]
    command = ["g++", "-std=c++17", "-fsyntax-only", "-w", *folders, str(source)]
    return subprocess.run(command, capture_output=True, text=True)


def _layout_checks(name: str) -> list[str]:
    ours, theirs = f"nvimgcodec::{name}", f"nvimgcodec{name}_t"
    type_name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
    pairs = [(f"head.{field}", field) for field in HEAD] + [(field, field) for field in STRUCTURES[name]]
    offsets = [f"offsetof({ours}, {a}) == offsetof({theirs}, {b})" for a, b in pairs]
    sizes = [f"sizeof({ours}::{field}) == sizeof({theirs}::{field})" for field in STRUCTURES[name]]
    types = f"{ours}::TYPE == NVIMGCODEC_STRUCTURE_TYPE_{type_name}"
    return [types, f"sizeof({ours}) == sizeof({theirs})", *offsets, *sizes]


def test_structures_constants_and_functions_equal_nvimagecodecs(tmp_path):
    constants = [f"nvimgcodec::{name} == int32_t(NVIMGCODEC_{name})" for name in CONSTANTS]
    pairs = zip(re.findall(r"int32_t \(\*(\w+)\)", TEXT), FUNCTIONS, strict=True)
    functions = [
        f"Alike<decltype(nvimgcodec::Functions::{ours}), decltype(&{theirs})>::value" for ours, theirs in pairs
    ]
    layouts = itertools.chain.from_iterable(map(_layout_checks, STRUCTURES))
    done = _compile(tmp_path, [*layouts, *constants, *functions])
    assert done.returncode == 0, done.stderr


def test_every_structure_is_compared():
    assert {"Head", "Functions", *STRUCTURES} == set(re.findall(r"^struct (\w+)", TEXT, re.MULTILINE))
    assert STRUCTURES["Region"] == ["ndim", "start", "end", "out_of_bounds_policy", "out_of_bounds_samples"]
    assert len(STRUCTURES["ImageInfo"]) == 10 and len(CONSTANTS) == 9
