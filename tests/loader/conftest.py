"""Every test of this folder runs on the CPU and, where there is one, on the GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True, params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def loaders_device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The default device of loaders, in this process and in its children."""
    before = os.environ.get("CUAUG_DEVICE")
    os.environ["CUAUG_DEVICE"] = request.param
    yield request.param
    if before is None:
        del os.environ["CUAUG_DEVICE"]
    else:
        os.environ["CUAUG_DEVICE"] = before


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out the CUDA half of tests with the marker cpu_only."""
    items[:] = [
        item
        for item in items
        if not (
            item.get_closest_marker("cpu_only")
            and isinstance(item, pytest.Function)
            and hasattr(item, "callspec")
            and item.callspec.params.get("loaders_device") == "cuda"
        )
    ]
