"""The seam to nvImageCodec: the one place that imports it, and how its decoders are asked for."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image

from cuaug._runtime.fork import hold_during_fork, renew_after_fork
from cuaug._runtime.libc import libc
from cuaug.codec.messages import captured

__all__ = [
    "decode_params",
    "decoder_options",
    "engine_decodes",
    "gpu_decodes",
    "import_lock",
    "nv",
    "open_streams",
    "plain_jpeg",
    "quiet_opencv",
]

_nvimgcodec: ModuleType | None = None
#: Whoever loads a part of nvImageCodec holds it.
import_lock = threading.RLock()
hold_during_fork(import_lock)  # no child could finish its parent's import


def nv() -> ModuleType:
    """nvImageCodec, imported on first use: the import may create a CUDA context, and must not happen before a fork.

    A Ctrl-C that broke off its initialisation would come out as an ImportError, and no second import would succeed in
    this process. So the main thread, the only one that handles signals, has another one import it.
    """
    if _nvimgcodec is None:
        if threading.current_thread() is threading.main_thread():
            ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
            arguments = ended, _own_device()
            threading.Thread(target=_import_and_tell, args=arguments, name="cuaug-import", daemon=True).start()
            error = ended.get()
            if error is not None:
                raise error
        else:
            _import()
    assert _nvimgcodec is not None
    return _nvimgcodec


def _own_device() -> contextlib.AbstractContextManager[None]:
    """Within it, another thread is on this one's GPU. A new one is on the first, where importing may make a context."""
    torch = sys.modules.get("torch")  # what has not been imported has chosen no GPU
    if torch is None or not torch.cuda.is_initialized():
        return contextlib.nullcontext()
    device: contextlib.AbstractContextManager[None] = torch.cuda.device(torch.cuda.current_device())
    return device


def _import_and_tell(
    ended: queue.SimpleQueue[BaseException | None], device: contextlib.AbstractContextManager[None]
) -> None:
    try:
        with device:
            _import()
        ended.put(None)
    except BaseException as error:
        ended.put(error)


def _import() -> None:
    global _nvimgcodec
    with import_lock:
        if _nvimgcodec is None:
            os.environ.setdefault("PYNVIMGCODEC_VERBOSITY", "0")
            with quiet_opencv(), _no_advice():
                from nvidia import nvimgcodec
            _nvimgcodec = nvimgcodec


@contextlib.contextmanager
def quiet_opencv() -> Iterator[None]:
    """For loading the OpenCV inside: it reads its log level then, and would print about every damaged file.

    Taken back afterwards: the user's own cv2 reads the same variable. The caller holds `import_lock`.
    """
    quieted = "OPENCV_LOG_LEVEL" not in os.environ
    if quieted:
        os.environ["OPENCV_LOG_LEVEL"] = "SILENT"
    try:
        yield
    finally:
        if quieted:
            del os.environ["OPENCV_LOG_LEVEL"]


@contextlib.contextmanager
def _no_advice() -> Iterator[None]:
    """Drops the lines about GPU libraries that nvImageCodec prints while it is imported; it has no setting for that.

    Without a GPU they are of no use, and with one `cuaug doctor` tells. Other lines of this thread are passed on.
    """
    lines: list[str] = []
    try:
        with captured() as lines:
            yield
    finally:
        stderr = ctypes.c_void_p.in_dll(libc, "stderr")
        for line in lines:
            if not line.startswith(("Failed to load nv", "Note: If using nvImageCodec")):
                libc.fputs(line.encode() + b"\n", stderr)


def open_streams(files: Sequence[Any]) -> list[Any]:
    """The CodeStream of each file, bytes or a uint8 array; None where nvImageCodec cannot open it.

    While it does, other threads run.
    """
    make_stream = nv().CodeStream
    try:
        return list(map(make_stream, files))
    except RuntimeError:
        return [None] if len(files) == 1 else [stream for file in files for stream in open_streams([file])]


def decode_params(exif: bool) -> Any:
    codec = nv()
    return codec.DecodeParams(apply_exif_orientation=exif, color_spec=codec.ColorSpec.SRGB)


