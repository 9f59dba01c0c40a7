"""Random parameters of ColorJitter, RandAugment and RandomErasing, for peers without such transforms.

Operations, values and order are torchvision's. An operation is a name and a number: a factor ("Brightness", "Color",
"Contrast", "Sharpness"), a fraction of the hue circle ("Hue"), a tangent ("ShearX", "ShearY"), pixels ("TranslateX",
"TranslateY"), degrees ("Rotate"), bits kept ("Posterize") or a threshold ("Solarize"); others ignore it.
"""

from __future__ import annotations

import math
import random

__all__ = ["draw_erasing", "draw_operations", "shift_matrix"]

Operation = tuple[str, float]
MAGNITUDE = 9 / 30  # magnitude 9 of bins 0 to 30
SIGNED = {  # (offset at full magnitude, neutral value)
    "ShearX": (0.3, 0.0),
    "ShearY": (0.3, 0.0),
    "TranslateX": (150 / 331, 0.0),  # fraction of the side
    "TranslateY": (150 / 331, 0.0),
    "Rotate": (30.0, 0.0),
    "Brightness": (0.9, 1.0),
    "Color": (0.9, 1.0),
    "Contrast": (0.9, 1.0),
    "Sharpness": (0.9, 1.0),
}
UNSIGNED = {
    "Identity": 0.0,
    "Posterize": 8.0 - round(4 * MAGNITUDE),
    "Solarize": 255 * (1 - MAGNITUDE),
    "AutoContrast": 0.0,
    "Equalize": 0.0,
}
NAMES = [*SIGNED, *UNSIGNED]


def draw_operations(size: int) -> list[Operation]:
    """Draw ColorJitter(0.4, 0.4, 0.4, 0.1) in random order, then RandAugment(2, 9), for images of `size` x `size`."""
    jitter = [(name, random.uniform(0.6, 1.4)) for name in ("Brightness", "Contrast", "Color")]
    jitter.append(("Hue", random.uniform(-0.1, 0.1)))
    random.shuffle(jitter)
    return jitter + [_with_value(name, size) for name in random.choices(NAMES, k=2)]


def _with_value(name: str, size: int) -> Operation:
    if name in UNSIGNED:
        return name, UNSIGNED[name]
    offset, neutral = SIGNED[name]
    side = size if name.startswith("Translate") else 1
    return name, neutral + random.choice((-1, 1)) * MAGNITUDE * offset * side


def draw_erasing(size: int) -> tuple[slice, slice] | None:
    """Draw RandomErasing(0.25)'s (rows, columns) in torchvision's ten tries; None if nothing is erased."""
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
    """Output-to-source matrix (a, b, c, d, e, f) of a shear, a translation or a rotation about the center."""
    if name == "TranslateX":
        return 1, 0, -value, 0, 1, 0
    if name == "TranslateY":
        return 1, 0, 0, 0, 1, -value
    if name == "ShearX":
        return 1, value, 0, 0, 1, 0
    if name == "ShearY":
        return 1, 0, 0, value, 1, 0
    cos, sin, center = math.cos(math.radians(value)), math.sin(math.radians(value)), (size - 1) / 2
    return cos, -sin, center - center * (cos - sin), sin, cos, center - center * (sin + cos)
