// Computes: the 8 x 8 discrete cosine transform of a JPEG, its inverse, and the quantizer between: libjpeg's "islow"
//           DCT bit for bit, in integers.
// Threads:  none: each function acts on one row or column.
// Reference: Loeffler, Ligtenberg, Moschytz, "Practical fast 1-D DCT algorithms with 11 multiplications", ICASSP 1989;
//           libjpeg's jfdctint.c and jidctint.c.
// Tests:    tests/properties/test_jpeg.py against Pillow's save and load.
#pragma once
#include "simd.h"

DEVICE int products(int a, int by_a, int b, int by_b) { return a * by_a + b * by_b; }

// Rounds a coefficient to the nearest multiple of the step; the forward DCT leaves it 8 times too large. Half a unit
// keeps the quotient at least 1 / (16 * step) away from integers. That exceeds two roundings of a 17-bit quotient, so
// the floor is exact.
DEVICE int quantize(int value, float step) {
    const int size = value < 0 ? -value : value;
    const int rounded = int((float(size) + (4.0f * step + 0.5f)) * (1.0f / (8.0f * step))) * int(step);
    return value < 0 ? -rounded : rounded;
}

// One row or column of the DCT, in place. The factors are sums of cosines in 13 bits. Rows come first and keep 2 bits
// of fraction, which columns drop.
template <bool columns>
DEVICE void forward_dct(int* d) {
    constexpr int bits = columns ? 15 : 11;
    const int t0 = d[0] + d[7], t7 = d[0] - d[7], t1 = d[1] + d[6], t6 = d[1] - d[6];
    const int t2 = d[2] + d[5], t5 = d[2] - d[5], t3 = d[3] + d[4], t4 = d[3] - d[4];
    const int t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;
    d[0] = columns ? descale<2>(t10 + t11) : (t10 + t11) * 4;
    d[4] = columns ? descale<2>(t10 - t11) : (t10 - t11) * 4;
    d[2] = descale<bits>(products(t12, 4433, t13, 10703));
    d[6] = descale<bits>(products(t12, -10704, t13, 4433));
    const int z3 = products(t4 + t6, -6436, t5 + t7, 9633), z4 = products(t4 + t6, 9633, t5 + t7, 6437);
    d[7] = descale<bits>(products(t4, -4927, t7, -7373) + z3);
    d[5] = descale<bits>(products(t5, -4176, t6, -20995) + z4);
    d[3] = descale<bits>(products(t5, -20995, t6, 4177) + z3);
    d[1] = descale<bits>(products(t4, -7373, t7, 4926) + z4);
}

// One row or column of the inverse, in place. Columns come first and keep 2 bits of fraction.
template <bool columns>
DEVICE void inverse_dct(int* d) {
    constexpr int bits = columns ? 11 : 18;
    const int t0 = products(d[0], 8192, d[4], 8192), t1 = products(d[0], 8192, d[4], -8192);
    const int t2 = products(d[2], 4433, d[6], -10704), t3 = products(d[2], 10703, d[6], 4433);
    const int t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;
    const int a = d[7], b = d[5], c = d[3], e = d[1];
    const int z3 = products(a + c, -6436, b + e, 9633), z4 = products(a + c, 9633, b + e, 6437);
    const int odd0 = products(a, -4927, e, -7373) + z3, odd1 = products(b, -4176, c, -20995) + z4;
    const int odd2 = products(b, -20995, c, 4177) + z3, odd3 = products(a, -7373, e, 4926) + z4;
    d[0] = descale<bits>(t10 + odd3), d[7] = descale<bits>(t10 - odd3);
    d[1] = descale<bits>(t11 + odd2), d[6] = descale<bits>(t11 - odd2);
    d[2] = descale<bits>(t12 + odd1), d[5] = descale<bits>(t12 - odd1);
    d[3] = descale<bits>(t13 + odd0), d[4] = descale<bits>(t13 - odd0);
}

// Transforms, quantizes and inverts one column after the rows of the forward DCT. steps: its coefficients, 8 apart.
DEVICE void code_column(const float* steps, int* column) {
    forward_dct<true>(column);
    for (int k = 0; k < 8; ++k) column[k] = quantize(column[k], steps[8 * k]);
    inverse_dct<true>(column);
}

DEVICE int to_sample(int value) { return min(max(value + 128, 0), 255); }
