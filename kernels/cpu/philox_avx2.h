// Computes: philox_block of core/philox.h, eight counters per register.
// Threads:  none: PIXELS counters of one pixel block.
// Reference: core/philox.h.
// Tests:    tests/properties/test_noise.py.
#pragma once
#include "core/philox.h"

#if defined(__AVX2__)

struct Products {
    __m256i high, low;
};

// The high and low halves of eight products: multiplication takes even and odd places apart.
DEVICE Products products(__m256i factor, __m256i numbers) {
    constexpr int ODD = 0xaa;
    const __m256i even = _mm256_mul_epu32(factor, numbers);
    const __m256i odd = _mm256_mul_epu32(factor, _mm256_srli_epi64(numbers, 32));
    return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, ODD),
            _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), ODD)};
}

// Two registers at a time: a round waits for its products, and independent work must be near enough for out-of-order
// execution.
DEVICE void philox_block(uint32 key0, uint32 key1, int x, int dx, int y, int dy, uint32 block, RandomWords& draws) {
    const __m256i m0 = _mm256_set1_epi32(int(0xD2511F53u)), m1 = _mm256_set1_epi32(int(0xCD9E8D57u));
    for (int p = 0; p < PIXELS; p += 16) {
        __m256i c0[2], c1[2], c2[2], c3[2];
        for (int i = 0; i < 2; ++i) {
            const __m256i place =
                _mm256_add_epi32(_mm256_set1_epi32(p + 8 * i), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            c0[i] = _mm256_add_epi32(_mm256_set1_epi32(x), _mm256_mullo_epi32(place, _mm256_set1_epi32(dx)));
            c1[i] = _mm256_add_epi32(_mm256_set1_epi32(y), _mm256_mullo_epi32(place, _mm256_set1_epi32(dy)));
            c2[i] = _mm256_set1_epi32(int(block)), c3[i] = _mm256_setzero_si256();
        }
        for (int round = 0; round < 10; ++round) {
            const __m256i k0 = _mm256_set1_epi32(int(key0 + uint32(round) * 0x9E3779B9u));
            const __m256i k1 = _mm256_set1_epi32(int(key1 + uint32(round) * 0xBB67AE85u));
            for (int i = 0; i < 2; ++i) {
                const Products a = products(m0, c0[i]), b = products(m1, c2[i]);
                c0[i] = _mm256_xor_si256(_mm256_xor_si256(b.high, c1[i]), k0);
                c2[i] = _mm256_xor_si256(_mm256_xor_si256(a.high, c3[i]), k1);
                c1[i] = b.low, c3[i] = a.low;
            }
        }
        for (int i = 0; i < 2; ++i) {
            memcpy(draws.first[0] + p + 8 * i, &c0[i], sizeof c0[i]);
            memcpy(draws.first[1] + p + 8 * i, &c1[i], sizeof c1[i]);
            memcpy(draws.last[0] + p + 8 * i, &c2[i], sizeof c2[i]);
            memcpy(draws.last[1] + p + 8 * i, &c3[i], sizeof c3[i]);
        }
    }
}

#endif
