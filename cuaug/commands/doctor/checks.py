"""The doctor's checks, from the CPU path to a loader on a GPU. Each returns one line, or raises `Broken`.

Checks import their libraries themselves, in a child process: an import may crash it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from cuaug._runtime.extras import install_command, installed_from


class Broken(Exception):
    """A check failed: (problem, fix)."""


class NotTried(Exception):
    """A check that another problem prevents."""


def _python() -> str:
    return f"{platform.python_version()}, {platform.system()} {platform.machine()}, {sys.executable}"


def _package() -> str:
    import cuaug

    kind, url = installed_from()
    how = f"{kind} install of {url}" if kind else "pip has no record of its install"
    return f"{cuaug.__version__}, in {Path(cuaug.__file__).parent} ({how})"


def _torch() -> str:
    with _needs("pip install torch numpy"):
        import torch
    cuda = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    return f"{torch.__version__}, {cuda}"


def _cpu_kernels() -> str:
    with _needs(f"{install_command(options='--force-reinstall --no-deps ')}  (in a checkout also: make)"):
        from cuaug._runtime.native import BEST_ISA, ISAS
    import numpy as np

    from cuaug.devices.cpu import CpuExecutor
    from cuaug.plan import Layout, Plan, Type

    image = np.array([[[0, 0, 255], [255, 0, 0]]], dtype=np.uint8)
    plan = Plan([1], [2])
    plan.resize(1, 4)
    out = np.zeros((1, 4, 3), dtype=np.uint8)
    CpuExecutor(plan.compile(Type.UINT8, Layout.HWC)).run(0, image, out.ctypes.data)
    expected = [[0, 0, 255], [64, 0, 191], [191, 0, 64], [255, 0, 0]]
    if out[0].tolist() != expected:
        raise Broken(f"resizing 2 pixels to 4 gave {out[0].tolist()}, not {expected}", "report it with this output")
    isa = next(name for name, value in ISAS.items() if value == BEST_ISA)
    return f"loaded, using {isa}; the self-test passes"


_CODEC = "pip install 'nvidia-nvimgcodec-cu12>=0.9,<0.10' pillow"


def _codec() -> str:
    with _needs(_CODEC):
        from cuaug.codec import CpuDecoder, codec_version, read_header

        version = codec_version()
    red, green, _ = CpuDecoder().decode(read_header(_jpeg())).mean(axis=(0, 1))
    if red < 240 or green > 15:
        raise Broken(f"nvImageCodec {version} decodes a red JPEG to red={red:.0f}, green={green:.0f}", _CODEC)
    return f"{version}, decodes JPEG on the CPU"


def _cpu_loader() -> str:
    return _load("cpu")


_DRIVER = "install NVIDIA's driver for this GPU; in a container, start it with --gpus all"


def _driver() -> str:
    driver = _cuda_driver()
    version, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetCount(ctypes.byref(count))
    if count.value == 0:
        raise Broken("the NVIDIA driver works but sees no GPU", "check CUDA_VISIBLE_DEVICES and nvidia-smi")
    names = []
    for i in range(count.value):
        name = ctypes.create_string_buffer(96)
        driver.cuDeviceGetName(name, 96, i)
        names.append(name.value.decode())
    return f"for CUDA {version.value // 1000}.{version.value % 1000 // 10}: {', '.join(names)}"


def _torch_cuda() -> str:
    _require(_cuda_driver)
    torch = _require(_import_torch)
    fix = "pip install torch --index-url https://download.pytorch.org/whl/cu130  (or the one for your driver)"
    if not torch.version.cuda:
        raise Broken("this torch is built without CUDA", fix)
    if not torch.cuda.is_available():
        raise Broken(f"torch {torch.__version__} finds no usable GPU; is the driver too old for it?", fix)
    return f"CUDA {torch.version.cuda} on {torch.cuda.get_device_name()}"


def _cupy() -> str:
    with _needs(_extra()):
        import cupy
        from cupy.cuda import driver
    found = (str(distribution.metadata["Name"]).lower() for distribution in metadata.distributions())
    names = sorted({name for name in found if re.fullmatch(r"cupy(-(cuda|rocm).*)?", name)})
    # One on top of another would leave a mixture.
    remedy = f"pip uninstall -y {' '.join(names)} && {_extra()}" if names else _extra()
    if len(names) > 1:
        raise Broken(f"{' and '.join(names)} are installed over each other", remedy)
    major = driver.get_build_version() // 1000
    torch_major = _torch_major()
    if torch_major and major != torch_major:
        raise Broken(f"CuPy {cupy.__version__} is built for CUDA {major}, torch for CUDA {torch_major}", remedy)
    return f"{cupy.__version__}, built for CUDA {major}"


def _nvrtc() -> str:
    from cuaug.devices import nvrtc
    from cuaug.errors import DeviceError

    arch = _gpu_architecture()
    start = time.perf_counter()
    try:
        version = ".".join(map(str, nvrtc._nvrtc().getVersion()))
        if arch:
            for program in ("augment", "resample", "decode_jpeg"):
                nvrtc.cached(arch, program)  # the next checks find them in the cache
        else:
            nvrtc.compile(90)
    except DeviceError as error:
        raise Broken(str(error), _extra()) from error
    seconds = time.perf_counter() - start
    if arch:
        target = nvrtc.code_target(arch)
        taken = "" if target == f"sm_{arch}" else f" as {target}, the newest that this NVRTC has for it,"
        return f"{version}; kernels for sm_{arch}{taken} compiled or loaded from the cache in {seconds:.1f} s"
    return f"{version}; kernels compiled for sm_90, as a test, in {seconds:.1f} s"


def _kernel_chain(images: Any) -> Any:
    """A small deterministic chain with a resize, an image statistic and color operations."""
    from cuaug import transforms as T

    geometry = [T.CenterCrop(50), T.Resize((32, 40))]
    colors = [T.ColorJitter(contrast=(1.5, 1.5)), T.Normalize([0.5] * 3, [0.2] * 3)]
    return T.Compose([*geometry, *colors])(images)


def _gpu_kernels() -> str:
    torch = _require(_usable_torch)
    from cuaug.devices.cuda import availability_error

    if reason := availability_error(torch.device("cuda")):
        raise Broken(reason, _extra())
    images = torch.randint(0, 256, (4, 3, 61, 83), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    gpu, cpu = _kernel_chain(images.cuda()).cpu(), _kernel_chain(images)
    if not torch.equal(gpu, cpu):
        difference = (gpu - cpu).abs().max().item()
        raise Broken(f"GPU and CPU kernels differ by up to {difference:.3g}", "report it with this output")
    return "bit-identical to the CPU"


def _jpeg_kernels() -> str:
    """Loads drawn JPEGs on the GPU and on the CPU."""
    torch = _require(_usable_torch)
    from cuaug.devices.cuda import availability_error

    if reason := availability_error(torch.device("cuda")):
        raise NotTried(reason)
    files = _draw_jpegs()
    (gpu, decoded_by), (cpu, _) = _load_jpegs(files, "cuda"), _load_jpegs(files, "cpu")
    report = "report it with this output"
    if set(decoded_by) != {"kernels"}:
        raise Broken(f"{len(files)} JPEGs were decoded by {decoded_by}, not all by the kernels", report)
    if different := sum(not torch.equal(*pair) for pair in zip(gpu, cpu, strict=True)):
        raise Broken(f"{different} of {len(files)} JPEGs have other pixels on the GPU than on the CPU", report)
    return f"bit-identical to the CPU for {len(files)} JPEGs"


def _gpu_decoding() -> str:
    _require(_usable_torch)
    from cuaug.codec import gpu_decodes

    works, text = gpu_decodes(0)
    if not works:
        raise Broken(text, "pip install nvidia-nvjpeg-cu12  (beside nvidia-nvimgcodec-cu12)")
    return text


def _jpeg_engine() -> str:
    """Informs only: loading works without a JPEG engine too."""
    _require(_usable_torch)
    from cuaug.codec import gpu_decodes
    from cuaug.codec._nvimgcodec import engine_decodes

    works, text = gpu_decodes(0)
    if not works:
        raise NotTried(text)
    return engine_decodes(0)


def _gpu_loader() -> str:
    _require(_usable_torch)
    return _load("cuda")


# FFmpeg's decoders; its own "av1" needs a GPU.
_VIDEO_DECODERS = {"h264": "h264", "hevc": "hevc", "vp9": "vp9", "av1": "libdav1d", "mpeg4": "mpeg4", "mjpeg": "mjpeg"}


def _pyav() -> str:
    with _needs(f"{install_command('video')}  (only clips of videos need it)"):
        import av
    present = [codec for codec, decoder in _VIDEO_DECODERS.items() if decoder in av.codecs_available]
    versions = f"{av.__version__}, FFmpeg {av.ffmpeg_version_info}"
    if missing := [codec for codec in _VIDEO_DECODERS if codec not in present]:
        fix = "pip install --force-reinstall --only-binary av av  (PyPI's wheels have all of them)"
        raise Broken(f"{versions}, does not decode {', '.join(missing)}", fix)
    return f"{versions}, decodes {', '.join(present)}"


def _video_loader() -> str:
    """Loads a clip of a small MPEG-4 video; the encoder is part of every FFmpeg."""
    av = _require(_import_av)
    import numpy as np

    import cuaug

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "red.mp4")
        with av.open(path, "w") as container:
            stream = container.add_stream("mpeg4", rate=25)
            stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
            for i in range(8):
                frame = np.full((32, 48, 3), [30 * i, 0, 0], dtype=np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            container.mux(stream.encode())
        with cuaug.Loader(cuaug.sources.Videos([path], frames=4, stride=2, sampling="all"), device="cpu") as loader:
            (clips, _) = next(iter(loader))
    reds = clips[0, :, 0].float().mean(dim=(1, 2)).tolist()
    if any(abs(red - 60 * i) > 8 for i, red in enumerate(reds)):
        raise Broken(
            f"the mean red of 4 frames is {reds}, but 0, 60, 120, 180 were written", "report it with this output"
        )
    return f"a clip of {len(reds)} frames on {clips.device}"


def _nvdec() -> str:
    """Imports PyNvVideoCodec, which loads the driver's video libraries. It decodes nothing."""
    if importlib.util.find_spec("PyNvVideoCodec") is None:
        fix = f"{install_command('nvdec')}  (only video_decoder='nvdec' needs it)"
        raise NotTried(f"PyNvVideoCodec is not installed: {fix}")
    _require(_cuda_driver)
    from cuaug.codec.video.nvdec import load_nvdec

    with _needs("set NVIDIA_DRIVER_CAPABILITIES=compute,utility,video in a container, or update the driver"):
        library = load_nvdec()
    return f"PyNvVideoCodec {library.__version__}, for DecodeOptions(video_decoder='nvdec')"


