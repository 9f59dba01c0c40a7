// What is done to PIXELS pixels at once besides arithmetic, where CUDA has one pixel and the host has registers to
// fill:
//   Colour       one pixel as such, with load, multiply-add and store; weighted_sum: of a square of pixels
//   Many<T>      as many values as a register holds; smaller and larger compare each, to_ints and to_floats convert
//   unpack       packed pixels to planes of floats; interleave: planes to packed pixels
//   clamp_all, to_bytes   of a plane
//
// Tested through all that reads or writes pixels; that every instruction set makes the same bits, by tests/properties.
#pragma once
#include "shim.h"

// To nearest, halves up; saturated. A NaN becomes 0.
DEVICE uint8 to_uint8(float value) { return uint8(clamp(value, 255.0f) + 0.5f); }

DEVICE int to_ints(float value) { return int(value); }
DEVICE float to_floats(int value) { return float(value); }

#if defined(__CUDACC__)

struct Colour {
    float value[3];
};
DEVICE Colour no_colour() { return {{0.0f, 0.0f, 0.0f}}; }
DEVICE Colour colour_of(const float* rgb) { return {{rgb[0], rgb[1], rgb[2]}}; }
template <class T>
DEVICE Colour load_colour(const T* p) {
    return {{float(p[0]), float(p[1]), float(p[2])}};
}
DEVICE void multiply_add(Colour& sum, float weight, const Colour& colour) {
    for (int c = 0; c < 3; ++c) sum.value[c] += weight * colour.value[c];
}
DEVICE void store(float* p, const Colour& colour) {
    for (int c = 0; c < 3; ++c) p[c] = colour.value[c];
}

template <class T>
using Many = T;
template <class T>
DEVICE void store_many(T* p, T value) {
    *p = value;
}
template <class T>
DEVICE T load(const T* p) {
    return *p;
}
DEVICE float all_of(float value) { return value; }
DEVICE int all_of(int value) { return value; }
template <class T>
DEVICE void unpack(const T* pixels, float (*v)[PIXELS]) {
    for (int c = 0; c < 3; ++c) v[c][0] = float(pixels[c]);
}
template <class T>
DEVICE void interleave(const T (*planes)[PIXELS], T* pixels) {
    for (int c = 0; c < 3; ++c) pixels[c] = planes[c][0];
}

DEVICE void clamp_all(float* values, float limit) {
    for (int p = 0; p < PIXELS; ++p) values[p] = clamp(values[p], limit);
}
DEVICE void to_bytes(const float* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; ++p) bytes[p] = to_uint8(values[p]);
}

#else

// Many: a vector extension too. Clang and GCC compare and choose lane by lane.
template <class T>
struct Vector {
    typedef T Type __attribute__((vector_size(32)));
};
template <class T>
using Many = typename Vector<T>::Type;
template <class T>
DEVICE void store_many(T* p, const Many<T>& values) {
    memcpy(p, &values, sizeof values);
}
DEVICE Many<uint8> smaller(Many<uint8> a, Many<uint8> b) { return a < b ? a : b; }
DEVICE Many<uint8> larger(Many<uint8> a, Many<uint8> b) { return a > b ? a : b; }
DEVICE Many<float> all_of(float value) { return Many<float>{} + value; }
DEVICE Many<int> all_of(int value) { return Many<int>{} + value; }
DEVICE Many<int> to_ints(Many<float> values) { return __builtin_convertvector(values, Many<int>); }
DEVICE Many<float> to_floats(Many<int> values) { return __builtin_convertvector(values, Many<float>); }
// GCC does not find these by itself. A minimum is its second argument where the first is not less; so is that of
// shim.h.
#if defined(__AVX2__)
DEVICE Many<float> smaller(Many<float> a, Many<float> b) { return _mm256_min_ps(a, b); }
DEVICE Many<float> larger(Many<float> a, Many<float> b) { return _mm256_max_ps(a, b); }
DEVICE Many<float> floor_of(Many<float> values) { return _mm256_floor_ps(values); }
#else
DEVICE Many<float> smaller(Many<float> a, Many<float> b) { return a < b ? a : b; }
DEVICE Many<float> larger(Many<float> a, Many<float> b) { return a > b ? a : b; }
DEVICE Many<float> floor_of(Many<float> values) {
    for (int i = 0; i < 8; ++i) values[i] = floor_of(values[i]);
    return values;
}
#endif

// Colour: the fourth lane is unused.
typedef Quad Colour;
DEVICE Colour no_colour() { return Quad{}; }
DEVICE Colour colour_of(const float* rgb) { return Quad{rgb[0], rgb[1], rgb[2], 0.0f}; }
DEVICE void multiply_add(Colour& sum, float weight, const Colour& colour) { sum += weight * colour; }
// A load reads one value beyond the pixel, and a store writes one.
DEVICE Colour load_colour(const float* p) { return load<Quad>(p); }
DEVICE Colour load_colour(const uint8* p) {
    const uint32 bytes = load<uint32>(p);
#if defined(__SSE4_1__)
    return Quad(_mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(int(bytes)))));
#else
    return Quad{float(bytes & 255), float(bytes >> 8 & 255), float(bytes >> 16 & 255), 0.0f};
#endif
}
DEVICE void store(float* p, const Colour& colour) { memcpy(p, &colour, sizeof colour); }

// GCC does not find the instructions for minima and maxima in loops, nor for bytes that change places.
#if defined(__AVX2__)

