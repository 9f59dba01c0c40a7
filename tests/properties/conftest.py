"""Runs every property on each device."""

from __future__ import annotations

import pytest

from tests.support import run_plans


@pytest.fixture(scope="session", autouse=True)
def on_device(device: str):
    run_plans.current_device = device
    yield
    run_plans.current_device = "cpu"
