// kernels/augment.cu as it is compiled for CUDA, run on the host: the CUDA branch of shim.h, with the little that it
// takes of CUDA defined here, one thread a block. tests/test_scratch.py says what for.
#include <cmath>
#include <cstdint>
#include <cstring>

#define __CUDACC__
#define __device__
#define __global__
#define __launch_bounds__(...)
#define __shared__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))

struct Index {
    int x, y, z;
};
static Index threadIdx, blockIdx;
static const Index blockDim = {1, 1, 1};

static void __syncthreads() {}
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
// Of the 32 threads of a warp there is one: what the others hold adds nothing, and is largest never.
template <class T>
static T __shfl_down_sync(unsigned, T, int) {
    return 0;
}
template <class T>
static void atomicAdd(T* sum, T value) {
    *sum += value;
}
static void atomicMax(unsigned* most, unsigned value) {
    if (value > *most) *most = value;
}
struct float4 {
    float x, y, z, w;
};
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
template <class T>
static T __ldg(const T* p) {
    return *p;
}
static uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
    return uint32_t((uint64_t(high) << 32 | low) >> (shift & 31));
}
static uint16_t half_of(float value) {
    const _Float16 half = static_cast<_Float16>(value);
    uint16_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}
#define asm(...) bits = half_of(value)

#include "augment.cu"

#undef asm

constexpr int64_t MOST = 1 << 20, BEYOND = 1 << 12;
__align__(16) float scratch[MOST];

// Runs the block of one tile by entry point `simple ? resample : augment`. Returns how many floats of scratch it has
// written, counted from the start: `most` floats, and some beyond, hold a pattern before that no kernel writes. -1:
// `most` is more than there are here.
extern "C" int64_t emulate(int simple, const void* rows, const void* ops, const void* tables, void* statistics,
                           int tile_rows, int tile_columns, int tile_y, int tile_x, int sample, int64_t most) {
    const uint32_t pattern = 0xfff5a5a5u;  // a NaN
    if (most + BEYOND > MOST) return -1;
    for (int64_t i = 0; i < most + BEYOND; ++i) memcpy(&scratch[i], &pattern, sizeof pattern);
    blockIdx = {tile_y, tile_x, sample};
    (simple ? resample : augment)(static_cast<const Sample*>(rows), static_cast<const Op*>(ops),
                                  static_cast<const float*>(tables), static_cast<int64*>(statistics), tile_rows,
                                  tile_columns);
    int64_t used = most + BEYOND;
    while (used > 0 && memcmp(&scratch[used - 1], &pattern, sizeof pattern) == 0) --used;
    return used;
}
