// Runs kernels/cuda/decode_jpeg.cu on a CPU. Used by tests/kernels/test_emulated_jpeg.py.
//
// The threads of a block run one after the other, each up to the next barrier; those of a warp until all of them have
// come to the same barrier, or to the kernel's end. Code that lacks a barrier then misses the work of other threads.
#include "emulated_cuda.h"

// Variables of the linker's section "shared", which each block finds filled with a pattern.
#define __shared__ static __attribute__((section("shared")))
extern "C" char __start_shared[], __stop_shared[];

enum Stop { AT_BLOCK_BARRIER, AT_WARP_BARRIER, AT_END };
static Stop stopped[MAX_THREADS];

static void stop(Stop at) {
    stopped[threadIdx.x] = at;
    swapcontext(&threads[threadIdx.x], &scheduler);
}
static void __syncthreads() { stop(AT_BLOCK_BARRIER); }
static void __syncwarp() { stop(AT_WARP_BARRIER); }
template <class T>
static T __ldg(const T* p) {
    return *p;
}
struct __align__(16) uint4 {
    uint32_t x, y, z, w;
};
static uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

#include "cuda/decode_jpeg.cu"
#undef asm
using namespace cuaug;

static void (*kernel)(const void*, const void*);
static const void* arguments[2];
// Whether the last thread of a warp, and the last warp, runs first.
extern "C" int is_backward;
int is_backward = 0;

static void run_thread() {
    kernel(arguments[0], arguments[1]);
    stopped[threadIdx.x] = AT_END;
}

// Runs the threads of a warp to their next stop. False if they stop at different places.
static bool run_warp(int warp) {
    for (int i = 0; i < 32; ++i) {
        threadIdx = {32 * warp + (is_backward ? 31 - i : i), 0, 0};
        swapcontext(&scheduler, &threads[threadIdx.x]);
        if (misaligned) return false;
    }
    for (int i = 1; i < 32; ++i)
        if (stopped[32 * warp + i] != stopped[32 * warp]) return false;
    return true;
}

// Returns 0, or an error of `emulate`.
static int run_block() {
    const int warps = blockDim.x / 32;
    memset(__start_shared, 0xa5, size_t(__stop_shared - __start_shared));
    for (int i = 0; i < blockDim.x; ++i) {
        getcontext(&threads[i]);
        threads[i].uc_stack.ss_sp = stacks[i];
        threads[i].uc_stack.ss_size = STACK;
        threads[i].uc_link = &scheduler;
        stopped[i] = AT_BLOCK_BARRIER;
        makecontext(&threads[i], run_thread, 0);
    }
    for (bool is_running = true; is_running;) {
        is_running = false;
        for (int i = 0; i < warps; ++i) {  // up to the block's next barrier
            const int warp = is_backward ? warps - 1 - i : i;
            if (stopped[32 * warp] == AT_END) continue;
            do {
                if (!run_warp(warp)) return misaligned ? -3 : -2;
            } while (stopped[32 * warp] == AT_WARP_BARRIER);
            is_running |= stopped[32 * warp] == AT_BLOCK_BARRIER;
        }
    }
    return 0;
}

// Runs all blocks of a grid. Errors: -2: threads of a warp are at different barriers; -3: a misaligned access.
static int emulate(void (*entry)(const void*, const void*), int64_t blocks, int parts, int block_threads,
                   const void* first, const void* second) {
    kernel = entry, arguments[0] = first, arguments[1] = second, misaligned = false;
    blockDim = {block_threads, 1, 1}, gridDim = {int(blocks), parts, 1};
    for (int y = 0; y < parts; ++y)
        for (int64_t x = 0; x < blocks; ++x) {
            blockIdx = {int(x), y, 0};
            if (const int wrong = run_block()) return wrong;
        }
    return 0;
}

extern "C" {

int cuaug_build_lookups(const void* definitions, int64_t sets, void* lookups) {
    const auto entry = [](const void* from, const void* to) {
        build_lookups(static_cast<const HuffmanDefinitions*>(from),
                      static_cast<HuffmanLookups*>(const_cast<void*>(to)));
    };
    return emulate(entry, sets, TABLES_PER_SET, LOOKUP_THREADS, definitions, lookups);
}

// 96 threads stand for the 512 of a block: each has several runs.
int cuaug_scan_jpegs(const void* scans, int64_t count, void*) {
    const auto entry = [](const void* scans, const void*) { scan_jpeg(static_cast<const JpegScan*>(scans)); };
    return emulate(entry, count, 1, 96, scans, nullptr);
}

int cuaug_decode_jpegs(const void* images, const void* work, int64_t blocks) {
    const auto entry = [](const void* images, const void* work) {
        decode_jpeg(static_cast<const JpegImage*>(images), static_cast<const JpegWork*>(work));
    };
    return emulate(entry, blocks, 1, DECODE_THREADS, images, work);
}

int cuaug_color_jpegs(const void* images, const void* tiles, int64_t count) {
    const auto entry = [](const void* images, const void* tiles) {
        color_jpeg(static_cast<const JpegImage*>(images), static_cast<const JpegTile*>(tiles));
    };
    return emulate(entry, count, 1, COLOR_THREADS, images, tiles);
}
}
