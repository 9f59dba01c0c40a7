"""Tests of pixel functions run the interpreter, unless they ask for compiled code."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    monkeypatch.setenv("CUAUG_SPECIALIZE", "0")
