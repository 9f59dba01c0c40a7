"""What automatic augmentation chooses from: operations, the ranges of their magnitudes, and policies that were learned.

Names and numbers are torchvision's; the policies are those of Cubuk et al. 2019 (AutoAugment, appendix A).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cuaug.transforms.arguments import ShownByName

__all__ = [
    "GREATEST",
    "MIXED",
    "MIXED_LEVELS",
    "SIGNED",
    "WIDEST",
    "WITHOUT_COLOR",
    "AutoAugmentPolicy",
    "magnitudes",
    "mixed_magnitudes",
    "sub_policies",
]


class AutoAugmentPolicy(ShownByName):
    """The data that a policy was learned on; torchvision's names and values."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


#: Operations that go either way: the sign of their magnitude is drawn.
SIGNED = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness")

#: Each operation of AutoAugment and RandAugment, and its greatest magnitude: the tangent of a shear, a shift in parts
#: of the image's side, degrees, how far a factor is from 1, bits that are dropped, and how far below white, in parts
#: of it, inverting begins. 0: it has none.
GREATEST = {
    "Identity": 0.0,
    "ShearX": 0.3,
    "ShearY": 0.3,
    "TranslateX": 150.0 / 331.0,
    "TranslateY": 150.0 / 331.0,
    "Rotate": 30.0,
    "Brightness": 0.9,
    "Color": 0.9,
    "Contrast": 0.9,
    "Sharpness": 0.9,
    "Posterize": 4.0,
    "Solarize": 1.0,
    "AutoContrast": 0.0,
    "Equalize": 0.0,
    "Invert": 0.0,
}

#: The same for TrivialAugmentWide, whose shifts are in pixels.
WIDEST = {
    "Identity": 0.0,
    "ShearX": 0.99,
    "ShearY": 0.99,
    "TranslateX": 32.0,
    "TranslateY": 32.0,
    "Rotate": 135.0,
    "Brightness": 0.99,
    "Color": 0.99,
    "Contrast": 0.99,
    "Sharpness": 0.99,
    "Posterize": 6.0,
    "Solarize": 1.0,
    "AutoContrast": 0.0,
    "Equalize": 0.0,
}


@functools.cache
def magnitudes(wide: bool, bins: int) -> NDArray[np.float64]:
    """(operations, bins): the magnitudes of WIDEST's or GREATEST's operations; Posterize's are the bits that stay."""
    greatest = WIDEST if wide else GREATEST
    return _up_to(greatest, list(greatest), bins, most_bits=8.0)


def _up_to(greatest: Mapping[str, float], names: list[str], levels: int, *, most_bits: float) -> NDArray[np.float64]:
    """(operations, levels): from nothing to what is greatest, in equal steps; Posterize leaves `most_bits` and less."""
    part = np.linspace(0.0, 1.0, levels)
    table = np.array([greatest.get(name, 0.0) * part for name in names])
    posterize, solarize = names.index("Posterize"), names.index("Solarize")
    table[posterize] = np.rint(most_bits - table[posterize])
    table[solarize] = 1.0 - table[solarize]
    return table


#: The operations of AugMix, of which those of colour are left out without `all_ops`, and their greatest magnitudes.
MIXED = {
    "ShearX": 0.3,
    "ShearY": 0.3,
    "TranslateX": 1.0 / 3.0,
    "TranslateY": 1.0 / 3.0,
    "Rotate": 30.0,
    "Posterize": 4.0,
    "Solarize": 1.0,
    "AutoContrast": 0.0,
    "Equalize": 0.0,
    "Brightness": 0.9,
    "Color": 0.9,
    "Contrast": 0.9,
    "Sharpness": 0.9,
}
WITHOUT_COLOR = 9
MIXED_LEVELS = 10


@functools.cache
def mixed_magnitudes() -> NDArray[np.float64]:
    """(operations, MIXED_LEVELS): as `magnitudes`, of AugMix's; Posterize leaves 4 bits at most."""
    return _up_to(MIXED, list(GREATEST), MIXED_LEVELS, most_bits=4.0)


