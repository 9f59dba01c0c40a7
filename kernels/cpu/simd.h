// Several values at once, where CUDA has one and the host has registers to fill:
//   Colour       one pixel as such, with load, multiply-add and store
//   Many<T>      as many values as 32 bytes hold; smaller and larger compare each, to_ints and to_floats convert
//   Full<T>      as many as the widest register holds
//
// Tested through all that computes with pixels; that every instruction set makes the same bits, by tests/properties.
#pragma once
#include "platform.h"

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
template <class T>
DEVICE T load_many(const T* p) {
    return *p;
}
template <class T>
using Full = T;
template <class T>
DEVICE void store_full(T* p, T value) {
    *p = value;
}
template <class T>
DEVICE T load_full(const T* p) {
    return *p;
}
DEVICE float full_of(float value) { return value; }
constexpr int FULL = 1, MANY = 1;
DEVICE float all_of(float value) { return value; }
DEVICE int all_of(int value) { return value; }

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
template <class T>
DEVICE Many<T> load_many(const T* p) {
    return load<Many<T> >(p);
}
DEVICE Many<uint8> smaller(Many<uint8> a, Many<uint8> b) { return a < b ? a : b; }
DEVICE Many<uint8> larger(Many<uint8> a, Many<uint8> b) { return a > b ? a : b; }
DEVICE Many<float> all_of(float value) { return Many<float>{} + value; }
DEVICE Many<int> all_of(int value) { return Many<int>{} + value; }
DEVICE Many<int> to_ints(Many<float> values) { return __builtin_convertvector(values, Many<int>); }
DEVICE Many<float> to_floats(Many<int> values) { return __builtin_convertvector(values, Many<float>); }
// GCC does not find these by itself. A minimum is its second argument where the first is not less; so is that of
// platform.h.
#if defined(__AVX2__)
DEVICE Many<float> smaller(Many<float> a, Many<float> b) { return _mm256_min_ps(a, b); }
DEVICE Many<float> larger(Many<float> a, Many<float> b) { return _mm256_max_ps(a, b); }
DEVICE Many<float> floor_of(Many<float> values) { return _mm256_floor_ps(values); }
#else
#if defined(__SSE2__)
// GCC takes vectors of two registers apart where they are compared.
template <class Instruction>
DEVICE Many<float> by_halves(Many<float> a, Many<float> b, Instruction of) {
    const __m128 halves[2][2] = {{_mm_setr_ps(a[0], a[1], a[2], a[3]), _mm_setr_ps(a[4], a[5], a[6], a[7])},
                                 {_mm_setr_ps(b[0], b[1], b[2], b[3]), _mm_setr_ps(b[4], b[5], b[6], b[7])}};
    const __m128 made[2] = {of(halves[0][0], halves[1][0]), of(halves[0][1], halves[1][1])};
    return load<Many<float> >(made);
}
DEVICE Many<float> smaller(Many<float> a, Many<float> b) {
    return by_halves(a, b, [](__m128 c, __m128 d) { return _mm_min_ps(c, d); });
}
DEVICE Many<float> larger(Many<float> a, Many<float> b) {
    return by_halves(a, b, [](__m128 c, __m128 d) { return _mm_max_ps(c, d); });
}
#else
DEVICE Many<float> smaller(Many<float> a, Many<float> b) { return a < b ? a : b; }
DEVICE Many<float> larger(Many<float> a, Many<float> b) { return a > b ? a : b; }
#endif
DEVICE Many<float> floor_of(Many<float> values) {
    for (int i = 0; i < 8; ++i) values[i] = floor_of(values[i]);
    return values;
}
#endif

// Bits, roots, and whole numbers below 2^31, of many.
#if defined(__AVX2__)
DEVICE Many<float> root(Many<float> values) { return _mm256_sqrt_ps(values); }
#else
DEVICE Many<float> root(Many<float> values) {
    for (int i = 0; i < 8; ++i) values[i] = root(values[i]);
    return values;
}
#endif
DEVICE Many<uint32> float_bits(Many<float> values) { return Many<uint32>(values); }
DEVICE Many<float> float_of_bits(Many<uint32> bits) { return Many<float>(bits); }
DEVICE Many<float> float_of(Many<uint32> whole) { return to_floats(Many<int>(whole)); }

// The same of what the widest register holds, where that is more.
#if defined(__AVX512VBMI__)
template <class T>
struct Widest {
    typedef T Type __attribute__((vector_size(64)));
};
template <class T>
using Full = typename Widest<T>::Type;
DEVICE Full<uint8> smaller(Full<uint8> a, Full<uint8> b) {
    return Full<uint8>(_mm512_min_epu8(__m512i(a), __m512i(b)));
}
DEVICE Full<uint8> larger(Full<uint8> a, Full<uint8> b) { return Full<uint8>(_mm512_max_epu8(__m512i(a), __m512i(b))); }
DEVICE Full<float> smaller(Full<float> a, Full<float> b) { return _mm512_min_ps(a, b); }
DEVICE Full<float> larger(Full<float> a, Full<float> b) { return _mm512_max_ps(a, b); }
DEVICE Full<float> floor_of(Full<float> values) { return _mm512_floor_ps(values); }
DEVICE Full<float> root(Full<float> values) { return _mm512_sqrt_ps(values); }
DEVICE Full<uint32> float_bits(Full<float> values) { return Full<uint32>(values); }
DEVICE Full<float> float_of_bits(Full<uint32> bits) { return Full<float>(bits); }
DEVICE Full<float> float_of(Full<uint32> whole) { return _mm512_cvtepi32_ps(__m512i(whole)); }
#else
template <class T>
using Full = Many<T>;
#endif
template <class T>
DEVICE void store_full(T* p, const Full<T>& values) {
    memcpy(p, &values, sizeof values);
}
template <class T>
DEVICE Full<T> load_full(const T* p) {
    return load<Full<T> >(p);
}
DEVICE Full<float> full_of(float value) { return Full<float>{} + value; }
template <class T>
constexpr int values_in = int(sizeof(Full<T>) / sizeof(T));
constexpr int MANY = int(sizeof(Many<float>) / sizeof(float)), FULL = values_in<float>;

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

#endif
