"""Hypothesis profiles, and the devices that tests run on."""

from __future__ import annotations

import functools
import gc
import os
import signal

import pytest
import torch
from hypothesis import HealthCheck, settings

from cuaug.sources import labels

_common = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("everyday", max_examples=25, **_common)
settings.register_profile("ci", max_examples=40, **_common)
settings.register_profile("thorough", max_examples=2000, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Programs that write documents, not tests.
collect_ignore = ["tools"]

# A shell's background jobs ignore Ctrl-C, and so would the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Of loaders that are given none; where there is a GPU they would take it.
os.environ.setdefault("CUAUG_DEVICE", "cpu")


@functools.cache
def cuda_is_missing() -> str:
    """Why no CUDA device can be used; empty if one can."""
    try:
        import cupy

        cupy.cuda.runtime.getDevice()
    except Exception as error:
        return f"no CUDA device: {error}"
    return ""


def pytest_collection_finish() -> None:
    """Later garbage collections, which many tests ask for, pass over the modules and all collected tests."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("cuda") and cuda_is_missing():
        if os.environ.get("CUAUG_REQUIRE_CUDA") == "1":
            pytest.fail(f"CUAUG_REQUIRE_CUDA=1, but {cuda_is_missing()}", pytrace=False)
        pytest.skip(cuda_is_missing())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Writes failures at once to the file in CUAUG_FAILURES: after a timeout there is no summary."""
    to = os.environ.get("CUAUG_FAILURES")
    if to and report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(to, "a") as file:
            file.write(f"\n=== {report.nodeid}, {report.when}\n{report.longreprtext}\n")


@pytest.fixture(autouse=True)
def _unaffected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders draw and sources warn the same, whichever tests ran before in this process."""
    torch.manual_seed(0)
    monkeypatch.setattr(labels, "_last_names", ())


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param
