"""`benchmarks/gpu.sh`, the script that runs on a GPU: each stage works to its end on the fake GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAGES = re.findall(r"^STAGES=\((.*)\)$", (ROOT / "benchmarks" / "gpu.sh").read_text(), re.MULTILINE)[0].split()
#: Result -> its fields besides those in COMMON.
FIELDS = {
    "gpu_smoke": {"epochs", "decoded_by", "photos"},
    "gpu_decode": {"rows", "without_fancy_upsampling", "fastest"},
    "gpu_kernels": {"batch", "copy_gigabytes_per_second", "cases"},
    "batch_augmentation": {"ms", "cuaug_to_this", "left_out"},
    "staging": {"us_per_sample", "cpu_us_per_image", "photos"},
    "gpu_end_to_end": {"variants", "left_out", "failed", "turns", "best_dali", "cuaug_to_dali"},
    "training_step_cuda": {"step", "left_out", "network", "settings"},
    "gpu_ncu": {"launches"},
    "gpu_clips": {"settings", "sizes"},
    "gpu_dali": {"settings", "rows", "left_out", "failed"},
    "gpu_jpeg": {"bit_exact", "bits", "images_per_second", "cases", "photos"},
} | {f"steps_{stage}": {"stage", "steps"} for stage in STAGES}
COMMON = {"device", "driver", "commit", "date", "versions"}


@pytest.fixture
def benchmarks(monkeypatch):
    """The programs in benchmarks/ can be imported."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUAUG_", "PYTEST_"))}
    command = ["bash", ROOT / "benchmarks/gpu.sh", *arguments]
    return subprocess.run(command, env=kept | {"PYTHON": sys.executable}, capture_output=True, text=True)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_dry_run_passes_every_step_and_writes_every_result(tmp_path):
    pytest.importorskip("cupy")
    done = run(tmp_path, "--dry-run")
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    results = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    dali = subprocess.run([sys.executable, "-c", "import nvidia.dali"], capture_output=True).returncode == 0
    left_out = set() if dali else {"gpu_dali"}
    assert set(results) == set(FIELDS) - left_out
    for name, result in results.items():
        assert FIELDS[name] | COMMON <= set(result), name
        assert result["device"] in ("fake GPU", "dry run") and result["driver"] == "dry run", name
    for stage in STAGES:
        steps = results[f"steps_{stage}"]["steps"]
        assert steps, stage
        for step in steps:
            assert step["status"] == ("skipped" if step["name"] in left_out else "passed"), step
    assert ("gpu_dali: skipped; nvidia.dali cannot be imported" in done.stdout) == (not dali)
    assert {"cuaug", "cuaug without the index"} <= set(results["gpu_end_to_end"]["variants"])
    assert "is incomplete" not in done.stdout and "have not run" not in done.stdout
    steps = results["training_step_cuda"]["step"]
    cached, engine = (steps[f"cuaug, CUDA, {name}"]["decoded_by"] for name in ("cached", "nvimgcodec"))
    assert set(steps["cuaug, CUDA"]["decoded_by"]) == set(cached) == {"kernels"} and "kernels" not in engine
    assert ("DALI, CUDA" in steps) == dali
    launches = results["gpu_ncu"]["launches"]
    assert [launch["kernel"] for launch in launches] == ["resample", "augment"]
    assert launches[0]["metrics"] == {"Duration": [1234.5, "us"], "Cache": ["On", ""]}
    jpeg = results["gpu_jpeg"]
    assert jpeg["bit_exact"] is True
    assert {"whole_500x375_256", "crops_500x375_256"} <= set(jpeg["images_per_second"]["kernels"])
    assert jpeg["images_per_second"]["first_visits"] > 0
    for goal in ("all of them", "at least 670000 images/s", "at least 150000 images/s", "under 0.9 ms"):
        assert f"[{goal}: " in done.stdout, goal
    for goal in ("under 0.12 ms", "at least 8000 images/s", "slowed by at most 2 %"):
        assert f"[{goal}: " in done.stdout, goal


@pytest.mark.slow
def test_a_failing_step_is_reported_and_later_ones_run(tmp_path):
    if shutil.which("nvidia-smi"):
        pytest.skip("this test needs a machine without nvidia-smi")
    done = run(tmp_path, "--stage", "9")
    steps = {step["name"]: step["status"] for step in json.loads((tmp_path / "steps_ncu.json").read_text())["steps"]}
    assert done.returncode == 1
    assert steps["nvidia-smi"] == "failed: exit status 127" and list(steps)[-1] == "gpu_ncu"
    assert "nvidia-smi: failed: exit status 127" in done.stdout
    assert "stages that have not run: smoke, tests" in done.stdout


@pytest.mark.parametrize("arguments", [[], ["{out}", "--stage", "nine"], ["{out}", "--dry"]])
def test_wrong_arguments_are_refused(tmp_path, arguments):
    done = run(*(argument.format(out=tmp_path / "out") for argument in arguments))
    assert done.returncode and "usage: benchmarks/gpu.sh OUT" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_summary_compares_with_the_goals(benchmarks, tmp_path):
    import gpu_summary

    rate = {"median": 8500.0, "min": 8000.0, "max": 9000.0}
    variants = {name: {"images_per_second": rate} for name in ("cuaug", "cuaug without the index", "DALI, 0.65")}
    ratios = {"cuaug without the index": spread_of(1.1), "cuaug": spread_of(1.2)}
    result = {"settings": {"threads": 6}, "variants": variants, "cuaug_to_dali": ratios, "best_dali": "DALI, 0.65"}
    (tmp_path / "gpu_end_to_end.json").write_text(
        json.dumps(result | {"failed": {}, "left_out": {"torchvision": "no"}})
    )
    (tmp_path / "gpu_kernels.json").write_text('{"cases": {}, "copy_gigabytes_per_second": 3000.0}')
    lines = list(gpu_summary.table([tmp_path]))
    assert [line.rpartition("  [")[2] for line in lines if "  [" in line] == [
        "at least 8000 images/s: met]",
        "at least 1.0: met]",
        "at least 1.3: MISSED]",
    ]
    assert any("gpu_kernels.json" in line and "is incomplete" in line for line in lines)


def spread_of(value: float) -> dict[str, float]:
    return {"median": value, "min": value, "max": value}
