"""The tests that need a GPU, on pretended CUDA tensors: they run, and what CUDA tensors refuse is refused.

None of this runs on a GPU, and it shows nothing of one: `tests/support/fake_gpu.py` says what is shown.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.dry_run.exclusions import LEFT_OUT, ROOMS
from tests.support.fake_gpu import BANNER, ROOT, SKIPPED

# What a test marked `cuda` may do, and one that a GPU would fail, with a part of the error.
RIGHT = [
    "gpu.cpu().numpy()",
    "assert gpu.is_cuda and str(gpu.device) == 'cuda:0' and not gpu.cpu().is_cuda",
    "assert (gpu + torch.tensor(1.0)).is_cuda and gpu.tolist() == [0.0] * 4",
    "gpu.copy_(cpu); cpu.copy_(gpu); gpu[1:] = cpu[1:]; cpu[1:] = gpu[1:]",
    "assert gpu[cpu.long()].is_cuda and torch.stack([gpu, gpu]).is_cuda",
    "assert gpu.sort().values.is_cuda and gpu.to(cpu).device.type == 'cpu' and cpu.to(gpu).is_cuda",
    "assert torch.zeros_like(cpu, device='cuda').is_cuda and not torch.zeros_like(gpu, device='cpu').is_cuda",
    "gpu.cpu().add_(1); assert not gpu.any()  # it was a copy",
    "there = cpu.cuda(); cpu.add_(1); assert not there.any()  # likewise",
    "with ThreadPoolExecutor(1) as pool: assert pool.submit(torch.zeros, 4, device='cuda').result().is_cuda",
    "import copy, pickle; assert copy.deepcopy(gpu).is_cuda and pickle.loads(pickle.dumps(gpu)).is_cuda",
    "assert gpu.to('meta').is_meta and cpu.cuda(0).is_cuda and cpu.to('cuda', torch.uint8).is_cuda",
]
WRONG = {
    "gpu.numpy()": "can't convert cuda:0",
    "np.asarray(gpu)": "can't convert cuda:0",
    "np.testing.assert_array_equal(gpu, cpu)": "can't convert cuda:0",
    "gpu + cpu": "on the same device",
    "cpu - gpu": "on the same device",
    "cpu.add_(gpu)": "on the same device",
    "torch.where(cpu > 0, gpu, gpu)": "on the same device",
    "torch.equal(gpu, cpu)": "on the same device",
    "torch.equal(gpu[0], cpu[0])": "on the same device",
    "torch.stack([gpu, cpu])": "on the same device",
    "torch.cat((gpu, cpu))": "on the same device",
    "torch.testing.assert_close(gpu, cpu)": "",
    "cpu[gpu.long()]": "indices should be",
    "cpu[gpu > 0]": "indices should be",
    "cpu[gpu.long()] = 1": "indices should be",
    "gpu[gpu.long()] = cpu": "on the same device",
    "gpu.pin_memory()": "cannot pin",
    "cpu.to('cuda:1')": "invalid device ordinal",
    "torch.zeros(4, device='cuda:1')": "invalid device ordinal",
    "assert gpu.device == cpu.device": "",
    "next(iter(Loader(Memory(4), batch_size=4, device='cuda'))).images.numpy()": "can't convert cuda:0",
}
PLANTED = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np, pytest, torch
from cuaug import Loader
from tests.loader.pictures import Memory

@pytest.mark.cuda
@pytest.mark.parametrize("body", {bodies!r}, ids=range({count}))
def test_planted(body):
    exec(body, globals() | {{"cpu": torch.zeros(4), "gpu": torch.zeros(4, device="cuda")}})
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """pytest on pretended tensors; also where there is a GPU, which it then does not see."""
    pytest.importorskip("cupy")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUAUG_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.fake_gpu", "-m", "cuda", "--tb=short", *arguments]
    settings = kept | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)


def outcomes(report: Path) -> list[tuple[str, str, str]]:
    """(name, "passed", "skipped", "failure" or "error", the message) of each test."""
    told = []
    for case in ET.parse(report).iter("testcase"):
        ends = [part for part in case if part.tag in ("skipped", "failure", "error")]
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        told.append((name, ends[0].tag, ends[0].get("message", "")) if ends else (name, "passed", ""))
    return told


@pytest.mark.slow
def test_what_can_run_without_a_gpu_passes(tmp_path):
    ended = run(f"--junitxml={tmp_path / 'report.xml'}", *ROOMS)
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
    assert BANNER in ended.stdout
    told = outcomes(tmp_path / "report.xml")
    assert sum(end == "passed" for _, end, _ in told) >= 500
    own = [name for name, end, why in told if end == "skipped" and not why.startswith(SKIPPED)]
    assert all("test_every_transform_equals_the_cpu" in name for name in own), own  # those that say so themselves
    for left_out in LEFT_OUT:
        if "::" in left_out:
            ends = {end for name, end, _ in told if name.startswith(left_out)}
            assert ends == {"skipped"}, f"{left_out} leaves out nothing"


def test_each_file_with_tests_for_a_gpu_is_run_or_left_out_with_a_reason():
    names = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/*.py")}
    marked = {name for name in names if "mark.cuda" in (ROOT / name).read_text()}
    known = (*ROOMS, *LEFT_OUT, "tests/dry_run/test_fake_gpu.py", "tests/conftest.py")
    assert not [name for name in marked if not name.startswith(known)]
    assert not [name for name in LEFT_OUT if not (ROOT / name.split("::")[0]).exists()]


@pytest.mark.slow
def test_what_cuda_tensors_refuse_is_refused(tmp_path):
    """And what they take is taken."""
    bodies = RIGHT + list(WRONG)
    (tmp_path / "test_planted.py").write_text(PLANTED.format(bodies=bodies, count=len(bodies)))
    report = tmp_path / "report.xml"
    ended = run(f"--rootdir={tmp_path}", f"--junitxml={report}", str(tmp_path / "test_planted.py"))
    told = outcomes(report)
    assert len(told) == len(bodies), ended.stdout + ended.stderr
    wrong = [
        f"{body}: {end} {message}"
        for body, (_, end, message) in zip(bodies, told, strict=True)
        if end != ("failure" if body in WRONG else "passed") or WRONG.get(body, "") not in message
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_nobody_takes_it_for_a_gpu():
    ended = run("tests/cuda/test_arrays.py", CUAUG_REQUIRE_CUDA="1")
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR and "only pretended" in ended.stderr