def decoder_options(fancy_upsampling: bool) -> str:
    return f":fancy_upsampling={int(fancy_upsampling)}"


# What decoded, by the device: a decoder takes long to make.
_decodes: dict[int, str] = {}
renew_after_fork(_decodes.clear)


def gpu_decodes(device_id: int) -> tuple[bool, str]:
    """Whether this GPU decodes JPEGs, found out by decoding one with the CPU backends left out.

    Without nvJPEG, nvImageCodec silently decodes on the CPU: only a trial tells. Creates a CUDA context where there is
    a device, none otherwise. A device that did is not tried again.

    Returns:
        (True, what decoded) or (False, why not), the text being one line for a person.
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
        mean = _decoded_red(device_id, ("HW_GPU_ONLY", "GPU_ONLY", "HYBRID_CPU_GPU"))
    except Exception as error:  # a doctor reports what ails, whatever it is
        return False, f"nvImageCodec cannot use device {device_id}: {type(error).__name__}: {error}"
    if mean is None:
        return False, "nvImageCodec found no JPEG decoder for the GPU; is nvidia-nvjpeg-cu12 installed?"
    red, green = mean
    if red < 240 or green > 15:
        return False, f"device {device_id} decoded a red JPEG to red={red:.0f} green={green:.0f}"
    _decodes[device_id] = f"nvImageCodec {nv().__version__} decodes JPEG on device {device_id}"
    return True, _decodes[device_id]


def engine_decodes(device_id: int) -> str:
    """Whether this GPU's hardware engine decodes JPEGs, found out by leaving out all others; one line for a person.

    Where there is none, nvImageCodec silently decodes with CUDA kernels. To be asked where `gpu_decodes` says yes.
    """
    said = []
    for fancy in (True, False):
        with_or_without = f"{'with' if fancy else 'without'} fancy_upsampling"
        try:
            mean = _decoded_red(device_id, ("HW_GPU_ONLY",), decoder_options(fancy))
        except Exception as error:  # as for any other decoder that is missing
            said.append(f"fails {with_or_without} ({type(error).__name__}: {error})")
            continue
        well = mean is not None and mean[0] >= 240 and mean[1] <= 15
        wrong = "" if mean is None or well else f", red came as red={mean[0]:.0f} green={mean[1]:.0f}"
        said.append(f"{'decodes' if well else 'does not decode'} {with_or_without}{wrong}")
    text = ", ".join(said)
    if all(one.startswith("decodes") for one in said):
        return text
    try:
        ctypes.CDLL("libnvcuvid.so.1")
    except OSError:
        text += "; libnvcuvid.so.1, which it needs, cannot be loaded (in a container: NVIDIA_DRIVER_CAPABILITIES=all)"
    return f"{text}; other JPEGs are decoded by CUDA kernels, whatever load_hint says"


def plain_jpeg(colour: tuple[int, int, int]) -> bytes:
    """A JPEG that a GPU's hardware engine takes: it refuses those of a few pixels."""
    encoded = io.BytesIO()
    Image.new("RGB", (320, 240), colour).save(encoded, "JPEG")
    return encoded.getvalue()


def _decoded_red(device_id: int, kinds: Sequence[str], options: str = "") -> tuple[float, float] | None:
    """The mean red and green of a red JPEG, decoded by these kinds of backends alone; None if none of them does."""
    import torch

    with torch.cuda.device(device_id):  # nvImageCodec may make a context on whichever device is current
        codec = nv()
        decoder = codec.Decoder(
            device_id=device_id,
            max_num_cpu_threads=1,
            backends=[codec.Backend(getattr(codec.BackendKind, kind)) for kind in kinds],
            options=options,
        )
        image = decoder.decode(codec.CodeStream(plain_jpeg((255, 0, 0))), params=decode_params(False))
        if image is None:
            return None
        red, green, _ = np.asarray(image.cpu()).reshape(-1, 3).mean(axis=0)
    return red, green
