// Where the CUDA build (NVRTC) and the host build (any C++17 compiler) begin to differ. This folder is one source for
// both, written against what this file defines (below). The host build also has faster paths of its own, behind
// __CUDACC__:
//   whole passes      cpu/uint8_path.h with cpu/uint8_color.h, cpu/rgb8_simd.h and cpu/copy_runs.h: bytes to bytes;
//   cpu/sliding_window.h: filters whose rows are
//                     kept as floats. On CUDA these say that they do nothing, and the common way is taken
//   PIXELS at a time  cpu/simd.h, cpu/deinterleave.h, cpu/double_simd.h, cpu/bilinear_gather.h, core/philox.h,
//   core/dct.h and core/store.h by hand, and what core/median.h,
//                     core/neighbourhood.h and core/warp.h do for several pixels at once
//   other memory      core/clahe.h: tables of cells joined; core/jpeg_compression.h and core/jpeg_samples.h: samples as
//   bytes, whole blocks;
//                     core/resample.h: lines of many rows that lie together, where CUDA has a few, one after the other
// They make the same bits. tests/properties compares the instruction sets with each other and those paths with the
// common ones; tests/kernels/test_scratch.py compares the host build with the branch for CUDA, compiled for the host
// and run with a few threads a block.
//
// Defined here:
//   KERNEL, DEVICE    function qualifiers
//   UNROLL            before a loop over an array that CUDA has to keep in registers; NO_UNROLL before a long one
//   IN_LINES          behind an array that is read a register at a time: it begins with a line of the host's cache, so
//                     that no register lies across two
//   Block             which thread of which block this is, and the barrier
//   LANES, GROUPS     how many source values, in how many vectors, a thread sums at a time
//   ROWS, PIXELS      how many output pixels, down and across, a thread makes at a time
//                     They fill registers on the host. On CUDA, where neighbouring threads make the width, all are 1
//                     but ROWS
//   Lanes             a vector of LANES floats, with multiply-add and store. On the host, transpose: of LANES vectors
//   load_global       on CUDA, a load from the source
//   add_to            a sum that many threads add to, exact and so independent of their order; likewise
//   raise_to          the largest value of many threads
//   add_counts        a counter that many blocks add to; count_one: that the threads of one sample share
//
// The host build has two forms: one thread a block, so that block-stride loops become plain loops (shipped), and
// CUAUG_BLOCK_THREADS real threads a block with a real barrier (for ThreadSanitizer).
#pragma once

// ROWS on CUDA, which the host, too, must know: it reckons how much scratch a launch takes.
constexpr int CUDA_ROWS = 4;

#if defined(__CUDACC__)

#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define IN_LINES

typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
typedef long long int64;

constexpr int LANES = 1;
constexpr int ROWS = CUDA_ROWS;
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

DEVICE uint16 half_bits(float value) {
    uint16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
// What the source holds: the compiler is told that this is no shared memory, and that no thread writes there now.
template <class T>
DEVICE T load_global(const T* p) {
    return __ldg(p);
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
#define IN_LINES __attribute__((aligned(64)))

typedef uint8_t uint8;
typedef uint16_t uint16;
typedef uint32_t uint32;
typedef uint64_t uint64;
typedef int64_t int64;

#if defined(__AVX512VBMI__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
constexpr int GROUPS = 8;
constexpr int ROWS = LANES;
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

typedef float Lanes __attribute__((vector_size(4 * LANES)));

// LANES bytes as floats. Compilers turn this into conversions of one after the other; hence by hand.
DEVICE Lanes widen(const uint8* p) {
#if defined(__AVX512VBMI__)
    return Lanes(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load<__m128i>(p))));
#elif defined(__AVX2__)
    return Lanes(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))));
#elif defined(__SSE2__)
    const __m128i zero = _mm_setzero_si128(), bytes = _mm_cvtsi32_si128(load<int>(p));
    return Lanes(_mm_cvtepi32_ps(_mm_unpacklo_epi16(_mm_unpacklo_epi8(bytes, zero), zero)));
#else
    return Lanes{float(p[0]), float(p[1]), float(p[2]), float(p[3])};
