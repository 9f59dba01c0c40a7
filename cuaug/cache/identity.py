"""What a cache is of: refusing one that was filled from something else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cuaug.arguments import integer

__all__ = ["differences", "identity"]


def identity(count: int, contents: Mapping[str, Any]) -> dict[str, Any]:
    """What two openings of a cache must agree in, as JSON gives it back."""
    return json.loads(json.dumps({"samples": integer("count", count, 1), **contents}))


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """How the identity of a cache differs from the one wanted; empty where it does not.

    >>> differences({"samples": 10, "short_side": 256}, {"samples": 10, "short_side": 224})
    'short_side is 256 there and 224 here'
    """
    names = [name for name in {**here, **there} if there.get(name) != here.get(name)]
    return ", ".join(f"{name} is {there.get(name)!r} there and {here.get(name)!r} here" for name in names)
