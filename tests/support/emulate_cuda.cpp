// kernels/cuda/augment.cu as it is compiled for CUDA, run on the host: the CUDA branch of platform.h, with the little that it
// takes of CUDA defined here. tests/kernels/test_scratch.py says what for.
//
// The threads of a block take turns, each up to the next barrier: whoever relies on a barrier that is missing finds the
// work of some others undone.
#include <ucontext.h>

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
static Index threadIdx, blockIdx, blockDim;

constexpr int MOST_THREADS = 64, STACK = 128 << 10;
static ucontext_t turns, threads[MOST_THREADS];
static bool ended[MOST_THREADS];
static char stacks[MOST_THREADS][STACK];

static void __syncthreads() { swapcontext(&threads[threadIdx.x], &turns); }
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
// Where a warp has fewer than 32 threads: what the others would hold adds nothing, and is largest never.
template <class T>
static T __shfl_down_sync(unsigned, T value, int step) {
    static T held[MOST_THREADS];
    const int own = threadIdx.x, other = own + step;
    held[own] = value;
    __syncthreads();
    const T found = other < blockDim.x && other / 32 == own / 32 ? held[other] : 0;
    __syncthreads();
    return found;
}
template <class T>
static void atomicAdd(T* sum, T value) {
    *sum += value;
}
static void atomicMax(unsigned* most, unsigned value) {
    if (value > *most) *most = value;
}
struct __align__(16) float4 {
    float x, y, z, w;
};
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
// Compiled with -fsanitize=alignment, this is called before what lies where CUDA can neither load nor store it is used.
static bool misaligned;
extern "C" void __ubsan_handle_type_mismatch_v1(void*, void*) {
    misaligned = true;
    setcontext(&turns);  // which ends the block
}

// From where to where a block has loaded.
extern "C" uint64_t loaded[2];
uint64_t loaded[2];
template <class T>
static T __ldg(const T* p) {
    const uint64_t begin = reinterpret_cast<uint64_t>(p), end = begin + sizeof(T);
    loaded[0] = begin < loaded[0] ? begin : loaded[0];
    loaded[1] = end > loaded[1] ? end : loaded[1];
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

#include "cuda/augment.cu"
using namespace cuaug;

#undef asm

constexpr int64_t MOST = 1 << 20, BEYOND = 1 << 12;
__align__(16) float scratch[MOST];

// What the threads of a block run.
static void (*entry)(const Sample*, const Op*, const float*, int64*, int, int);
static const void* given[4];
static int tile[2];

static void run_thread() {
    entry(static_cast<const Sample*>(given[0]), static_cast<const Op*>(given[1]), static_cast<const float*>(given[2]),
          static_cast<int64*>(const_cast<void*>(given[3])), tile[0], tile[1]);
    ended[threadIdx.x] = true;
}

// Returns 0, or what went wrong, as emulate has it.
static int run_block(bool backwards) {
    const int n = blockDim.x;
    for (int i = 0; i < n; ++i) {
        getcontext(&threads[i]);
        threads[i].uc_stack.ss_sp = stacks[i];
        threads[i].uc_stack.ss_size = STACK;
        threads[i].uc_link = &turns;
        ended[i] = false;
        makecontext(&threads[i], run_thread, 0);
    }
    for (int left = n; left > 0;) {
        if (left < n) return -2;
        for (int i = 0; i < n; ++i) {
            threadIdx = {backwards ? n - 1 - i : i, 0, 0};
            swapcontext(&turns, &threads[threadIdx.x]);
            if (misaligned) return -3;
            left -= ended[threadIdx.x];
        }
    }
    return 0;
}

// Runs the block of one tile by entry point `simple ? resample : augment`. Returns how many floats of scratch it has
// written, counted from the start: `most` floats, and some beyond, hold a pattern before that no kernel writes. -1:
// `most`, or the number of threads, is more than there are here; -2: not all threads have come to each barrier; -3:
// something lies where nothing of its size must.
extern "C" int64_t emulate(int simple, int block_threads, const void* rows, const void* ops, const void* tables,
                           void* statistics, int tile_rows, int tile_columns, int tile_y, int tile_x, int sample,
                           int64_t most) {
    const uint32_t pattern = 0xfff5a5a5u;  // a NaN
    if (most + BEYOND > MOST || block_threads > MOST_THREADS) return -1;
    for (int64_t i = 0; i < most + BEYOND; ++i) memcpy(&scratch[i], &pattern, sizeof pattern);
    blockIdx = {tile_y, tile_x, sample}, blockDim = {block_threads, 1, 1};
    entry = simple ? resample : augment;
    given[0] = rows, given[1] = ops, given[2] = tables, given[3] = statistics;
    tile[0] = tile_rows, tile[1] = tile_columns;
    loaded[0] = UINT64_MAX, loaded[1] = 0, misaligned = false;
    if (const int wrong = run_block((tile_y + tile_x) % 2 == 1)) return wrong;
    int64_t used = most + BEYOND;
    while (used > 0 && memcmp(&scratch[used - 1], &pattern, sizeof pattern) == 0) --used;
    return used;
}
