// Computes: the CPU half of the fixed-point numbers of core/warp_points.h.
//             store_steps     the words of value, value + step, ..., modulo 2^64
//             multiply_high   the upper words of products of 32-bit numbers
// Threads:  none: each function acts on one vector, or on PIXELS numbers.
// Reference: none.
// Tests:    tests/properties/test_warp_points.py; tests/properties compares the instruction sets bit by bit.
#pragma once
#include "cpu/simd.h"

#if defined(__AVX512VBMI__)

DEVICE void store_steps(uint64 value, uint64 step, int* upper, uint32* lower) {
    const Vec<uint64> count = {0, 1, 2, 3, 4, 5, 6, 7};
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
    Vec<uint64> first = value + count * step, second = first + 8 * step;
    for (int p = 0; p < PIXELS; p += VEC_LANES, first += 16 * step, second += 16 * step) {
        store(lower + p, _mm512_permutex2var_epi32(__m512i(first), even, __m512i(second)));
        store(upper + p, _mm512_permutex2var_epi32(__m512i(first), odd, __m512i(second)));
    }
}

DEVICE Vec<uint32> multiply_high(Vec<uint32> a, Vec<uint32> b) {
    const __m512i even = _mm512_mul_epu32(__m512i(a), __m512i(b));
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(__m512i(a), 32), _mm512_srli_epi64(__m512i(b), 32));
    return Vec<uint32>(_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd));
}

#elif defined(__AVX2__)

DEVICE void store_steps(uint64 value, uint64 step, int* upper, uint32* lower) {
    const Vec<uint64> count = {0, 1, 2, 3};
    Vec<uint64> first = value + count * step, second = first + 4 * step;
    for (int p = 0; p < PIXELS; p += VEC_LANES, first += 8 * step, second += 8 * step) {
        // The even or odd words of the first 16 bytes of both, then of the last.
        const __m256 even = _mm256_shuffle_ps(__m256(first), __m256(second), _MM_SHUFFLE(2, 0, 2, 0));
        const __m256 odd = _mm256_shuffle_ps(__m256(first), __m256(second), _MM_SHUFFLE(3, 1, 3, 1));
        store(lower + p, _mm256_permute4x64_epi64(__m256i(even), _MM_SHUFFLE(3, 1, 2, 0)));
        store(upper + p, _mm256_permute4x64_epi64(__m256i(odd), _MM_SHUFFLE(3, 1, 2, 0)));
    }
}

DEVICE Vec<uint32> multiply_high(Vec<uint32> a, Vec<uint32> b) {
    const __m256i even = _mm256_mul_epu32(__m256i(a), __m256i(b));
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(__m256i(a), 32), _mm256_srli_epi64(__m256i(b), 32));
    return Vec<uint32>(_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa));
}

#else

DEVICE void store_steps(uint64 value, uint64 step, int* upper, uint32* lower) {
    for (int p = 0; p < PIXELS; ++p, value += step) upper[p] = int(value >> 32), lower[p] = uint32(value);
}

DEVICE Vec<uint32> multiply_high(Vec<uint32> a, Vec<uint32> b) {
    Vec<uint32> upper;
    for (int i = 0; i < VEC_LANES; ++i) upper[i] = uint32(uint64(a[i]) * b[i] >> 32);
    return upper;
}

#endif
