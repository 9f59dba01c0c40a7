// Computes: the CPU half of simd.h: vectors of floats, integers and bytes. cpu/deinterleave.h adds packed pixels.
// Threads:  none: each function acts on one vector.
// Reference: GCC vector extensions; Intel Intrinsics Guide. A minimum or maximum of a NaN gives the second argument,
//           as in platform.h.
// Tests:    tests/properties compares the instruction sets bit by bit; tests/kernels/test_portable.py the code without.
#pragma once
#include "platform.h"

template <class T>
DEVICE T load(const void* p) {
    T value;
    memcpy(&value, p, sizeof value);
    return value;
}
template <class T, class V>
DEVICE void store(T* p, const V& values) {
    memcpy(p, &values, sizeof values);
}

// GCC would compute the address of each vector of a row beforehand, and spill them all.
template <class T>
DEVICE void keep_in_register(T*& p) {
    asm("" : "+r"(p));
}

// --- Vec<T>, Vec32<T> ------------------------------------------------------------------------------------------------

template <class T, int bytes>
struct VectorOf {
    typedef T Type __attribute__((vector_size(bytes)));
};
#if defined(__AVX512VBMI__)
constexpr int VEC_BYTES = 64;
#else
constexpr int VEC_BYTES = 32;
#endif
template <class T>
using Vec = typename VectorOf<T, VEC_BYTES>::Type;
template <class T>
using Vec32 = typename VectorOf<T, 32>::Type;
template <class T>
constexpr int lanes_in = VEC_BYTES / int(sizeof(T));
constexpr int VEC_LANES = lanes_in<float>, VEC32_LANES = 8;

template <class T>
DEVICE Vec<T> load_vec(const T* p) {
    return load<Vec<T> >(p);
}
template <class T>
DEVICE Vec32<T> load_vec32(const T* p) {
    return load<Vec32<T> >(p);
}
template <class T>
DEVICE Vec<T> splat(T value) {
    return Vec<T>{} + value;
}
template <class T>
DEVICE Vec32<T> splat32(T value) {
    return Vec32<T>{} + value;
}

DEVICE Vec32<int> to_int(Vec32<float> values) { return __builtin_convertvector(values, Vec32<int>); }
DEVICE Vec32<float> to_float(Vec32<int> values) { return __builtin_convertvector(values, Vec32<float>); }
DEVICE Vec32<float> to_float(Vec32<uint32> values) { return to_float(Vec32<int>(values)); }
DEVICE Vec32<uint32> float_bits(Vec32<float> values) { return Vec32<uint32>(values); }
DEVICE Vec32<float> bits_to_float(Vec32<uint32> bits) { return Vec32<float>(bits); }

// GCC does not find these instructions by itself.
#if defined(__AVX2__)
DEVICE Vec32<float> min(Vec32<float> a, Vec32<float> b) { return _mm256_min_ps(a, b); }
DEVICE Vec32<float> max(Vec32<float> a, Vec32<float> b) { return _mm256_max_ps(a, b); }
DEVICE Vec32<float> floor(Vec32<float> values) { return _mm256_floor_ps(values); }
DEVICE Vec32<float> sqrt(Vec32<float> values) { return _mm256_sqrt_ps(values); }
#else
#if defined(__SSE2__)
// GCC splits vectors of two registers into scalars where it compares them.
template <class Instruction>
DEVICE Vec32<float> by_halves(Vec32<float> a, Vec32<float> b, Instruction instruction) {
    const __m128 halves[2][2] = {{_mm_setr_ps(a[0], a[1], a[2], a[3]), _mm_setr_ps(a[4], a[5], a[6], a[7])},
                                 {_mm_setr_ps(b[0], b[1], b[2], b[3]), _mm_setr_ps(b[4], b[5], b[6], b[7])}};
    const __m128 results[2] = {instruction(halves[0][0], halves[1][0]), instruction(halves[0][1], halves[1][1])};
    return load<Vec32<float> >(results);
}
DEVICE Vec32<float> min(Vec32<float> a, Vec32<float> b) {
    return by_halves(a, b, [](__m128 c, __m128 d) { return _mm_min_ps(c, d); });
}
DEVICE Vec32<float> max(Vec32<float> a, Vec32<float> b) {
    return by_halves(a, b, [](__m128 c, __m128 d) { return _mm_max_ps(c, d); });
}
#endif
DEVICE Vec32<float> floor(Vec32<float> values) {
    for (int i = 0; i < 8; ++i) values[i] = floor(values[i]);
    return values;
}
DEVICE Vec32<float> sqrt(Vec32<float> values) {
    for (int i = 0; i < 8; ++i) values[i] = sqrt(values[i]);
    return values;
}
#endif

