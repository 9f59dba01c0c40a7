"""Plain NumPy references of the kernels, written to be read, not to be fast.

`OPERATIONS` maps each point operation to its reference; a test fails if one is missing.
"""

from __future__ import annotations

from cuaug.plan.layout import OpCode
from tests.references import color, masks, noise, statistics

OPERATIONS = {
    OpCode.SCALE: color.scale,
    OpCode.MATRIX: color.matrix,
    OpCode.LUT: color.look_up,
    OpCode.CONTRAST: color.contrast,
    OpCode.HUE: color.hue,
    OpCode.ERASE: masks.erase,
    OpCode.ERASE_NOISE: masks.erase_with_noise,
    OpCode.MASK: masks.mask,
    OpCode.GRID: masks.grid,
    OpCode.NOISE: noise.add_noise,
    OpCode.SHOT_NOISE: noise.shot_noise,
    OpCode.POSTERIZE: color.posterize,
    OpCode.SOLARIZE: color.solarize,
    OpCode.GAMMA: color.gamma,
    OpCode.AUTOCONTRAST: statistics.autocontrast,
    OpCode.EQUALIZE: statistics.equalize,
    OpCode.CLAHE: statistics.clahe,
}