#endif
}
DEVICE Lanes zero_lanes() { return Lanes{}; }
DEVICE void multiply_add(Lanes& sum, float weight, const uint8* p) { sum += weight * widen(p); }
DEVICE void multiply_add(Lanes& sum, float weight, const float* p) { sum += weight * load<Lanes>(p); }
template <class Vector>
DEVICE void store(float* p, const Vector& values) {
    memcpy(p, &values, sizeof values);
}

#if defined(__AVX2__)
typedef float Eight __attribute__((vector_size(32)));
// Four floats and the four that lie `below` floats on.
DEVICE Eight load_halves(const float* p, int64 below) {
    return Eight(_mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + below), 1));
}
// 4 x 4 in each half of the registers.
DEVICE void transpose_fours(const Eight (&rows)[4], Eight (&columns)[4]) {
    const __m256 low01 = _mm256_unpacklo_ps(rows[0], rows[1]), high01 = _mm256_unpackhi_ps(rows[0], rows[1]);
    const __m256 low23 = _mm256_unpacklo_ps(rows[2], rows[3]), high23 = _mm256_unpackhi_ps(rows[2], rows[3]);
    columns[0] = _mm256_shuffle_ps(low01, low23, _MM_SHUFFLE(1, 0, 1, 0));
    columns[1] = _mm256_shuffle_ps(low01, low23, _MM_SHUFFLE(3, 2, 3, 2));
    columns[2] = _mm256_shuffle_ps(high01, high23, _MM_SHUFFLE(1, 0, 1, 0));
    columns[3] = _mm256_shuffle_ps(high01, high23, _MM_SHUFFLE(3, 2, 3, 2));
}
#endif
#if defined(__AVX512VBMI__)
// The same in each quarter.
DEVICE void transpose_fours(const Lanes (&rows)[4], Lanes (&columns)[4]) {
    const __m512 low01 = _mm512_unpacklo_ps(rows[0], rows[1]), high01 = _mm512_unpackhi_ps(rows[0], rows[1]);
    const __m512 low23 = _mm512_unpacklo_ps(rows[2], rows[3]), high23 = _mm512_unpackhi_ps(rows[2], rows[3]);
    columns[0] = _mm512_shuffle_ps(low01, low23, _MM_SHUFFLE(1, 0, 1, 0));
    columns[1] = _mm512_shuffle_ps(low01, low23, _MM_SHUFFLE(3, 2, 3, 2));
    columns[2] = _mm512_shuffle_ps(high01, high23, _MM_SHUFFLE(1, 0, 1, 0));
    columns[3] = _mm512_shuffle_ps(high01, high23, _MM_SHUFFLE(3, 2, 3, 2));
}
// Four floats, and as many from each fourth row below.
DEVICE Lanes load_fours(const float* p, int64 pitch) {
    const __m512 upper = _mm512_castps256_ps512(load_halves(p, 4 * pitch));
    return Lanes(_mm512_insertf32x8(upper, load_halves(p + 8 * pitch, 4 * pitch), 1));
}
#elif defined(__AVX2__)
DEVICE Lanes load_fours(const float* p, int64 pitch) { return load_halves(p, 4 * pitch); }
#endif

// to[j * to_pitch + i] = from[i * from_pitch + j] for i, j < LANES.
#if defined(__AVX2__)
DEVICE void transpose(const float* from, int from_pitch, float* to, int to_pitch) {
    for (int j = 0; j < LANES; j += 4) {
        Lanes rows[4], columns[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) rows[i] = load_fours(from + i * from_pitch + j, from_pitch);
        transpose_fours(rows, columns);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) store(to + (j + i) * to_pitch, columns[i]);
    }
}
#elif defined(__SSE2__)
DEVICE void transpose(const float* from, int from_pitch, float* to, int to_pitch) {
    __m128 rows[4];
    for (int i = 0; i < 4; ++i) rows[i] = _mm_loadu_ps(from + i * from_pitch);
    _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
    for (int j = 0; j < 4; ++j) _mm_storeu_ps(to + j * to_pitch, rows[j]);
}
#else
DEVICE void transpose(const float* from, int from_pitch, float* to, int to_pitch) {
    for (int i = 0; i < LANES; ++i)
        for (int j = 0; j < LANES; ++j) to[j * to_pitch + i] = from[i * from_pitch + j];
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
