// What is done to PIXELS pixels at once besides arithmetic, where CUDA has one pixel and the host has registers to
// fill:
//   Colour       one pixel as such, with load, multiply-add and store
//   Many<T>      as many values as 32 bytes hold; smaller and larger compare each, to_ints and to_floats convert
//   Full<T>      as many as the widest register holds
//   floor_to_ints     of points, limited to [-most, most]; a NaN becomes one of these
//   split_at_centre   points into the pixel whose centre lies before them, limited to [-most, most], and the distance
//   unpack       packed pixels to planes of floats; interleave: planes to packed pixels
//   to_bytes     of a plane
//   load_pixels, channel_of, store_pixels   packed bytes in a register, to values of one channel, and back
//
// Tested through all that reads or writes pixels; that every instruction set makes the same bits, by tests/properties.
#pragma once
#include "shim.h"

// To nearest, halves up; saturated. A NaN becomes 0.
DEVICE uint8 to_uint8(float value) { return uint8(clamp(value, 255.0f) + 0.5f); }

// Limited to [-most, most]; a NaN becomes one of these.
DEVICE int to_ints(double value, double most) { return int(smaller(larger(value, -most), most)); }

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
DEVICE double all_of(double value) { return value; }
DEVICE int all_of(int value) { return value; }
DEVICE int floor_to_ints(const double* at, double most) { return to_ints(floor_of(*at), most); }
DEVICE void split_at_centre(const double* at, double most, int& before, float& behind) {
    const double centred = *at - 0.5, below = floor_of(centred);
    before = to_ints(below, most), behind = float(centred - below);
}
template <class T>
DEVICE void unpack(const T* pixels, float (*v)[PIXELS]) {
    for (int c = 0; c < 3; ++c) v[c][0] = float(pixels[c]);
}
template <class T>
DEVICE void interleave(const T (*planes)[PIXELS], T* pixels) {
    for (int c = 0; c < 3; ++c) pixels[c] = planes[c][0];
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
template <class T>
DEVICE Many<T> load_many(const T* p) {
    return load<Many<T> >(p);
}
DEVICE Many<uint8> smaller(Many<uint8> a, Many<uint8> b) { return a < b ? a : b; }
DEVICE Many<uint8> larger(Many<uint8> a, Many<uint8> b) { return a > b ? a : b; }
DEVICE Many<float> all_of(float value) { return Many<float>{} + value; }
DEVICE Many<double> all_of(double value) { return Many<double>{} + value; }
DEVICE Many<int> all_of(int value) { return Many<int>{} + value; }
DEVICE Many<int> to_ints(Many<float> values) { return __builtin_convertvector(values, Many<int>); }
DEVICE Many<float> to_floats(Many<int> values) { return __builtin_convertvector(values, Many<float>); }
// GCC does not find these by itself. A minimum is its second argument where the first is not less; so is that of
// shim.h.
#if defined(__AVX2__)
DEVICE Many<float> smaller(Many<float> a, Many<float> b) { return _mm256_min_ps(a, b); }
DEVICE Many<float> larger(Many<float> a, Many<float> b) { return _mm256_max_ps(a, b); }
DEVICE Many<float> floor_of(Many<float> values) { return _mm256_floor_ps(values); }
DEVICE __m128i to_ints(__m256d values, double most) {
    return _mm256_cvttpd_epi32(_mm256_min_pd(_mm256_max_pd(values, all_of(-most)), all_of(most)));
}
DEVICE Many<int> floor_to_ints(const double* at, double most) {
    const __m256d low = _mm256_floor_pd(_mm256_loadu_pd(at)), high = _mm256_floor_pd(_mm256_loadu_pd(at + 4));
    return Many<int>(_mm256_set_m128i(to_ints(high, most), to_ints(low, most)));
}
DEVICE void split_at_centre(const double* at, double most, Many<int>& before, Many<float>& behind) {
    __m128i whole[2];
    __m128 rest[2];
    for (int i = 0; i < 2; ++i) {
        const __m256d centred = _mm256_loadu_pd(at + 4 * i) - all_of(0.5), below = _mm256_floor_pd(centred);
        whole[i] = to_ints(below, most);
        rest[i] = _mm256_cvtpd_ps(centred - below);
    }
    before = Many<int>(_mm256_set_m128i(whole[1], whole[0])), behind = _mm256_set_m128(rest[1], rest[0]);
}
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
DEVICE Many<int> floor_to_ints(const double* at, double most) {
    Many<int> whole;
    for (int i = 0; i < 8; ++i) whole[i] = to_ints(floor_of(at[i]), most);
    return whole;
}
DEVICE void split_at_centre(const double* at, double most, Many<int>& before, Many<float>& behind) {
    for (int i = 0; i < 8; ++i) {
        const double centred = at[i] - 0.5, below = floor_of(centred);
        before[i] = to_ints(below, most), behind[i] = float(centred - below);
    }
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

// FULL packed pixels as they lie, or near that; to each channel's values; and back, to nearest, halves up, of what is
// limited to [0, most] (a NaN becomes 0), most <= 255. No byte beyond the pixels is touched.
#if defined(__AVX512VBMI__)
// Which lane of 16 pixels' three planes is value k of them packed, and the other way round.
struct Packing {
    uint8 plane_of[48], packed_of[48];
};
constexpr Packing packing() {
    Packing made = {};
    for (int k = 0; k < 48; ++k) {
        const int planar = k % 3 * 16 + k / 3;
        made.plane_of[k] = uint8(planar), made.packed_of[planar] = uint8(k);
    }
    return made;
}
constexpr Packing PACKING = packing();
constexpr uint64 PIXELS_16 = (uint64(1) << 48) - 1;

DEVICE Full<uint32> load_pixels(const uint8* pixels) {
    return Full<uint32>(_mm512_maskz_loadu_epi8(PIXELS_16, pixels));
}
DEVICE Full<float> channel_of(Full<uint32> pixels, int c) {
    const __m512i order = _mm512_cvtepu8_epi32(load<__m128i>(PACKING.packed_of + 16 * c));
    return _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(0x1111111111111111, order, __m512i(pixels)));
}
// The maximum is its second argument where that of the minimum was no number.
DEVICE __m128i to_bytes(__m512 values, __m512 most) {
    const __m512 limited = _mm512_max_ps(_mm512_min_ps(most, values), _mm512_setzero_ps());
    return _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(_mm512_add_ps(limited, _mm512_set1_ps(0.5f))));
}
DEVICE void store_pixels(Full<float> r, Full<float> g, Full<float> b, Full<float> most, uint8* pixels) {
    const __m256i red_green = _mm256_set_m128i(to_bytes(g, most), to_bytes(r, most));
    const __m512i planes = _mm512_inserti64x4(_mm512_castsi128_si512(to_bytes(b, most)), red_green, 1);
    const __m512i from = _mm512_maskz_loadu_epi8(PIXELS_16, PACKING.plane_of);  // blue comes first, then nothing
    const __m512i order = _mm512_and_si512(_mm512_add_epi8(from, _mm512_set1_epi8(32)), _mm512_set1_epi8(63));
    _mm512_mask_storeu_epi8(pixels, PIXELS_16, _mm512_permutexvar_epi8(order, planes));
}
#elif defined(__AVX2__)
DEVICE Many<uint32> load_pixels(const uint8* pixels) {
    const __m256i first = _mm256_castsi128_si256(load<__m128i>(pixels));
    return Many<uint32>(_mm256_inserti128_si256(first, load<__m128i>(pixels + 8), 1));  // the last four from byte 4 on
}
DEVICE Many<float> channel_of(Many<uint32> pixels, int c) {
    const char n = -1, i = char(c);
    const __m256i order = _mm256_setr_epi8(i, n, n, n, i + 3, n, n, n, i + 6, n, n, n, i + 9, n, n, n,  //
                                           i + 4, n, n, n, i + 7, n, n, n, i + 10, n, n, n, i + 13, n, n, n);
    return Many<float>(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(__m256i(pixels), order)));
}
// A minimum is its second argument where that is no number; then it becomes the least integer, and is saturated to 0,
// as what is below 0 is.
DEVICE void store_pixels(Many<float> r, Many<float> g, Many<float> b, Many<float> most, uint8* pixels) {
    const auto whole = [&](__m256 values) {
        return _mm256_cvttps_epi32(_mm256_add_ps(_mm256_min_ps(most, values), all_of(0.5f)));
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
DEVICE Many<uint32> load_pixels(const uint8* pixels) {
    Many<uint32> words;
    for (int p = 0; p < 7; ++p) words[p] = load<uint32>(pixels + 3 * p);
    words[7] = load<uint32>(pixels + 20) >> 8;
    return words;
}
DEVICE Many<float> channel_of(Many<uint32> words, int c) { return float_of((words >> uint32(8 * c)) & 255u); }
DEVICE void store_pixels(Many<float> r, Many<float> g, Many<float> b, Many<float> most, uint8* pixels) {
    const auto whole = [&](Many<float> values) {
        const Many<float> up = smaller(larger(values, all_of(0.0f)), most) + 0.5f;
        return Many<uint32>(__builtin_convertvector(up, Many<int>));
    };
    const Many<uint32> words = whole(r) | whole(g) << 8u | whole(b) << 16u;
    for (int p = 0; p < 8; ++p) {
        const uint32 word = words[p];
        memcpy(pixels + 3 * p, &word, 3);
    }
}
#endif

// Values written past the caches, from a multiple of 16 bytes on: lines that are not in them need not be read first.
// Before other threads may see them, comes `end_of_writing`.
#if defined(__SSE2__)
template <int count, class T>
DEVICE void write_past_caches(const T* from, T* to) {
    constexpr int each = 16 / int(sizeof(T));
    if (reinterpret_cast<uintptr_t>(to) % 16)
        memcpy(to, from, count * sizeof(T));
    else
        for (int i = 0; i < count; i += each)
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), load<__m128i>(from + i));
}
DEVICE void end_of_writing() { _mm_sfence(); }
#else
template <int count, class T>
DEVICE void write_past_caches(const T* from, T* to) {
    memcpy(to, from, count * sizeof(T));
}
DEVICE void end_of_writing() {}
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

