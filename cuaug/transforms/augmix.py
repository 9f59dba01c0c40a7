"""AugMix, with torchvision v2's name, arguments and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cuaug.errors import TransformError
from cuaug.plan import Plan
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments, policies
from cuaug.transforms.auto import PolicyTransform
from cuaug.transforms.base import BatchTransform
from cuaug.transforms.mixes import blend

__all__ = ["AugMix"]

Sizes = NDArray[np.int64]


class _AugMixOperations(PolicyTransform):
    def _magnitudes(self, bins: int) -> NDArray[np.float64]:
        return policies.augmix_magnitudes()


class AugMix(BatchTransform):
    """Blend each image with several augmented versions of it (Hendrycks et al. 2020).

    Each version is a short chain of random operations. A Dirichlet distribution draws the weights of the versions, a
    Beta distribution the weight of the image itself. All chains of a batch are one plan. It takes as many launches as
    the longest chain, plus one launch per version to blend.

    Place it before `Normalize`. Labels stay as they are. uint8 images are rounded at the end of each chain and after
    the blend; torchvision rounds after each operation, and truncates the blend.

    Args:
        severity: magnitudes are drawn from the lowest `severity` of 10 levels.
        mixture_width: number of augmented versions.
        chain_depth: operations per version; 0 or less: 1, 2 or 3, drawn for each version.
        alpha: parameter of both distributions.
        all_ops: whether to include Brightness, Color, Contrast and Sharpness.
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
        fill: arguments.Fill = None,
    ) -> None:
        self.severity = arguments.integer("severity", severity, 1, policies.AUGMIX_LEVELS)
        self.mixture_width = arguments.integer("mixture_width", mixture_width, 1)
        self.chain_depth = arguments.integer("chain_depth", chain_depth)
        self.alpha = arguments.positive("alpha", alpha)
        self.all_ops = all_ops
        self.interpolation = interpolation
        self.fill = fill
        self._operations = _AugMixOperations(interpolation, fill)
        names = [*policies.AUGMIX_MAGNITUDES][: None if all_ops else policies.AUGMIX_COLORLESS]
        self._ids = np.array([list(policies.MAX_MAGNITUDES).index(name) for name in names])

    def make_params(self, rng: SampleRNG, heights: Sizes, widths: Sizes) -> dict[str, Any]:
        width, depth = self.mixture_width, self.chain_depth if self.chain_depth > 0 else 3
        image_weight = rng.beta(self.alpha)
        weights = rng.dirichlet(self.alpha, width) * (1.0 - image_weight[:, None])
        length = rng.uniform(width, 1, 4).astype(np.int64) if self.chain_depth <= 0 else np.full(width, depth)
        ids = self._ids[rng.uniform(width * depth, 0, len(self._ids)).astype(np.int64)]
        level = rng.uniform(width * depth, 0, self.severity).astype(np.int64)
        # Steps after the end of a chain are Identity, 0.
        ids = np.where((np.arange(depth) < length[..., None]).reshape(-1, width * depth), ids, 0)
        params = self._operations._params(rng, ids, level, policies.AUGMIX_LEVELS, heights, widths)
        shaped = {name: values.reshape(-1, width, depth) for name, values in params.items()}
        return {"weights": np.concatenate([image_weight[:, None], weights], axis=1), **shaped}

    def run(self, images: Tensor, targets: list[Any] | None, **params: Any) -> tuple[Tensor, list[Any] | None]:
        from cuaug.apply import apply  # only running needs a device

        if images.ndim != 4:
            raise TransformError(
                f"images of AugMix must be (N, C, H, W), not {tuple(images.shape)}: it cannot follow several views"
            )
        operation, magnitude = (params[k].reshape(-1, params[k].shape[-1]) for k in ("operation", "magnitude"))

        def write(plan: Plan) -> None:
            self._operations.write(plan, None, operation=operation, magnitude=magnitude)

        augmented = apply(images, write, views=self.mixture_width)
        versions = augmented.unbind(1) if self.mixture_width > 1 else [augmented]
        return blend([images, *versions], [*params["weights"].T.copy()]), targets
