"""`cuaug doctor`: what this machine can do, why not more, and the command that mends it.

The checks run one after the other in a second process, so that a library that crashes or hangs costs one check: the
process is started again for those that are left. The first process imports the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

__all__ = ["Finding", "examine", "report"]

# No check takes so long, even with a cold disk and kernels to compile.
_LIMIT_SECONDS = 120.0
_MARK = "cuaug-doctor:"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        needed_by: "CPU", or "GPU" where only that path needs it.
        name: what was checked.
        verdict: "OK", "no", or "--" where something else has to be mended before this can be tried.
        text: one line for a person.
        mend: the command or the deed that mends it.
    """

    needed_by: str
    name: str
    verdict: str
    text: str
    mend: str = ""


class _Broken(Exception):
    """A check failed: (what is wrong, what mends it)."""


class _NotTried(Exception):
    """A check that has to wait for another one."""


# --- the checks: each returns a line, or raises ----------------------------------------------------------------------


def _python() -> str:
    return f"{platform.python_version()}, {platform.system()} {platform.machine()}, {sys.executable}"


def _package() -> str:
    import cuaug

    return f"{cuaug.__version__}, in {Path(cuaug.__file__).parent}"


def _torch() -> str:
    with _needs("pip install torch numpy"):
        import torch
    cuda = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    return f"{torch.__version__}, {cuda}"


def _host_kernels() -> str:
    with _needs("pip install --force-reinstall --no-deps cuaug  (in a checkout: make, or pip install -e .)"):
        from cuaug._native import BEST_ISA, ISAS
    import numpy as np

    from cuaug.devices.host import HostProgram
    from cuaug.plan import Layout, Plan, Type

    image = np.array([[[0, 0, 255], [255, 0, 0]]], dtype=np.uint8)
    plan = Plan([1], [2])
    plan.resize(1, 4)
    out = np.zeros((1, 4, 3), dtype=np.uint8)
    HostProgram(plan.tables(Type.UINT8, Layout.HWC)).run(0, image, out.ctypes.data)
    want = [[0, 0, 255], [64, 0, 191], [191, 0, 64], [255, 0, 0]]
    if out[0].tolist() != want:
        raise _Broken(f"a resize of 2 pixels to 4 gave {out[0].tolist()}, not {want}", "report it, with this output")
    isa = next(name for name, value in ISAS.items() if value == BEST_ISA)
    return f"loaded, using {isa}; the self-test is exact"


_CODEC = "pip install 'nvidia-nvimgcodec-cu12>=0.9,<0.10' pillow"


def _codec() -> str:
    with _needs(_CODEC):
        from cuaug.codec import HostDecoder, codec_version, read_header

        version = codec_version()
    if not version.startswith("0.9."):
        raise _Broken(f"nvImageCodec {version} is not 0.9, which cuaug is written for", _CODEC)
    red, green, _ = HostDecoder().decode(read_header(_jpeg())).mean(axis=(0, 1))
    if red < 240 or green > 15:
        raise _Broken(f"nvImageCodec {version} decodes a red JPEG to red={red:.0f}, green={green:.0f}", _CODEC)
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
        raise _Broken("the NVIDIA driver works but sees no GPU", "look at CUDA_VISIBLE_DEVICES and nvidia-smi")
    names = []
    for i in range(count.value):
        name = ctypes.create_string_buffer(96)
        driver.cuDeviceGetName(name, 96, i)
        names.append(name.value.decode())
    return f"for CUDA {version.value // 1000}.{version.value % 1000 // 10}: {', '.join(names)}"


def _torch_cuda() -> str:
    _first(_cuda_driver)
    torch = _first(_import_torch)
    mend = "pip install torch --index-url https://download.pytorch.org/whl/cu130  (or the one for your driver)"
    if not torch.version.cuda:
        raise _Broken("this torch is built without CUDA", mend)
    if not torch.cuda.is_available():
        raise _Broken(f"torch {torch.__version__} finds no usable GPU; is the driver too old for it?", mend)
    return f"CUDA {torch.version.cuda} on {torch.cuda.get_device_name()}"


def _cupy() -> str:
    with _needs(_extra()):
        import cupy
        from cupy.cuda import driver
    major = driver.get_build_version() // 1000
    wanted = _torch_major()
    if wanted and major != wanted:
        raise _Broken(f"CuPy {cupy.__version__} is built for CUDA {major}, torch for CUDA {wanted}", _extra())
    return f"{cupy.__version__}, built for CUDA {major}"


