"""GPU-native image loading and augmentation for PyTorch.

    >>> import cuaug
    >>> from cuaug import transforms as T
    >>> loader = cuaug.Loader("photos/", transforms=[T.RandomResizedCrop(224)], batch_size=256)  # doctest: +SKIP
    >>> for images, labels in loader: ...  # doctest: +SKIP

Importing it imports neither CuPy nor nvImageCodec, and creates no CUDA context.
"""

from cuaug import functional, transforms
from cuaug.errors import CuaugError, DecodeError, DeviceError, LoaderError, TransformError
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
