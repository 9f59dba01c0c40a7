// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011). A random number is a pure function of a 64-bit key and a 128-bit counter, so any thread can
// compute any draw. tests/references/philox.py holds an independent NumPy version and the paper's test vectors.
#pragma once
#include "functions.h"

struct Philox {
    uint32 word[4];
};

DEVICE Philox philox(uint32 key0, uint32 key1, uint32 c0, uint32 c1, uint32 c2, uint32 c3) {
    for (int round = 0; round < 10; ++round) {
        const uint64 a = uint64(0xD2511F53u) * c0, b = uint64(0xCD9E8D57u) * c2;
        c0 = uint32(b >> 32) ^ c1 ^ key0;
        c1 = uint32(b);
        c2 = uint32(a >> 32) ^ c3 ^ key1;
        c3 = uint32(a);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// The first two words of philox(key0, key1, x + p * dx, y + p * dy, block, 0) for PIXELS counters, and its last two.
struct Draws {
    uint32 first[2][PIXELS], last[2][PIXELS];
};

#if defined(__AVX2__) && !defined(__CUDACC__)

// Four counters at a time, in the lower halves of 64 bits, as multiplication takes them.
DEVICE void philox_strip(uint32 key0, uint32 key1, int x, int dx, int y, int dy, uint32 block, Draws& draws) {
    const __m256i m0 = _mm256_set1_epi64x(0xD2511F53), m1 = _mm256_set1_epi64x(0xCD9E8D57);
    for (int p = 0; p < PIXELS; p += 4) {
        const __m256i place = _mm256_add_epi64(_mm256_set1_epi64x(p), _mm256_setr_epi64x(0, 1, 2, 3));
        __m256i c0 = _mm256_add_epi64(_mm256_set1_epi64x(x), _mm256_mul_epu32(place, _mm256_set1_epi64x(dx)));
        __m256i c1 = _mm256_add_epi64(_mm256_set1_epi64x(y), _mm256_mul_epu32(place, _mm256_set1_epi64x(dy)));
        __m256i c2 = _mm256_set1_epi64x(block), c3 = _mm256_setzero_si256();
        for (int round = 0; round < 10; ++round) {
            const __m256i a = _mm256_mul_epu32(m0, c0), b = _mm256_mul_epu32(m1, c2);
            const __m256i k0 = _mm256_set1_epi64x(key0 + uint32(round) * 0x9E3779B9u);
            const __m256i k1 = _mm256_set1_epi64x(key1 + uint32(round) * 0xBB67AE85u);
            c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(b, 32), c1), k0);
            c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(a, 32), c3), k1);
            c1 = b, c3 = a;
        }
        const __m256i words[4] = {c0, c1, c2, c3}, low = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
        for (int i = 0; i < 4; ++i) {
            const __m128i four = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(words[i], low));
            memcpy((i < 2 ? draws.first[i] : draws.last[i - 2]) + p, &four, sizeof four);
        }
    }
}

#else

DEVICE void philox_strip(uint32 key0, uint32 key1, int x, int dx, int y, int dy, uint32 block, Draws& draws) {
    for (int p = 0; p < PIXELS; ++p) {
        const Philox drawn = philox(key0, key1, uint32(x + p * dx), uint32(y + p * dy), block, 0);
        for (int i = 0; i < 2; ++i) draws.first[i][p] = drawn.word[i], draws.last[i][p] = drawn.word[2 + i];
    }
}

#endif

// In [0, 1), 24 bits: every value is exact in a float.
template <class W>
DEVICE auto uniform(W word) {
    return float_of(word >> 8u) * (1.0f / 16777216.0f);
}

// Box-Muller. The shift by half a step keeps the logarithm's argument above 0.
template <class W>
DEVICE auto normal(W word0, W word1) {
    const auto radius = root(-1.38629436f * log2_of(uniform(word0) + 0.5f / 16777216.0f));  // 2 ln 2
    return radius * cosine_of_turns(uniform(word1));
}

// A Poisson draw. A small mean's distribution is summed until it exceeds a uniform draw, which is exact. A large one's
// is Cornish and Fisher's expansion of its quantiles (1937), with the variance that rounding adds, 1/12, left out
// first: from 12 on that misplaces less than a thousandth of the draws, by one.
DEVICE float poisson(float mean, uint32 word0, uint32 word1) {
    if (mean >= 12.0f) {
        const float z = normal(word0, word1), deviation = root(mean - 1.0f / 12), square = z * z;
        const float count = mean + deviation * z + (square - 1.0f) / 6.0f + (z - square * z) / (72.0f * deviation);
        return larger(floor_of(count + 0.5f), 0.0f);
    }
    const float wanted = uniform(word0), most = mean + 6.0f * root(mean) + 12.0f;
    float count = 0.0f, probability = exp2_of(-1.44269504f * mean), sum = probability;
    while (wanted >= sum && count < most) {
        count += 1.0f;
        probability *= mean / count;
        sum += probability;
    }
    return count;
}