CHECKS: list[tuple[str, str, Callable[[], str]]] = [
    ("CPU", "cuaug", _package),
    ("CPU", "Python", _python),
    ("CPU", "torch", _torch),
    ("CPU", "CPU kernels", _cpu_kernels),
    ("CPU", "nvImageCodec", _codec),
    ("CPU", "Loader", _cpu_loader),
    ("GPU", "driver", _driver),
    ("GPU", "torch", _torch_cuda),
    ("GPU", "CuPy", _cupy),
    ("GPU", "NVRTC", _nvrtc),
    ("GPU", "kernels", _gpu_kernels),
    ("GPU", "JPEG kernels", _jpeg_kernels),
    ("GPU", "decoding", _gpu_decoding),
    ("GPU", "JPEG engine", _jpeg_engine),
    ("GPU", "Loader", _gpu_loader),
    ("video", "PyAV", _pyav),
    ("video", "Loader", _video_loader),
    ("video", "NVDEC", _nvdec),
]


# --- helpers ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _needs(fix: str) -> Iterator[None]:
    """Turns any error of an import into a `Broken` with this fix."""
    try:
        yield
    except Exception as error:
        raise Broken(one_line(error), fix) from error


def _require(need: Callable[[], Any]) -> Any:
    """The result of `need`; its failure is reported by another check."""
    try:
        return need()
    except Exception as error:
        raise NotTried(one_line(error)) from error


