"""Imports nvImageCodec's Python interface, tests GPU decoding, and makes decode options.

nvImageCodec 0.9 has three decoders for JPEG: `nvjpeg_hw_decoder` (the hardware engine), `nvjpeg_cuda_decoder` (CUDA
kernels; the Huffman codes are read on the CPU or on the GPU) and a lossless one. `DecoderPaths` chooses among them;
`benchmarks/gpu_decode.py` measures the default ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from PIL import Image

from cuaug._runtime.fork import hold_during_fork, renew_after_fork
from cuaug._runtime.native import libc
from cuaug._runtime.threads import OwnThread
from cuaug.codec.messages import capture_stderr


@dataclass(frozen=True)
class DecoderPaths:
    """How nvImageCodec decodes.

    Attributes:
        fancy_upsampling: interpolate chroma, as libjpeg does.
    """

    fancy_upsampling: bool = True

    @property
    def options(self) -> str:
        """The options of nvImageCodec's `Decoder`."""
        return f":fancy_upsampling={int(self.fancy_upsampling)}"


JPEG_BACKENDS = ("HW_GPU_ONLY", "GPU_ONLY", "HYBRID_CPU_GPU")
"""For JPEGs, the engine first: with CPU_ONLY, a JPEG that fails would silently go to the CPU."""

OTHER_BACKENDS = ("GPU_ONLY", "CPU_ONLY")
"""For PNG and WebP, which the CPU decodes: with CPU_ONLY alone, nvImageCodec would take the output for host memory."""


_nvimgcodec: ModuleType | None = None
import_lock = threading.RLock()
"""Held while a library of nvImageCodec is loaded."""
hold_during_fork(import_lock)  # a forked child could not finish its parent's import


def nv() -> ModuleType:
    """Import nvImageCodec on first use. The import may create a CUDA context, so it must not happen before a fork.

    A Ctrl-C during its initialization would raise an ImportError, and no later import would succeed in this process.
    Only the main thread handles signals, so it lets another thread import.
    """
    if _nvimgcodec is None:
        if threading.current_thread() is threading.main_thread():
            results: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
            arguments = results, _current_device()
            OwnThread(lambda: _import_in_thread(*arguments), lambda: None, "cuaug-import").start()
            error = results.get()
            if error is not None:
                raise error
        else:
            _import()
    assert _nvimgcodec is not None
    return _nvimgcodec


def _current_device() -> contextlib.AbstractContextManager[None]:
    """Makes this thread's GPU current in another thread; the import would create a context on GPU 0 there."""
    torch = sys.modules.get("torch")  # without torch, no GPU is chosen
    if torch is None or not torch.cuda.is_initialized():
        return contextlib.nullcontext()
    device: contextlib.AbstractContextManager[None] = torch.cuda.device(torch.cuda.current_device())
    return device


def _import_in_thread(
    results: queue.SimpleQueue[BaseException | None], device: contextlib.AbstractContextManager[None]
) -> None:
    try:
        with device:
            _import()
        results.put(None)
    except BaseException as error:
        results.put(error)


def _import() -> None:
    global _nvimgcodec
    with import_lock:
        if _nvimgcodec is None:
            os.environ.setdefault("PYNVIMGCODEC_VERBOSITY", "0")
            with quiet_opencv(), _drop_advice():
                from nvidia import nvimgcodec
            _nvimgcodec = nvimgcodec


@contextlib.contextmanager
def quiet_opencv() -> Iterator[None]:
    """Silence the OpenCV inside nvImageCodec while it loads: it would print a line for every damaged file.

    OpenCV reads its log level when it loads. We remove the variable afterwards: the user's cv2 reads it too. The caller
    holds `import_lock`.
    """
    unset = "OPENCV_LOG_LEVEL" not in os.environ
    if unset:
        os.environ["OPENCV_LOG_LEVEL"] = "SILENT"
    try:
        yield
    finally:
        if unset:
            del os.environ["OPENCV_LOG_LEVEL"]


@contextlib.contextmanager
def _drop_advice() -> Iterator[None]:
    """Drop the lines about GPU libraries that nvImageCodec prints on import, for which it has no setting.

    They are useless without a GPU, and `cuaug doctor` reports the same with one. This prints the thread's other lines.
    """
    lines: list[str] = []
    try:
        with capture_stderr() as lines:
            yield
    finally:
        stderr = ctypes.c_void_p.in_dll(libc, "stderr")
        for line in lines:
            if not line.startswith(("Failed to load nv", "Note: If using nvImageCodec")):
                libc.fputs(line.encode() + b"\n", stderr)


def open_streams(files: Sequence[Any]) -> list[Any]:
    """Open a CodeStream for each file, bytes or a uint8 array; None where nvImageCodec fails. Releases the GIL."""
    make_stream = nv().CodeStream
    try:
        return list(map(make_stream, files))
    except RuntimeError:
        return [None] if len(files) == 1 else [stream for file in files for stream in open_streams([file])]


