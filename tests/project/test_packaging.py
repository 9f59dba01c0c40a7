"""Packaging: source distribution, wheel, builds without a compiler, and the systems that a library runs on."""

from __future__ import annotations

import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest import mock

import pytest

import cuaug

ROOT = Path(__file__).parents[2]
FOLDERS = (".github", "cuaug", "kernels", "tests", "docs", "examples", "benchmarks")
FILES = (
    "pyproject.toml", "setup.py", "MANIFEST.in", "mkdocs.yml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff",
    "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", ".clang-format", ".pre-commit-config.yaml",
)  # fmt: skip
BUILT = shutil.ignore_patterns("*.so", "__pycache__")
pytestmark = pytest.mark.slow


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the sources: building writes beside them."""
    copy = tmp_path / "source"
    copy.mkdir()
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=BUILT)
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    return copy


def build(source: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "wheels", "."]
    return subprocess.run(pip, cwd=source, env=os.environ | environment, capture_output=True, text=True)


def unpacked(source: Path) -> Path:
    """Builds the source distribution of a copy and unpacks it."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "."]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    name = f"cuaug-{cuaug.__version__}"
    # Not by `tarfile`: what its `filter` should be, Python's versions do not agree on.
    subprocess.run(["tar", "-xzf", f"dist/{name}.tar.gz", "-C", source.parent], cwd=source, check=True)
    return source.parent / name


@pytest.mark.long
def test_the_source_distribution_is_complete_and_builds_a_wheel_for_every_python_3(source: Path):
    have = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    source = unpacked(source)
    brings = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    assert have <= brings
    assert {path.name for path in brings - have if "egg-info" not in path.parts[0]} == {"PKG-INFO", "setup.cfg"}

    done = build(source, CUAUG_CXXFLAGS="-O0")  # the packing is looked at, not the speed
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (source / "wheels").iterdir()
    assert wheel.name.startswith(f"cuaug-{cuaug.__version__}-py3-none-")

    installed = source.parent / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    there, here = installed / "cuaug" / "_kernels", ROOT / "kernels"
    kernels = {path.relative_to(here) for path in here.glob("**/*")}
    assert {path.relative_to(there) for path in there.glob("**/*")} == kernels
    for name in ("_kernels.so", "py.typed"):
        assert (installed / "cuaug" / name).is_file(), name
    assert [*installed.glob("*.dist-info/licenses/LICENSE")]
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {"cuaug"}
    program = (
        "import numpy as np, cuaug, cuaug._runtime.native as native; from cuaug import transforms as T; "
        "assert native.KERNEL_DIRECTORY.parent.parent.samefile('.'), native.KERNEL_DIRECTORY; "
        "assert T.Resize(8)(np.zeros((20, 30, 3), np.uint8)).shape == (8, 12, 3)"
    )
    used = subprocess.run([sys.executable, "-c", program], cwd=installed, capture_output=True, text=True)
    assert used.returncode == 0, used.stderr


def test_a_missing_compiler_is_one_line(source: Path):
    done = build(source, CXX="no-such-compiler")
    assert done.returncode != 0
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "needs a C++17 compiler" in line]
    assert "'no-such-compiler' was not found" in line and "apt-get install g++" in line


def test_a_failing_compiler_is_quoted(source: Path):
    (source / "kernels" / "core/store.h").write_text("this is no C++")
    done = build(source)
    assert done.returncode != 0
    assert "the C++ compiler failed on the CPU kernels" in done.stdout + done.stderr
    assert "core/store.h" in done.stdout + done.stderr


def import_in(source: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Imports cuaug from a checkout that is the current folder."""
    command = [sys.executable, "-c", "import cuaug._runtime.native"]
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CUAUG_KERNEL_LIBRARY")}
    return subprocess.run(command, cwd=source, env=own | environment, capture_output=True, text=True)


def test_a_checkout_without_a_library_takes_that_of_the_installed_package(source: Path, tmp_path: Path):
    """As after `pip install .` in the current folder, which comes first in sys.path."""
    assert "cannot be loaded" in import_in(source).stderr
    (tmp_path / "site" / "cuaug").mkdir(parents=True)
    shutil.copy(ROOT / "cuaug" / "_kernels.so", tmp_path / "site" / "cuaug")
    (tmp_path / "site" / "cuaug-1.dist-info").mkdir()
    (tmp_path / "site" / "cuaug-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: cuaug\nVersion: 1\n"
    )
    done = import_in(source, PYTHONPATH=str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr


def test_a_library_of_other_sources_is_refused(source: Path):
    """For example after a `git pull` that changed kernels/, in an editable install without a rebuild."""
    shutil.copy(ROOT / "cuaug" / "_kernels.so", source / "cuaug")
    done = import_in(source)
    assert done.returncode == 0, done.stderr
    with open(source / "kernels" / "cuda/augment.cu", "a") as file:  # NVRTC compiles this one
        file.write("// a comment\n")
    assert import_in(source).returncode == 0
    with open(source / "kernels" / "core/store.h", "a") as file:
        file.write("// a comment\n")
    done = import_in(source)
    assert done.returncode != 0
    assert "was built from other sources than those in" in done.stderr
    assert "run `make` or `pip install -e .`" in done.stderr


def symbols(*options: str) -> list[str]:
    command = ["nm", "--dynamic", *options, ROOT / "cuaug" / "_kernels.so"]
    return [line.split()[-1] for line in subprocess.check_output(command, text=True).splitlines()]


def test_the_library_exports_its_c_interface_only():
    exported = symbols("--defined-only")
    assert len(exported) > 50 and all(name.startswith("cuaug_") for name in exported), exported


#: What manylinux_2_28 has.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (8, 0, 0)}


@pytest.mark.skipif(
    tuple(map(int, platform.libc_ver()[1].split("."))) > (2, 36),
    reason="a newer glibc gives old functions new versions; wheels are built on an older one",
)
def test_the_library_runs_on_every_system_of_manylinux_2_28():
    """`make wheels` checks the same of both wheels, with auditwheel."""
    needed = re.findall(r"@(GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)", "\n".join(symbols("--undefined-only")))
    assert {name for name, _ in needed} >= {"GLIBC", "GLIBCXX"}
    newer = {(name, version) for name, version in needed if tuple(map(int, version.split("."))) > NEWEST[name]}
    assert not newer


@pytest.mark.parametrize(
    ("machine", "isas"), [("x86_64-pc-linux-gnu", {"baseline", "avx2", "avx512"}), ("aarch64-linux-gnu", {"baseline"})]
)
def test_a_build_follows_the_compilers_machine(tmp_path, monkeypatch, machine, isas):
    """Instruction sets, and the wheel's tag."""
    compiler = tmp_path / "a compiler"
    compiler.write_text(f'#!/bin/sh\n[ "$*" = "--sysroot=/x -dumpmachine" ] && echo {machine}\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", f"'{compiler}' --sysroot=/x")
    with mock.patch("setuptools.setup") as setup:
        names = runpy.run_path(str(ROOT / "setup.py"))
    assert set(names["isas"]()) == isas
    arguments = setup.call_args.kwargs
    command = arguments["cmdclass"]["bdist_wheel"](arguments["distclass"]({"name": "cuaug", "version": "1"}))
    command.finalize_options()
    assert command.get_tag() == ("py3", "none", f"linux_{machine.partition('-')[0]}")


def test_a_tag_is_the_version():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    command = ["git", "-C", ROOT, "tag", "--points-at", "HEAD", "v*"]
    tags = subprocess.check_output(command, text=True).split()
    assert tags in ([], [f"v{cuaug.__version__}"])
