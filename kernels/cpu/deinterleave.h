// Computes: packed pixels to planes of values, and back:
//             unpack, interleave   PIXELS packed pixels to planes, and planes of floats to packed pixels
//             to_bytes             PIXELS values of a plane to bytes: to nearest, halves up
//             load_pixels, channel_of, store_pixels   VEC_LANES packed uint8 pixels to a vector per channel, and back
// Threads:  none: each function acts on vectors.
// Reference: Intel Intrinsics Guide.
// Tests:    tests/properties compares the instruction sets bit by bit.
#pragma once
#include "cpu/simd.h"

// store_pixels rounds to nearest, halves up, and clamps to [0, limit], limit <= 255; a NaN becomes 0. It touches no
// byte past the pixels.
#if defined(__AVX512VBMI__)
// The lane of packed value k in the planes of 16 pixels, and the inverse.
struct Packing {
    uint8 plane_of[48], packed_of[48];
};
constexpr Packing packing() {
    Packing packing = {};
    for (int k = 0; k < 48; ++k) {
        const int planar = k % 3 * 16 + k / 3;
        packing.plane_of[k] = uint8(planar), packing.packed_of[planar] = uint8(k);
    }
    return packing;
}
constexpr Packing PACKING = packing();
constexpr uint64 PIXELS_16 = (uint64(1) << 48) - 1;

DEVICE Vec<uint32> load_pixels(const uint8* pixels) { return Vec<uint32>(_mm512_maskz_loadu_epi8(PIXELS_16, pixels)); }
DEVICE Vec<float> channel_of(Vec<uint32> pixels, int c) {
    const __m512i order = _mm512_cvtepu8_epi32(load<__m128i>(PACKING.packed_of + 16 * c));
    return _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(0x1111111111111111, order, __m512i(pixels)));
}
// The order of the arguments turns a NaN into 0.
DEVICE __m128i to_bytes(__m512 values, __m512 limit) {
    const __m512 limited = _mm512_max_ps(_mm512_min_ps(limit, values), _mm512_setzero_ps());
    return _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(_mm512_add_ps(limited, _mm512_set1_ps(0.5f))));
}
DEVICE void store_pixels(Vec<float> r, Vec<float> g, Vec<float> b, Vec<float> limit, uint8* pixels) {
    const __m256i red_green = _mm256_set_m128i(to_bytes(g, limit), to_bytes(r, limit));
    const __m512i planes = _mm512_inserti64x4(_mm512_castsi128_si512(to_bytes(b, limit)), red_green, 1);
    const __m512i from = _mm512_maskz_loadu_epi8(PIXELS_16, PACKING.plane_of);  // blue, then nothing, comes first
    const __m512i order = _mm512_and_si512(_mm512_add_epi8(from, _mm512_set1_epi8(32)), _mm512_set1_epi8(63));
    _mm512_mask_storeu_epi8(pixels, PIXELS_16, _mm512_permutexvar_epi8(order, planes));
}
#elif defined(__AVX2__)
DEVICE Vec32<uint32> load_pixels(const uint8* pixels) {
    const __m256i first = _mm256_castsi128_si256(load<__m128i>(pixels));
    return Vec32<uint32>(
        _mm256_inserti128_si256(first, load<__m128i>(pixels + 8), 1));  // pixels 4 to 7 begin at byte 4
}
DEVICE Vec32<float> channel_of(Vec32<uint32> pixels, int c) {
    const char n = -1, i = char(c);
    const __m256i order = _mm256_setr_epi8(i, n, n, n, i + 3, n, n, n, i + 6, n, n, n, i + 9, n, n, n,  //
                                           i + 4, n, n, n, i + 7, n, n, n, i + 10, n, n, n, i + 13, n, n, n);
    return Vec32<float>(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(__m256i(pixels), order)));
}
// The minimum passes a NaN on, which converts to the least integer; packing saturates it to 0, like negative values.
DEVICE void store_pixels(Vec32<float> r, Vec32<float> g, Vec32<float> b, Vec32<float> limit, uint8* pixels) {
    const auto whole = [&](__m256 values) {
        return _mm256_cvttps_epi32(_mm256_add_ps(_mm256_min_ps(limit, values), splat32(0.5f)));
    };
    const __m256i red_green = _mm256_packus_epi32(whole(r), whole(g)), blue = _mm256_packus_epi32(whole(b), whole(b));
    const __m256i order = _mm256_setr_epi8(0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, -1, -1, -1, -1,  //
                                           0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, -1, -1, -1, -1);
    const __m256i halves = _mm256_shuffle_epi8(_mm256_packus_epi16(red_green, blue), order);
    const __m256i packed = _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(pixels), _mm256_castsi256_si128(packed));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(pixels + 16), _mm256_extracti128_si256(packed, 1));
}
#else
DEVICE Vec32<uint32> load_pixels(const uint8* pixels) {
    Vec32<uint32> words;
    for (int p = 0; p < 7; ++p) words[p] = load<uint32>(pixels + 3 * p);
    words[7] = load<uint32>(pixels + 20) >> 8;
    return words;
}
DEVICE Vec32<float> channel_of(Vec32<uint32> words, int c) { return to_float((words >> uint32(8 * c)) & 255u); }
DEVICE void store_pixels(Vec32<float> r, Vec32<float> g, Vec32<float> b, Vec32<float> limit, uint8* pixels) {
    const auto whole = [&](Vec32<float> values) {
        const Vec32<float> up = min(max(values, splat32(0.0f)), limit) + 0.5f;
        return Vec32<uint32>(__builtin_convertvector(up, Vec32<int>));
    };
    const Vec32<uint32> words = whole(r) | whole(g) << 8u | whole(b) << 16u;
    for (int p = 0; p < 8; ++p) {
        const uint32 word = words[p];
        memcpy(pixels + 3 * p, &word, 3);
    }
}
#endif

