"""GPU-native image loading and augmentation for PyTorch.

    >>> import cuaug
    >>> from cuaug import transforms as T
    >>> loader = cuaug.Loader("photos/", transforms=[T.RandomResizedCrop(224)], batch_size=256)  # doctest: +SKIP
    >>> for images, labels in loader: ...  # doctest: +SKIP

`import cuaug` imports neither CuPy nor nvImageCodec and creates no CUDA context. Modules load on first use, so
`python -m cuaug doctor` runs where a dependency is missing.

__main__.py    `python -m cuaug`: the `cuaug` command
loader.py      `Loader`: image files in, augmented batches out
batch.py       `Batch`: the images and labels of a step, and which samples they are
decoding.py    `decode`: encoded images in, tensors out, without a loader
ray.py         `Augment`: images in columns of batches, decoded and augmented
drawing.py     `show`: a batch as a grid of pictures, with its boxes, masks, keypoints and labels
errors.py      the exceptions cuaug raises on purpose, which derive from `CuaugError`, and its warnings
transforms/    transform classes
functional/    the same operations with explicit parameters
targets/       boxes, masks and keypoints of labels
plan/          the operations of a batch, one program per sample
images/        images of any library as tensors
devices/       runs plans on the CPU and on GPUs
codec/         decodes images and videos
pipeline/      from sample indices to finished batches
sampling/      order, random numbers, rank slices
profiling/     where a loader's time goes
cache/         encoded bytes and decoded pixels that epochs share
sources/       where samples come from
remote/        byte ranges of remote files
commands/      the `cuaug` command
_runtime/      process and machine: compiled library, disk, forks, CPUs, ranks; checks of arguments
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
    from cuaug import cache, functional, ops, ray, sources, transforms
    from cuaug.batch import Batch, collate
    from cuaug.cache import DecodedCache, EncodedCache
    from cuaug.codec.decode_options import DecodeOptions
    from cuaug.commands import prepare
    from cuaug.decoding import decode
    from cuaug.drawing import show
    from cuaug.loader import Loader
    from cuaug.ops import choice, normal, op, uniform
    from cuaug.sampling import RepeatedSampler, ShardSampler, WeightedSampler

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
    "RepeatedSampler",
    "ShardSampler",
    "SourceError",
    "TransformError",
    "WeightedSampler",
    "cache",
    "choice",
    "collate",
    "decode",
    "functional",
    "normal",
    "op",
    "ops",
    "prepare",
    "ray",
    "show",
    "sources",
    "transforms",
    "uniform",
]

_MODULES = {
    "cache": "cuaug.cache",
    "functional": "cuaug.functional",
    "ops": "cuaug.ops",
    "prepare": "cuaug.commands.prepare",
    "ray": "cuaug.ray",
    "sources": "cuaug.sources",
    "transforms": "cuaug.transforms",
}
_MODULE_OF = {
    "Batch": "cuaug.batch",
    "DecodeOptions": "cuaug.codec.decode_options",
    "DecodedCache": "cuaug.cache",
    "EncodedCache": "cuaug.cache",
    "Loader": "cuaug.loader",
    "RepeatedSampler": "cuaug.sampling",
    "ShardSampler": "cuaug.sampling",
    "WeightedSampler": "cuaug.sampling",
    "choice": "cuaug.ops",
    "collate": "cuaug.batch",
    "decode": "cuaug.decoding",
    "normal": "cuaug.ops",
    "op": "cuaug.ops",
    "show": "cuaug.drawing",
    "uniform": "cuaug.ops",
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
