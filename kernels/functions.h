// Elementary functions by polynomials: the same bits on every device, and loops over them vectorise.
//
// Relative errors are below 2e-6 for the arguments that the operations give them. Tested through the operations that
// use them, against NumPy in double precision.
#pragma once
#include "shim.h"

// The logarithm to base 2 of a positive, normal x: the exponent, and the series of artanh((m - 1) / (m + 1)) for the
// mantissa m in [sqrt(1/2), sqrt(2)).
DEVICE float log2_of(float x) {
    const uint32 bits = float_bits(x);
    float m = float_of_bits((bits & 0x7fffffu) | 0x3f800000u), exponent = float(int(bits >> 23) - 127);
    const bool high = m > 1.41421356f;
    m = high ? 0.5f * m : m;
    exponent = high ? exponent + 1.0f : exponent;
    const float s = (m - 1.0f) / (m + 1.0f), t = s * s;
    const float series = 1.0f + t * (1.0f / 3 + t * (1.0f / 5 + t * (1.0f / 7 + t * (1.0f / 9))));
    return exponent + 2.88539008f * s * series;  // 2 / ln 2
}

// 2 to the power of x, limited to [2^-126, 2^126]: the nearest whole power, and the exponential series for the rest.
DEVICE float exp2_of(float x) {
    x = larger(smaller(x, 126.0f), -126.0f);
    const float whole = floor_of(x + 0.5f), t = (x - whole) * 0.693147181f;
    const float tail = 1.0f / 6 + t * (1.0f / 24 + t * (1.0f / 120 + t * (1.0f / 720 + t * (1.0f / 5040))));
    const float series = 1.0f + t * (1.0f + t * (0.5f + t * tail));
    return series * float_of_bits(uint32(int(whole) + 127) << 23);
}

// x to the power of y, both at least 0; of what is below 0 or no number, as of 0.
DEVICE float power(float x, float y) {
    const float positive = exp2_of(y * log2_of(larger(x, 1e-37f)));
    return x > 0.0f ? positive : y > 0.0f ? 0.0f : 1.0f;
}

// The cosine of x full turns, x in [0, 1]: a quarter of the sine's series, mirrored.
DEVICE float cosine_of_turns(float x) {
    const float half = x < 0.5f ? 0.5f - x : x - 0.5f;  // -cos(2 pi (x - 1/2)) = -sin(2 pi (1/4 - |x - 1/2|))
    const float a = (half - 0.25f) * 6.28318531f, t = a * a;
    const float tail = 1.0f / 362880 - t * (1.0f / 39916800);
    return a * (1.0f - t * (1.0f / 6 - t * (1.0f / 120 - t * (1.0f / 5040 - t * tail))));
}
