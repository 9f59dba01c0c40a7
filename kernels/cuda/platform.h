// Computes: the CUDA half of platform.h.
// Threads:  one output column per thread, CUDA_ROWS rows when resampling.
// Reference: CUDA C++ Programming Guide, warp shuffles and atomics.
// Tests:    tests/cuda/test_kernels.py; tests/kernels/test_scratch.py compiles this file for the CPU.
#pragma once

#define DEVICE __device__ __forceinline__
#define NEVER_INLINE __device__ __noinline__
#define METHOD __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define CACHE_ALIGNED

typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
typedef long long int64;
typedef int JpegSample;

constexpr int LANES = 1;
constexpr int ROWS = CUDA_ROWS;
constexpr int PIXELS = 1;

struct Block {
    int thread, threads;
    DEVICE void sync() const { __syncthreads(); }
};

struct ThreadWarp {
    int lane;
    static constexpr int lanes = 32;
    DEVICE void sync() const { __syncwarp(); }
};

DEVICE uint16 half_bits(float value) {
    uint16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

template <class T>
DEVICE T load_global(const T* p) {
    return __ldg(p);
}

template <class T>
DEVICE T load_as(const void* p) {
    return *static_cast<const T*>(p);
}
template <class T>
DEVICE void store_as(void* p, const T& value) {
    *static_cast<T*>(p) = value;
}
// Bytes `byte` to `byte` + 3 of two words, for byte below 4.
DEVICE uint32 little_endian_word(uint32 low, uint32 high, uint32 byte) { return __funnelshift_r(low, high, 8 * byte); }
DEVICE uint32 big_endian_word(uint32 low, uint32 high, uint32 byte) {
    return __byte_perm(little_endian_word(low, high, byte), 0, 0x0123);
}
// Four of the eight bytes of two words: a digit of `selector` each, the low ones first.
DEVICE uint32 select_bytes(uint32 low, uint32 high, uint32 selector) { return __byte_perm(low, high, selector); }
// sum + factor, of 16 bits, * signed byte `number` of a word.
DEVICE int add_product(int sum, int factor, uint32 word, int number) {
    const int factors = number & 1 ? factor << 16 : factor & 0xffff;
    return number & 2 ? __dp2a_hi(factors, int(word), sum) : __dp2a_lo(factors, int(word), sum);
}
// Bytes of four values, clamped to 0 ... 255; the first is the low one.
DEVICE uint32 pack_saturated(int first, int second, int third, int fourth) {
    const auto pack = [](int high, int low, uint32 upper) {
        uint32 bits;
        asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(bits) : "r"(high), "r"(low), "r"(upper));
        return bits;
    };
    return pack(second, first, pack(fourth, third, 0));
}

DEVICE uint32 float_bits(float value) { return __float_as_uint(value); }
DEVICE float bits_to_float(uint32 bits) { return __uint_as_float(bits); }
DEVICE float floor(float value) { return floorf(value); }
DEVICE double floor(double value) { return ::floor(value); }
// float(a / b), given 1 / b rounded. A division of doubles takes ten times as long as the product, whose error, less
// than 2 units in the last place, changes the float only next to the middle between two floats.
DEVICE float divide_to_float(double a, double b, double reciprocal) {
    const double quotient = a * reciprocal;
    const int from_middle = int(__double_as_longlong(quotient) & 0x1fffffff) - 0x10000000;
    return from_middle >= -4 && from_middle <= 4 ? float(a / b) : float(quotient);
}
DEVICE float sqrt(float value) { return sqrtf(value); }

// *sum += the values of all threads. A warp sums in registers first: one atomic per warp instead of 32.
DEVICE void block_sum(int64* sum, int64 value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
    if ((threadIdx.x & 31) == 0 && value != 0) atomicAdd(reinterpret_cast<uint64*>(sum), uint64(value));
}
// *maximum = the largest of *maximum and the values of all threads.
DEVICE void block_max(uint32* maximum, uint32 value) {
    for (int step = 16; step > 0; step /= 2) {
        const uint32 other = __shfl_down_sync(0xffffffffu, value, step);
        value = other > value ? other : value;
    }
    if ((threadIdx.x & 31) == 0) atomicMax(maximum, value);
}
DEVICE void atomic_add(uint32* sum, uint32 value) { atomicAdd(sum, value); }
DEVICE uint32 increment(uint32* counter) { return atomicAdd(counter, 1u); }
