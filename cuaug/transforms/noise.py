"""Noise, drawn for each pixel of each sample: neither tiles nor batches show, and flips that follow move it along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuaug.plan import Plan, operations
from cuaug.sampling.rng import SampleRNG
from cuaug.transforms import arguments
from cuaug.transforms.base import RandomTransform, Transform, Where

__all__ = ["GaussianNoise", "SaltAndPepper", "ShotNoise", "keep_gray"]


def keep_gray(plan: Plan, where: Where) -> None:
    """After noise that is drawn for each channel: images of one channel go on with the noise of that one."""
    if plan.channels == 1:
        plan.append(operations.first_channel(len(plan)), where)


class GaussianNoise(Transform):
    """Adds a normal draw to each pixel and channel.

    Args:
        mean, sigma: of the draws, as parts of white: 0.1 is 0.1 on floats and 25.5 levels on uint8. `sigma` may be
            (lower, upper): drawn for each sample.
        clip: saturate to [black, white]; uint8 images saturate at the end of the chain anyway.
    """

    def __init__(self, mean: float = 0.0, sigma: float | Sequence[float] = 0.1, clip: bool = True) -> None:
        self.mean = arguments.number("mean", mean)
        self.sigma = sigma
        self.clip = clip
        self._sigma = arguments.one_or_span("sigma", sigma)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"keys": rng.keys(), "sigma": rng.uniform(None, *self._sigma)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        mean, sigma = plan.limit * self.mean, plan.limit * params["sigma"]
        limit = plan.limit if self.clip else -1.0
        plan.append(operations.noise(len(plan), limit, params["keys"], mean, sigma), where)
        keep_gray(plan, where)


class SaltAndPepper(RandomTransform):
    """Makes single pixels white or black, in all channels (Albumentations' names).

    Args:
        amount: (lower, upper) bounds of the expected share of such pixels, drawn for each sample.
        salt_vs_pepper: (lower, upper) bounds of the white ones' share of those.
        p: probability, for each sample.
    """

    def __init__(
        self,
        amount: Sequence[float] = (0.01, 0.06),
        salt_vs_pepper: Sequence[float] = (0.4, 0.6),
        p: float = 0.5,
    ) -> None:
        self.amount = arguments.span("amount", amount, high=1.0)
        self.salt_vs_pepper = arguments.span("salt_vs_pepper", salt_vs_pepper, high=1.0)
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        amount, salt = rng.uniform(None, *self.amount), rng.uniform(None, *self.salt_vs_pepper)
        return {"amount": amount, "pepper": amount * (1.0 - salt), "keys": rng.keys()}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        # The same draws decide twice: below `amount` a pixel is white, and of those below `pepper` black.
        for ratio, color in ((params["amount"], plan.limit), (params["pepper"], 0.0)):
            plan.append(operations.mask(len(plan), ratio, params["keys"], color), where)


class ShotNoise(RandomTransform):
    """Counts photons (Albumentations' names): linear light, v ** 2.2, becomes a Poisson draw with that mean.

    Args:
        scale_range: (lower, upper) bounds, above 0, of the light of one photon, as a part of white's; drawn for each
            sample. 0.1 leaves white about ten photons.
        p: probability, for each sample.
    """

    def __init__(self, scale_range: Sequence[float] = (0.1, 0.3), p: float = 0.5) -> None:
        self.scale_range = arguments.span("scale_range", scale_range, low=1e-6)
        self.p = arguments.probability("p", p)

    def make_params(self, rng: SampleRNG, heights: Any, widths: Any) -> dict[str, Any]:
        return {"keys": rng.keys(), "scale": rng.uniform(None, *self.scale_range)}

    def write(self, plan: Plan, where: Where, **params: Any) -> None:
        plan.append(operations.shot_noise(len(plan), plan.limit, **params), where)
        keep_gray(plan, where)
