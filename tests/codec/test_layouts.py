"""kernels/jpeg/nvimgcodec.h declares the same C interface as the header of the installed nvImageCodec."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

from cuaug._runtime.native import KERNEL_DIRECTORY
from cuaug.codec._nvimgcodec_c import FUNCTIONS, _folder

OURS = KERNEL_DIRECTORY / "jpeg/nvimgcodec.h"
# The fields of each structure, after its head. The names are those of nvimgcodec.h, without its prefix.
STRUCTURES = {
    "Properties": ("version", "cudart_version"),
    "InstanceCreateInfo": (
        "load_builtin_modules",
        "load_extension_modules",
        "extension_modules_path",
        "create_debug_messenger",
        "debug_messenger_desc",
        "message_severity",
        "message_category",
    ),
    "ExtensionDesc": ("instance", "id", "version", "ext_api_version", "create", "destroy"),
    "BackendParams": ("load_hint", "load_hint_policy"),
    "Backend": ("kind", "params"),
    "ExecutionParams": (
        "device_allocator",
        "pinned_allocator",
        "max_num_cpu_threads",
        "executor",
        "device_id",
        "pre_init",
        "skip_pre_sync",
        "num_backends",
        "backends",
    ),
    "DecodeParams": ("apply_exif_orientation",),
    "Orientation": ("rotated", "flip_x", "flip_y"),
    "Region": ("ndim", "start", "end", "out_of_bounds_policy", "out_of_bounds_samples"),
    "CodeStreamView": ("image_idx", "region", "bitstream_offset"),
    "ImagePlaneInfo": ("width", "height", "row_stride", "num_channels", "sample_type", "precision"),
    "ImageInfo": (
        "codec_name",
        "color_spec",
        "chroma_subsampling",
        "sample_format",
        "orientation",
        "num_planes",
        "plane_info",
        "buffer",
        "buffer_kind",
        "cuda_stream",
    ),
}
HEAD = ("struct_type", "struct_size", "struct_next")
CONSTANTS = {
    "STATUS_SUCCESS",
    "PROCESSING_STATUS_SUCCESS",
    "BACKEND_KIND_CPU_ONLY",
    "LOAD_HINT_POLICY_IGNORE",
    "DEVICE_CPU_ONLY",
    "COLORSPEC_SRGB",
    "SAMPLEFORMAT_I_RGB",
    "SAMPLE_DATA_TYPE_UINT8",
    "IMAGE_BUFFER_KIND_STRIDED_HOST",
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
    pairs = zip(re.findall(r"int32_t \(\*(\w+)\)", OURS.read_text()), FUNCTIONS, strict=True)
    functions = [
        f"Alike<decltype(nvimgcodec::Functions::{ours}), decltype(&{theirs})>::value" for ours, theirs in pairs
    ]
    layouts = itertools.chain.from_iterable(map(_layout_checks, STRUCTURES))
    done = _compile(tmp_path, [*layouts, *constants, *functions])
    assert done.returncode == 0, done.stderr


def test_every_structure_and_constant_is_compared():
    text = OURS.read_text()
    assert set(re.findall(r"^struct (\w+)", text, re.M)) == {"Head", "Functions", *STRUCTURES}
    assert set(re.findall(r"(\w+) = -?\w+[,;]", text.split("\nconstexpr", 1)[1])) == CONSTANTS
