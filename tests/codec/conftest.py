"""A decoder for each file of tests."""

from __future__ import annotations

import pytest

from cuaug.codec import HostDecoder


@pytest.fixture(scope="module")
def decoder() -> HostDecoder:
    return HostDecoder()
