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
    from cuaug import cache, functional, sources, transforms
    from cuaug.batch import Batch, collate
    from cuaug.cache import DecodedCache, EncodedCache
    from cuaug.commands import prepare
    from cuaug.loader import Loader
    from cuaug.sampling import ShardSampler, WeightedSampler

__version__ = "0.1.0"
__all__ = [
    "Batch",
    "CuaugError",
    "DecodeError",
    "DecodedCache",
    "DeviceError",
    "EncodedCache",
    "Loader",
    "LoaderError",
    "ShardSampler",
    "TransformError",
    "WeightedSampler",
    "cache",
    "collate",
    "functional",
    "prepare",
    "sources",
    "transforms",
]

_MODULES = {
    "cache": "cuaug.cache",
    "functional": "cuaug.functional",
    "prepare": "cuaug.commands.prepare",
    "sources": "cuaug.sources",
    "transforms": "cuaug.transforms",
}
_HOMES = {
    "Batch": "cuaug.batch",
    "DecodedCache": "cuaug.cache",
    "EncodedCache": "cuaug.cache",
    "Loader": "cuaug.loader",
    "ShardSampler": "cuaug.sampling",
    "WeightedSampler": "cuaug.sampling",
    "collate": "cuaug.batch",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'cuaug' has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