// GCC finds neither minima and maxima in loops nor these shuffles.
#if defined(__AVX2__)
DEVICE void unpack(const uint8* pixels, float (*v)[PIXELS]) {
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        const Vec<uint32> packed = load_pixels(pixels + 3 * p);
        for (int c = 0; c < 3; ++c) store(&v[c][p], channel_of(packed, c));
    }
}
#endif

#if defined(__AVX512VBMI__)

// to [3] vectors = the lanes `places` of from [3].
DEVICE void rearrange(const uint8* lanes, const float* const* from, float* const* to) {
    const __m512 first = _mm512_loadu_ps(from[0]), second = _mm512_loadu_ps(from[1]), third = _mm512_loadu_ps(from[2]);
    for (int i = 0; i < 3; ++i) {
        const __m512i lane = _mm512_cvtepu8_epi32(load<__m128i>(lanes + 16 * i));
        const __m512 first_two = _mm512_permutex2var_ps(first, lane, second);
        const __mmask16 last = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(32));
        _mm512_storeu_ps(to[i], _mm512_mask_permutexvar_ps(first_two, last, lane, third));
    }
}
DEVICE void unpack(const float* pixels, float (*v)[PIXELS]) {
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        const float* const from[3] = {pixels + 3 * p, pixels + 3 * p + VEC_LANES, pixels + 3 * p + 2 * VEC_LANES};
        float* const to[3] = {v[0] + p, v[1] + p, v[2] + p};
        rearrange(PACKING.packed_of, from, to);
    }
}
DEVICE void interleave(const float (*planes)[PIXELS], float* pixels) {
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        const float* const from[3] = {planes[0] + p, planes[1] + p, planes[2] + p};
        float* const to[3] = {pixels + 3 * p, pixels + 3 * p + VEC_LANES, pixels + 3 * p + 2 * VEC_LANES};
        rearrange(PACKING.plane_of, from, to);
    }
}

DEVICE void to_bytes(const float* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; p += VEC_LANES)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + p), to_bytes(load_vec(values + p), splat(255.0f)));
}
DEVICE void to_bytes(const int* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        // Loaded in halves, as they were stored: a load that spans two stores waits.
        const __m512i low = _mm512_castsi256_si512(load<__m256i>(values + p));
        const __m512i all = _mm512_inserti64x4(low, load<__m256i>(values + p + 8), 1);
        const __m512i levels = _mm512_max_epi32(all, _mm512_setzero_si512());
        _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + p), _mm512_cvtusepi32_epi8(levels));
    }
}

#elif defined(__AVX2__)

