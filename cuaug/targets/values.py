"""Arrays as users have them: NumPy arrays, torch tensors, lists, torchvision's tv_tensors."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Value", "tv_kind", "tv_kind_of"]


def tv_kind(given: Any) -> str | None:
    """The name of the tv_tensor class that it is of, where there are such."""
    return tv_kind_of(type(given))


def tv_kind_of(kind: type) -> str | None:
    """The name of the tv_tensor class that it is, or is made from."""
    module = sys.modules.get("torchvision.tv_tensors")  # whoever has one has imported it
    if module is None or not issubclass(kind, torch.Tensor):
        return None
    kinds = ("BoundingBoxes", "KeyPoints", "Mask")
    return next((name for name in kinds if issubclass(kind, getattr(module, name, ()))), None)


class Value:
    """What was given, seen as a NumPy array.

    Raises:
        TypeError, ValueError: it is no array, no tensor and no list of numbers.
    """

    def __init__(self, given: Any) -> None:
        self._given = given
        if isinstance(given, torch.Tensor):
            plain = given.detach().as_subclass(torch.Tensor).cpu()
            self.array = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
        elif isinstance(given, (np.ndarray, list, tuple)):
            self.array = np.asarray(given)
        else:
            raise TypeError(f"{type(given).__module__}.{type(given).__qualname__}, not an array, a tensor or a list")
        if self.array.dtype.kind not in "biuf":
            raise ValueError(f"{self.array.dtype}, not numbers")

    def like(self, array: NDArray[Any], size: tuple[int, int]) -> Any:
        """What replaces it: the same kind of thing; of tv_tensors that tell it, with `size` as that of the canvas."""
        given = self._given
        if isinstance(given, torch.Tensor):
            tensor = torch.from_numpy(np.ascontiguousarray(array)).to(given.device)
            tensor = tensor.to(given.dtype) if given.dtype == torch.bfloat16 else tensor
            kind = tv_kind(given)
            if kind is None:
                return tensor
            more = {} if kind == "Mask" else {"canvas_size": size}
            return sys.modules["torchvision.tv_tensors"].wrap(tensor, like=given, **more)
        if isinstance(given, np.ndarray):
            return array
        whole = bool(len(given)) and isinstance(given[0], np.ndarray)
        return type(given)(array if whole else array.tolist())