def decode_params(exif: bool) -> Any:
    """DecodeParams for sRGB, with or without the EXIF orientation."""
    codec = nv()
    return codec.DecodeParams(apply_exif_orientation=exif, color_spec=codec.ColorSpec.SRGB)


# {device: the success text}, because a trial takes long.
_decodes: dict[int, str] = {}
renew_after_fork(_decodes.clear)


def gpu_decodes(device_id: int) -> tuple[bool, str]:
    """Whether this GPU decodes JPEGs: decode one without the CPU backends.

    nvImageCodec without nvJPEG silently decodes on the CPU, so only a trial shows it. The trial creates a CUDA context
    if the device exists. A device that passed is not tried again.

    Returns:
        (True, the decoder's name) or (False, the reason); the text is one line for the user.
    """
    if device_id in _decodes:
        return True, _decodes[device_id]
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False, "no NVIDIA driver: libcuda.so.1 cannot be loaded"
    status = driver.cuInit(0)
    if status != 0:
        return False, f"the NVIDIA driver finds no usable device: cuInit returned {status}"
    try:
        mean = _decode_red(device_id, ("HW_GPU_ONLY", "GPU_ONLY", "HYBRID_CPU_GPU"))
    except Exception as error:  # `cuaug doctor` reports any failure
        return False, f"nvImageCodec cannot use device {device_id}: {type(error).__name__}: {error}"
    if mean is None:
        return False, "nvImageCodec found no JPEG decoder for the GPU; is nvidia-nvjpeg-cu12 installed?"
    red, green = mean
    if red < 240 or green > 15:
        return False, f"device {device_id} decoded a red JPEG to red={red:.0f} green={green:.0f}"
    _decodes[device_id] = f"nvImageCodec {nv().__version__} decodes JPEG on device {device_id}"
    return True, _decodes[device_id]


def engine_decodes(device_id: int) -> str:
    """Whether this GPU's hardware engine decodes JPEGs, as one line for the user.

    nvImageCodec without an engine silently decodes with CUDA kernels, so the trial allows the engine alone. Call it
    after `gpu_decodes` returned True.
    """
    results = []
    for fancy in (True, False):
        with_or_without = f"{'with' if fancy else 'without'} fancy_upsampling"
        try:
            mean = _decode_red(device_id, ("HW_GPU_ONLY",), DecoderPaths(fancy_upsampling=fancy).options)
        except Exception as error:  # `cuaug doctor` reports any failure
            results.append(f"fails {with_or_without} ({type(error).__name__}: {error})")
            continue
        is_red = mean is not None and mean[0] >= 240 and mean[1] <= 15
        colors = "" if mean is None or is_red else f", red came as red={mean[0]:.0f} green={mean[1]:.0f}"
        results.append(f"{'decodes' if is_red else 'does not decode'} {with_or_without}{colors}")
    text = ", ".join(results)
    if all(result.startswith("decodes") for result in results):
        return text
    try:
        ctypes.CDLL("libnvcuvid.so.1")
    except OSError:
        text += "; libnvcuvid.so.1, which it needs, cannot be loaded (in a container: NVIDIA_DRIVER_CAPABILITIES=all)"
    return f"{text}; other JPEGs are decoded by CUDA kernels"


PLAIN_SIZE = 240, 320
"""(height, width) of `plain_jpeg`."""


def plain_jpeg(color: tuple[int, int, int]) -> bytes:
    """A one-color JPEG large enough for a GPU's hardware engine, which refuses a few pixels."""
    encoded = io.BytesIO()
    Image.new("RGB", PLAIN_SIZE[::-1], color).save(encoded, "JPEG")
    return encoded.getvalue()


def _decode_red(device_id: int, kinds: Sequence[str], options: str = "") -> tuple[float, float] | None:
    """The mean red and green of a red JPEG, decoded with these backends alone; None if none decodes it.

    As in `NvImageCodecDecoder.prime`, the engine writes to memory of our own after the device has come to rest.
    """
    import torch

    with torch.cuda.device(device_id):  # nvImageCodec may create a context on the current device
        codec = nv()
        decoder = codec.Decoder(
            device_id=device_id,
            max_num_cpu_threads=1,
            backends=[codec.Backend(getattr(codec.BackendKind, kind)) for kind in kinds],
            options=options,
        )
        stream = torch.cuda.current_stream(device_id).cuda_stream
        memory = torch.zeros((1, PLAIN_SIZE[0] * PLAIN_SIZE[1], 3), dtype=torch.uint8, device=f"cuda:{device_id}")
        slot = codec.as_image(memory, cuda_stream=stream)
        torch.cuda.synchronize(device_id)
        red_jpeg = codec.CodeStream(plain_jpeg((255, 0, 0)))
        image = decoder.decode(red_jpeg, image=slot, params=decode_params(False), cuda_stream=stream)
        torch.cuda.synchronize(device_id)
        if image is None:
            return None
        red, green, _ = memory.float().mean(dim=(0, 1)).tolist()
    return red, green
