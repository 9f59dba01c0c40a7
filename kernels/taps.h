// What lies between pixels: weighted sums of the taps x taps pixels around points.
//
// Tested through warp.h.
#pragma once
#include "registers.h"

// The sum of taps x taps pixels from `pixels` on, rows `pitch` values apart: along the rows first. What lies just
// beyond a row's last pixel is read.
template <int n>
struct Taps {};

template <int n, class T>
DEVICE Colour weighted_sum(Taps<n>, const T* pixels, int64 pitch, const float* wy, const float* wx) {
    Colour value = no_colour();
    for (int i = 0; i < n; ++i) {
        Colour sum = no_colour();
        for (int k = 0; k < n; ++k) multiply_add(sum, wx[k], load_colour(pixels + i * pitch + 3 * k));
        multiply_add(value, wy[i], sum);
    }
    return value;
}

#if !defined(__CUDACC__)

// sum_four: the same of 2 x 2 pixels around as many points as a register holds; point p's begin first[p] values from
// `pixels` on, and sums[c][p] is channel c of its sum.

// Two neighbouring packed pixels of bytes at each of those places: bytes 0 to 3, and from 4 on, of which two are
// beyond.
struct Pairs {
    Many<uint32> low, high;
};
#if defined(__AVX2__)
DEVICE Many<float> byte_of(const Pairs& pairs, int i) {
    const char n = -1, k = char(i % 4);
    const __m256i order = _mm256_setr_epi8(k, n, n, n, k + 4, n, n, n, k + 8, n, n, n, k + 12, n, n, n,  //
                                           k, n, n, n, k + 4, n, n, n, k + 8, n, n, n, k + 12, n, n, n);
    return _mm256_cvtepi32_ps(_mm256_shuffle_epi8(__m256i(i < 4 ? pairs.low : pairs.high), order));
}
// Not by way of memory: a load of what several stores wrote waits until they have left for the cache.
DEVICE Pairs load_pairs(const uint8* pixels, const int64* first) {
    const auto pair = [&](int p) { return load<double>(pixels + first[p]); };
    __m256d four[2];  // in an order that the shuffles undo
    for (int i = 0; i < 2; ++i)
        four[i] = _mm256_setr_pd(pair(2 * i), pair(2 * i + 1), pair(2 * i + 4), pair(2 * i + 5));
    const __m256 a = _mm256_castpd_ps(four[0]), b = _mm256_castpd_ps(four[1]);
    return {Many<uint32>(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0))),
            Many<uint32>(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)))};
}
#else
DEVICE Many<float> byte_of(const Pairs& pairs, int i) {
    return float_of((i < 4 ? pairs.low >> uint32(8 * i) : pairs.high >> uint32(8 * (i - 4))) & 255u);
}
DEVICE Pairs load_pairs(const uint8* pixels, const int64* first) {
    Pairs pairs;
    for (int p = 0; p < MANY; ++p) {
        pairs.low[p] = load<uint32>(pixels + first[p]);
        pairs.high[p] = load<uint32>(pixels + first[p] + 4);
    }
    return pairs;
}
#endif
DEVICE void sum_four(const uint8* pixels, int64 pitch, const int64* first, const Many<float>* wy, const Many<float>* wx,
                     Many<float>* sums) {
    const uint8* below = pixels + pitch;
    keep_in_register(below);
    const Pairs upper = load_pairs(pixels, first), lower = load_pairs(below, first);
    const auto along = [&](const Pairs& row, int c) { return wx[0] * byte_of(row, c) + wx[1] * byte_of(row, 3 + c); };
#pragma GCC unroll 3
    for (int c = 0; c < 3; ++c) sums[c] = wy[0] * along(upper, c) + wy[1] * along(lower, c);
}

#if defined(__AVX2__)
// Points p and p + 4 in the halves of a register. weighted_sum begins with 0, which makes 0 of -0; so does ending with
// it.
DEVICE void sum_four(const float* pixels, int64 pitch, const int64* first, const Many<float>* wy, const Many<float>* wx,
                     Many<float>* sums) {
    Eight between[4];
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
        const auto both = [&](Many<float> weights) { return _mm256_permutevar_ps(weights, _mm256_set1_epi32(p)); };
        const auto along = [&](const float* row) {
            const int64 apart = first[p + 4] - first[p];
            return both(wx[0]) * load_halves(row, apart) + both(wx[1]) * load_halves(row + 3, apart);
        };
        const float* const pixel = pixels + first[p];
        between[p] = both(wy[0]) * along(pixel) + both(wy[1]) * along(pixel + pitch) + Eight{};
    }
    Eight planes[4];
    transpose_fours(between, planes);
#pragma GCC unroll 3
    for (int c = 0; c < 3; ++c) sums[c] = planes[c];
}
#else
DEVICE void sum_four(const float* pixels, int64 pitch, const int64* first, const Many<float>* wy, const Many<float>* wx,
                     Many<float>* sums) {
    for (int p = 0; p < MANY; ++p) {
        const float down[2] = {wy[0][p], wy[1][p]}, across[2] = {wx[0][p], wx[1][p]};
        const Colour sum = weighted_sum(Taps<2>(), pixels + first[p], pitch, down, across);
        for (int c = 0; c < 3; ++c) sums[c][p] = sum[c];
    }
}
#endif

#endif