def _nvrtc() -> str:
    from cuaug.devices import nvrtc
    from cuaug.errors import DeviceError

    arch = _gpu_architecture()
    start = time.perf_counter()
    try:
        version = ".".join(map(str, nvrtc._nvrtc().getVersion()))
        nvrtc.compile(arch or 90)
    except DeviceError as error:
        raise _Broken(str(error), _extra()) from error
    seconds = time.perf_counter() - start
    what = f"for this GPU, sm_{arch}" if arch else "for sm_90, as an example"
    return f"{version}, compiles the kernels {what}, in {seconds:.1f} s"


def _kernel_chain(images: Any) -> Any:
    """Small, with a resize, a barrier and colours; nothing in it is left to chance."""
    from cuaug import transforms as T

    geometry = [T.CenterCrop(50), T.Resize((32, 40))]
    colors = [T.ColorJitter(contrast=(1.5, 1.5)), T.Normalize([0.5] * 3, [0.2] * 3)]
    return T.Compose([*geometry, *colors])(images)


def _gpu_kernels() -> str:
    torch = _first(_usable_torch)
    from cuaug.devices.cuda import unavailable

    if reason := unavailable(torch.device("cuda")):
        raise _Broken(reason, _extra())
    images = torch.randint(0, 256, (4, 3, 61, 83), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    got, want = _kernel_chain(images.cuda()).cpu(), _kernel_chain(images)
    if not torch.equal(got, want):
        off = (got - want).abs().max().item()
        raise _Broken(f"the GPU's kernels differ from the CPU's by up to {off:.3g}", "report it, with this output")
    return "same bits as on the CPU"


def _gpu_decoding() -> str:
    _first(_usable_torch)
    from cuaug.codec import gpu_decodes

    works, text = gpu_decodes(0)
    if not works:
        raise _Broken(text, "pip install nvidia-nvjpeg-cu12  (into the directory where nvidia-nvimgcodec-cu12 is)")
    return text


def _gpu_loader() -> str:
    _first(_usable_torch)
    return _load("cuda")


_CHECKS: list[tuple[str, str, Callable[[], str]]] = [
    ("CPU", "cuaug", _package),
    ("CPU", "Python", _python),
    ("CPU", "torch", _torch),
    ("CPU", "host kernels", _host_kernels),
    ("CPU", "nvImageCodec", _codec),
    ("CPU", "Loader", _cpu_loader),
    ("GPU", "driver", _driver),
    ("GPU", "torch", _torch_cuda),
    ("GPU", "CuPy", _cupy),
    ("GPU", "NVRTC", _nvrtc),
    ("GPU", "kernels", _gpu_kernels),
    ("GPU", "decoding", _gpu_decoding),
    ("GPU", "Loader", _gpu_loader),
]


# --- what checks share -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _needs(mend: str) -> Iterator[None]:
    """Whatever an import raises, `mend` mends it."""
    try:
        yield
    except Exception as error:
        raise _Broken(_line(error), mend) from error


def _first(need: Callable[[], Any]) -> Any:
    """What `need` returns; what it lacks has been reported by a check of its own."""
    try:
        return need()
    except Exception as error:
        raise _NotTried(_line(error)) from error


def _import_torch() -> Any:
    import torch

    return torch


def _usable_torch() -> Any:
    _cuda_driver()
    torch = _import_torch()
    if not torch.cuda.is_available():
        raise RuntimeError("torch cannot use the GPU" if torch.version.cuda else "torch is built without CUDA")
    return torch


def _torch_major() -> int:
    """The major version of torch's CUDA; 0 where there is none."""
    try:
        return int((_import_torch().version.cuda or "0").partition(".")[0])
    except ImportError:
        return 0


def _extra() -> str:
    """How to install CuPy and NVRTC for the CUDA that torch has."""
    return f"pip install 'cuaug[cuda{13 if _torch_major() == 13 else 12}]'"


def _cuda_driver() -> ctypes.CDLL:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise _Broken("no NVIDIA driver: libcuda.so.1 cannot be loaded", _DRIVER) from error
    status = driver.cuInit(0)
    if status:
        raise _Broken(f"the NVIDIA driver finds no usable GPU: cuInit returned {status}", _DRIVER)
    return driver


def _gpu_architecture() -> int:
    """The compute capability of GPU 0 (90 for 9.0); 0 without a GPU."""
    try:
        driver = _cuda_driver()
    except _Broken:
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


def _load(device: str) -> str:
    """One epoch of eight files, each of its own red."""
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
    seen: dict[int, float] = {}
    for images, labels in batches:
        seen |= dict(zip(labels.tolist(), images[:, 0].float().mean(dim=(1, 2)).tolist(), strict=True))
    if sorted(seen) != reds or any(abs(mean - red) > 4 for red, mean in seen.items()):
        raise _Broken(f"of labels {reds} came, with these mean values, {seen}", "report it, with this output")
    return f"{len(files)} files in {len(batches)} batches on {batches[0][0].device}, in {seconds:.2f} s"


def _line(error: BaseException) -> str:
    text = " ".join(str(error.args[0] if isinstance(error, _Broken) else error).split())
    return text if isinstance(error, (_Broken, _NotTried)) else f"{type(error).__name__}: {text}"


# --- running them ----------------------------------------------------------------------------------------------------


def _check(number: int) -> Finding:
    needed_by, name, run = _CHECKS[number]
    try:
        return Finding(needed_by, name, "OK", run())
    except _Broken as error:
        return Finding(needed_by, name, "no", _line(error), error.args[1])
    except _NotTried as error:
        return Finding(needed_by, name, "--", f"not tried: {_line(error)}")
    except BaseException as error:  # whatever ails it, the next check runs
        return Finding(needed_by, name, "no", _line(error), "mend what stands above, then report this if it stays")


def _run_from(first: int) -> None:
    """The second process: every check from number `first` on, a line of JSON each."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    for number in range(first, len(_CHECKS)):
        out.write(f"{_MARK}{json.dumps(asdict(_check(number)))}\n")
        out.flush()
    os._exit(0)  # a library that crashes on its way out has been heard already


def examine(limit_seconds: float = _LIMIT_SECONDS) -> list[Finding]:
    """Runs every check; one that crashes, or takes longer than the limit, is reported as such."""
    findings: list[Finding] = []
    while len(findings) < len(_CHECKS):
        findings += _examine_from(len(findings), limit_seconds)
    return findings


def _examine_from(first: int, limit_seconds: float) -> Iterator[Finding]:
    """Findings from number `first` on, up to one that ended the process."""
    program = f"from cuaug import doctor; doctor._run_from({first})"
    # This package's copy, wherever the process is started.
    paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parents[1])]
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    assert child.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read(pipe: TextIO) -> None:
        for line in pipe:
            lines.put(line)
        lines.put("")

    reader = threading.Thread(target=read, args=[child.stdout], daemon=True)
    reader.start()
    try:
        for number in range(first, len(_CHECKS)):
            try:
                line = lines.get(timeout=limit_seconds)
            except queue.Empty:
                yield _ended(number, f"no answer in {limit_seconds:.0f} s")
                return
            if not line.startswith(_MARK):
                yield _ended(number, f"the process ended in this check, {_how(child.wait())}")
                return
            yield Finding(**json.loads(line[len(_MARK) :]))
    finally:
        child.kill()
        child.wait()
        reader.join()
        child.stdout.close()


def _how(status: int) -> str:
    with contextlib.suppress(ValueError):
        return f"by {signal.Signals(-status).name}"
    return f"with status {status}"


def _ended(number: int, text: str) -> Finding:
    needed_by, name, _ = _CHECKS[number]
    return Finding(needed_by, name, "no", text, f"reinstall {name} if it is a package of its own; else report it")


def report(findings: list[Finding], out: TextIO) -> dict[str, bool]:
    """Prints the findings; whether the "CPU" and the "GPU" path work."""
    works = {path: all(f.verdict == "OK" for f in findings if f.needed_by == path) for path in ("CPU", "GPU")}
    works["GPU"] &= works["CPU"]
    for path in ("CPU", "GPU"):
        print(path, file=out)
        for finding in findings:
            if finding.needed_by == path:
                print(f"  {finding.verdict:2}  {finding.name:13} {finding.text}", file=out)
                if finding.mend:
                    print(f"      {'':13} mend: {finding.mend}", file=out)
    if works["GPU"]:
        summary = "loading works on the GPU and on the CPU"
    elif works["CPU"]:
        summary = "loading works on the CPU; for the GPU, mend the first line above that says no"
    else:
        summary = "loading does not work; mend the first line above that says no"
    print(f"\n{summary}", file=out)
    return works