# Rows of an operation, its probability and the number of its magnitude out of 10; then those of a second one.
_POLICIES = {
    AutoAugmentPolicy.IMAGENET: """
        Posterize 0.4 8, Rotate 0.6 9
        Solarize 0.6 5, AutoContrast 0.6 -
        Equalize 0.8 -, Equalize 0.6 -
        Posterize 0.6 7, Posterize 0.6 6
        Equalize 0.4 -, Solarize 0.2 4
        Equalize 0.4 -, Rotate 0.8 8
        Solarize 0.6 3, Equalize 0.6 -
        Posterize 0.8 5, Equalize 1.0 -
        Rotate 0.2 3, Solarize 0.6 8
        Equalize 0.6 -, Posterize 0.4 6
        Rotate 0.8 8, Color 0.4 0
        Rotate 0.4 9, Equalize 0.6 -
        Equalize 0.0 -, Equalize 0.8 -
        Invert 0.6 -, Equalize 1.0 -
        Color 0.6 4, Contrast 1.0 8
        Rotate 0.8 8, Color 1.0 2
        Color 0.8 8, Solarize 0.8 7
        Sharpness 0.4 7, Invert 0.6 -
        ShearX 0.6 5, Equalize 1.0 -
        Color 0.4 0, Equalize 0.6 -
        Equalize 0.4 -, Solarize 0.2 4
        Solarize 0.6 5, AutoContrast 0.6 -
        Invert 0.6 -, Equalize 1.0 -
        Color 0.6 4, Contrast 1.0 8
        Equalize 0.8 -, Equalize 0.6 -
    """,
    AutoAugmentPolicy.CIFAR10: """
        Invert 0.1 -, Contrast 0.2 6
        Rotate 0.7 2, TranslateX 0.3 9
        Sharpness 0.8 1, Sharpness 0.9 3
        ShearY 0.5 8, TranslateY 0.7 9
        AutoContrast 0.5 -, Equalize 0.9 -
        ShearY 0.2 7, Posterize 0.3 7
        Color 0.4 3, Brightness 0.6 7
        Sharpness 0.3 9, Brightness 0.7 9
        Equalize 0.6 -, Equalize 0.5 -
        Contrast 0.6 7, Sharpness 0.6 5
        Color 0.7 7, TranslateX 0.5 8
        Equalize 0.3 -, AutoContrast 0.4 -
        TranslateY 0.4 3, Sharpness 0.2 6
        Brightness 0.9 6, Color 0.2 8
        Solarize 0.5 2, Invert 0.0 -
        Equalize 0.2 -, AutoContrast 0.6 -
        Equalize 0.2 -, Equalize 0.6 -
        Color 0.9 9, Equalize 0.6 -
        AutoContrast 0.8 -, Solarize 0.2 8
        Brightness 0.1 3, Color 0.7 0
        Solarize 0.4 5, AutoContrast 0.9 -
        TranslateY 0.9 9, TranslateY 0.7 9
        AutoContrast 0.9 -, Solarize 0.8 3
        Equalize 0.8 -, Invert 0.1 -
        TranslateY 0.7 9, AutoContrast 0.9 -
    """,
    AutoAugmentPolicy.SVHN: """
        ShearX 0.9 4, Invert 0.2 -
        ShearY 0.9 8, Invert 0.7 -
        Equalize 0.6 -, Solarize 0.6 6
        Invert 0.9 -, Equalize 0.6 -
        Equalize 0.6 -, Rotate 0.9 3
        ShearX 0.9 4, AutoContrast 0.8 -
        ShearY 0.9 8, Invert 0.4 -
        ShearY 0.9 5, Solarize 0.2 6
        Invert 0.9 -, AutoContrast 0.8 -
        Equalize 0.6 -, Rotate 0.9 3
        ShearX 0.9 4, Solarize 0.3 3
        ShearY 0.8 8, Invert 0.7 -
        Equalize 0.9 -, TranslateY 0.6 6
        Invert 0.9 -, Equalize 0.6 -
        Contrast 0.3 3, Rotate 0.8 4
        Invert 0.8 -, TranslateY 0.0 2
        ShearY 0.7 6, Solarize 0.4 8
        Invert 0.6 -, Rotate 0.8 4
        ShearY 0.3 7, TranslateX 0.9 3
        ShearX 0.1 6, Invert 0.6 -
        Solarize 0.7 2, TranslateY 0.6 7
        ShearY 0.8 4, Invert 0.8 -
        ShearX 0.7 9, TranslateY 0.8 3
        ShearY 0.8 5, AutoContrast 0.7 -
        ShearX 0.7 2, Invert 0.1 -
    """,
}


@functools.cache
def sub_policies(policy: AutoAugmentPolicy) -> NDArray[np.float64]:
    """(25, 2, 3): pairs of (number of the operation in GREATEST, probability, number of its magnitude or 0)."""
    numbers = {name: float(number) for number, name in enumerate(GREATEST)}
    pairs = []
    for row in _POLICIES[policy].strip().splitlines():
        steps = [step.split() for step in row.split(",")]
        pairs.append([(numbers[name], float(part), float(level.replace("-", "0"))) for name, part, level in steps])
    return np.array(pairs)
