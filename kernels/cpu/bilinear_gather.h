// Computes: the CPU's faster versions of core/warp_points.h: bilinear sums around VEC_LANES points, and nearest floats.
// Threads:  VEC_LANES points per vector.
// Reference: core/warp_points.h.
// Tests:    tests/properties/test_warp.py.
#pragma once
#include "core/warp_points.h"

// bilinear_sums: weighted sums of the 2 x 2 pixels around VEC_LANES points. Those of point p begin first[p] values
// after `pixels`; sums[c][p] is channel c.

#if defined(__AVX2__)

// Wrappers that have other names for wider registers, per 16 bytes (four places):
//   load_8_bytes      eight bytes from each of the first two places
//   shuffle_words     two words of a and two of b
//   shuffle_to_float  bytes shuffled, then integers to floats
//   load_4_floats     four floats from the first place
//   broadcast_lane    lane p of each four floats
#if defined(__AVX512VBMI__)
DEVICE Vec<float> load_8_bytes(const uint8* pixels, const int64* first) {
    const auto at = [&](int p) { return load<double>(pixels + first[p]); };
    return _mm512_castpd_ps(_mm512_setr_pd(at(0), at(1), at(4), at(5), at(8), at(9), at(12), at(13)));
}
template <int which>
DEVICE Vec<uint32> shuffle_words(Vec<float> a, Vec<float> b) {
    return Vec<uint32>(_mm512_shuffle_ps(a, b, which));
}
DEVICE Vec<float> shuffle_to_float(Vec<uint32> words, __m128i order) {
    return _mm512_cvtepi32_ps(_mm512_shuffle_epi8(__m512i(words), _mm512_broadcast_i32x4(order)));
}
DEVICE Vec<float> load_4_floats(const float* pixels, const int64* first) {
    const __m512 half = _mm512_castps256_ps512(load_halves(pixels + first[0], first[4] - first[0]));
    return _mm512_insertf32x8(half, load_halves(pixels + first[8], first[12] - first[8]), 1);
}
DEVICE Vec<float> broadcast_lane(Vec<float> values, int p) {
    return _mm512_permutevar_ps(values, _mm512_set1_epi32(p));
}
#else
DEVICE Vec<float> load_8_bytes(const uint8* pixels, const int64* first) {
    const auto at = [&](int p) { return load<double>(pixels + first[p]); };
    return _mm256_castpd_ps(_mm256_setr_pd(at(0), at(1), at(4), at(5)));
}
template <int which>
DEVICE Vec<uint32> shuffle_words(Vec<float> a, Vec<float> b) {
    return Vec<uint32>(_mm256_shuffle_ps(a, b, which));
}
DEVICE Vec<float> shuffle_to_float(Vec<uint32> words, __m128i order) {
    return _mm256_cvtepi32_ps(_mm256_shuffle_epi8(__m256i(words), _mm256_broadcastsi128_si256(order)));
}
DEVICE Vec<float> load_4_floats(const float* pixels, const int64* first) {
    return load_halves(pixels + first[0], first[4] - first[0]);
}
DEVICE Vec<float> broadcast_lane(Vec<float> values, int p) {
    return _mm256_permutevar_ps(values, _mm256_set1_epi32(p));
}
#endif

#endif