// GCC does not find the instructions for minima and maxima in loops, nor for values that change places.
#if defined(__AVX2__)
DEVICE void unpack(const uint8* pixels, float (*v)[PIXELS]) {
    for (int p = 0; p < PIXELS; p += FULL) {
        const Full<uint32> some = load_pixels(pixels + 3 * p);
        for (int c = 0; c < 3; ++c) store_full(&v[c][p], channel_of(some, c));
    }
}
#endif

#if defined(__AVX512VBMI__)

// to = three registers of 16 values, of those that lie in three others at these places.
DEVICE void rearrange(const uint8* places, const float* const* from, float* const* to) {
    const __m512 first = _mm512_loadu_ps(from[0]), second = _mm512_loadu_ps(from[1]), third = _mm512_loadu_ps(from[2]);
    for (int i = 0; i < 3; ++i) {
        const __m512i place = _mm512_cvtepu8_epi32(load<__m128i>(places + 16 * i));
        const __m512 either = _mm512_permutex2var_ps(first, place, second);
        const __mmask16 last = _mm512_cmpge_epi32_mask(place, _mm512_set1_epi32(32));
        _mm512_storeu_ps(to[i], _mm512_mask_permutexvar_ps(either, last, place, third));
    }
}
DEVICE void unpack(const float* pixels, float (*v)[PIXELS]) {
    for (int p = 0; p < PIXELS; p += FULL) {
        const float* const from[3] = {pixels + 3 * p, pixels + 3 * p + FULL, pixels + 3 * p + 2 * FULL};
        float* const to[3] = {v[0] + p, v[1] + p, v[2] + p};
        rearrange(PACKING.packed_of, from, to);
    }
}
DEVICE void interleave(const float (*planes)[PIXELS], float* pixels) {
    for (int p = 0; p < PIXELS; p += FULL) {
        const float* const from[3] = {planes[0] + p, planes[1] + p, planes[2] + p};
        float* const to[3] = {pixels + 3 * p, pixels + 3 * p + FULL, pixels + 3 * p + 2 * FULL};
        rearrange(PACKING.plane_of, from, to);
    }
}

