"""Allowed differences from independent results, and their reasons.

They are in uint8 levels, or in the units of a float image.
"""

from __future__ import annotations

import platform
from typing import NamedTuple


class Tolerance(NamedTuple):
    most: float
    reason: str


EXACT = Tolerance(0.0, "the same numbers are computed in the same way, or only moved")

# uint8 levels
OPENCV_RESIZE_LEVELS = Tolerance(1, "OpenCV's uint8 resize has weights of 11 bits, the kernels have floats")
PILLOW_BILINEAR_LEVELS = Tolerance(1, "Pillow rounds to uint8 between its two passes, the kernels once at the end")
PILLOW_BICUBIC_LEVELS = Tolerance(1, "a result beside a rounding boundary falls to either side of it")
PILLOW_COLOR_LEVELS = Tolerance(2, "Pillow truncates where the kernels round, and rounds the gray it blends with")
PILLOW_AUTOCONTRAST_LEVELS = Tolerance(1, "Pillow truncates where the kernels round")
OPENCV_CLAHE_LEVELS = Tolerance(1, "on aarch64 OpenCV has other bits than on x86-64, in up to one value of a thousand")
if platform.machine() == "x86_64":
    OPENCV_CLAHE_LEVELS = EXACT
OPENCV_MATRIX_LEVELS = Tolerance(1, "cv2.transform rounds halves to even and adds up in another order")
COLOR_LEVELS = Tolerance(1, "a result beside a rounding boundary falls to either side of it")
OPENCV_HUE_LEVELS = Tolerance(1, "OpenCV's float HSV has the hue in degrees and adds epsilon to each divisor")
ROUNDING_LEVELS = Tolerance(0.5 + 1e-3, "half a level of rounding, and float32's error before it")

MIRRORED_WARP_LEVELS = Tolerance(1, "a mirrored place is another double, and a result beside a boundary falls off it")
CONVOLUTION_LEVELS = Tolerance(3, "OpenCV's uint8 Gaussian has weights of 8 bits; what they are off mostly cancels")
PILLOW_SHARPNESS_LEVELS = Tolerance(3, "Pillow rounds the smoothed image, which counts up to twice, and truncates")

# float images in [0, 1]
OPENCV_RESIZE = Tolerance(
    1e-4, "OpenCV computes sampling positions in float32: 514 * 2^-24 of a pixel, and the weights"
)
RESIZE = Tolerance(1e-5, "float32 weights and sums of up to a few hundred taps against float64")
COLOR = Tolerance(1e-5, "a few float32 operations against float64")
HUE = Tolerance(2e-5, "as COLOR; the six sectors multiply the error of the hue")
MATRIX = Tolerance(1e-5, "as COLOR, with coefficients up to 2")
CLAHE = Tolerance(1.6e-5, "as COLOR; and exact halves of a level are set down by 1/1024 of it, as OpenCV rounds them")
NORMALIZE = Tolerance(1e-5, "relative to 1 / std: one float32 product and sum instead of a difference and a quotient")
NOISE = Tolerance(2e-5, "relative to std: float32 logarithm, root and cosine against float64")
RARE_NOISE = Tolerance(
    2.5e-4, "as NOISE; next to 0 the radius is the root of what float32 leaves of 1 - u: off by sqrt(2 * 2^-25) at most"
)
FLIPPED_RESIZE = Tolerance(1e-5, "a mirrored center is another double, and the taps are added in the other order")
GRID_SAMPLE = Tolerance(2e-4, "fixed-point places against grid_sample's, which are normalized to [-1, 1] first")
WARP = Tolerance(4e-5, "float32 weights and displacements, and sums of up to 16 taps, against float64")
TURNED_RESIZE = Tolerance(1e-5, "rows and columns are summed in the other order")
CONVOLUTION = Tolerance(3e-6, "float32 sums of up to 225 taps, whose weights add up to 1, against float64 or float32")
MIRRORED_CHAIN = Tolerance(2e-4, "FLIPPED_RESIZE, carried through up to five point operations that multiply it")
