// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011). A random number is a pure function of a 64-bit key and a 128-bit counter, so any thread can
// compute any draw. tests/references/philox.py holds an independent NumPy version and the paper's test vectors.
#pragma once
#include "core/fast_math.h"

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

struct Products {
    __m256i high, low;  // halves
};

// Of eight numbers: those in even places and those in odd ones, as multiplication takes them.
DEVICE Products products(__m256i factor, __m256i numbers) {
    constexpr int ODD = 0xaa;
    const __m256i even = _mm256_mul_epu32(factor, numbers);
    const __m256i odd = _mm256_mul_epu32(factor, _mm256_srli_epi64(numbers, 32));
    return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, ODD),
            _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), ODD)};
}

// Twice eight counters at a time: a round waits for its products, and what others could do meanwhile must not lie so
// far ahead that a processor does not see it.
DEVICE void philox_strip(uint32 key0, uint32 key1, int x, int dx, int y, int dy, uint32 block, Draws& draws) {
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
DEVICE auto squared_radius(W word0) {
    return -1.38629436f * log2_of(uniform(word0) + 0.5f / 16777216.0f);  // 2 ln 2
}
template <class W>
DEVICE auto normal(W word0, W word1) {
    return root(squared_radius(word0)) * cosine_of_turns(uniform(word1));
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