DEVICE void to_bytes(const float* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; p += FULL)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + p), to_bytes(load_full(values + p), full_of(255.0f)));
}
DEVICE void to_bytes(const int* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; p += FULL) {
        // From where they were stored in halves: a load that waits for two stores takes long.
        const __m512i low = _mm512_castsi256_si512(load<__m256i>(values + p));
        const __m512i all = _mm512_inserti64x4(low, load<__m256i>(values + p + 8), 1);
        const __m512i levels = _mm512_max_epi32(all, _mm512_setzero_si512());
        _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + p), _mm512_cvtusepi32_epi8(levels));
    }
}

#elif defined(__AVX2__)

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

DEVICE __m256i to_whole(const float* values) {  // below 0 where packing saturates to 0, as in store_pixels
    const __m256 most = _mm256_min_ps(_mm256_set1_ps(255.0f), _mm256_loadu_ps(values));
    return _mm256_cvttps_epi32(_mm256_add_ps(most, _mm256_set1_ps(0.5f)));
}
DEVICE __m256i to_whole(const int* values) { return load<__m256i>(values); }
template <class T>
DEVICE void to_bytes(const T* values, uint8* bytes) {
    for (int p = 0; p < PIXELS; p += 32) {
        const __m256i low = _mm256_packs_epi32(to_whole(values + p), to_whole(values + p + 8));
        const __m256i high = _mm256_packs_epi32(to_whole(values + p + 16), to_whole(values + p + 24));
        // Packing goes on in each half of a register; hence their order.
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
    for (int p = 0; p < PIXELS; ++p) bytes[p] = uint8(smaller(larger(values[p], 0), 255));
}

#endif

#endif
