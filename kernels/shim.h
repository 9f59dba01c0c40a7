// The one place where the CUDA build (NVRTC) and the host build (any C++17 compiler) differ; besides strips.h and
// philox.h, where the host build does PIXELS at a time by hand.
//
// Everything else in this folder is written once, against what this file defines:
//   KERNEL, DEVICE    function qualifiers
//   UNROLL            before a loop over an array that CUDA has to keep in registers; NO_UNROLL before a long one
//   Block             which thread of which block this is, and the barrier
//   LANES, GROUPS     how many source values, in how many vectors, a thread sums at a time
//   ROWS, PIXELS      how many output pixels, down and across, a thread makes at a time
//                     All are 1 on CUDA, where neighbouring threads make the width, and fill registers on the host
//   Lanes, Pixel      small vectors, with load, multiply-add and store
//   add_to            a sum that many threads add to, exact and so independent of their order; likewise
//   raise_to          the largest value of many threads
//   add_counts        a counter that many blocks add to; count_one: that the threads of one sample share
//
// The host build has three forms: one thread a block, so that block-stride loops become plain loops (shipped), and
// CUAUG_BLOCK_THREADS real threads a block with a real barrier (for ThreadSanitizer).
#pragma once

#if defined(__CUDACC__)

#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
typedef long long int64;

constexpr int LANES = 1;
constexpr int GROUPS = 1;
constexpr int ROWS = 1;
constexpr int PIXELS = 1;

struct Block {
    int thread, threads;
    DEVICE void sync() const { __syncthreads(); }
};

struct Lanes {
    float value;
};
DEVICE Lanes zero_lanes() { return {0.0f}; }
DEVICE void multiply_add(Lanes& sum, float weight, const uint8* p) { sum.value += weight * float(*p); }
DEVICE void multiply_add(Lanes& sum, float weight, const float* p) { sum.value += weight * *p; }
DEVICE void store(float* p, Lanes lanes) { *p = lanes.value; }
template <class T>
DEVICE void keep_in_register(T*&) {}

struct Pixel {
    float value[3];
};
DEVICE Pixel zero_pixel() { return {{0.0f, 0.0f, 0.0f}}; }
DEVICE void multiply_add(Pixel& sum, float weight, const float* p, int64) {
    for (int c = 0; c < 3; ++c) sum.value[c] += weight * p[c];
}
DEVICE Pixel pixel_of(const float* rgb) { return {{rgb[0], rgb[1], rgb[2]}}; }
DEVICE void split(const Pixel* pixels, float (*v)[3][PIXELS]) {
    for (int c = 0; c < 3; ++c) v[0][c][0] = pixels[0].value[c];
}

