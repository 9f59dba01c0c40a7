// Computes: elementary functions by minimax polynomials: the same bits on every device, for one value or a vector (F is
//           float or Vec<float>). They are branch-free and in Estrin form, because latency binds, not throughput.
//           Relative errors are below 2e-6 for the operations' arguments.
// Threads:  none: each function acts on one value or vector.
// Reference: minimax polynomials fitted for this file.
// Tests:    tests/properties/test_color.py and test_noise.py against NumPy in double precision.
#pragma once
#include "simd.h"

DEVICE Vec<float> absolute(Vec<float> values) { return bits_to_float(float_bits(values) & 0x7fffffffu); }

// Clamps to [0, limit]; a negative limit leaves the values unchanged.
DEVICE Vec<float> saturate(Vec<float> values, float limit) {
    return limit < 0.0f ? values : min(max(values, splat(0.0f)), splat(limit));
}

// log2(x) of a positive, normal x: the exponent plus 2 / ln 2 * artanh(s), s = (m - 1) / (m + 1), for the mantissa m in
// [sqrt(1/2), sqrt(2)]. Adding bits(1) - bits(sqrt(1/2)) to x moves m to [1, 2).
template <class F>
DEVICE F fast_log2(F x) {
    const auto bits = float_bits(x) + (0x3f800000u - 0x3f3504f4u);
    const F exponent = to_float(bits >> 23u) - 127.0f, m = bits_to_float((bits & 0x7fffffu) + 0x3f3504f4u);
    const F s = (m - 1.0f) / (m + 1.0f), t = s * s;
    const F series = (2.88539008f + t * 0.96179825f) + t * t * (0.57675445f + t * 0.43094656f);
    return exponent + s * series;
}

// 2^x, clamped to [2^-126, 2^126]: a polynomial of x minus the nearest integer. Adding 1.5 * 2^23 leaves that integer
// in the lowest bits; a shift adds it to the exponent.
template <class F>
DEVICE F fast_exp2(F x) {
    x = max(min(x, F{} + 126.0f), F{} - 126.0f);
    const F shifted = x + 12582912.0f, u = x - (shifted - 12582912.0f), t = u * u;
    const F tail = (0.24022242f + u * 0.055507336f) + t * (0.009671513f + u * 0.0013264727f);
    return bits_to_float(float_bits((1.0f + u * 0.693147f) + t * tail) + (float_bits(shifted) << 23u));
}

// values[p] = values[p]^y for PIXELS values, y >= 0; a negative value or a NaN counts as 0. Two loops: in one,
// independent work would lie too far ahead for out-of-order execution.
DEVICE void fast_pow(float y, float* values) {
    const Vec<float> zero = splat(0.0f), of_zero = splat(y > 0.0f ? 0.0f : 1.0f);
    float exponents[PIXELS];
    for (int p = 0; p < PIXELS; p += VEC_LANES)
        store(exponents + p, y * fast_log2(max(load_vec(values + p), splat(1e-37f))));
    for (int p = 0; p < PIXELS; p += VEC_LANES)
        store(values + p, load_vec(values + p) > zero ? fast_exp2(load_vec(exponents + p)) : of_zero);
}

// sin(2 pi h), h in [-1/4, 1/4].
template <class F>
DEVICE F fast_sin_quarter(F h) {
    const F t = h * h, square = t * t;
    const F tail = (81.60847f - t * 76.72363f) + square * 40.84108f;
    return h * ((6.28318531f - t * 41.341766f) + square * tail);
}

// cos(2 pi x), x in [0, 1]: sin(2 pi h) at the point h with the same value.
template <class F>
DEVICE F fast_cos_turns(F x) {
    return fast_sin_quarter(max(x - 0.5f, 0.5f - x) - 0.25f);
}
