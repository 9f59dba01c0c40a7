"""Finds transforms whose order does harm, when a chain is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cuaug.errors import ChainWarning, warn_caller
from cuaug.plan import Type
from cuaug.transforms.base import BatchTransform, Lambda
from cuaug.transforms.dtype import Normalize, ToDtype

#: Transforms whose result depends on the range [0, 1], or that clamp to it.
_NEED_RANGE = frozenset(
    {"AugMix", "AutoAugment", "CLAHE", "ColorJitter", "LUT", "PlanckianJitter", "RGBShift", "RandAugment"}
    | {"RandomAdjustSharpness", "RandomAutocontrast", "RandomBrightness", "RandomContrast", "RandomEqualize"}
    | {"RandomGamma", "RandomHue", "RandomInvert", "RandomPhotometricDistort", "RandomPosterize", "RandomSaturation"}
    | {"RandomSolarize", "ShotNoise", "TrivialAugmentWide"}
)
_MEMBERS_EXCLUDE_EACH_OTHER = frozenset({"MultiView", "RandomChoice"})


class _Step(NamedTuple):
    """A transform, and the inner chains that hold it."""

    transform: Any
    chains: tuple[int, ...]


class _State(NamedTuple):
    """The range and type of the values after the earlier transforms.

    Attributes:
        normalized: the `Normalize` after which they are.
        unscaled: the `ToDtype` that made them floats up to 255.
        scaled: the `ToDtype` that made them floats in [0, 1].
    """

    normalized: _Step | None = None
    unscaled: _Step | None = None
    scaled: _Step | None = None


def warn_about_order(transforms: Sequence[Any]) -> None:
    """Warn the caller outside of cuaug about each pair of transforms whose order does harm."""
    for problem in order_problems(transforms):
        warn_caller(problem, ChainWarning)


def order_problems(transforms: Sequence[Any]) -> list[str]:
    """A sentence for each pair of transforms whose order does harm; inner chains have told of their own pairs."""
    problems: list[str] = []
    _walk(transforms, _State(), (), problems)
    return problems


def _walk(transforms: Sequence[Any], state: _State, chains: tuple[int, ...], problems: list[str]) -> _State:
    for transform in transforms:
        state = _after(_Step(transform, chains), state, problems)
    return state


def _after(step: _Step, state: _State, problems: list[str]) -> _State:
    transform, name = step.transform, type(step.transform).__name__
    inner = getattr(transform, "transforms", None)
    if isinstance(inner, (list, tuple)):
        chains = (*step.chains, id(transform)) if hasattr(transform, "segments") else step.chains
        if name not in _MEMBERS_EXCLUDE_EACH_OTHER:
            return _walk(inner, state, chains, problems)
        ends = [_after(_Step(member, chains), state, problems) for member in inner]
        return _State(*(next(filter(None, values), None) for values in zip(*ends, strict=True))) if ends else state
    if isinstance(transform, Normalize):
        return _after_normalize(step, transform, state, problems)
    if isinstance(transform, ToDtype):
        return _after_dtype(step, transform, state)
    if isinstance(transform, Lambda) or (isinstance(transform, BatchTransform) and not transform.keeps_range):
        return _State()
    needs_range = name in _NEED_RANGE or getattr(transform, "needs_unit_range", False)
    if needs_range and state.normalized is not None and not _share_a_chain(step, state.normalized):
        problems.append(
            f"transforms: {name} comes after Normalize, but needs values in [0, 1]: put Normalize after all color "
            "transforms"
        )
    return state


def _after_normalize(step: _Step, transform: Normalize, state: _State, problems: list[str]) -> _State:
    largest = max(*transform.mean, *transform.std)
    if state.normalized is not None:
        if min(transform.mean) < 0.0 or max(transform.std) > 1.0:  # back to [0, 1]
            return state._replace(normalized=None)
        if not _share_a_chain(step, state.normalized):
            problems.append("transforms: Normalize comes twice, so the values are normalized twice: remove one")
        return state
    is_for_unit_range = largest <= 1.0 and any(transform.mean)
    if state.unscaled is not None and is_for_unit_range and not _share_a_chain(step, state.unscaled):
        problems.append(
            f"transforms: Normalize has a mean and std for values in [0, 1], but {state.unscaled.transform!r} before "
            "it keeps uint8 values up to 255: use scale=True, or remove it, for Normalize scales uint8 images"
        )
    if state.scaled is not None and largest > 1.0 and not _share_a_chain(step, state.scaled):
        problems.append(
            f"transforms: Normalize has a mean or std above 1, for levels up to 255, but {state.scaled.transform!r} "
            "before it makes values in [0, 1]: divide mean and std by 255"
        )
    return state._replace(normalized=step)


def _after_dtype(step: _Step, transform: ToDtype, state: _State) -> _State:
    if transform.image_type == Type.UINT8:
        return _State()
    if transform.image_type is None or state.normalized or state.unscaled or state.scaled:
        return state  # floats stay as they are
    return state._replace(scaled=step) if transform.scale else state._replace(unscaled=step)


def _share_a_chain(one: _Step, other: _Step) -> bool:
    return not set(one.chains).isdisjoint(other.chains)
