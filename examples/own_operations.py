"""Operations that people write for themselves, as functions of one pixel: docs/your_own.md explains the subset.

    from own_operations import vignette

    chain = [T.RandomResizedCrop(224), vignette(p=0.5), T.Normalize(0.5, 0.5)]

A parameter's default may be a distribution; calls may give numbers or other distributions.
"""

from __future__ import annotations

from math import cos, pi, sin, sqrt

import cuaug
from cuaug.ops import clamp, noise

__all__ = ["scan_lines", "sensor_noise", "thermal_palette", "vignette", "white_balance"]


@cuaug.op
def vignette(pixel, x, y, strength=cuaug.uniform(0.2, 1.0)):
    """Darken the corners, as a lens does."""
    return pixel * (1 - strength * (x * x + y * y) / 2)


@cuaug.op
def white_balance(pixel, warmth=cuaug.normal(0, 0.15), tint=cuaug.normal(0, 0.05)):
    """Misjudge the color of the light: warm is positive, and so is green."""
    r, g, b = pixel
    return (r * (1 + warmth), g * (1 + tint), b * (1 - warmth))


@cuaug.op
def sensor_noise(pixel, iso=cuaug.choice([100, 400, 1600, 6400, 25600])):
    """Add the noise of a sensor: of photons, which grows with the light, and of reading it out."""
    gain = iso / 100
    return pixel + noise() * sqrt(4e-5 * gain * pixel + (2e-4 * gain) ** 2)


@cuaug.op
def thermal_palette(pixel):
    """Show the brightness in the colors of a thermal camera."""
    r, g, b = pixel
    heat = 0.299 * r + 0.587 * g + 0.114 * b
    return (sqrt(heat), heat**3, clamp(sin(2 * pi * heat), 0, 1))


@cuaug.op
def scan_lines(pixel, y, lines=cuaug.uniform(20, 60), strength=cuaug.uniform(0.2, 0.7)):
    """Draw the dark lines of an old screen."""
    return pixel * (1 - strength * (0.5 + 0.5 * cos(pi * lines * y)))