DEVICE uint16 half_bits(float value) {
    uint16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
DEVICE uint32 float_bits(float value) { return __float_as_uint(value); }
DEVICE float float_of_bits(uint32 bits) { return __uint_as_float(bits); }
DEVICE float floor_of(float value) { return floorf(value); }
DEVICE double floor_of(double value) { return floor(value); }
DEVICE float root(float value) { return sqrtf(value); }

// Every thread of the block calls this. A warp adds up in registers first: one atomic a warp instead of 32.
DEVICE void add_to(int64* sum, int64 value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
    if ((threadIdx.x & 31) == 0 && value != 0) atomicAdd(reinterpret_cast<uint64*>(sum), uint64(value));
}
// Also every thread of the block: *most becomes the largest of all values, and what it was.
DEVICE void raise_to(uint32* most, uint32 value) {
    for (int step = 16; step > 0; step /= 2) {
        const uint32 other = __shfl_down_sync(0xffffffffu, value, step);
        value = other > value ? other : value;
    }
    if ((threadIdx.x & 31) == 0) atomicMax(most, value);
}
DEVICE void add_counts(uint32* sum, uint32 value) { atomicAdd(sum, value); }
DEVICE void count_one(uint32* counter) { atomicAdd(counter, 1u); }

#else

#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define DEVICE static inline
#define UNROLL
#define NO_UNROLL

typedef uint8_t uint8;
typedef uint16_t uint16;
typedef uint32_t uint32;
typedef uint64_t uint64;
typedef int64_t int64;

constexpr int LANES = 8;
#if defined(__AVX2__)
constexpr int GROUPS = 8;
#else
constexpr int GROUPS = 4;  // registers of half the width
#endif
constexpr int ROWS = 2;
constexpr int PIXELS = 32;

#ifdef CUAUG_BLOCK_THREADS
struct Barrier {
    virtual void wait() = 0;
};
struct Block {
    int thread, threads;
    Barrier* barrier;
    void sync() const { barrier->wait(); }
};
#else
struct Block {
    static constexpr int thread = 0, threads = 1;
    void sync() const {}
};
#endif

// Four floats: GCC's and Clang's vector extension, which every instruction set has registers for.
typedef float Quad __attribute__((vector_size(16)));

template <class T>
DEVICE T load(const void* p) {
    T value;
    memcpy(&value, p, sizeof value);
    return value;
}

// GCC would compute the address of each vector of a row beforehand, and spill them all.
template <class T>
DEVICE void keep_in_register(T*& p) {
    asm("" : "+r"(p));
}

// Lanes: LANES neighbouring values. Pixel: ROWS pixels, one below the other, of four floats each, the fourth unused, so
// that one weight serves both; whoever loads leaves a float of slack after a line's last pixel, and `below` is the
// distance between the lines. Compilers turn a conversion of bytes to floats into scalar ones; hence by hand.
#if defined(__AVX2__)

typedef float Lanes __attribute__((vector_size(32)));
typedef Lanes Pixel;

DEVICE Lanes widen(const uint8* p) {
    return Lanes(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))));
}
DEVICE Lanes zero_lanes() { return Lanes{}; }
DEVICE void multiply_add(Lanes& sum, float weight, const uint8* p) { sum += weight * widen(p); }
DEVICE void multiply_add(Lanes& sum, float weight, const float* p) { sum += weight * load<Lanes>(p); }
DEVICE void store(float* p, const Lanes& lanes) { memcpy(p, &lanes, sizeof lanes); }

DEVICE Pixel zero_pixel() { return Pixel{}; }
DEVICE Pixel pixel_of(const float* rgb) { return Pixel{rgb[0], rgb[1], rgb[2], 0, rgb[0], rgb[1], rgb[2], 0}; }
DEVICE Pixel load_rows(const float* p, int64 below) {
    return Pixel(_mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + below), 1));
}
DEVICE void multiply_add(Pixel& sum, float weight, const float* p, int64 below) { sum += weight * load_rows(p, below); }
// v[row][c][p] = channel c of pixels[p]: four pixels a step, a 4 x 4 transpose in each half of the register.
DEVICE void split(const Pixel* pixels, float (*v)[3][PIXELS]) {
    for (int p = 0; p < PIXELS; p += 4) {
        const __m256 rg01 = _mm256_unpacklo_ps(pixels[p], pixels[p + 1]);
        const __m256 rg23 = _mm256_unpacklo_ps(pixels[p + 2], pixels[p + 3]);
        const __m256 b01 = _mm256_unpackhi_ps(pixels[p], pixels[p + 1]);
        const __m256 b23 = _mm256_unpackhi_ps(pixels[p + 2], pixels[p + 3]);
        const __m256 planes[3] = {_mm256_shuffle_ps(rg01, rg23, _MM_SHUFFLE(1, 0, 1, 0)),
                                  _mm256_shuffle_ps(rg01, rg23, _MM_SHUFFLE(3, 2, 3, 2)),
                                  _mm256_shuffle_ps(b01, b23, _MM_SHUFFLE(1, 0, 1, 0))};
        for (int c = 0; c < 3; ++c) {
            _mm_storeu_ps(&v[0][c][p], _mm256_castps256_ps128(planes[c]));
            _mm_storeu_ps(&v[1][c][p], _mm256_extractf128_ps(planes[c], 1));
        }
    }
}

#else

struct Lanes {
    Quad low, high;
};
typedef Lanes Pixel;

DEVICE Lanes widen(const uint8* p) {
#if defined(__SSE2__)
    const __m128i zero = _mm_setzero_si128();
    const __m128i words = _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), zero);
    return {_mm_cvtepi32_ps(_mm_unpacklo_epi16(words, zero)), _mm_cvtepi32_ps(_mm_unpackhi_epi16(words, zero))};
