// Computes: the CPU half of core/simd.h: coordinates in double precision.
//             DoubleVec           doubles of one vector; a plain double without AVX2, which compilers do better with
//             to_doubles          DOUBLE_LANES integers or floats to doubles
//             clamp_coordinate    clamps to [-FAR, FAR]; a NaN becomes one of the limits
//             floor_to_ints       the floors of VEC_LANES coordinates, clamped
//             split_at_centre     VEC_LANES coordinates to the pixel centre before each, clamped, and the fraction
// Threads:  none: each function acts on one vector.
// Reference: none.
// Tests:    tests/properties/test_warp.py.
#pragma once
#include "cpu/simd.h"

DEVICE double clamp_coordinate(double value) { return clamp(value, -FAR, FAR); }
DEVICE int coordinate_to_int(double value) { return int(clamp_coordinate(value)); }

#if defined(__AVX2__)
typedef Vec<double> DoubleVec;
DEVICE DoubleVec splat_double(double value) { return splat(value); }
#else
typedef double DoubleVec;
DEVICE DoubleVec splat_double(double value) { return value; }
#endif
constexpr int DOUBLE_LANES = int(sizeof(DoubleVec) / sizeof(double));
DEVICE DoubleVec load_doubles(const double* p) { return load<DoubleVec>(p); }

#if defined(__AVX2__)

#if defined(__AVX512VBMI__)
DEVICE DoubleVec to_doubles(const int* values) { return _mm512_cvtepi32_pd(load<__m256i>(values)); }
DEVICE DoubleVec to_doubles(const float* values) { return _mm512_cvtps_pd(load<__m256>(values)); }
DEVICE DoubleVec floor(DoubleVec values) { return _mm512_floor_pd(values); }
DEVICE DoubleVec clamp_coordinate(DoubleVec values) {
    return _mm512_min_pd(_mm512_max_pd(values, splat(-FAR)), splat(FAR));
}
DEVICE __m256i coordinate_to_int(DoubleVec values) { return _mm512_cvttpd_epi32(clamp_coordinate(values)); }
DEVICE __m256 to_float(DoubleVec values) { return _mm512_cvtpd_ps(values); }
DEVICE Vec<int> join_halves(__m256i low, __m256i high) {
    return Vec<int>(_mm512_inserti32x8(_mm512_castsi256_si512(low), high, 1));
}
DEVICE Vec<float> join_halves(__m256 low, __m256 high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
#else
DEVICE DoubleVec to_doubles(const int* values) { return _mm256_cvtepi32_pd(load<__m128i>(values)); }
DEVICE DoubleVec to_doubles(const float* values) { return _mm256_cvtps_pd(load<__m128>(values)); }
DEVICE DoubleVec floor(DoubleVec values) { return _mm256_floor_pd(values); }
DEVICE DoubleVec clamp_coordinate(DoubleVec values) {
    return _mm256_min_pd(_mm256_max_pd(values, splat(-FAR)), splat(FAR));
}
DEVICE __m128i coordinate_to_int(DoubleVec values) { return _mm256_cvttpd_epi32(clamp_coordinate(values)); }
DEVICE __m128 to_float(DoubleVec values) { return _mm256_cvtpd_ps(values); }
DEVICE Vec<int> join_halves(__m128i low, __m128i high) { return Vec<int>(_mm256_set_m128i(high, low)); }
DEVICE Vec<float> join_halves(__m128 low, __m128 high) { return _mm256_set_m128(high, low); }
#endif

DEVICE void floor_to_ints(const double* at, int* whole) {
    const DoubleVec low = floor(load_doubles(at)), high = floor(load_doubles(at + DOUBLE_LANES));
    store(whole, join_halves(coordinate_to_int(low), coordinate_to_int(high)));
}
DEVICE void split_at_centre(const double* at, int* before, float* fraction) {
    const DoubleVec low = load_doubles(at) - 0.5, high = load_doubles(at + DOUBLE_LANES) - 0.5;
    const DoubleVec below_low = floor(low), below_high = floor(high);
    store(before, join_halves(coordinate_to_int(below_low), coordinate_to_int(below_high)));
    store(fraction, join_halves(to_float(low - below_low), to_float(high - below_high)));
}

#else

template <class T>
DEVICE DoubleVec to_doubles(const T* value) {
    return *value;
}

DEVICE void floor_to_ints(const double* at, int* whole) {
    for (int i = 0; i < VEC_LANES; ++i) whole[i] = coordinate_to_int(floor(at[i]));
}
DEVICE void split_at_centre(const double* at, int* before, float* fraction) {
    for (int i = 0; i < VEC_LANES; ++i) {
        const double centred = at[i] - 0.5, below = floor(centred);
        before[i] = coordinate_to_int(below), fraction[i] = float(centred - below);
    }
}

#endif
