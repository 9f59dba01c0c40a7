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
#include "cpu/simd.h"

// value / 2^bits to nearest, halves up.
template <int bits, class Value>
DEVICE Value descaled(Value value) {
    return (value + (1 << (bits - 1))) >> bits;
}

DEVICE int products(int a, int by_a, int b, int by_b) { return a * by_a + b * by_b; }
template <int bits>
DEVICE int narrowed(int sum) {
    return descaled<bits>(sum);
}

// A coefficient, 8 times too large as the forward DCT leaves it, to the nearest multiple of the step. Half a unit keeps
// the quotient at least 1 / (16 * step) away from whole numbers, more than two roundings of a quotient of 17 bits can
// be wrong: what is left of it is the quotient of integers.
DEVICE int quantised(int value, float step) {
    const int size = value < 0 ? -value : value;
    const int rounded = int((float(size) + (4.0f * step + 0.5f)) * (1.0f / (8.0f * step))) * int(step);
    return value < 0 ? -rounded : rounded;
}

#if defined(__SSE2__) && !defined(__CUDACC__)

#if defined(__AVX2__)
#define SIMD(operation) _mm256_##operation
typedef __m256i Register;
#else
#define SIMD(operation) _mm_##operation
typedef __m128i Register;
#endif
constexpr int BLOCKS = sizeof(Register) / 16;  // side by side; what is done to one half of a register is to the other
typedef int16_t Words __attribute__((vector_size(16 * BLOCKS)));
typedef int Ints __attribute__((vector_size(16 * BLOCKS)));
typedef float Floats __attribute__((vector_size(16 * BLOCKS)));

// What words are widened to: the first four columns' integers, and the last four's.
struct Wide {
    Ints low, high;
};
DEVICE Wide operator+(const Wide& a, const Wide& b) { return {a.low + b.low, a.high + b.high}; }
DEVICE Wide operator-(const Wide& a, const Wide& b) { return {a.low - b.low, a.high - b.high}; }

DEVICE Wide products(Words a, int by_a, Words b, int by_b) {
    const Register factors = SIMD(set1_epi32)(int(uint32(by_a) & 65535) | int(uint32(by_b) << 16));
    return {Ints(SIMD(madd_epi16)(SIMD(unpacklo_epi16)(Register(a), Register(b)), factors)),
            Ints(SIMD(madd_epi16)(SIMD(unpackhi_epi16)(Register(a), Register(b)), factors))};
}
DEVICE Words narrow(const Ints& low, const Ints& high) {
    return Words(SIMD(packs_epi32)(Register(low), Register(high)));
}
template <int bits>
DEVICE Words narrowed(const Wide& sum) {
    return narrow(descaled<bits>(sum.low), descaled<bits>(sum.high));
}

// Steps as quantised takes them.
struct Steps {
    Floats more[8][2], per[8][2];
    Words step[8];
};
DEVICE Steps make_steps(const float* steps) {
    Steps made;
    for (int k = 0; k < 64 * BLOCKS; ++k) {
        const int row = k / (8 * BLOCKS), i = k % (8 * BLOCKS), block = i / 8, half = i % 8 / 4;
        const float step = steps[8 * row + i % 8];
        made.more[row][half][4 * block + i % 4] = 4.0f * step + 0.5f;
        made.per[row][half][4 * block + i % 4] = 1.0f / (8.0f * step);
        made.step[row][i] = int16_t(step);
    }
    return made;
}
DEVICE Words quantised(Words value, const Steps& steps, int row) {
    const Words sign = value >> 15, size = (value ^ sign) - sign;
    const Ints low = Ints(SIMD(unpacklo_epi16)(Register(size), Register{}));
    const Ints high = Ints(SIMD(unpackhi_epi16)(Register(size), Register{}));
    const Floats first = (__builtin_convertvector(low, Floats) + steps.more[row][0]) * steps.per[row][0];
    const Floats last = (__builtin_convertvector(high, Floats) + steps.more[row][1]) * steps.per[row][1];
    const Words rounded = narrow(__builtin_convertvector(first, Ints), __builtin_convertvector(last, Ints));
    return ((rounded * steps.step[row]) ^ sign) - sign;
}

// Rows of eight words become columns.
DEVICE void transpose(Words* d) {
    Register a[8], b[8];
    for (int k = 0; k < 8; k += 2) {
        a[k] = SIMD(unpacklo_epi16)(Register(d[k]), Register(d[k + 1]));
        a[k + 1] = SIMD(unpackhi_epi16)(Register(d[k]), Register(d[k + 1]));
    }
    for (int k = 0; k < 8; k += 4)
        for (int i = 0; i < 2; ++i) {
            b[k + 2 * i] = SIMD(unpacklo_epi32)(a[k + i], a[k + i + 2]);
            b[k + 2 * i + 1] = SIMD(unpackhi_epi32)(a[k + i], a[k + i + 2]);
        }
    for (int k = 0; k < 4; ++k) {
        d[2 * k] = Words(SIMD(unpacklo_epi64)(b[k], b[k + 4]));
        d[2 * k + 1] = Words(SIMD(unpackhi_epi64)(b[k], b[k + 4]));
    }
}