#else
    typedef uint8 Bytes __attribute__((vector_size(4)));
    return {__builtin_convertvector(load<Bytes>(p), Quad), __builtin_convertvector(load<Bytes>(p + 4), Quad)};
#endif
}
DEVICE void multiply_add(Lanes& sum, float weight, const Lanes& values) {
    sum.low += weight * values.low;
    sum.high += weight * values.high;
}
DEVICE Lanes zero_lanes() { return {Quad{}, Quad{}}; }
DEVICE void multiply_add(Lanes& sum, float weight, const uint8* p) { multiply_add(sum, weight, widen(p)); }
DEVICE void multiply_add(Lanes& sum, float weight, const float* p) { multiply_add(sum, weight, load<Lanes>(p)); }
DEVICE void store(float* p, const Lanes& lanes) { memcpy(p, &lanes, sizeof lanes); }

DEVICE Pixel zero_pixel() { return zero_lanes(); }
DEVICE Pixel pixel_of(const float* rgb) {
    const Quad quad = {rgb[0], rgb[1], rgb[2], 0.0f};
    return {quad, quad};
}
DEVICE void multiply_add(Pixel& sum, float weight, const float* p, int64 below) {
    multiply_add(sum, weight, Pixel{load<Quad>(p), load<Quad>(p + below)});
}
// v[row][c][p] = channel c of pixels[p].
DEVICE void split(const Pixel* pixels, float (*v)[3][PIXELS]) {
    for (int p = 0; p < PIXELS; ++p)
        for (int c = 0; c < 3; ++c) v[0][c][p] = pixels[p].low[c], v[1][c][p] = pixels[p].high[c];
}

#endif

DEVICE uint32 float_bits(float value) {
    uint32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
DEVICE float float_of_bits(uint32 bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// IEEE 754 binary32 to binary16, to nearest, ties to even. Selects instead of branches, so that it vectorises.
DEVICE uint16 half_bits(float value) {
    const uint32 bits = float_bits(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    // Normal results: rebias the exponent by 112, round the 13 dropped bits, and let a carry run into the exponent.
    const uint32 normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Subnormal results: adding 0.5 aligns the mantissa so that the addition itself rounds.
    float aligned;
    memcpy(&aligned, &magnitude, sizeof aligned);
    const uint32 subnormal = float_bits(aligned + 0.5f) - float_bits(0.5f);
    const uint32 special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32 finite = magnitude < (113u << 23) ? subnormal : normal;
    return uint16(sign | (magnitude >= (143u << 23) ? special : finite));
}
DEVICE float floor_of(float value) { return __builtin_floorf(value); }
DEVICE double floor_of(double value) { return __builtin_floor(value); }
DEVICE float root(float value) { return __builtin_sqrtf(value); }

DEVICE void add_to(int64* sum, int64 value) { __atomic_fetch_add(sum, value, __ATOMIC_RELAXED); }
DEVICE void raise_to(uint32* most, uint32 value) {
    uint32 now = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (now < value && !__atomic_compare_exchange_n(most, &now, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
DEVICE void add_counts(uint32* sum, uint32 value) { __atomic_fetch_add(sum, value, __ATOMIC_RELAXED); }
#ifdef CUAUG_BLOCK_THREADS
DEVICE void count_one(uint32* counter) { __atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED); }
#else
DEVICE void count_one(uint32* counter) { ++*counter; }  // one thread makes all of a sample
#endif

#endif

DEVICE int smaller(int a, int b) { return a < b ? a : b; }
DEVICE int larger(int a, int b) { return a > b ? a : b; }
DEVICE float smaller(float a, float b) { return a < b ? a : b; }
DEVICE float larger(float a, float b) { return a > b ? a : b; }
DEVICE double smaller(double a, double b) { return a < b ? a : b; }
DEVICE double larger(double a, double b) { return a > b ? a : b; }
DEVICE float clamp(float value, float limit) { return smaller(larger(value, 0.0f), limit); }

// binary32 to bfloat16, to nearest, ties to even; a NaN stays a (quiet) NaN.
DEVICE uint16 bfloat16_bits(float value) {
    const uint32 bits = float_bits(value);
    const uint32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return uint16((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}
