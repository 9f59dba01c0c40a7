// What lies between pixels: weighted sums of the taps x taps pixels around points.
//
// Tested through core/warp.h.
#pragma once
#include "cpu/simd.h"

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

// sum_four: the same of 2 x 2 pixels around FULL points; point p's begin first[p] values from `pixels` on, and
// sums[c][p] is channel c of its sum.

#if defined(__AVX2__)

// What has another name for wider registers. eights: of each four places the first two, eight bytes from each; pick: in
// each 16 bytes two of a's words and two of b's; widened: each 16 bytes shuffled, then integers as floats; fours: of
// each four places the first one, four floats from there; spread: of each four floats number p, four times.
#if defined(__AVX512VBMI__)
DEVICE Full<float> eights(const uint8* pixels, const int64* first) {
    const auto at = [&](int p) { return load<double>(pixels + first[p]); };
    return _mm512_castpd_ps(_mm512_setr_pd(at(0), at(1), at(4), at(5), at(8), at(9), at(12), at(13)));
}
template <int which>
DEVICE Full<uint32> pick(Full<float> a, Full<float> b) {
    return Full<uint32>(_mm512_shuffle_ps(a, b, which));
}
DEVICE Full<float> widened(Full<uint32> words, __m128i order) {
    return _mm512_cvtepi32_ps(_mm512_shuffle_epi8(__m512i(words), _mm512_broadcast_i32x4(order)));
}
DEVICE Full<float> fours(const float* pixels, const int64* first) {
    const __m512 half = _mm512_castps256_ps512(load_halves(pixels + first[0], first[4] - first[0]));
    return _mm512_insertf32x8(half, load_halves(pixels + first[8], first[12] - first[8]), 1);
}
DEVICE Full<float> spread(Full<float> values, int p) { return _mm512_permutevar_ps(values, _mm512_set1_epi32(p)); }
#else
DEVICE Full<float> eights(const uint8* pixels, const int64* first) {
    const auto at = [&](int p) { return load<double>(pixels + first[p]); };
    return _mm256_castpd_ps(_mm256_setr_pd(at(0), at(1), at(4), at(5)));
}
template <int which>
DEVICE Full<uint32> pick(Full<float> a, Full<float> b) {
    return Full<uint32>(_mm256_shuffle_ps(a, b, which));
}
DEVICE Full<float> widened(Full<uint32> words, __m128i order) {
    return _mm256_cvtepi32_ps(_mm256_shuffle_epi8(__m256i(words), _mm256_broadcastsi128_si256(order)));
}
DEVICE Full<float> fours(const float* pixels, const int64* first) {
    return load_halves(pixels + first[0], first[4] - first[0]);
}
DEVICE Full<float> spread(Full<float> values, int p) { return _mm256_permutevar_ps(values, _mm256_set1_epi32(p)); }
#endif

#endif

// Two neighbouring packed pixels of bytes at each place: bytes 0 to 3, and from 4 on, of which two are beyond.
struct Pairs {
    Full<uint32> low, high;
};
#if defined(__AVX2__)
DEVICE Full<float> byte_of(const Pairs& pairs, int i) {
    const char n = -1, k = char(i % 4);
    const __m128i order = _mm_setr_epi8(k, n, n, n, k + 4, n, n, n, k + 8, n, n, n, k + 12, n, n, n);
    return widened(i < 4 ? pairs.low : pairs.high, order);
}
// Not by way of memory: a load of what several stores wrote waits until they have left for the cache.
DEVICE Pairs load_pairs(const uint8* pixels, const int64* first) {
    const Full<float> a = eights(pixels, first), b = eights(pixels, first + 2);
    return {pick<_MM_SHUFFLE(2, 0, 2, 0)>(a, b), pick<_MM_SHUFFLE(3, 1, 3, 1)>(a, b)};
}
#else
DEVICE Full<float> byte_of(const Pairs& pairs, int i) {
    return float_of((i < 4 ? pairs.low >> uint32(8 * i) : pairs.high >> uint32(8 * (i - 4))) & 255u);
}
DEVICE Pairs load_pairs(const uint8* pixels, const int64* first) {
    Pairs pairs;
    for (int p = 0; p < FULL; ++p) {
        pairs.low[p] = load<uint32>(pixels + first[p]);
        pairs.high[p] = load<uint32>(pixels + first[p] + 4);
    }
    return pairs;
}
#endif
DEVICE void sum_four(const uint8* pixels, int64 pitch, const int64* first, const Full<float>* wy, const Full<float>* wx,
                     Full<float>* sums) {
    const uint8* below = pixels + pitch;
    keep_in_register(below);
    const Pairs upper = load_pairs(pixels, first), lower = load_pairs(below, first);
    const auto along = [&](const Pairs& row, int c) { return wx[0] * byte_of(row, c) + wx[1] * byte_of(row, 3 + c); };
#pragma GCC unroll 3
    for (int c = 0; c < 3; ++c) sums[c] = wy[0] * along(upper, c) + wy[1] * along(lower, c);
}

DEVICE void sum_four(const float* pixels, int64 pitch, const int64* first, const Full<float>* wy, const Full<float>* wx,
                     Full<float>* sums) {
#if defined(__AVX2__)
    Full<float> between[4], planes[4];
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
        const auto along = [&](const float* row) {
            return spread(wx[0], p) * fours(row, first + p) + spread(wx[1], p) * fours(row + 3, first + p);
        };
        const Full<float> sum = spread(wy[0], p) * along(pixels) + spread(wy[1], p) * along(pixels + pitch);
        between[p] = sum + Full<float>{};  // weighted_sum begins with 0, which makes 0 of -0; so does ending with it
    }
    transpose_fours(between, planes);
#pragma GCC unroll 3
    for (int c = 0; c < 3; ++c) sums[c] = planes[c];
#else
    for (int p = 0; p < FULL; ++p) {
        const float down[2] = {wy[0][p], wy[1][p]}, across[2] = {wx[0][p], wx[1][p]};
        const Colour sum = weighted_sum(Taps<2>(), pixels + first[p], pitch, down, across);
        for (int c = 0; c < 3; ++c) sums[c][p] = sum[c];
    }
#endif
}

#endif