def _import_torch() -> Any:
    import torch

    return torch


def _import_av() -> Any:
    import av

    return av


def _usable_torch() -> Any:
    _cuda_driver()
    torch = _import_torch()
    if not torch.cuda.is_available():
        raise RuntimeError("torch cannot use the GPU" if torch.version.cuda else "torch is built without CUDA")
    return torch


def _torch_major() -> int:
    """Major version of torch's CUDA; 0 without CUDA."""
    try:
        return int((_import_torch().version.cuda or "0").partition(".")[0])
    except ImportError:
        return 0


def _extra() -> str:
    """The command that installs CuPy and NVRTC for torch's CUDA version."""
    return install_command("cuda13" if _torch_major() == 13 else "cuda12")


def _cuda_driver() -> ctypes.CDLL:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Broken("no NVIDIA driver: libcuda.so.1 cannot be loaded", _DRIVER) from error
    status = driver.cuInit(0)
    if status:
        raise Broken(f"the NVIDIA driver finds no usable GPU: cuInit returned {status}", _DRIVER)
    return driver


def _gpu_architecture() -> int:
    """Compute capability of GPU 0 (90 for 9.0); 0 without a GPU."""
    try:
        driver = _cuda_driver()
    except Broken:
        return 0
    major, minor = ctypes.c_int(), ctypes.c_int()
    failed = driver.cuDeviceGetAttribute(ctypes.byref(major), 75, 0)
    failed |= driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, 0)
    return 0 if failed else 10 * major.value + minor.value


