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

// In [0, 1), 24 bits: every value is exact in a float.
DEVICE float uniform(uint32 word) { return float(word >> 8) * (1.0f / 16777216.0f); }

// Box-Muller. The shift by half a step keeps the logarithm's argument above 0.
DEVICE float normal(uint32 word0, uint32 word1) {
    const float radius = root(-1.38629436f * log2_of(uniform(word0) + 0.5f / 16777216.0f));  // 2 ln 2
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