// Which bytes of three registers make 16 pixels' plane of one channel, and which of three planes make a register; 128
// and more: none.
struct Shuffles {
    uint8 to_plane[3][3][16], to_pixels[3][3][16];
    constexpr Shuffles() : to_plane(), to_pixels() {
        for (int c = 0; c < 3; ++c)
            for (int k = 0; k < 3; ++k)
                for (int i = 0; i < 16; ++i) {
                    const int packed = 3 * i + c, place = 16 * k + i;
                    to_plane[c][k][i] = packed / 16 == k ? packed % 16 : 128;
                    to_pixels[k][c][i] = place % 3 == c ? place / 3 : 128;
                }
    }
};
constexpr Shuffles SHUFFLES;

// out[k] = the bytes of in[0 .. 2] that shuffles[k] asks for.
DEVICE void shuffle(const uint8 (*shuffles)[3][16], const __m128i* in, __m128i* out) {
    for (int k = 0; k < 3; ++k) {
        const __m128i a = _mm_shuffle_epi8(in[0], load<__m128i>(shuffles[k][0]));
        const __m128i b = _mm_shuffle_epi8(in[1], load<__m128i>(shuffles[k][1]));
        out[k] = _mm_or_si128(_mm_or_si128(a, b), _mm_shuffle_epi8(in[2], load<__m128i>(shuffles[k][2])));
    }
}
DEVICE void unpack(const uint8* pixels, float (*v)[PIXELS]) {
    for (int p = 0; p < PIXELS; p += 16) {
        __m128i in[3], planes[3];
        memcpy(in, pixels + 3 * p, sizeof in);
        shuffle(SHUFFLES.to_plane, in, planes);
        for (int c = 0; c < 3; ++c) {
            uint8 plane[16];
            memcpy(plane, &planes[c], sizeof plane);
            store(&v[c][p], widen(plane));
            store(&v[c][p + 8], widen(plane + 8));
        }
    }
}
DEVICE void interleave(const uint8 (*planes)[PIXELS], uint8* pixels) {
    for (int p = 0; p < PIXELS; p += 16) {
        const __m128i in[3] = {load<__m128i>(planes[0] + p), load<__m128i>(planes[1] + p),
                               load<__m128i>(planes[2] + p)};
        __m128i out[3];
        shuffle(SHUFFLES.to_pixels, in, out);
        memcpy(pixels + 3 * p, out, sizeof out);
    }
}

// Eight pixels are three registers. Every plane finds its values in eight different lanes of them, pixel p in lane
// (3 * p + c) % 8: so two blends and one permutation make a plane.
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

DEVICE __m256 clamp(__m256 value, float limit) {
    return _mm256_min_ps(_mm256_max_ps(value, _mm256_setzero_ps()), _mm256_set1_ps(limit));
}
DEVICE void clamp_all(float* values, float limit) {
    for (int p = 0; p < PIXELS; p += 8) _mm256_storeu_ps(values + p, clamp(_mm256_loadu_ps(values + p), limit));
}
DEVICE __m256i to_whole(const float* values) {
    return _mm256_cvttps_epi32(_mm256_add_ps(clamp(_mm256_loadu_ps(values), 255.0f), _mm256_set1_ps(0.5f)));
}
DEVICE void to_bytes(const float* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; p += 32) {
        const __m256i low = _mm256_packs_epi32(to_whole(values + p), to_whole(values + p + 8));
        const __m256i high = _mm256_packs_epi32(to_whole(values + p + 16), to_whole(values + p + 24));
        // Packing goes on in each half of a register; hence their order.
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        const __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
        memcpy(bytes + p, &packed, sizeof packed);
    }
}
DEVICE void to_bytes(const int* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; p += 32) {
        const __m256i low = _mm256_packs_epi32(load<__m256i>(values + p), load<__m256i>(values + p + 8));
        const __m256i high = _mm256_packs_epi32(load<__m256i>(values + p + 16), load<__m256i>(values + p + 24));
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

DEVICE void clamp_all(float* values, float limit) {
    for (int p = 0; p < PIXELS; ++p) values[p] = clamp(values[p], limit);
}
DEVICE void to_bytes(const float* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; ++p) bytes[p] = to_uint8(values[p]);
}
DEVICE void to_bytes(const int* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; ++p) bytes[p] = uint8(smaller(larger(values[p], 0), 255));
}

#endif

#endif

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

#if defined(__AVX2__) && !defined(__CUDACC__)

// Both rows at once: the upper one's pixel in the lower half of a register.
DEVICE Colour sum_of_four(const Lanes& left, const Lanes& right, const float* wy, const float* wx) {
    Lanes sums = zero_lanes();
    sums += wx[0] * left;
    sums += wx[1] * right;
    Colour value = no_colour();
    multiply_add(value, wy[0], Quad(_mm256_castps256_ps128(sums)));
    multiply_add(value, wy[1], Quad(_mm256_extractf128_ps(sums, 1)));
    return value;
}
DEVICE Colour weighted_sum(Taps<2>, const float* pixels, int64 pitch, const float* wy, const float* wx) {
    return sum_of_four(load_rows(pixels, pitch), load_rows(pixels + 3, pitch), wy, wx);
}
DEVICE Colour weighted_sum(Taps<2>, const uint8* pixels, int64 pitch, const float* wy, const float* wx) {
    const __m128i upper = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pixels));
    const __m128i lower = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pixels + pitch));
    const __m128i order = _mm_setr_epi8(0, 1, 2, -1, 8, 9, 10, -1, 3, 4, 5, -1, 11, 12, 13, -1);
    const __m128i bytes = _mm_shuffle_epi8(_mm_unpacklo_epi64(upper, lower), order);
    const Lanes left = Lanes(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
    const Lanes right = Lanes(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes))));
    return sum_of_four(left, right, wy, wx);
}

#endif
