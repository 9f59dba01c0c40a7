"""Noise, drawn for each pixel of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuaug.plan import Plan, operations
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import RandomTransform, Transform, Where

__all__ = ["GaussianNoise", "SaltAndPepper", "ShotNoise", "keep_gray"]


def keep_gray(plan: Plan, where: Where) -> None:
    """Copy the first channel's noise to all channels of gray images, which the kernels see as three channels."""
    if plan.channels == 1:
        plan.append(operations.first_channel(len(plan)), where)


class GaussianNoise(Transform):
    """Add Gaussian noise to the image.

    Args:
        mean: mean of the noise, as a share of white: 0.1 is 0.1 on floats and 25.5 levels on uint8.
        sigma: standard deviation of the noise, as a share of white; or (lower, upper), to draw from.
        clip: saturate to [black, white]. uint8 images saturate at the end of the chain anyway.
    """

    def __init__(self, mean: float = 0.0, sigma: float | Sequence[float] = 0.1, clip: bool = True) -> None:
        self.mean = arguments.number("mean", mean)
        self.sigma = sigma
        self.clip = clip
        self._sigma = arguments.number_or_bounds("sigma", sigma)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"keys": rng.keys(), "sigma": rng.uniform(None, *self._sigma)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        mean, sigma = plan.limit * self.mean, plan.limit * params["sigma"]
        limit = plan.limit if self.clip else -1.0
        plan.append(operations.noise(len(plan), limit, plan.keys_per_frame(params["keys"]), mean, sigma), where)
        keep_gray(plan, where)


class SaltAndPepper(RandomTransform):
    """Set random pixels to white or black with probability `p` (Albumentations).

    Args:
        amount: (lower, upper) bounds of the expected share of such pixels.
        salt_vs_pepper: (lower, upper) bounds of the share of white pixels among them.
        p: probability, per sample.
    """

    def __init__(
        self,
        amount: Sequence[float] = (0.01, 0.06),
        salt_vs_pepper: Sequence[float] = (0.4, 0.6),
        p: float = 0.5,
    ) -> None:
        self.amount = arguments.bounds("amount", amount, high=1.0)
        self.salt_vs_pepper = arguments.bounds("salt_vs_pepper", salt_vs_pepper, high=1.0)
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        amount, salt = rng.uniform(None, *self.amount), rng.uniform(None, *self.salt_vs_pepper)
        return {"amount": amount, "pepper": amount * (1.0 - salt), "keys": rng.keys()}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        # Both operations use the same draws: a pixel below `amount` becomes white, a pixel below `pepper` then black.
        keys = plan.keys_per_frame(params["keys"])
        for ratio, color in ((params["amount"], plan.limit), (params["pepper"], 0.0)):
            plan.append(operations.mask(len(plan), ratio, keys, color), where)


class ShotNoise(RandomTransform):
    """Add photon noise to the image with probability `p` (Albumentations).

    Linear light, v ** 2.2, is replaced by a Poisson draw with that mean.

    Args:
        scale_range: (lower, upper) bounds, above 0, of the light of one photon, as a share of white. 0.1 leaves white
            about ten photons.
        p: probability, per sample.
    """

    def __init__(self, scale_range: Sequence[float] = (0.1, 0.3), p: float = 0.5) -> None:
        self.scale_range = arguments.bounds("scale_range", scale_range, low=1e-6)
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"keys": rng.keys(), "scale": rng.uniform(None, *self.scale_range)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        keys = plan.keys_per_frame(params["keys"])
        plan.append(operations.shot_noise(len(plan), plan.limit, keys, params["scale"]), where)
        keep_gray(plan, where)
