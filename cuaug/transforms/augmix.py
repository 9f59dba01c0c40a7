"""AugMix: each image blended with some of its augmentations. Name, arguments and formula are torchvision v2's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments, policies
from cuaug.transforms.auto import Augment
from cuaug.transforms.base import BatchTransform
from cuaug.transforms.mixes import blend

__all__ = ["AugMix"]

Sizes = NDArray[np.int64]


class _Chains(Augment):
    """The operations of AugMix."""

    def _magnitudes(self, bins: int) -> NDArray[np.float64]:
        return policies.mixed_magnitudes()


class AugMix(BatchTransform):
    """A weighted mean of each image and some chains of operations on it (Hendrycks et al. 2020).

    The weights of the chains are drawn from a Dirichlet distribution, that of the image itself from Beta, and each
    operation and its magnitude for each chain of each image. All chains of a batch are one plan: it takes as many
    launches as the longest of them, whatever the batch and `mixture_width`, and then one for each chain's part.

    Labels stay as they are. It belongs before `Normalize`. Chains of uint8 images are rounded at their end, and their
    mean is; torchvision rounds each operation and cuts the mean's fraction off.

    Args:
        severity: from 1 to 10: magnitudes are drawn from that many of 10 levels, the lowest ones.
        mixture_width: how many chains.
        chain_depth: operations of each; 0 or less: 1, 2 or 3, drawn for each chain.
        alpha: of both distributions.
        all_ops: whether Brightness, Color, Contrast and Sharpness are among the operations.
        interpolation, fill: as for `AutoAugment`.
    """

    keeps_range = True

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: arguments.Interpolation = "bilinear",
        fill: float | Sequence[float] | None = None,
    ) -> None:
        self.severity = arguments.whole("severity", severity, 1)
        if self.severity > policies.MIXED_LEVELS:
            raise TransformError(f"severity is from 1 to {policies.MIXED_LEVELS}, not {severity!r}")
        self.mixture_width = arguments.whole("mixture_width", mixture_width, 1)
        self.chain_depth = arguments.whole("chain_depth", chain_depth)
        self.alpha = arguments.positive("alpha", alpha)
        self.all_ops = all_ops
        self.interpolation = interpolation
        self.fill = fill
        self._chains = _Chains(interpolation, fill)
        names = list(policies.MIXED)[: None if all_ops else policies.WITHOUT_COLOR]
        self._numbers = np.array([list(policies.GREATEST).index(name) for name in names])

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        width, steps = self.mixture_width, self.chain_depth if self.chain_depth > 0 else 3
        own = rng.beta(self.alpha)
        weights = rng.dirichlet(self.alpha, width) * (1.0 - own[:, None])
        length = rng.uniform(width, 1, 4).astype(np.int64) if self.chain_depth <= 0 else np.full(width, steps)
        number = self._numbers[rng.uniform(width * steps, 0, len(self._numbers)).astype(np.int64)]
        level = rng.uniform(width * steps, 0, self.severity).astype(np.int64)
        # What comes after a chain's end has the number of Identity.
        number = np.where((np.arange(steps) < length[..., None]).reshape(-1, width * steps), number, 0)
        chains = self._chains._params(rng, number, level, policies.MIXED_LEVELS, heights, widths)
        shaped = {name: values.reshape(-1, width, steps) for name, values in chains.items()}
        return {"weights": np.concatenate([own[:, None], weights], axis=1), **shaped}

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        from cuaug.apply import apply  # only running needs a device

        operation, magnitude = (params[k].reshape(-1, params[k].shape[-1]) for k in ("operation", "magnitude"))

        def write(plan: Plan) -> None:
            self._chains.write(plan, None, operation=operation, magnitude=magnitude)

        made = apply(images, write, views=self.mixture_width)
        chains = made.unbind(1) if self.mixture_width > 1 else [made]
        return blend([images, *chains], [*params["weights"].T.copy()]), targets
