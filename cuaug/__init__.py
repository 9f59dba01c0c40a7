"""GPU-native image loading and augmentation for PyTorch.

    >>> import cuaug
    >>> from cuaug import transforms as T
    >>> loader = cuaug.Loader("photos/", transforms=[T.RandomResizedCrop(224)], batch_size=256)  # doctest: +SKIP
    >>> for images, labels in loader: ...  # doctest: +SKIP

`import cuaug` imports neither CuPy nor nvImageCodec and creates no CUDA context. Modules load on first use, so
`python -m cuaug doctor` runs where a dependency is missing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cuaug.errors import (
    ArgumentError,
    ChainWarning,
    CuaugError,
    DecodeError,
    DeviceError,
    LoaderClosedError,
    LoaderError,
    LoaderTimeoutError,
    RankError,
    SourceError,
    TransformError,
)

if TYPE_CHECKING:
    from cuaug import cache, functional, ray, sources, transforms
    from cuaug.batch import Batch, collate
    from cuaug.cache import DecodedCache, EncodedCache
    from cuaug.commands import prepare
    from cuaug.decode_options import DecodeOptions
    from cuaug.decoding import decode
    from cuaug.drawing import show
    from cuaug.loader import Loader
    from cuaug.sampling import ShardSampler, WeightedSampler

__version__ = "0.1.0"
__all__ = [
    "ArgumentError",
    "Batch",
    "ChainWarning",
    "CuaugError",
    "DecodeError",
    "DecodeOptions",
    "DecodedCache",
    "DeviceError",
    "EncodedCache",
    "Loader",
    "LoaderClosedError",
    "LoaderError",
    "LoaderTimeoutError",
    "RankError",
    "ShardSampler",
    "SourceError",
    "TransformError",
    "WeightedSampler",
    "cache",
    "collate",
    "decode",
    "functional",
    "prepare",
    "ray",
    "show",
    "sources",
    "transforms",
]

_MODULES = {
    "cache": "cuaug.cache",
    "functional": "cuaug.functional",
    "prepare": "cuaug.commands.prepare",
    "ray": "cuaug.ray",
    "sources": "cuaug.sources",
    "transforms": "cuaug.transforms",
}
_MODULE_OF = {
    "Batch": "cuaug.batch",
    "DecodeOptions": "cuaug.decode_options",
    "DecodedCache": "cuaug.cache",
    "EncodedCache": "cuaug.cache",
    "Loader": "cuaug.loader",
    "ShardSampler": "cuaug.sampling",
    "WeightedSampler": "cuaug.sampling",
    "collate": "cuaug.batch",
    "decode": "cuaug.decoding",
    "show": "cuaug.drawing",
}


if not TYPE_CHECKING:  # type checkers shall refuse unknown names

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(_MODULES[name])
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'cuaug' has no attribute {name!r}")
        globals()[name] = value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
