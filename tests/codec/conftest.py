"""A decoder for each file of tests."""

from __future__ import annotations

import pytest

from cuaug.codec import CpuDecoder


@pytest.fixture(scope="module")
def decoder() -> CpuDecoder:
    return CpuDecoder()
