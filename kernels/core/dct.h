// The discrete cosine transform of a JPEG's blocks of 8 x 8, there and back, and the quantiser in between: libjpeg's
// "islow" DCT, of Loeffler, Ligtenberg and Moschytz, bit for bit. All in integers: sums of products are of 32 bits, and
// what they are narrowed to fits into 16. So a Value is an integer, or a register of words with a block's columns side
// by side, of two blocks where registers are that wide.
//
// That 16 bits are enough: samples are at most 128 from the middle, so 8 * 128 * 4 after rows; columns add up eight of
// those, -32768 at the least and 32512 at the most. A coefficient is off by no more than 128 of 1024, and so columns
// back leave less than 2 * 8 * 128 * 4.
//
// Tested against Pillow's save and load, by tests/properties/test_jpeg.py.
#pragma once
#include "core/simd.h"

// value / 2^bits to nearest, halves up.
template <int bits, class Value>
DEVICE Value descale(Value value) {
    return (value + (1 << (bits - 1))) >> bits;
}

DEVICE int products(int a, int by_a, int b, int by_b) { return a * by_a + b * by_b; }
template <int bits>
DEVICE int narrow(int sum) {
    return descale<bits>(sum);
}

// A coefficient, 8 times too large as the forward DCT leaves it, to the nearest multiple of the step. Half a unit keeps
// the quotient at least 1 / (16 * step) away from whole numbers, more than two roundings of a quotient of 17 bits can
// be wrong: what is left of it is the quotient of integers.
DEVICE int quantise(int value, float step) {
    const int size = value < 0 ? -value : value;
    const int rounded = int((float(size) + (4.0f * step + 0.5f)) * (1.0f / (8.0f * step))) * int(step);
    return value < 0 ? -rounded : rounded;
}

#if !defined(__CUDACC__)
#include "cpu/dct_simd.h"  // the same functions on registers of words
#endif

// One row or column of the DCT, in place; the factors are sums of cosines in 13 bits. Rows, which come first, keep 2
// bits of fraction that columns drop.
template <bool columns, class Value>
DEVICE void forward_dct(Value* d) {
    constexpr int bits = columns ? 15 : 11;
    const Value t0 = d[0] + d[7], t7 = d[0] - d[7], t1 = d[1] + d[6], t6 = d[1] - d[6];
    const Value t2 = d[2] + d[5], t5 = d[2] - d[5], t3 = d[3] + d[4], t4 = d[3] - d[4];
    const Value t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;
    d[0] = columns ? descale<2>(t10 + t11) : (t10 + t11) * 4;
    d[4] = columns ? descale<2>(t10 - t11) : (t10 - t11) * 4;
    d[2] = narrow<bits>(products(t12, 4433, t13, 10703));
    d[6] = narrow<bits>(products(t12, -10704, t13, 4433));
    const auto z3 = products(t4 + t6, -6436, t5 + t7, 9633), z4 = products(t4 + t6, 9633, t5 + t7, 6437);
    d[7] = narrow<bits>(products(t4, -4927, t7, -7373) + z3);
    d[5] = narrow<bits>(products(t5, -4176, t6, -20995) + z4);
    d[3] = narrow<bits>(products(t5, -20995, t6, 4177) + z3);
    d[1] = narrow<bits>(products(t4, -7373, t7, 4926) + z4);
}

// Columns come first here, and keep 2 bits of fraction.
template <bool columns, class Value>
DEVICE void inverse_dct(Value* d) {
    constexpr int bits = columns ? 11 : 18;
    const auto t0 = products(d[0], 8192, d[4], 8192), t1 = products(d[0], 8192, d[4], -8192);
    const auto t2 = products(d[2], 4433, d[6], -10704), t3 = products(d[2], 10703, d[6], 4433);
    const auto t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;
    const Value a = d[7], b = d[5], c = d[3], e = d[1];
    const auto z3 = products(a + c, -6436, b + e, 9633), z4 = products(a + c, 9633, b + e, 6437);
    const auto odd0 = products(a, -4927, e, -7373) + z3, odd1 = products(b, -4176, c, -20995) + z4;
    const auto odd2 = products(b, -20995, c, 4177) + z3, odd3 = products(a, -7373, e, 4926) + z4;
    d[0] = narrow<bits>(t10 + odd3), d[7] = narrow<bits>(t10 - odd3);
    d[1] = narrow<bits>(t11 + odd2), d[6] = narrow<bits>(t11 - odd2);
    d[2] = narrow<bits>(t12 + odd1), d[5] = narrow<bits>(t12 - odd1);
    d[3] = narrow<bits>(t13 + odd0), d[4] = narrow<bits>(t13 - odd0);
}

// A column that rows forwards left, to what rows back take; `steps` of its coefficients, 8 apart.
DEVICE void code_column(const float* steps, int* column) {
    forward_dct<true>(column);
    for (int k = 0; k < 8; ++k) column[k] = quantise(column[k], steps[8 * k]);
    inverse_dct<true>(column);
}

DEVICE int to_sample(int value) { return min(max(value + 128, 0), 255); }
