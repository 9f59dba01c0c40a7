"""sRGB colors of illuminants, as sampled by "Planckian jitter" (Zini et al. 2023, arXiv:2202.07993).

A gain is the illuminant's chromaticity at lightness 50 of CIE 1976 L*a*b*, as an sRGB color relative to its green. The
chromaticities come from published fits instead of spectra. No gain differs from the authors' (which Kornia uses) by
more than 0.01, measured at every temperature.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

__all__ = ["MODES", "blackbody", "daylight", "gains"]

Array = NDArray[np.float64]

# IEC 61966-2-1: XYZ to linear sRGB, and its white, D65.
_XYZ_TO_RGB = np.array(
    [[3.2404542, -1.5371385, -0.4985314], [-0.9692660, 1.8760108, 0.0415560], [0.0556434, -0.2040259, 1.0572252]]
)
_WHITE = np.array([0.95047, 1.0, 1.08883])


def blackbody(kelvin: Array) -> tuple[Array, Array]:
    """CIE 1931 x and y of the Planckian locus, 2222 K to 25000 K: cubic splines (Kim et al., US patent 7024034)."""
    t = 1000.0 / kelvin
    warm = kelvin < 4000.0
    x = np.where(
        warm,
        np.polyval([-0.2661239, -0.2343589, 0.8776956, 0.179910], t),
        np.polyval([-3.0258469, 2.1070379, 0.2226347, 0.240390], t),
    )
    y = np.where(
        warm,
        np.polyval([-0.9549476, -1.37418593, 2.09137015, -0.16748867], x),
        np.polyval([3.0817580, -5.87338670, 3.75112997, -0.37001483], x),
    )
    return x, y


def daylight(kelvin: Array) -> tuple[Array, Array]:
    """CIE 1931 x and y of daylight, 4000 K to 25000 K: the polynomials of the CIE D illuminants (CIE 15)."""
    t = 1000.0 / kelvin
    x = np.where(
        kelvin <= 7000.0,
        np.polyval([-4.6070, 2.9678, 0.09911, 0.244063], t),
        np.polyval([-2.0064, 1.9018, 0.24748, 0.237040], t),
    )
    return x, -3.0 * x**2 + 2.870 * x - 0.275


#: The locus of each mode, and its temperatures in kelvin.
MODES = {
    "blackbody": (blackbody, np.arange(3000.0, 15001.0, 500.0)),
    "CIED": (daylight, np.arange(4000.0, 15001.0, 500.0)),
}


@functools.cache
def gains(mode: str) -> Array:
    """(K, 3): factors of R, G and B for the mode's K illuminants, warmest first; G's are 1."""
    locus, kelvin = MODES[mode]
    x, y = locus(kelvin)
    xyz = np.stack([x / y, np.ones_like(x), (1.0 - x - y) / y], axis=1)
    rgb = _encode_srgb(_at_lightness_50(xyz) @ _XYZ_TO_RGB.T)
    return rgb / rgb[:, 1:2]


def _at_lightness_50(xyz: Array) -> Array:
    """The XYZ with the a* and b* of `xyz`, whose Y is 1, and with L* = 50."""
    shifted = np.cbrt(xyz / _WHITE) - 1.0 + (50.0 + 16.0) / 116.0
    slope, knee = 3.0 * (6.0 / 29.0) ** 2, 6.0 / 29.0
    return np.where(shifted > knee, shifted**3, slope * (shifted - 4.0 / 29.0)) * _WHITE


def _encode_srgb(linear: Array) -> Array:
    """The sRGB transfer function."""
    return np.where(linear > 0.0031308, 1.055 * np.maximum(linear, 0.0) ** (1 / 2.4) - 0.055, 12.92 * linear)
