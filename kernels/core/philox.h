// Computes: Philox4x32-10, a counter-based random number generator, and uniform, normal and Poisson draws. A number is
//           a pure function of a 64-bit key and a 128-bit counter, so any thread can compute any draw.
// Threads:  none: each call computes one counter, or PIXELS counters.
// Reference: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; Box and Muller, 1958;
//           Cornish and Fisher, 1937.
// Tests:    tests/properties/test_noise.py; tests/references/philox.py has the paper's test vectors.
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

// The words of philox(key0, key1, x + p * dx, y + p * dy, block, 0) for PIXELS counters: the first two and the last
// two.
struct RandomWords {
    uint32 first[2][PIXELS], last[2][PIXELS];
};

// cpu/philox_avx2.h has a faster overload.
template <class Words>
DEVICE void philox_block(uint32 key0, uint32 key1, int x, int dx, int y, int dy, uint32 block, Words& draws) {
    for (int p = 0; p < PIXELS; ++p) {
        const Philox words = philox(key0, key1, uint32(x + p * dx), uint32(y + p * dy), block, 0);
        for (int i = 0; i < 2; ++i) draws.first[i][p] = words.word[i], draws.last[i][p] = words.word[2 + i];
    }
}

// Uniform in [0, 1) with 24 bits: exact in a float.
template <class W>
DEVICE auto uniform(W word) {
    return to_float(word >> 8u) * (1.0f / 16777216.0f);
}

// The square of Box-Muller's radius. Half a step keeps the logarithm's argument above 0.
template <class W>
DEVICE auto box_muller_square(W word0) {
    return -1.38629436f * fast_log2(uniform(word0) + 0.5f / 16777216.0f);  // 2 ln 2
}
template <class W>
DEVICE auto standard_normal(W word0, W word1) {
    return sqrt(box_muller_square(word0)) * fast_cos_turns(uniform(word1));
}

// A Poisson draw. For a small mean, the distribution is summed until it exceeds a uniform draw, which is exact. For a
// large mean, Cornish and Fisher's expansion gives the quantile, with the variance of rounding, 1/12, subtracted first.
// From a mean of 12 on, this misplaces less than a thousandth of the draws, by one.
DEVICE float poisson(float mean, uint32 word0, uint32 word1) {
    if (mean >= 12.0f) {
        const float z = standard_normal(word0, word1), deviation = sqrt(mean - 1.0f / 12), square = z * z;
        const float count = mean + deviation * z + (square - 1.0f) / 6.0f + (z - square * z) / (72.0f * deviation);
        return max(floor(count + 0.5f), 0.0f);
    }
    const float draw = uniform(word0), limit = mean + 6.0f * sqrt(mean) + 12.0f;
    float count = 0.0f, probability = fast_exp2(-1.44269504f * mean), sum = probability;
    while (draw >= sum && count < limit) {
        count += 1.0f;
        probability *= mean / count;
        sum += probability;
    }
    return count;
}
