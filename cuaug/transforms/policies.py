"""Operations of automatic augmentation, their magnitude ranges, and the learned policies.

Names and values are torchvision's. The policies are those of Cubuk et al. 2019 (AutoAugment, appendix A).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cuaug.transforms.parameters import NamedEnum


class AutoAugmentPolicy(NamedEnum):
    """AutoAugment policies, named after the data set they were learned on."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


#: Operations whose magnitude gets a random sign.
SIGNED = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness")

#: The operations of AutoAugment and RandAugment, and their largest magnitudes. Shear: tangent. Translate: share of the
#: image's side. Rotate: degrees. Color operations: distance of the factor from 1. Posterize: bits dropped. Solarize:
#: distance of the threshold from white, as a share of white. 0: the operation has no magnitude.
MAX_MAGNITUDES = {
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

#: The operations of TrivialAugmentWide, and their largest magnitudes. Translate: pixels.
WIDE_MAGNITUDES = {
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
    """(operations, bins): magnitudes of all operations; Posterize's are the bits kept."""
    largest = WIDE_MAGNITUDES if wide else MAX_MAGNITUDES
    return _magnitude_table(largest, list(largest), bins, most_bits=8.0)


def _magnitude_table(
    largest: Mapping[str, float], names: list[str], levels: int, *, most_bits: float
) -> NDArray[np.float64]:
    """(operations, levels): equal steps from 0 to the largest magnitude; Posterize keeps `most_bits` or fewer."""
    steps = np.linspace(0.0, 1.0, levels)
    table = np.array([largest.get(name, 0.0) * steps for name in names])
    posterize, solarize = names.index("Posterize"), names.index("Solarize")
    table[posterize] = np.rint(most_bits - table[posterize])
    table[solarize] = 1.0 - table[solarize]
    return table


#: The operations of AugMix, and their largest magnitudes.
AUGMIX_MAGNITUDES = {
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
#: Number of AugMix operations with `all_ops=False`: those before Brightness.
AUGMIX_COLORLESS = 9
AUGMIX_LEVELS = 10


@functools.cache
def augmix_magnitudes() -> NDArray[np.float64]:
    """(operations, AUGMIX_LEVELS): as `magnitudes`, for AugMix; Posterize keeps 4 bits or fewer."""
    return _magnitude_table(AUGMIX_MAGNITUDES, list(MAX_MAGNITUDES), AUGMIX_LEVELS, most_bits=4.0)


# Each row: two operations, each with its probability and its magnitude level out of 10.
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
    """(25, 2, 3): pairs of (index in MAX_MAGNITUDES, probability, magnitude level or 0)."""
    ids = {name: float(number) for number, name in enumerate(MAX_MAGNITUDES)}
    pairs = []
    for row in _POLICIES[policy].strip().splitlines():
        steps = [step.split() for step in row.split(",")]
        pairs.append([(ids[name], float(p), float(level.replace("-", "0"))) for name, p, level in steps])
    return np.array(pairs)
