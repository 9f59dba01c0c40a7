"""Every property is one of each device."""

from __future__ import annotations

import pytest

from tests import helpers


@pytest.fixture(scope="session", autouse=True)
def on_device(device: str):
    helpers.current_device = device
    yield
    helpers.current_device = "cpu"