// Two neighboring uint8 pixels per place: bytes 0 to 3, and from 4 on, two of which lie past the pixels.
struct Pairs {
    Vec<uint32> low, high;
};
#if defined(__AVX2__)
DEVICE Vec<float> byte_to_float(const Pairs& pairs, int i) {
    const char n = -1, k = char(i % 4);
    const __m128i order = _mm_setr_epi8(k, n, n, n, k + 4, n, n, n, k + 8, n, n, n, k + 12, n, n, n);
    return shuffle_to_float(i < 4 ? pairs.low : pairs.high, order);
}
// In registers: a load after several narrower stores waits until they reach the cache.
DEVICE Pairs load_pairs(const uint8* pixels, const int64* first) {
    const Vec<float> a = load_8_bytes(pixels, first), b = load_8_bytes(pixels, first + 2);
    return {shuffle_words<_MM_SHUFFLE(2, 0, 2, 0)>(a, b), shuffle_words<_MM_SHUFFLE(3, 1, 3, 1)>(a, b)};
}
#else
DEVICE Vec<float> byte_to_float(const Pairs& pairs, int i) {
    return to_float((i < 4 ? pairs.low >> uint32(8 * i) : pairs.high >> uint32(8 * (i - 4))) & 255u);
}
DEVICE Pairs load_pairs(const uint8* pixels, const int64* first) {
    Pairs pairs;
    for (int p = 0; p < VEC_LANES; ++p) {
        pairs.low[p] = load<uint32>(pixels + first[p]);
        pairs.high[p] = load<uint32>(pixels + first[p] + 4);
    }
    return pairs;
}
#endif
DEVICE void bilinear_sums(const uint8* pixels, int64 pitch, const int64* first, const Vec<float>* wy,
                          const Vec<float>* wx, Vec<float>* sums) {
    const uint8* below = pixels + pitch;
    keep_in_register(below);
    const Pairs upper = load_pairs(pixels, first), lower = load_pairs(below, first);
    const auto along = [&](const Pairs& row, int c) {
        return wx[0] * byte_to_float(row, c) + wx[1] * byte_to_float(row, 3 + c);
    };
#pragma GCC unroll 3
    for (int c = 0; c < 3; ++c) sums[c] = wy[0] * along(upper, c) + wy[1] * along(lower, c);
}

DEVICE void bilinear_sums(const float* pixels, int64 pitch, const int64* first, const Vec<float>* wy,
                          const Vec<float>* wx, Vec<float>* sums) {
#if defined(__AVX2__)
    Vec<float> between[4], planes[4];
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) {
        const auto along = [&](const float* row) {
            return broadcast_lane(wx[0], p) * load_4_floats(row, first + p) +
                   broadcast_lane(wx[1], p) * load_4_floats(row + 3, first + p);
        };
        const Vec<float> sum =
            broadcast_lane(wy[0], p) * along(pixels) + broadcast_lane(wy[1], p) * along(pixels + pitch);
        between[p] =
            sum + Vec<float>{};  // weighted_sum begins with 0, which turns -0 into 0; adding 0 at the end does the same
    }
    transpose_4x4(between, planes);
#pragma GCC unroll 3
    for (int c = 0; c < 3; ++c) sums[c] = planes[c];
#else
    for (int p = 0; p < VEC_LANES; ++p) {
        const float down[2] = {wy[0][p], wy[1][p]}, across[2] = {wx[0][p], wx[1][p]};
        const Rgb sum = weighted_sum<2>(pixels + first[p], pitch, down, across);
        for (int c = 0; c < 3; ++c) sums[c][p] = sum[c];
    }
#endif
}

// v[c][p] = the weighted sums around the points.
template <class T>
DEVICE void gather_inside(const T* image, int pitch, const int64* first, const TapWeights<2>& y, const TapWeights<2>& x,
                          int, PixelBlock& v) {
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        const Vec<float> wy[2] = {load_vec(y.weights[0] + p), load_vec(y.weights[1] + p)};
        const Vec<float> wx[2] = {load_vec(x.weights[0] + p), load_vec(x.weights[1] + p)};
        // A row of points crosses many source rows and soon returns to the rows below, which no hardware prefetcher
        // predicts.
        for (int i = 0; i < VEC_LANES; i += 4) __builtin_prefetch(image + first[p + i] + 8 * pitch);
        Vec<float> sums[3];
        bilinear_sums(image, pitch, first + p, wy, wx, sums);
#pragma GCC unroll 3
        for (int c = 0; c < 3; ++c) store(v[c] + p, sums[c]);
    }
}

#if defined(__AVX2__)
// In registers: a load after several narrower stores waits until they reach the cache.
DEVICE void load_pixels_at(const float* image, const int64* first, int, PixelBlock& v) {
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        Vec<float> pixels[4], planes[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) pixels[i] = load_4_floats(image, first + p + i);
        transpose_4x4(pixels, planes);
#pragma GCC unroll 3
        for (int c = 0; c < 3; ++c) store(v[c] + p, planes[c]);
    }
}
#endif