#if defined(__AVX512VBMI__)
DEVICE Vec<uint8> min(Vec<uint8> a, Vec<uint8> b) { return Vec<uint8>(_mm512_min_epu8(__m512i(a), __m512i(b))); }
DEVICE Vec<uint8> max(Vec<uint8> a, Vec<uint8> b) { return Vec<uint8>(_mm512_max_epu8(__m512i(a), __m512i(b))); }
DEVICE Vec<float> min(Vec<float> a, Vec<float> b) { return _mm512_min_ps(a, b); }
DEVICE Vec<float> max(Vec<float> a, Vec<float> b) { return _mm512_max_ps(a, b); }
DEVICE Vec<float> floor(Vec<float> values) { return _mm512_floor_ps(values); }
DEVICE Vec<float> sqrt(Vec<float> values) { return _mm512_sqrt_ps(values); }
DEVICE Vec<uint32> float_bits(Vec<float> values) { return Vec<uint32>(values); }
DEVICE Vec<float> bits_to_float(Vec<uint32> bits) { return Vec<float>(bits); }
DEVICE Vec<int> to_int(Vec<float> values) { return Vec<int>(_mm512_cvttps_epi32(values)); }
DEVICE Vec<float> to_float(Vec<int> values) { return _mm512_cvtepi32_ps(__m512i(values)); }
DEVICE Vec<float> to_float(Vec<uint32> values) { return to_float(Vec<int>(values)); }
#endif

// --- Rgb -------------------------------------------------------------------------------------------------------------

// The fourth lane is unused. A load reads one value beyond the pixel, and a store writes one.
typedef float Rgb __attribute__((vector_size(16)));
DEVICE Rgb make_rgb(const float* rgb) { return Rgb{rgb[0], rgb[1], rgb[2], 0.0f}; }
DEVICE void multiply_add(Rgb& sum, float weight, const Rgb& rgb) { sum += weight * rgb; }
DEVICE Rgb load_rgb(const float* p) { return load<Rgb>(p); }
DEVICE Rgb load_rgb(const uint8* p) {
    const uint32 bytes = load<uint32>(p);
#if defined(__SSE4_1__)
    return Rgb(_mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(int(bytes)))));
#else
    return Rgb{float(bytes & 255), float(bytes >> 8 & 255), float(bytes >> 16 & 255), 0.0f};
#endif
}

// --- FloatVec --------------------------------------------------------------------------------------------------------

typedef float FloatVec __attribute__((vector_size(4 * LANES)));
constexpr int GROUPS = 8;  // vectors that a loop sums together

// Compilers convert one byte after the other; hence by hand.
DEVICE FloatVec load_floats(const uint8* p) {
#if defined(__AVX512VBMI__)
    return FloatVec(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load<__m128i>(p))));
#elif defined(__AVX2__)
    return FloatVec(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))));
#elif defined(__SSE2__)
    const __m128i zero = _mm_setzero_si128(), bytes = _mm_cvtsi32_si128(load<int>(p));
    return FloatVec(_mm_cvtepi32_ps(_mm_unpacklo_epi16(_mm_unpacklo_epi8(bytes, zero), zero)));
#else
    return FloatVec{float(p[0]), float(p[1]), float(p[2]), float(p[3])};
