"""GPU-native image loading and augmentation for PyTorch.

    >>> import cuaug
    >>> from cuaug import transforms as T
    >>> loader = cuaug.Loader("photos/", transforms=[T.RandomResizedCrop(224)], batch_size=256)  # doctest: +SKIP
    >>> for images, labels in loader: ...  # doctest: +SKIP

Importing it imports neither CuPy nor nvImageCodec, and creates no CUDA context. Its parts load when they are first
used, so that `python -m cuaug doctor` runs where something that they need is missing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cuaug.errors import CuaugError, DecodeError, DeviceError, LoaderError, TransformError

if TYPE_CHECKING:
    from cuaug import functional, transforms
    from cuaug.loader import Loader

__version__ = "0.1.0"
__all__ = [
    "CuaugError",
    "DecodeError",
    "DeviceError",
    "Loader",
    "LoaderError",
    "TransformError",
    "functional",
    "transforms",
]


def __getattr__(name: str) -> Any:
    if name == "Loader":
        from cuaug.loader import Loader

        globals()[name] = Loader
        return Loader
    if name in ("functional", "transforms"):
        return importlib.import_module(f"cuaug.{name}")
    raise AttributeError(f"module 'cuaug' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
