// Computes: the CPU half of platform.h.
// Threads:  one thread computes all of a sample, PIXELS output pixels at a time. Block-stride loops become plain loops.
// Reference: IEEE 754-2019 (binary16).
// Tests:    tests/properties/test_store.py; tests/kernels/test_sanitizers.py (the build with several threads).
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define DEVICE static inline
#define NEVER_INLINE static __attribute__((noinline))
#define METHOD
#define UNROLL
#define NO_UNROLL
#define CACHE_ALIGNED __attribute__((aligned(64)))

typedef uint8_t uint8;
typedef uint16_t uint16;
typedef uint32_t uint32;
typedef uint64_t uint64;
typedef int64_t int64;

// Floats in one register: the width of FloatVec in cpu/simd.h.
#if defined(__AVX512VBMI__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
constexpr int ROWS = LANES;
constexpr int PIXELS = 32;

#ifdef CUAUG_BLOCK_THREADS
typedef int JpegSample;  // as on CUDA: threads share a block of 8 x 8
struct Barrier {
    virtual void wait() = 0;
};
struct Block {
    int thread, threads;
    Barrier* barrier;
    void sync() const { barrier->wait(); }
};
#else
typedef uint8 JpegSample;
struct Block {
    static constexpr int thread = 0, threads = 1;
    void sync() const {}
};
#endif

struct ThreadWarp {
    static constexpr int lane = 0, lanes = 1;
    void sync() const {}
};

template <class T>
DEVICE T load_global(const T* p) {
    return *p;
}
template <class T>
DEVICE T load_as(const void* p) {
    T value;
    memcpy(&value, p, sizeof value);
    return value;
}
template <class T>
DEVICE void store_as(void* p, const T& value) {
    memcpy(p, &value, sizeof value);
}
DEVICE uint32 little_endian_word(uint32 low, uint32 high, uint32 byte) {
    return uint32((uint64(high) << 32 | low) >> (8 * byte));
}
DEVICE uint32 big_endian_word(uint32 low, uint32 high, uint32 byte) {
    return __builtin_bswap32(little_endian_word(low, high, byte));
}
DEVICE uint32 select_bytes(uint32 low, uint32 high, uint32 selector) {
    uint32 word = 0;
    for (int i = 0; i < 4; ++i) word |= (little_endian_word(low, high, selector >> 4 * i & 7) & 255) << 8 * i;
    return word;
}
DEVICE int add_product(int sum, int factor, uint32 word, int number) {
    return sum + factor * int8_t(word >> 8 * number);
}
DEVICE uint32 pack_saturated(int first, int second, int third, int fourth) {
    const int values[4] = {first, second, third, fourth};
    uint32 word = 0;
    for (int i = 0; i < 4; ++i) word |= uint32(values[i] < 0 ? 0 : values[i] > 255 ? 255 : values[i]) << 8 * i;
    return word;
}

DEVICE uint32 float_bits(float value) {
    uint32 bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
DEVICE float bits_to_float(uint32 bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Rounds to nearest even. Selects instead of branches, so that loops vectorize.
DEVICE uint16 half_bits(float value) {
    const uint32 bits = float_bits(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    // Normal results: rebias the exponent by 112, round the 13 dropped bits, and let a carry run into the exponent.
    const uint32 normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Subnormal results: adding 0.5 aligns the mantissa so that the addition itself rounds.
    const uint32 subnormal = float_bits(bits_to_float(magnitude) + 0.5f) - float_bits(0.5f);
    const uint32 special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32 finite = magnitude < (113u << 23) ? subnormal : normal;
    return uint16(sign | (magnitude >= (143u << 23) ? special : finite));
}
DEVICE float floor(float value) { return __builtin_floorf(value); }
DEVICE double floor(double value) { return __builtin_floor(value); }
DEVICE float divide_to_float(double a, double b, double) { return float(a / b); }
DEVICE float sqrt(float value) { return __builtin_sqrtf(value); }

DEVICE void block_sum(int64* sum, int64 value) { __atomic_fetch_add(sum, value, __ATOMIC_RELAXED); }
DEVICE void block_max(uint32* maximum, uint32 value) {
    uint32 old = __atomic_load_n(maximum, __ATOMIC_RELAXED);
    while (old < value &&
           !__atomic_compare_exchange_n(maximum, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
DEVICE void atomic_add(uint32* sum, uint32 value) { __atomic_fetch_add(sum, value, __ATOMIC_RELAXED); }
#ifdef CUAUG_BLOCK_THREADS
DEVICE uint32 increment(uint32* counter) { return __atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED); }
#else
DEVICE uint32 increment(uint32* counter) { return (*counter)++; }  // one thread computes all of a sample
#endif