// Eight pixels are three registers. Each plane has its values in eight different lanes, pixel p in lane (3 * p + c) %
// 8: two blends and a permutation extract it.
DEVICE void unpack(const float* pixels, float (*v)[PIXELS]) {
    const __m256i from[3] = {_mm256_setr_epi32(0, 3, 6, 1, 4, 7, 2, 5), _mm256_setr_epi32(1, 4, 7, 2, 5, 0, 3, 6),
                             _mm256_setr_epi32(2, 5, 0, 3, 6, 1, 4, 7)};
    for (int p = 0; p < PIXELS; p += 8) {
        const __m256 a = _mm256_loadu_ps(pixels + 3 * p), b = _mm256_loadu_ps(pixels + 3 * p + 8);
        const __m256 c = _mm256_loadu_ps(pixels + 3 * p + 16);
        const __m256 red = _mm256_blend_ps(_mm256_blend_ps(a, b, 0x92), c, 0x24);
        const __m256 green = _mm256_blend_ps(_mm256_blend_ps(a, b, 0x24), c, 0x49);
        const __m256 blue = _mm256_blend_ps(_mm256_blend_ps(a, b, 0x49), c, 0x92);
        _mm256_storeu_ps(&v[0][p], _mm256_permutevar8x32_ps(red, from[0]));
        _mm256_storeu_ps(&v[1][p], _mm256_permutevar8x32_ps(green, from[1]));
        _mm256_storeu_ps(&v[2][p], _mm256_permutevar8x32_ps(blue, from[2]));
    }
}
DEVICE void interleave(const float (*planes)[PIXELS], float* pixels) {
    const __m256i from[3] = {_mm256_setr_epi32(0, 3, 6, 1, 4, 7, 2, 5), _mm256_setr_epi32(5, 0, 3, 6, 1, 4, 7, 2),
                             _mm256_setr_epi32(2, 5, 0, 3, 6, 1, 4, 7)};
    for (int p = 0; p < PIXELS; p += 8) {
        const __m256 red = _mm256_permutevar8x32_ps(_mm256_loadu_ps(planes[0] + p), from[0]);
        const __m256 green = _mm256_permutevar8x32_ps(_mm256_loadu_ps(planes[1] + p), from[1]);
        const __m256 blue = _mm256_permutevar8x32_ps(_mm256_loadu_ps(planes[2] + p), from[2]);
        const __m256 a = _mm256_blend_ps(_mm256_blend_ps(red, green, 0x92), blue, 0x24);
        const __m256 b = _mm256_blend_ps(_mm256_blend_ps(red, green, 0x24), blue, 0x49);
        const __m256 c = _mm256_blend_ps(_mm256_blend_ps(red, green, 0x49), blue, 0x92);
        _mm256_storeu_ps(pixels + 3 * p, a);
        _mm256_storeu_ps(pixels + 3 * p + 8, b);
        _mm256_storeu_ps(pixels + 3 * p + 16, c);
    }
}

DEVICE __m256i to_whole(const float* values) {  // negative where packing saturates to 0, as in store_pixels
    const __m256 limit = _mm256_min_ps(_mm256_set1_ps(255.0f), _mm256_loadu_ps(values));
    return _mm256_cvttps_epi32(_mm256_add_ps(limit, _mm256_set1_ps(0.5f)));
}
DEVICE __m256i to_whole(const int* values) { return load<__m256i>(values); }
template <class T>
DEVICE void to_bytes(const T* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; p += 32) {
        const __m256i low = _mm256_packs_epi32(to_whole(values + p), to_whole(values + p + 8));
        const __m256i high = _mm256_packs_epi32(to_whole(values + p + 16), to_whole(values + p + 24));
        // Packing acts on each half of a register; this restores the order.
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        const __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
        memcpy(bytes + p, &packed, sizeof packed);
    }
}

#else

template <class T>
DEVICE void unpack(const T* pixels, float (*v)[PIXELS]) {
    for (int p = 0; p < PIXELS; ++p)
        for (int c = 0; c < 3; ++c) v[c][p] = float(pixels[3 * p + c]);
}
template <class T>
DEVICE void interleave(const T (*planes)[PIXELS], T* pixels) {
    for (int p = 0; p < PIXELS; ++p)
        for (int c = 0; c < 3; ++c) pixels[3 * p + c] = planes[c][p];
}

DEVICE void to_bytes(const float* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; ++p) bytes[p] = to_uint8(values[p]);
}
DEVICE void to_bytes(const int* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; ++p) bytes[p] = uint8(min(max(values[p], 0), 255));
}

#endif
