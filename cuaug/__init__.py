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
transformers.py  chains that equal the image processors of Hugging Face Transformers
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
    from cuaug import cache, functional, ops, ray, sources, transformers, transforms
    from cuaug.batch import Batch, collate
    from cuaug.cache import DecodedCache, EncodedCache
    from cuaug.codec.decode_options import DecodeOptions
    from cuaug.decoding import decode
    from cuaug.drawing import show
    from cuaug.loader import Loader
    from cuaug.ops import choice, normal, op, uniform
    from cuaug.sampling import (
        BucketSampler,
        RepeatedSampler,
        ShardSampler,
        SizedBatch,
        TokenBudgetSampler,
        WeightedSampler,
        make_buckets,
    )
    from cuaug.transforms.parameters import BUCKET

__version__ = "0.1.0"
__all__ = [
    "BUCKET",
    "ArgumentError",
    "Batch",
    "BucketSampler",
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
    "SizedBatch",
    "SourceError",
    "TokenBudgetSampler",
    "TransformError",
    "WeightedSampler",
    "cache",
    "choice",
    "collate",
    "decode",
    "functional",
    "make_buckets",
    "normal",
    "op",
    "ops",
    "ray",
    "show",
    "sources",
    "transformers",
    "transforms",
    "uniform",
]

_MODULES = {
    "cache": "cuaug.cache",
    "functional": "cuaug.functional",
    "ops": "cuaug.ops",
    "ray": "cuaug.ray",
    "sources": "cuaug.sources",
    "transformers": "cuaug.transformers",
    "transforms": "cuaug.transforms",
}
_MODULE_OF = {
    "BUCKET": "cuaug.transforms.parameters",
    "Batch": "cuaug.batch",
    "BucketSampler": "cuaug.sampling",
    "DecodeOptions": "cuaug.codec.decode_options",
    "DecodedCache": "cuaug.cache",
    "EncodedCache": "cuaug.cache",
    "Loader": "cuaug.loader",
    "RepeatedSampler": "cuaug.sampling",
    "ShardSampler": "cuaug.sampling",
    "SizedBatch": "cuaug.sampling",
    "TokenBudgetSampler": "cuaug.sampling",
    "WeightedSampler": "cuaug.sampling",
    "choice": "cuaug.ops",
    "collate": "cuaug.batch",
    "decode": "cuaug.decoding",
    "make_buckets": "cuaug.sampling",
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
            raise _missing(name)
        globals()[name] = value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        return value


def _missing(name: str) -> AttributeError:
    """The error for a name that is not here, but may be in a sub-package, or be another library's."""
    from cuaug._runtime.migration_hints import PACKAGE, missing_name

    inner = () if name.startswith("_") else ("transforms", "functional", "sources")
    owner = next((package for package in inner if name in importlib.import_module(f"cuaug.{package}").__all__), None)
    return missing_name("cuaug", name, {name: f"cuaug.{owner}.{name}"} if owner else PACKAGE)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
