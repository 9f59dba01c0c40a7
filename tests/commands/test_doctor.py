"""`cuaug doctor`: exit statuses and fixes; crashes and hangs of checks."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import subprocess
import sys
import textwrap
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cuaug._runtime.extras import install_command
from cuaug.codec._nvimgcodec import engine_decodes
from cuaug.commands import cli, doctor
from cuaug.commands.doctor import Finding


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cuaug", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=600,
    )


@pytest.fixture
def only(monkeypatch):
    """Runs some of the checks: all of them would take too long in every test."""

    def examine(*names: str, limit_seconds: float = 60.0, **environment: str) -> dict[str, Finding]:
        program = (
            f"from cuaug.commands import doctor; doctor.CHECKS[:] = [c for c in doctor.CHECKS if c[1] in {names!r}]; "
        )
        popen = subprocess.Popen

        def with_fewer(command, **options):
            return popen([command[0], "-c", program + command[2]], **options)

        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(doctor, "CHECKS", [check for check in doctor.CHECKS if check[1] in names])
            patch.setattr(subprocess, "Popen", with_fewer)
            return {f"{f.needed_by} {f.name}": f for f in doctor.examine(limit_seconds)}

    return examine


@pytest.fixture
def fake_package(tmp_path):
    """A folder for PYTHONPATH with a package that runs code on import."""

    def make(package: str, code: str) -> str:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(textwrap.dedent(code))
        return os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])

    return make


@pytest.mark.long
def test_all_checks():
    done = run("doctor")
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    for_cpu = done.stdout.partition("GPU\n")[0]
    assert re.search("^  OK  CPU kernels ", for_cpu, re.MULTILINE)
    assert re.search("^  OK  Loader .*8 files in 2 batches on cpu", for_cpu, re.MULTILINE)
    assert "loading works on the" in done.stdout.splitlines()[-1]


@pytest.mark.cuda
def test_a_gpu_that_works():
    done = run("doctor", "--require-cuda")
    assert done.returncode == 0, done.stdout
    assert "loading works on the GPU" in done.stdout


def test_missing_host_kernels(only):
    found = only("CPU kernels", "Loader", CUAUG_KERNEL_LIBRARY="/nowhere/_kernels.so")
    assert found["CPU CPU kernels"].verdict == "no"
    assert "/nowhere/_kernels.so" in found["CPU CPU kernels"].text
    assert "pip install" in found["CPU CPU kernels"].fix
    assert found["CPU Loader"].verdict == "no"


def test_missing_torch(only, fake_package):
    found = only("cuaug", "torch", PYTHONPATH=fake_package("torch", "raise ImportError('no torch here')"))
    assert found["CPU cuaug"].verdict == "OK"
    assert (found["CPU torch"].verdict, found["CPU torch"].fix) == ("no", "pip install torch numpy")
    assert "no torch here" in found["CPU torch"].text


def test_missing_nvimagecodec(only, fake_package):
    found = only("nvImageCodec", PYTHONPATH=fake_package("nvidia", ""))
    assert found["CPU nvImageCodec"].verdict == "no"
    assert "nvidia-nvimgcodec-cu12>=0.9,<0.10" in found["CPU nvImageCodec"].fix


@pytest.mark.slow
def test_missing_cupy(only, fake_package):
    found = only("CuPy", "NVRTC", PYTHONPATH=fake_package("cupy", "raise ImportError('no cupy here')"))
    for name in ("GPU CuPy", "GPU NVRTC"):
        assert found[name].verdict == "no" and "no cupy here" in found[name].text
        assert found[name].fix == install_command("cuda13" if (torch.version.cuda or "").startswith("13") else "cuda12")


CUPY = """
import sys, types
__version__ = "14.0"
cuda = sys.modules["cupy.cuda"] = types.ModuleType("cupy.cuda")
cuda.driver = types.SimpleNamespace(get_build_version=lambda: {build})
"""


def test_cupy_for_another_cuda(only, fake_package):
    fake_package("torch", "import types; version = types.SimpleNamespace(cuda='13.0'); __version__ = '2.11'")
    found = only("CuPy", PYTHONPATH=fake_package("cupy", CUPY.format(build=11080)))["GPU CuPy"]
    assert found.text == "CuPy 14.0 is built for CUDA 11, torch for CUDA 13"
    assert found.fix.endswith(install_command("cuda13"))


def test_two_cupys(only, fake_package, tmp_path):
    """Both write the folder cupy; removing one then breaks the other."""
    for name in ("cupy-cuda11x", "cupy-cuda13x"):
        (tmp_path / f"{name}-1.dist-info").mkdir()
        (tmp_path / f"{name}-1.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    found = only("CuPy", PYTHONPATH=fake_package("cupy", CUPY.format(build=13000)))["GPU CuPy"]
    assert found.verdict == "no" and "cupy-cuda11x and" in found.text and "installed over each other" in found.text
    assert found.fix.startswith("pip uninstall -y cupy-cuda11x ") and "cupy-cuda13x && pip install" in found.fix


@pytest.mark.slow
def test_a_library_that_crashes(only, fake_package):
    found = only("cuaug", "CuPy", "driver", PYTHONPATH=fake_package("cupy", "import os; os.abort()"))
    assert found["GPU CuPy"].verdict == "no" and "SIGABRT" in found["GPU CuPy"].text
    assert found["CPU cuaug"].verdict == "OK" and "GPU driver" in found  # the other checks run


@pytest.mark.slow
def test_a_library_that_hangs(only, fake_package):
    hanging = fake_package("cupy", "import time; time.sleep(600)")
    found = only("cuaug", "CuPy", limit_seconds=20.0, PYTHONPATH=hanging)
    assert found["GPU CuPy"].text == "no answer in 20 s"
    assert found["CPU cuaug"].verdict == "OK"


def test_video(only):
    found = only("PyAV")["video PyAV"]
    assert found.verdict == "OK" and re.fullmatch(
        r"\S+, FFmpeg \S+, decodes h264, hevc, vp9, av1, mpeg4, mjpeg", found.text
    )
    assert only("Loader")["video Loader"] == Finding("video", "Loader", "OK", "a clip of 4 frames on cpu")


def test_missing_pyav(only, fake_package):
    found = only("PyAV", "Loader", PYTHONPATH=fake_package("av", "raise ImportError('no av here')"))
    assert found["video PyAV"].verdict == "no" and "no av here" in found["video PyAV"].text
    assert found["video PyAV"].fix.startswith(install_command("video"))
    assert (found["video Loader"].verdict, found["CPU Loader"].verdict) == ("--", "OK")


def test_an_ffmpeg_without_a_decoder(only, fake_package):
    """As of a distribution that builds FFmpeg without libdav1d; FFmpeg's own "av1" needs a GPU."""
    code = (
        "__version__, ffmpeg_version_info = '18.0', '7.1'; codecs_available = {'h264', 'vp9', 'av1', 'mpeg4', 'mjpeg'}"
    )
    found = only("PyAV", PYTHONPATH=fake_package("av", code))["video PyAV"]
    assert (found.verdict, found.text) == ("no", "18.0, FFmpeg 7.1, does not decode hevc, av1")


