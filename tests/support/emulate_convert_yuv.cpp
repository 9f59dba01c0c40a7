// Runs kernels/cuda/convert_yuv.cu on a CPU. Used by tests/kernels/test_convert_yuv.py.
#include "emulated_cuda.h"

static void __syncthreads() {}
static void __syncwarp() {}
template <class T>
static T __ldg(const T* p) {
    return *p;
}

#include "cuda/convert_yuv.cu"
#undef asm
using namespace cuaug;

// Runs `convert_yuv` on a grid of frames x rows blocks; it has no barrier. Returns 0, or -3 for a misaligned access.
extern "C" int emulate_conversion(const void* images, int frames, int rows, int block_threads) {
    blockDim = {block_threads, 1, 1}, gridDim = {frames, rows, 1}, misaligned = false;
    getcontext(&scheduler);  // a misaligned access comes back here
    if (misaligned) return -3;
    for (blockIdx.x = frames - 1; blockIdx.x >= 0; --blockIdx.x)
        for (blockIdx.y = 0; blockIdx.y < rows; ++blockIdx.y)
            for (threadIdx.x = block_threads - 1; threadIdx.x >= 0; --threadIdx.x)
                convert_yuv(static_cast<const YuvImage*>(images));
    return 0;
}
