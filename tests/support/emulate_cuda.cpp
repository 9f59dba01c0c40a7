// Runs kernels/cuda/augment.cu and resample.cu on a CPU, with the few CUDA functions they call defined here. Used by
// tests/kernels/test_scratch.py.
//
// The threads of a block run one after the other, each up to the next barrier. Code that lacks a barrier then misses
// the work of other threads.
#include "emulated_cuda.h"

#define __shared__

static void __syncthreads() { swapcontext(&threads[threadIdx.x], &scheduler); }
static void __syncwarp() { __syncthreads(); }

// The range of source addresses that a block has loaded.
extern "C" uint64_t loaded[2];
uint64_t loaded[2];
template <class T>
static T __ldg(const T* p) {
    const uint64_t begin = reinterpret_cast<uint64_t>(p), end = begin + sizeof(T);
    loaded[0] = begin < loaded[0] ? begin : loaded[0];
    loaded[1] = end > loaded[1] ? end : loaded[1];
    return *p;
}

#include "cuda/augment.cu"
#include "cuda/resample.cu"
using namespace cuaug;

#undef asm

extern "C" float divide(double a, double b) { return divide_to_float(a, b, 1.0 / b); }

constexpr int64_t MAX_FLOATS = 1 << 20, GUARD_FLOATS = 1 << 12;
__align__(16) float scratch[MAX_FLOATS];

// The entry point that the threads of a block run, and its arguments.
static void (*entry)(const Sample*, const Op*, const float*, int64*, int, int);
static const void* arguments[4];
static int tile[2];

static void run_thread() {
    entry(static_cast<const Sample*>(arguments[0]), static_cast<const Op*>(arguments[1]),
          static_cast<const float*>(arguments[2]), static_cast<int64*>(const_cast<void*>(arguments[3])), tile[0],
          tile[1]);
    ended[threadIdx.x] = true;
}

// Returns 0, or an error code of `emulate`.
static int run_block(bool backwards) {
    const int n = blockDim.x;
    for (int i = 0; i < n; ++i) {
        getcontext(&threads[i]);
        threads[i].uc_stack.ss_sp = stacks[i];
        threads[i].uc_stack.ss_size = STACK;
        threads[i].uc_link = &scheduler;
        ended[i] = false;
        makecontext(&threads[i], run_thread, 0);
    }
    for (int left = n; left > 0;) {
        if (left < n) return -2;
        for (int i = 0; i < n; ++i) {
            threadIdx = {backwards ? n - 1 - i : i, 0, 0};
            swapcontext(&scheduler, &threads[threadIdx.x]);
            if (misaligned) return -3;
            left -= ended[threadIdx.x];
        }
    }
    return 0;
}

// Runs the block of one tile by the entry point `simple ? resample : augment`. Returns the number of floats of scratch
// up to the last one written: `floats` floats and a guard hold a pattern first that no kernel writes. Errors: -1: too
// many floats or threads for this emulation; -2: not all threads reached a barrier; -3: a misaligned access.
extern "C" int64_t emulate(int simple, int block_threads, const void* rows, const void* ops, const void* tables,
                           void* statistics, int tile_rows, int tile_columns, int tile_y, int tile_x, int sample,
                           int64_t floats) {
    const uint32_t pattern = 0xfff5a5a5u;  // a NaN
    if (floats + GUARD_FLOATS > MAX_FLOATS || block_threads > MAX_THREADS) return -1;
    for (int64_t i = 0; i < floats + GUARD_FLOATS; ++i) memcpy(&scratch[i], &pattern, sizeof pattern);
    blockIdx = {tile_y, tile_x, sample}, blockDim = {block_threads, 1, 1};
    entry = simple ? resample : augment;
    arguments[0] = rows, arguments[1] = ops, arguments[2] = tables, arguments[3] = statistics;
    tile[0] = tile_rows, tile[1] = tile_columns;
    loaded[0] = UINT64_MAX, loaded[1] = 0, misaligned = false;
    if (const int wrong = run_block((tile_y + tile_x) % 2 == 1)) return wrong;
    int64_t used = floats + GUARD_FLOATS;
    while (used > 0 && memcmp(&scratch[used - 1], &pattern, sizeof pattern) == 0) --used;
    return used;
}
