// CUDA's types and functions on a CPU, for emulate_cuda.cpp and emulate_jpeg.cpp, which define `__shared__`, barriers
// and `__ldg`.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#define __CUDACC__
#define __device__
#define __global__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))

struct Index {
    int x, y, z;
};
static Index threadIdx, blockIdx, blockDim, gridDim;

constexpr int MAX_THREADS = 512, STACK = 128 << 10;
static ucontext_t scheduler, threads[MAX_THREADS];
static bool ended[MAX_THREADS];
static char stacks[MAX_THREADS][STACK];

// Each emulation has its own barriers.
static void __syncthreads();
static void __syncwarp();
// Four of the eight bytes of two words, each chosen by four bits of `selector`.
static uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t bytes = uint64_t(high) << 32 | low;
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= uint32_t(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return word;
}
static uint32_t __float_as_uint(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static float __uint_as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static int64_t __double_as_longlong(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
// Missing threads of a warp hold 0, which changes neither a sum nor a maximum.
template <class T>
static T __shfl_down_sync(unsigned, T value, int step) {
    static T held[MAX_THREADS];
    const int own = threadIdx.x, other = own + step;
    held[own] = value;
    __syncthreads();
    const T found = other < blockDim.x && other / 32 == own / 32 ? held[other] : 0;
    __syncthreads();
    return found;
}
template <class T>
static T atomicAdd(T* sum, T value) {
    const T before = *sum;
    *sum += value;
    return before;
}
static void atomicMax(unsigned* maximum, unsigned value) {
    if (value > *maximum) *maximum = value;
}
struct __align__(16) float4 {
    float x, y, z, w;
};
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
// -fsanitize=alignment calls this before a misaligned access, which CUDA could not do.
static bool misaligned;
extern "C" void __ubsan_handle_type_mismatch_v1(void*, void*) {
    misaligned = true;
    setcontext(&scheduler);  // ends the block
}

static uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
    return uint32_t((uint64_t(high) << 32 | low) >> (shift & 31));
}
static int __dp2a_lo(int factors, int bytes, int sum) {
    return sum + int16_t(factors) * int8_t(bytes) + (factors >> 16) * int8_t(bytes >> 8);
}
static int __dp2a_hi(int factors, int bytes, int sum) { return __dp2a_lo(factors, bytes >> 16, sum); }
// The bodies of platform.h's functions in PTX, told apart by their numbers of operands: `half_bits` and `pack` of
// `pack_saturated`.
#define FOURTH(first, second, third, fourth, ...) fourth
#define asm(...) \
    FOURTH(__VA_ARGS__, bits = saturated(high) << 8 | saturated(low) | upper << 16, , bits = half_of(value))
static uint32_t saturated(int value) { return uint32_t(value < 0 ? 0 : value > 255 ? 255 : value); }
static uint16_t half_of(float value) {
    const _Float16 half = static_cast<_Float16>(value);
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}
