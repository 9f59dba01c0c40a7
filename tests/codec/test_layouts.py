"""kernels/jpeg/nvimgcodec.h says of nvImageCodec's C interface what the header that comes with nvImageCodec says."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

from cuaug._runtime.native import KERNEL_DIRECTORY
from cuaug.codec._nvimgcodec_c import FUNCTIONS, _folder

OURS = KERNEL_DIRECTORY / "jpeg/nvimgcodec.h"
# Of each structure: our kind of it, theirs, and our fields with theirs, after those that all begin with.
STRUCTURES = {
    "Properties": ("PROPERTIES", "Properties", {"version": "version", "cudart_version": "cudart_version"}),
    "Instance": (
        "INSTANCE",
        "InstanceCreateInfo",
        {
            "builtin_modules": "load_builtin_modules",
            "extension_modules": "load_extension_modules",
            "extension_path": "extension_modules_path",
            "messenger": "create_debug_messenger",
            "messages": "debug_messenger_desc",
            "severity": "message_severity",
            "category": "message_category",
        },
    ),
    "Extension": (
        "EXTENSION",
        "ExtensionDesc",
        {
            "instance": "instance",
            "id": "id",
            "version": "version",
            "interface_version": "ext_api_version",
            "create": "create",
            "destroy": "destroy",
        },
    ),
    "BackendParams": ("BACKEND_PARAMS", "BackendParams", {"load_hint": "load_hint", "policy": "load_hint_policy"}),
    "Backend": ("BACKEND", "Backend", {"kind": "kind", "params": "params"}),
    "Execution": (
        "EXECUTION",
        "ExecutionParams",
        {
            "device_allocator": "device_allocator",
            "pinned_allocator": "pinned_allocator",
            "most_threads": "max_num_cpu_threads",
            "executor": "executor",
            "device": "device_id",
            "init_at_once": "pre_init",
            "skip_sync": "skip_pre_sync",
            "backend_count": "num_backends",
            "backends": "backends",
        },
    ),
    "DecodeParams": ("DECODE_PARAMS", "DecodeParams", {"apply_orientation": "apply_exif_orientation"}),
    "Orientation": ("ORIENTATION", "Orientation", {"rotated": "rotated", "flip_x": "flip_x", "flip_y": "flip_y"}),
    "Region": (
        "REGION",
        "Region",
        {
            "dimensions": "ndim",
            "begin": "start",
            "end": "end",
            "outside": "out_of_bounds_policy",
            "fill": "out_of_bounds_samples",
        },
    ),
    "View": (
        "VIEW",
        "CodeStreamView",
        {"image": "image_idx", "region": "region", "offset": "bitstream_offset"},
    ),
    "Plane": (
        "PLANE",
        "ImagePlaneInfo",
        {
            "width": "width",
            "height": "height",
            "pitch": "row_stride",
            "channels": "num_channels",
            "type": "sample_type",
            "precision": "precision",
        },
    ),
    "Image": (
        "IMAGE",
        "ImageInfo",
        {
            "codec": "codec_name",
            "colours": "color_spec",
            "subsampling": "chroma_subsampling",
            "format": "sample_format",
            "orientation": "orientation",
            "plane_count": "num_planes",
            "planes": "plane_info",
            "buffer": "buffer",
            "where": "buffer_kind",
            "stream": "cuda_stream",
        },
    ),
}
CONSTANTS = {
    "OK": "STATUS_SUCCESS",
    "DECODED": "PROCESSING_STATUS_SUCCESS",
    "CPU_ONLY_BACKEND": "BACKEND_KIND_CPU_ONLY",
    "IGNORE_LOAD_HINT": "LOAD_HINT_POLICY_IGNORE",
    "CPU_ONLY_DEVICE": "DEVICE_CPU_ONLY",
    "SRGB": "COLORSPEC_SRGB",
    "INTERLEAVED_RGB": "SAMPLEFORMAT_I_RGB",
    "UINT8": "SAMPLE_DATA_TYPE_UINT8",
    "IN_HOST_MEMORY": "IMAGE_BUFFER_KIND_STRIDED_HOST",
}
KERNELS = "\n".join(path.read_text() for path in sorted(KERNEL_DIRECTORY.glob("jpeg/*.h")))
# Whether two functions take as many arguments, each of them as large, and one is a number where the other is one.
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
    (folder / "cuda_runtime_api.h").write_text("typedef struct CUstream_st* cudaStream_t;\n")  # all that it takes of it
    source = folder / "check.cpp"
    includes = "<cstddef>", "<cstdint>", "<type_traits>", "<nvimgcodec.h>", f'"{OURS}"'
    lines = [f"#include {name}" for name in includes]
    source.write_text("\n".join([*lines, _ALIKE, *(f"static_assert({check});" for check in checks)]))
    folders = [f"-I{folder}", f"-I{_folder() / 'include'}"]
    command = ["g++", "-std=c++17", "-fsyntax-only", "-w", *folders, str(source)]
    return subprocess.run(command, capture_output=True, text=True)


def _layout(name: str) -> list[str]:
    kind, theirs, fields = STRUCTURES[name]
    number = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", theirs).upper()
    ours, theirs = f"nvimgcodec::{name}", f"nvimgcodec{theirs}_t"
    head = {"head.kind": "struct_type", "head.bytes": "struct_size", "head.next": "struct_next"}
    at = [f"offsetof({ours}, {a}) == offsetof({theirs}, {b})" for a, b in (head | fields).items()]
    sizes = [f"sizeof({ours}::{a}) == sizeof({theirs}::{b})" for a, b in fields.items()]
    kinds = f"int(nvimgcodec::Kind::{kind}) == NVIMGCODEC_STRUCTURE_TYPE_{number}"
    return [kinds, f"sizeof({ours}) == sizeof({theirs})", *at, *sizes]


def test_structures_constants_and_functions(tmp_path):
    constants = [f"nvimgcodec::{ours} == int32_t(NVIMGCODEC_{theirs})" for ours, theirs in CONSTANTS.items()]
    both = zip(re.findall(r"int32_t \(\*(\w+)\)", OURS.read_text()), FUNCTIONS, strict=True)
    functions = [f"Alike<decltype(nvimgcodec::Functions::{ours}), decltype(&{theirs})>::value" for ours, theirs in both]
    done = _compile(tmp_path, [*itertools.chain.from_iterable(map(_layout, STRUCTURES)), *constants, *functions])
    assert done.returncode == 0, done.stderr


def test_every_structure_and_constant_is_compared():
    text = OURS.read_text()
    assert set(re.findall(r"^struct (\w+)", text, re.M)) == {"Head", "Functions", *STRUCTURES}
    assert set(re.findall(r"(\w+) = -?\w+[,;]", text.split("constexpr", 1)[1])) == set(CONSTANTS)
    made = re.findall(r"made<nvimgcodec::(\w+)>\(nvimgcodec::Kind::(\w+)\)", KERNELS)
    assert made and all(STRUCTURES[name][0] == kind for name, kind in made)


def test_a_difference_is_found(tmp_path):
    wrong = [
        "offsetof(nvimgcodec::Plane, pitch) == offsetof(nvimgcodecImagePlaneInfo_t, width)",
        "Alike<decltype(nvimgcodec::Functions::wait), decltype(&nvimgcodecDecoderDecode)>::value",
    ]
    assert _compile(tmp_path, wrong).stderr.count("static assertion failed") == len(wrong)