#endif
}
DEVICE FloatVec load_floats(const float* p) { return load<FloatVec>(p); }
template <class T>
DEVICE void multiply_add(FloatVec& sum, float weight, const T* p) {
    sum += weight * load_floats(p);
}

#if defined(__AVX2__)
// The four floats at p, then those at p + offset.
DEVICE Vec32<float> load_halves(const float* p, int64 offset) {
    return Vec32<float>(_mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + offset), 1));
}
// Transposes the 4 x 4 floats in each 16 bytes of the registers.
DEVICE void transpose_4x4(const Vec32<float> (&rows)[4], Vec32<float> (&columns)[4]) {
    const __m256 low01 = _mm256_unpacklo_ps(rows[0], rows[1]), high01 = _mm256_unpackhi_ps(rows[0], rows[1]);
    const __m256 low23 = _mm256_unpacklo_ps(rows[2], rows[3]), high23 = _mm256_unpackhi_ps(rows[2], rows[3]);
    columns[0] = _mm256_shuffle_ps(low01, low23, _MM_SHUFFLE(1, 0, 1, 0));
    columns[1] = _mm256_shuffle_ps(low01, low23, _MM_SHUFFLE(3, 2, 3, 2));
    columns[2] = _mm256_shuffle_ps(high01, high23, _MM_SHUFFLE(1, 0, 1, 0));
    columns[3] = _mm256_shuffle_ps(high01, high23, _MM_SHUFFLE(3, 2, 3, 2));
}
#endif
#if defined(__AVX512VBMI__)
DEVICE void transpose_4x4(const FloatVec (&rows)[4], FloatVec (&columns)[4]) {
    const __m512 low01 = _mm512_unpacklo_ps(rows[0], rows[1]), high01 = _mm512_unpackhi_ps(rows[0], rows[1]);
    const __m512 low23 = _mm512_unpacklo_ps(rows[2], rows[3]), high23 = _mm512_unpackhi_ps(rows[2], rows[3]);
    columns[0] = _mm512_shuffle_ps(low01, low23, _MM_SHUFFLE(1, 0, 1, 0));
    columns[1] = _mm512_shuffle_ps(low01, low23, _MM_SHUFFLE(3, 2, 3, 2));
    columns[2] = _mm512_shuffle_ps(high01, high23, _MM_SHUFFLE(1, 0, 1, 0));
    columns[3] = _mm512_shuffle_ps(high01, high23, _MM_SHUFFLE(3, 2, 3, 2));
}
// Four floats from each fourth row.
DEVICE FloatVec load_every_4th_row(const float* p, int64 pitch) {
    const __m512 upper = _mm512_castps256_ps512(load_halves(p, 4 * pitch));
    return FloatVec(_mm512_insertf32x8(upper, load_halves(p + 8 * pitch, 4 * pitch), 1));
}
#elif defined(__AVX2__)
DEVICE FloatVec load_every_4th_row(const float* p, int64 pitch) { return load_halves(p, 4 * pitch); }
#endif

// to[j * to_pitch + i] = from[i * from_pitch + j] for i, j < LANES.
DEVICE void transpose(const float* from, int from_pitch, float* to, int to_pitch) {
#if defined(__AVX2__)
    for (int j = 0; j < LANES; j += 4) {
        FloatVec rows[4], columns[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) rows[i] = load_every_4th_row(from + i * from_pitch + j, from_pitch);
        transpose_4x4(rows, columns);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) store(to + (j + i) * to_pitch, columns[i]);
    }
#elif defined(__SSE2__)
    __m128 rows[4];
    for (int i = 0; i < 4; ++i) rows[i] = _mm_loadu_ps(from + i * from_pitch);
    _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
    for (int j = 0; j < 4; ++j) _mm_storeu_ps(to + j * to_pitch, rows[j]);
#else
    for (int i = 0; i < LANES; ++i)
        for (int j = 0; j < LANES; ++j) to[j * to_pitch + i] = from[i * from_pitch + j];
#endif
}
