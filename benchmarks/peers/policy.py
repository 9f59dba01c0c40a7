"""What ColorJitter, RandAugment and RandomErasing draw, for those peers that have no such transforms of their own.

torchvision's operations, numbers and order. An operation is a name and one number: a factor ("Brightness", "Color",
"Contrast", "Sharpness"), a part of the circle ("Hue"), a tangent ("ShearX", "ShearY"), pixels ("TranslateX",
"TranslateY"), degrees ("Rotate"), bits that stay ("Posterize"), a threshold ("Solarize"), or nothing.
"""

from __future__ import annotations

import math
import random

__all__ = ["draw_erasing", "draw_operations", "shift_matrix"]

Operation = tuple[str, float]
PART = 9 / 30  # magnitude 9 of bins 0 to 30
SIGNED = {  # how far from the neutral value at full magnitude, and that value
    "ShearX": (0.3, 0.0),
    "ShearY": (0.3, 0.0),
    "TranslateX": (150 / 331, 0.0),  # of the side
    "TranslateY": (150 / 331, 0.0),
    "Rotate": (30.0, 0.0),
    "Brightness": (0.9, 1.0),
    "Color": (0.9, 1.0),
    "Contrast": (0.9, 1.0),
    "Sharpness": (0.9, 1.0),
}
UNSIGNED = {
    "Identity": 0.0,
    "Posterize": 8.0 - round(4 * PART),
    "Solarize": 255 * (1 - PART),
    "AutoContrast": 0.0,
    "Equalize": 0.0,
}
NAMES = [*SIGNED, *UNSIGNED]


def draw_operations(size: int) -> list[Operation]:
    """ColorJitter(0.4, 0.4, 0.4, 0.1) in a random order, then RandAugment(2, 9), for an image of `size` x `size`."""
    jitter = [(name, random.uniform(0.6, 1.4)) for name in ("Brightness", "Contrast", "Color")]
    jitter.append(("Hue", random.uniform(-0.1, 0.1)))
    random.shuffle(jitter)
    return jitter + [_magnitude(name, size) for name in random.choices(NAMES, k=2)]


def _magnitude(name: str, size: int) -> Operation:
    if name in UNSIGNED:
        return name, UNSIGNED[name]
    most, neutral = SIGNED[name]
    side = size if name.startswith("Translate") else 1
    return name, neutral + random.choice((-1, 1)) * PART * most * side


def draw_erasing(size: int) -> tuple[slice, slice] | None:
    """RandomErasing(0.25)'s rectangle as rows and columns, with torchvision's ten tries; None: nothing is erased."""
    if random.random() >= 0.25:
        return None
    for _ in range(10):
        area = size * size * random.uniform(0.02, 0.33)
        ratio = math.exp(random.uniform(math.log(0.3), math.log(3.3)))
        h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < h < size and 0 < w < size:
            top, left = random.randint(0, size - h), random.randint(0, size - w)
            return slice(top, top + h), slice(left, left + w)
    return None


def shift_matrix(name: str, value: float, size: int) -> tuple[float, float, float, float, float, float]:
    """Output pixel to source pixel, (a, b, c, d, e, f), of a shear, a translation or a rotation about the centre."""
    if name == "TranslateX":
        return 1, 0, -value, 0, 1, 0
    if name == "TranslateY":
        return 1, 0, 0, 0, 1, -value
    if name == "ShearX":
        return 1, value, 0, 0, 1, 0
    if name == "ShearY":
        return 1, 0, 0, value, 1, 0
    cos, sin, centre = math.cos(math.radians(value)), math.sin(math.radians(value)), (size - 1) / 2
    return cos, -sin, centre - centre * (cos - sin), sin, cos, centre - centre * (sin + cos)
