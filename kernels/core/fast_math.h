// Elementary functions by polynomials: the same bits on every device, of one value or of as many as a register holds
// (F is float or Full<float>). No step is a choice for which a compiler would compute both; and the polynomials, which
// have the least largest error that those of their degree can have, are summed in pairs: what one value waits for
// binds, not how much there is to compute.
//
// Relative errors are below 2e-6 for the arguments that the operations give them. Tested through the operations that
// use them, against NumPy in double precision.
#pragma once
#include "core/simd.h"

// The logarithm to base 2 of a positive, normal x: the exponent, and 2 / ln 2 artanh(s) of s = (m - 1) / (m + 1) for
// the mantissa m in [sqrt(1/2), sqrt(2)]. Adding to x's bits what 1 has more than sqrt(1/2) moves m to [1, 2).
template <class F>
DEVICE F fast_log2(F x) {
    const auto bits = float_bits(x) + (0x3f800000u - 0x3f3504f4u);
    const F exponent = to_float(bits >> 23u) - 127.0f, m = bits_to_float((bits & 0x7fffffu) + 0x3f3504f4u);
    const F s = (m - 1.0f) / (m + 1.0f), t = s * s;
    const F series = (2.88539008f + t * 0.96179825f) + t * t * (0.57675445f + t * 0.43094656f);
    return exponent + s * series;
}

// 2 to the power of x, limited to [2^-126, 2^126]: of what is left of x without the nearest whole number. Adding 1.5 *
// 2^23 leaves that number in the lowest bits, from where it is added to the exponent.
template <class F>
DEVICE F fast_exp2(F x) {
    x = max(min(x, F{} + 126.0f), F{} - 126.0f);
    const F shifted = x + 12582912.0f, u = x - (shifted - 12582912.0f), t = u * u;
    const F tail = (0.24022242f + u * 0.055507336f) + t * (0.009671513f + u * 0.0013264727f);
    return bits_to_float(float_bits((1.0f + u * 0.693147f) + t * tail) + (float_bits(shifted) << 23u));
}

// values[p] to the power of y, both at least 0, for PIXELS values; of what is below 0 or no number, as of 0. In two
// loops: in one, what the next values could do meanwhile lies too far ahead for a processor to see it.
DEVICE void fast_pow(float y, float* values) {
    const Vec<float> zero = splat(0.0f), of_zero = splat(y > 0.0f ? 0.0f : 1.0f);
    float exponents[PIXELS];
    for (int p = 0; p < PIXELS; p += VEC_LANES)
        store(exponents + p, y * fast_log2(max(load_vec(values + p), splat(1e-37f))));
    for (int p = 0; p < PIXELS; p += VEC_LANES)
        store(values + p, load_vec(values + p) > zero ? fast_exp2(load_vec(exponents + p)) : of_zero);
}

// The cosine of x full turns, x in [0, 1]: sin(2 pi h) / h of the place h in [-1/4, 1/4] where the sine is that.
template <class F>
DEVICE F fast_cos_turns(F x) {
    const F h = max(x - 0.5f, 0.5f - x) - 0.25f, t = h * h, square = t * t;
    const F tail = (81.60847f - t * 76.72363f) + square * 40.84108f;
    return h * ((6.28318531f - t * 41.341766f) + square * tail);
}