def test_nvdec(only, fake_package):
    """Without a driver the library is not imported: it would fail for that reason."""
    found = only("NVDEC")["video NVDEC"]
    assert found.verdict == "--" and install_command("nvdec") in found.text
    code = "raise RuntimeError('libnvidia-encode.so.1: cannot open')"
    path = fake_package("PyNvVideoCodec", code)
    if not cuda_driver_is_here():
        found = only("NVDEC", PYTHONPATH=path)["video NVDEC"]
        assert found.verdict == "--" and "no NVIDIA driver" in found.text
    program = """
        import sys; from cuaug.commands.doctor import checks
        checks._cuda_driver = lambda: None
        try:
            print(checks._nvdec())
        except checks.Broken as error:
            print(error, error.args[1])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=os.environ | {"PYTHONPATH": path}, capture_output=True
    )
    assert b"libnvidia-encode.so.1: cannot open" in done.stdout and b"NVIDIA_DRIVER_CAPABILITIES" in done.stdout


def cuda_driver_is_here() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


FINE = [Finding("CPU", "cuaug", "OK", "0.1.0"), Finding("GPU", "driver", "OK", "")]
NO_GPU = [FINE[0], Finding("GPU", "driver", "no", "none", "install it"), Finding("GPU", "kernels", "--", "not tried")]
NO_VIDEO = [*FINE, Finding("video", "PyAV", "no", "none", "pip install av")]
BROKEN = [Finding("CPU", "CPU kernels", "no", "none", "pip install cuaug"), FINE[1]]


@pytest.mark.parametrize(
    ("findings", "status", "status_with_cuda"),
    [(FINE, 0, 0), (NO_GPU, 0, 1), (BROKEN, 1, 1), (NO_VIDEO, 0, 0)],
    ids=str,
)
def test_exit_status(monkeypatch, capsys, findings, status, status_with_cuda):
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    assert cli.main(["doctor"]) == status
    assert cli.main(["doctor", "--require-cuda"]) == status_with_cuda
    for finding in findings:
        assert finding.fix in capsys.readouterr().out or not finding.fix
        cli.main(["doctor"])


def test_findings_are_printed_at_once():
    """Compiling the kernels takes a minute on a busy machine, which looked like a hang."""
    out, told = io.StringIO(), []

    def found():
        for finding in NO_GPU:
            told.append(out.getvalue())
            yield finding

    doctor.report(found(), out)
    assert [text.count("\n") for text in told] == [0, 2, 5], "headings, and one more line for the fix"
    assert out.getvalue().splitlines()[:3] == ["CPU", "  OK  cuaug         0.1.0", "GPU"]
    assert [check[0] for check in doctor.CHECKS] == sorted(check[0] for check in doctor.CHECKS), "one heading each"


def test_version():
    assert run("--version").stdout.startswith("cuaug 0.1.0")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_a_closed_output(closed):
    """The exit status counts; it once was an abort."""
    program = "from cuaug.commands import cli, doctor; del doctor.CHECKS[1:]; raise SystemExit(cli.main(['doctor']))"
    done = subprocess.run(f'"{sys.executable}" -c "{program}" {closed}', shell=True, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == done.stderr == ""


class Engine:
    """A fake nvImageCodec: its JPEG engine's result for a red JPEG, by decoder options.

    It writes to the memory that it is given, after the device has come to rest.
    """

    BackendKind = SimpleNamespace(HW_GPU_ONLY="engine")
    Backend = CodeStream = staticmethod(lambda what: what)

    def __init__(self, **colors: tuple[int, int, int] | Exception | None) -> None:
        self._colors = {f":fancy_upsampling={key[-1]}": value for key, value in colors.items()}
        self.synchronized = 0

    def as_image(self, memory: Any, cuda_stream: int) -> Any:
        self.synchronized = 0  # the memory was allocated just now
        return memory

    def Decoder(self, *, device_id: int, max_num_cpu_threads: int, backends: list[str], options: str) -> Any:
        assert backends == ["engine"]

        def decode(stream: Any, *, image: Any, params: Any, cuda_stream: int) -> Any:
            assert self.synchronized == 1 and cuda_stream == 7
            color = self._colors[options]
            if isinstance(color, Exception):
                raise color
            if color is None:
                return None
            image[:] = torch.tensor(color, dtype=torch.uint8)
            return image

        return SimpleNamespace(decode=decode)

    def synchronize(self, device: int) -> None:
        self.synchronized += 1


@pytest.mark.parametrize(
    ("engine", "wanted", "others"),
    [
        (Engine(fancy1=(254, 0, 0), fancy0=(254, 0, 0)), "decodes with fancy_upsampling, decodes without", False),
        (Engine(fancy1=None, fancy0=(254, 0, 0)), "does not decode with fancy_upsampling, decodes without", True),
        (
            Engine(fancy1=None, fancy0=(0, 0, 254)),
            "does not decode without fancy_upsampling, red came as red=0 g",
            True,
        ),
        (Engine(fancy1=RuntimeError("no"), fancy0=None), "fails with fancy_upsampling (RuntimeError: no), does", True),
    ],
)
def test_the_jpeg_engine_is_reported(monkeypatch, engine, wanted, others):
    """nvImageCodec does not report a missing engine; the doctor does, without failing."""
    zeros = torch.zeros
    monkeypatch.setattr("cuaug.codec._nvimgcodec.nv", lambda: engine)
    monkeypatch.setattr("cuaug.codec._nvimgcodec.decode_params", lambda exif: None)
    monkeypatch.setattr(torch, "zeros", lambda shape, dtype, device: zeros(shape, dtype=dtype))
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=7))
    monkeypatch.setattr(torch.cuda, "synchronize", engine.synchronize)
    text = engine_decodes(0)
    if "fails" not in wanted:
        assert engine.synchronized == 2, "the result was read while the engine may still write"
    assert wanted in text and ("other JPEGs are decoded by CUDA kernels" in text) == others


def test_the_jpegs_are_of_all_kinds():
    """The check of the JPEG kernels: its files, and its findings, with the CPU in place of the GPU."""
    from cuaug.commands.doctor import checks

    files = checks._draw_jpegs()
    images = [Image.open(io.BytesIO(data)) for data in files]
    kinds = {tuple(layer[1:3] for layer in image.layer) for image in images}
    assert kinds == {((1, 1),), *(((h, v), (1, 1), (1, 1)) for h, v in ((1, 1), (2, 1), (2, 2)))}
    assert {b"\xff\xdd" in data for data in files} == {True, False}
    loaded, decoded_by = checks._load_jpegs(files, "cpu")
    for pixels, image in zip(loaded, images, strict=True):
        assert np.array_equal(pixels.permute(1, 2, 0), image.convert("RGB"))
    assert "kernels" not in decoded_by


@pytest.mark.parametrize(
    ("decoded_by", "change", "problem"),
    [
        ({"kernels": 16}, 0, ""),
        ({"kernels": 15, "cpu_fallback": 1}, 0, "16 JPEGs were decoded by {'kernels': 15, 'cpu_fallback': 1}, not all"),
        ({"kernels": 16}, 1, "1 of 16 JPEGs have other pixels"),
    ],
)
def test_jpeg_kernels_are_compared_with_the_cpu(monkeypatch, decoded_by, change, problem):
    from cuaug.commands.doctor import checks

    def load(files: list[bytes], device: str) -> Any:
        pixels = [torch.full((3, 4, 5), i) for i in range(len(files))]
        pixels[3] += change * (device == "cuda")
        return pixels, decoded_by if device == "cuda" else {"cpu": 16}

    monkeypatch.setattr(checks, "_usable_torch", lambda: torch)
    monkeypatch.setattr("cuaug.devices.cuda.availability_error", lambda device: "")
    monkeypatch.setattr(checks, "_load_jpegs", load)
    if problem:
        with pytest.raises(checks.Broken, match=re.escape(problem)):
            checks._jpeg_kernels()
    else:
        assert checks._jpeg_kernels() == "bit-identical to the CPU for 16 JPEGs"


def test_the_gpu_comparison_runs():
    """Runs the chain of the GPU kernel check on the CPU: its mistakes would show on a GPU only."""
    from cuaug.commands.doctor.checks import _kernel_chain

    images = torch.arange(2 * 3 * 61 * 83, dtype=torch.int64).remainder(256).to(torch.uint8).reshape(2, 3, 61, 83)
    assert _kernel_chain(images).shape == (2, 3, 32, 40)
