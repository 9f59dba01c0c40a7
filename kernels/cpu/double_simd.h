// Coordinates of points, in doubles:
//   Doubles           as many as a register holds; one where the compiler does better by itself
//   to_doubles        of so many integers or floats
//   limited           to [-FAR, FAR]; a NaN becomes one of these
//   floor_to_ints     of FULL coordinates, limited likewise
//   split_at_centre   FULL coordinates into the pixels whose centres lie before them, limited likewise, and how far
//
// Tested through core/warp.h; that every instruction set makes the same bits, by tests/properties.
#pragma once
#include "cpu/simd.h"

// Far outside is far enough: what a border or taps add must not leave the range of int.
constexpr double FAR = 1000000000.0;

// A NaN becomes one of the limits.
DEVICE double limited(double value) { return smaller(larger(value, -FAR), FAR); }
DEVICE int limited_ints(double value) { return int(limited(value)); }

#if defined(__AVX2__) && !defined(__CUDACC__)

typedef Full<double> Doubles;
constexpr int DOUBLES = values_in<double>;
DEVICE Doubles load_doubles(const double* p) { return load_full(p); }
DEVICE void store_doubles(double* p, const Doubles& values) { store_full(p, values); }
DEVICE Doubles all_of(double value) { return Doubles{} + value; }

// A minimum is its second argument where the first is not less; so is that of platform.h.
#if defined(__AVX512VBMI__)
DEVICE Doubles to_doubles(const int* values) { return _mm512_cvtepi32_pd(load<__m256i>(values)); }
DEVICE Doubles to_doubles(const float* values) { return _mm512_cvtps_pd(load<__m256>(values)); }
DEVICE Doubles floor_of(Doubles values) { return _mm512_floor_pd(values); }
DEVICE Doubles limited(Doubles values) { return _mm512_min_pd(_mm512_max_pd(values, all_of(-FAR)), all_of(FAR)); }
DEVICE __m256i limited_ints(Doubles values) { return _mm512_cvttpd_epi32(limited(values)); }
DEVICE __m256 to_floats(Doubles values) { return _mm512_cvtpd_ps(values); }
DEVICE Full<int> joined(__m256i low, __m256i high) {
    return Full<int>(_mm512_inserti32x8(_mm512_castsi256_si512(low), high, 1));
}
DEVICE Full<float> joined(__m256 low, __m256 high) { return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1); }
#else
DEVICE Doubles to_doubles(const int* values) { return _mm256_cvtepi32_pd(load<__m128i>(values)); }
DEVICE Doubles to_doubles(const float* values) { return _mm256_cvtps_pd(load<__m128>(values)); }
DEVICE Doubles floor_of(Doubles values) { return _mm256_floor_pd(values); }
DEVICE Doubles limited(Doubles values) { return _mm256_min_pd(_mm256_max_pd(values, all_of(-FAR)), all_of(FAR)); }
DEVICE __m128i limited_ints(Doubles values) { return _mm256_cvttpd_epi32(limited(values)); }
DEVICE __m128 to_floats(Doubles values) { return _mm256_cvtpd_ps(values); }
DEVICE Full<int> joined(__m128i low, __m128i high) { return Full<int>(_mm256_set_m128i(high, low)); }
DEVICE Full<float> joined(__m128 low, __m128 high) { return _mm256_set_m128(high, low); }
#endif

DEVICE void floor_to_ints(const double* at, int* whole) {
    const Doubles low = floor_of(load_doubles(at)), high = floor_of(load_doubles(at + DOUBLES));
    store_full(whole, joined(limited_ints(low), limited_ints(high)));
}
DEVICE void split_at_centre(const double* at, int* before, float* behind) {
    const Doubles low = load_doubles(at) - 0.5, high = load_doubles(at + DOUBLES) - 0.5;
    const Doubles below_low = floor_of(low), below_high = floor_of(high);
    store_full(before, joined(limited_ints(below_low), limited_ints(below_high)));
    store_full(behind, joined(to_floats(low - below_low), to_floats(high - below_high)));
}

#else

typedef double Doubles;
constexpr int DOUBLES = 1;
DEVICE Doubles load_doubles(const double* p) { return *p; }
DEVICE void store_doubles(double* p, Doubles value) { *p = value; }
DEVICE Doubles all_of(double value) { return value; }
template <class T>
DEVICE Doubles to_doubles(const T* value) {
    return *value;
}

DEVICE void floor_to_ints(const double* at, int* whole) {
    for (int i = 0; i < FULL; ++i) whole[i] = limited_ints(floor_of(at[i]));
}
DEVICE void split_at_centre(const double* at, int* before, float* behind) {
    for (int i = 0; i < FULL; ++i) {
        const double centred = at[i] - 0.5, below = floor_of(centred);
        before[i] = limited_ints(below), behind[i] = float(centred - below);
    }
}

#endif
