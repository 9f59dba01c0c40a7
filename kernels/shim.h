// The one place where the CUDA build (NVRTC) and the host build (any C++17 compiler) differ.
//
// Everything else in this folder is written once, against what this file defines:
//   KERNEL, DEVICE    function qualifiers
//   Block             which thread of which block this is, and the barrier
//   LANES, PIXELS     how many source values, and output pixels, one thread handles at a time: one on CUDA, where
//                     neighbouring threads make the width; a vector register's worth on the host
//   Lanes, Rgb        small vectors, with load, multiply-add and store
//   add_to            a sum that many threads add to, exact and so independent of their order
//
// The host build has three forms: one thread a block, so that block-stride loops become plain loops (shipped), and
// CUAUG_BLOCK_THREADS real threads a block with a real barrier (for ThreadSanitizer).
#pragma once

#if defined(__CUDACC__)

#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void

typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
typedef long long int64;

constexpr int LANES = 1;
constexpr int GROUPS = 1;
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

struct Rgb {
    float r, g, b;
};
DEVICE Rgb zero_rgb() { return {0.0f, 0.0f, 0.0f}; }
DEVICE void multiply_add(Rgb& sum, float weight, const float* p) {
    sum.r += weight * p[0];
    sum.g += weight * p[1];
    sum.b += weight * p[2];
}
DEVICE void split(const Rgb& pixel, float& r, float& g, float& b) { r = pixel.r, g = pixel.g, b = pixel.b; }

DEVICE uint16 half_bits(float value) {
    uint16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
DEVICE uint32 float_bits(float value) { return __float_as_uint(value); }
DEVICE float floor_of(float value) { return floorf(value); }
DEVICE double floor_of(double value) { return floor(value); }
DEVICE float root(float value) { return sqrtf(value); }
DEVICE float logarithm(float value) { return logf(value); }
DEVICE float cosine(float value) { return cosf(value); }

// Every thread of the block calls this. A warp adds up in registers first: one atomic a warp instead of 32.
DEVICE void add_to(int64* sum, int64 value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
    if ((threadIdx.x & 31) == 0 && value != 0) atomicAdd(reinterpret_cast<uint64*>(sum), uint64(value));
}

#else

#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define DEVICE static inline

typedef uint8_t uint8;
typedef uint16_t uint16;
typedef uint32_t uint32;
typedef uint64_t uint64;
typedef int64_t int64;

constexpr int LANES = 8;
constexpr int GROUPS = 4;
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

// GCC's and Clang's vector extension: portable across instruction sets, split into narrower registers where needed.
typedef float Lanes __attribute__((vector_size(32)));
DEVICE Lanes zero_lanes() { return Lanes{}; }
// Compilers turn a plain conversion of bytes to floats into eight scalar ones; hence by hand.
DEVICE Lanes widen(const uint8* p) {
#if defined(__AVX2__)
    return Lanes(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))));
#elif defined(__SSE2__)
    const __m128i zero = _mm_setzero_si128();
    const __m128i words = _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), zero);
    const __m128 low = _mm_cvtepi32_ps(_mm_unpacklo_epi16(words, zero));
    const __m128 high = _mm_cvtepi32_ps(_mm_unpackhi_epi16(words, zero));
    Lanes lanes;
    memcpy(&lanes, &low, sizeof low);
    memcpy(reinterpret_cast<char*>(&lanes) + sizeof low, &high, sizeof high);
    return lanes;
#else
    typedef uint8 Bytes __attribute__((vector_size(8)));
    Bytes bytes;
    memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(bytes, Lanes);
#endif
}
DEVICE void multiply_add(Lanes& sum, float weight, const uint8* p) { sum += weight * widen(p); }
DEVICE void multiply_add(Lanes& sum, float weight, const float* p) {
    Lanes values;
    memcpy(&values, p, sizeof values);
    sum += weight * values;
}
DEVICE void store(float* p, const Lanes& lanes) { memcpy(p, &lanes, sizeof lanes); }

// Four floats, the fourth unused: one unaligned load a pixel. Whoever loads leaves a float of slack after the last.
typedef float Rgb __attribute__((vector_size(16)));
DEVICE Rgb zero_rgb() { return Rgb{}; }
DEVICE void multiply_add(Rgb& sum, float weight, const float* p) {
    Rgb values;
    memcpy(&values, p, sizeof values);
    sum += weight * values;
}
DEVICE void split(const Rgb& pixel, float& r, float& g, float& b) { r = pixel[0], g = pixel[1], b = pixel[2]; }

DEVICE uint32 float_bits(float value) {
    uint32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
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
DEVICE float logarithm(float value) { return __builtin_logf(value); }
DEVICE float cosine(float value) { return __builtin_cosf(value); }

DEVICE void add_to(int64* sum, int64 value) { __atomic_fetch_add(sum, value, __ATOMIC_RELAXED); }

#endif

DEVICE int smaller(int a, int b) { return a < b ? a : b; }
DEVICE int larger(int a, int b) { return a > b ? a : b; }
DEVICE float smaller(float a, float b) { return a < b ? a : b; }
DEVICE float larger(float a, float b) { return a > b ? a : b; }
DEVICE float clamp(float value, float limit) { return smaller(larger(value, 0.0f), limit); }

// binary32 to bfloat16, to nearest, ties to even; a NaN stays a (quiet) NaN.
DEVICE uint16 bfloat16_bits(float value) {
    const uint32 bits = float_bits(value);
    const uint32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return uint16((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}