// The samples of BLOCKS blocks that begin at `blocks`, of rows `pitch` bytes apart, less 128; and back, saturated.
DEVICE void load_rows(uint8* const* blocks, int pitch, Words* d) {
    for (int k = 0; k < 8; ++k) {
        const __m128i left = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(blocks[0] + k * pitch));
#if defined(__AVX2__)
        const __m128i right = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(blocks[1] + k * pitch));
        d[k] = Words(_mm256_cvtepu8_epi16(_mm_unpacklo_epi64(left, right))) - 128;
#else
        d[k] = Words(_mm_unpacklo_epi8(left, __m128i{})) - 128;
#endif
    }
}
DEVICE void store_rows(const Words* d, uint8* const* blocks, int pitch) {
    for (int k = 0; k < 8; k += 2) {
        const Register rows = SIMD(packus_epi16)(Register(d[k] + 128), Register(d[k + 1] + 128));
        uint64 pairs[2 * BLOCKS];
        memcpy(pairs, &rows, sizeof pairs);
        for (int i = 0; i < 2 * BLOCKS; ++i) memcpy(blocks[i / 2] + (k + i % 2) * pitch, &pairs[i], 8);
    }
}

#endif

// One row or column of the DCT, in place; the factors are sums of cosines in 13 bits. Rows, which come first, keep 2
// bits of fraction that columns drop.
template <bool columns, class Value>
DEVICE void forward_dct(Value* d) {
    constexpr int bits = columns ? 15 : 11;
    const Value t0 = d[0] + d[7], t7 = d[0] - d[7], t1 = d[1] + d[6], t6 = d[1] - d[6];
    const Value t2 = d[2] + d[5], t5 = d[2] - d[5], t3 = d[3] + d[4], t4 = d[3] - d[4];
    const Value t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;
    d[0] = columns ? descaled<2>(t10 + t11) : (t10 + t11) * 4;
    d[4] = columns ? descaled<2>(t10 - t11) : (t10 - t11) * 4;
    d[2] = narrowed<bits>(products(t12, 4433, t13, 10703));
    d[6] = narrowed<bits>(products(t12, -10704, t13, 4433));
    const auto z3 = products(t4 + t6, -6436, t5 + t7, 9633), z4 = products(t4 + t6, 9633, t5 + t7, 6437);
    d[7] = narrowed<bits>(products(t4, -4927, t7, -7373) + z3);
    d[5] = narrowed<bits>(products(t5, -4176, t6, -20995) + z4);
    d[3] = narrowed<bits>(products(t5, -20995, t6, 4177) + z3);
    d[1] = narrowed<bits>(products(t4, -7373, t7, 4926) + z4);
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
    d[0] = narrowed<bits>(t10 + odd3), d[7] = narrowed<bits>(t10 - odd3);
    d[1] = narrowed<bits>(t11 + odd2), d[6] = narrowed<bits>(t11 - odd2);
    d[2] = narrowed<bits>(t12 + odd1), d[5] = narrowed<bits>(t12 - odd1);
    d[3] = narrowed<bits>(t13 + odd0), d[4] = narrowed<bits>(t13 - odd0);
}

// A column that rows forwards left, to what rows back take; `steps` of its coefficients, 8 apart.
DEVICE void there_and_back(const float* steps, int* column) {
    forward_dct<true>(column);
    for (int k = 0; k < 8; ++k) column[k] = quantised(column[k], steps[8 * k]);
    inverse_dct<true>(column);
}

DEVICE int to_sample(int value) { return smaller(larger(value + 128, 0), 255); }

#if !defined(__CUDACC__)

// Codes the blocks of a plane with these steps, and decodes them again.
DEVICE void code_plane(const float* steps, uint8* samples, int rows, int columns) {
#if defined(__SSE2__)
    const Steps made = make_steps(steps);
    const int across = columns / 8, count = rows / 8 * across;
    for (int i = 0; i < count; i += BLOCKS) {
        uint8* blocks[BLOCKS];
        for (int k = 0; k < BLOCKS; ++k) {
            const int block = smaller(i + k, count - 1);  // the last one may be made twice
            blocks[k] = samples + int64(block / across) * 8 * columns + block % across * 8;
        }
        Words d[8];
        load_rows(blocks, columns, d);
        transpose(d);
        forward_dct<false>(d);
        transpose(d);
        forward_dct<true>(d);
        for (int k = 0; k < 8; ++k) d[k] = quantised(d[k], made, k);
        inverse_dct<true>(d);
        transpose(d);
        inverse_dct<false>(d);
        transpose(d);
        store_rows(d, blocks, columns);
    }
#else
    for (int y = 0; y < rows; y += 8)
        for (int x = 0; x < columns; x += 8) {
            uint8* const block = samples + int64(y) * columns + x;
            int d[8][8], column[8];
            for (int k = 0; k < 8; ++k) {
                for (int i = 0; i < 8; ++i) d[k][i] = block[k * columns + i] - 128;
                forward_dct<false>(d[k]);
            }
            for (int i = 0; i < 8; ++i) {
                for (int k = 0; k < 8; ++k) column[k] = d[k][i];
                there_and_back(steps + i, column);
                for (int k = 0; k < 8; ++k) d[k][i] = column[k];
            }
            for (int k = 0; k < 8; ++k) {
                inverse_dct<false>(d[k]);
                for (int i = 0; i < 8; ++i) block[k * columns + i] = uint8(to_sample(d[k][i]));
            }
        }
#endif
}

#endif
