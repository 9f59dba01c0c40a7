// Computes: core/dct.h's steps on registers of words: a block's eight columns side by side, two blocks with AVX2.
// Threads:  none: each function acts on one or two blocks of 8 x 8.
// Reference: core/dct.h.
// Tests:    tests/properties/test_jpeg.py.
#pragma once
#include "cpu/simd.h"

#if defined(__SSE2__)

#if defined(__AVX2__)
#define SIMD(operation) _mm256_##operation
typedef __m256i Register;
#else
#define SIMD(operation) _mm_##operation
typedef __m128i Register;
#endif
constexpr int BLOCKS = sizeof(Register) / 16;  // side by side; both halves of a register do the same
typedef int16_t Words __attribute__((vector_size(16 * BLOCKS)));
typedef int Ints __attribute__((vector_size(16 * BLOCKS)));
typedef float Floats __attribute__((vector_size(16 * BLOCKS)));

// Words widened to integers: of the first four columns, and of the last four.
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
DEVICE Words narrow(const Wide& sum) {
    return narrow(descale<bits>(sum.low), descale<bits>(sum.high));
}

// Quantization steps as `quantize` needs them.
struct QuantizerSteps {
    Floats more[8][2], per[8][2];
    Words step[8];
};
DEVICE QuantizerSteps make_quantizer_steps(const float* steps) {
    QuantizerSteps result;
    for (int k = 0; k < 64 * BLOCKS; ++k) {
        const int row = k / (8 * BLOCKS), i = k % (8 * BLOCKS), block = i / 8, half = i % 8 / 4;
        const float step = steps[8 * row + i % 8];
        result.more[row][half][4 * block + i % 4] = 4.0f * step + 0.5f;
        result.per[row][half][4 * block + i % 4] = 1.0f / (8.0f * step);
        result.step[row][i] = int16_t(step);
    }
    return result;
}
DEVICE Words quantize(Words value, const QuantizerSteps& steps, int row) {
    const Words sign = value >> 15, size = (value ^ sign) - sign;
    const Ints low = Ints(SIMD(unpacklo_epi16)(Register(size), Register{}));
    const Ints high = Ints(SIMD(unpackhi_epi16)(Register(size), Register{}));
    const Floats first = (__builtin_convertvector(low, Floats) + steps.more[row][0]) * steps.per[row][0];
    const Floats last = (__builtin_convertvector(high, Floats) + steps.more[row][1]) * steps.per[row][1];
    const Words rounded = narrow(__builtin_convertvector(first, Ints), __builtin_convertvector(last, Ints));
    return ((rounded * steps.step[row]) ^ sign) - sign;
}

// Transposes 8 x 8 words per block.
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

// Loads BLOCKS blocks of samples, minus 128, from rows `pitch` bytes apart; and stores them back, saturated.
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
