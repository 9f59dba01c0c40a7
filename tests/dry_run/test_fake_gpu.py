"""The tests that need a GPU, on the fake GPU; and that it refuses the same operations as CUDA tensors.

`tests/support/fake_gpu.py` explains what this shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support.dry_run.exclusions import EXCLUDED, ROOMS
from tests.support.fake_gpu import BANNER, ROOT, SKIPPED

# Code that passes on a GPU, and code that fails there, with a part of the error.
PASSES = [
    "gpu.cpu().numpy()",
    "assert gpu.is_cuda and str(gpu.device) == 'cuda:0' and not gpu.cpu().is_cuda",
    "assert (gpu + torch.tensor(1.0)).is_cuda and gpu.tolist() == [0.0] * 4",
    "gpu.copy_(cpu); cpu.copy_(gpu); gpu[1:] = cpu[1:]; cpu[1:] = gpu[1:]",
    "assert gpu[cpu.long()].is_cuda and torch.stack([gpu, gpu]).is_cuda",
    "assert gpu.sort().values.is_cuda and gpu.to(cpu).device.type == 'cpu' and cpu.to(gpu).is_cuda",
    "assert torch.zeros_like(cpu, device='cuda').is_cuda and not torch.zeros_like(gpu, device='cpu').is_cuda",
    "gpu.cpu().add_(1); assert not gpu.any()  # a copy",
    "there = cpu.cuda(); cpu.add_(1); assert not there.any()  # a copy",
    "with ThreadPoolExecutor(1) as pool: assert pool.submit(torch.zeros, 4, device='cuda').result().is_cuda",
    "import copy, pickle; assert copy.deepcopy(gpu).is_cuda and pickle.loads(pickle.dumps(gpu)).is_cuda",
    "assert gpu.to('meta').is_meta and cpu.cuda(0).is_cuda and cpu.to('cuda', torch.uint8).is_cuda",
]
MIXED_DEVICES = [
    *("gpu + cpu", "cpu - gpu", "cpu.add_(gpu)", "torch.where(cpu > 0, gpu, gpu)", "torch.equal(gpu, cpu)"),
    *("torch.equal(gpu[0], cpu[0])", "torch.stack([gpu, cpu])", "torch.cat((gpu, cpu))"),
    "gpu[gpu.long()] = cpu",
]
CUDA_INDICES = ["cpu[gpu.long()]", "cpu[gpu > 0]", "cpu[gpu.long()] = 1"]
FAILS = {
    **dict.fromkeys(MIXED_DEVICES, "on the same device"),
    **dict.fromkeys(CUDA_INDICES, "indices should be"),
    "gpu.numpy()": "can't convert cuda:0",
    "np.asarray(gpu)": "can't convert cuda:0",
    "np.testing.assert_array_equal(gpu, cpu)": "can't convert cuda:0",
    "torch.testing.assert_close(gpu, cpu)": "",
    "gpu.pin_memory()": "cannot pin",
    "cpu.to('cuda:1')": "invalid device ordinal",
    "torch.zeros(4, device='cuda:1')": "invalid device ordinal",
    "assert gpu.device == cpu.device": "",
    "next(iter(Loader(Memory(4), batch_size=4, device='cuda'))).images.numpy()": "can't convert cuda:0",
}
TEST_FILE = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np, pytest, torch
from cuaug import Loader
from tests.support.loader.further_pictures import Memory

@pytest.mark.cuda
@pytest.mark.parametrize("body", {bodies!r}, ids=range({count}))
def test_body(body):
    exec(body, globals() | {{"cpu": torch.zeros(4), "gpu": torch.zeros(4, device="cuda")}})
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest on the fake GPU; a real GPU is hidden."""
    pytest.importorskip("cupy")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUAUG_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.fake_gpu", "-m", "cuda", "--tb=short", *arguments]
    settings = kept | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)


def outcomes(report: Path) -> list[tuple[str, str, str]]:
    """(name, outcome, message) of each test; outcomes are "passed", "skipped", "failure" and "error"."""
    results = []
    for case in ET.parse(report).iter("testcase"):
        ends = [part for part in case if part.tag in ("skipped", "failure", "error")]
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        results.append((name, ends[0].tag, ends[0].get("message", "")) if ends else (name, "passed", ""))
    return results


@pytest.mark.long
def test_gpu_tests_pass_on_the_fake_gpu(tmp_path):
    finished = run(f"--junitxml={tmp_path / 'report.xml'}", *ROOMS)
    assert finished.returncode == 0, finished.stdout[-20_000:] + finished.stderr
    assert BANNER in finished.stdout
    results = outcomes(tmp_path / "report.xml")
    assert sum(outcome == "passed" for _, outcome, _ in results) >= 500
    own = [name for name, outcome, why in results if outcome == "skipped" and not why.startswith(SKIPPED)]
    assert all("test_every_transform_equals_the_cpu" in name for name in own), own  # these skip by themselves
    for excluded in EXCLUDED:
        if "::" in excluded:
            found = {outcome for name, outcome, _ in results if name.startswith(excluded)}
            assert found == {"skipped"}, f"{excluded} excludes nothing"


def test_each_file_with_gpu_tests_runs_or_is_excluded():
    names = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/*.py")}
    marked = {name for name in names if "mark.cuda" in (ROOT / name).read_text()}
    known = (*ROOMS, *EXCLUDED, "tests/dry_run/test_fake_gpu.py", "tests/conftest.py")
    assert not [name for name in marked if not name.startswith(known)]
    assert not [name for name in EXCLUDED if not (ROOT / name.split("::")[0]).exists()]


@pytest.mark.slow
def test_the_fake_gpu_refuses_what_cuda_tensors_refuse(tmp_path):
    """It also accepts what they accept."""
    bodies = PASSES + list(FAILS)
    (tmp_path / "test_body.py").write_text(TEST_FILE.format(bodies=bodies, count=len(bodies)))
    report = tmp_path / "report.xml"
    finished = run(f"--rootdir={tmp_path}", f"--junitxml={report}", str(tmp_path / "test_body.py"))
    results = outcomes(report)
    assert len(results) == len(bodies), finished.stdout + finished.stderr
    wrong = [
        f"{body}: {outcome} {message}"
        for body, (_, outcome, message) in zip(bodies, results, strict=True)
        if outcome != ("failure" if body in FAILS else "passed") or FAILS.get(body, "") not in message
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_the_fake_gpu_refuses_to_stand_for_a_required_gpu():
    finished = run("tests/cuda/test_arrays.py", CUAUG_REQUIRE_CUDA="1")
    assert finished.returncode == pytest.ExitCode.USAGE_ERROR and "not the fake GPU" in finished.stderr
