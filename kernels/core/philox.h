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
struct RandomWords {
    uint32 first[2][PIXELS], last[2][PIXELS];
};

#if defined(__AVX2__) && !defined(__CUDACC__)
#include "cpu/philox_avx2.h"
#else
DEVICE void philox_block(uint32 key0, uint32 key1, int x, int dx, int y, int dy, uint32 block, RandomWords& draws) {
    for (int p = 0; p < PIXELS; ++p) {
        const Philox drawn = philox(key0, key1, uint32(x + p * dx), uint32(y + p * dy), block, 0);
        for (int i = 0; i < 2; ++i) draws.first[i][p] = drawn.word[i], draws.last[i][p] = drawn.word[2 + i];
    }
}
#endif

// In [0, 1), 24 bits: every value is exact in a float.
template <class W>
DEVICE auto uniform(W word) {
    return to_float(word >> 8u) * (1.0f / 16777216.0f);
}

// Box-Muller. The shift by half a step keeps the logarithm's argument above 0.
template <class W>
DEVICE auto box_muller_square(W word0) {
    return -1.38629436f * fast_log2(uniform(word0) + 0.5f / 16777216.0f);  // 2 ln 2
}
template <class W>
DEVICE auto standard_normal(W word0, W word1) {
    return sqrt(box_muller_square(word0)) * fast_cos_turns(uniform(word1));
}

// A Poisson draw. A small mean's distribution is summed until it exceeds a uniform draw, which is exact. A large one's
// is Cornish and Fisher's expansion of its quantiles (1937), with the variance that rounding adds, 1/12, left out
// first: from 12 on that misplaces less than a thousandth of the draws, by one.
DEVICE float poisson(float mean, uint32 word0, uint32 word1) {
    if (mean >= 12.0f) {
        const float z = standard_normal(word0, word1), deviation = sqrt(mean - 1.0f / 12), square = z * z;
        const float count = mean + deviation * z + (square - 1.0f) / 6.0f + (z - square * z) / (72.0f * deviation);
        return max(floor(count + 0.5f), 0.0f);
    }
    const float wanted = uniform(word0), most = mean + 6.0f * sqrt(mean) + 12.0f;
    float count = 0.0f, probability = fast_exp2(-1.44269504f * mean), sum = probability;
    while (wanted >= sum && count < most) {
        count += 1.0f;
        probability *= mean / count;
        sum += probability;
    }
    return count;
}