def _jpeg(red: int = 255) -> bytes:
    import io

    from PIL import Image

    encoded = io.BytesIO()
    Image.new("RGB", (48, 32), (red, 0, 0)).save(encoded, "JPEG")
    return encoded.getvalue()


def _draw_jpegs() -> list[bytes]:
    """JPEGs of noise: gray and three chroma subsamplings, with and without restart markers."""
    import io

    import numpy as np
    from PIL import Image

    rng, files = np.random.default_rng(0), []
    for number in range(16):
        noise = rng.integers(0, 256, (9 + 2 * number, 12 + number, 3), dtype=np.uint8)
        image = Image.fromarray(noise).resize((150 - 3 * number, 90 + 5 * number))
        image.convert("RGB" if number % 4 else "L").save(
            encoded := io.BytesIO(),
            "JPEG",
            quality=40 + 4 * number,
            subsampling=number % 4 - 1,  # -1: gray has none
            restart_marker_blocks=number // 4 % 2 * 3,
        )
        files.append(encoded.getvalue())
    return files


def _load_jpegs(files: list[bytes], device: str) -> tuple[list[Any], dict[str, int]]:
    """Each file's pixels, whole, and the number of files by what decoded them."""
    import cuaug

    class Files:
        def __len__(self) -> int:
            return len(files)

        def read(self, index: int) -> tuple[bytes, int]:
            return files[index], index

    with cuaug.Loader(Files(), device=device, threads=2) as loader:
        return [images[0].cpu() for images, _ in loader], loader.stats().decoded_by


def _load(device: str) -> str:
    """Loads one epoch of eight files in different reds."""
    import cuaug
    from cuaug import transforms as T

    reds = [30 * i for i in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for red in reds:
            files.append((str(Path(folder) / f"{red}.jpg"), red))
            Path(files[-1][0]).write_bytes(_jpeg(red))
        chain = [T.RandomResizedCrop(16), T.RandomHorizontalFlip()]
        with cuaug.Loader(files, chain, batch_size=4, shuffle=True, device=device, threads=2) as loader:
            start = time.perf_counter()
            batches = list(loader)
            seconds = time.perf_counter() - start
    means: dict[int, float] = {}  # by label
    for images, labels in batches:
        means |= dict(zip(labels.tolist(), images[:, 0].float().mean(dim=(1, 2)).tolist(), strict=True))
    if sorted(means) != reds or any(abs(mean - red) > 4 for red, mean in means.items()):
        raise Broken(f"mean red by label is {means}, but the reds are {reds}", "report it with this output")
    return f"{len(files)} files in {len(batches)} batches on {batches[0][0].device}, in {seconds:.2f} s"


def one_line(error: BaseException) -> str:
    """The error in one line."""
    text = " ".join(str(error.args[0] if isinstance(error, Broken) else error).split())
    return text if isinstance(error, (Broken, NotTried)) else f"{type(error).__name__}: {text}"
