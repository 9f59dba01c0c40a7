// Computes: the CUDA entry point that runs any pass.
// Threads:  cuda/tile.h.
// Reference: core/augment.h.
// Tests:    tests/cuda/test_kernels.py; tests/kernels/test_scratch.py runs this file on a CPU.
namespace cuaug {

#include "cuda/tile.h"

KERNEL augment(const Sample* samples,  // [N]
               const Op* ops,          // [*] of all samples
               const float* tables,    // [T, C, 256], then filters, fields and quantization steps
               int64* statistics,      // [*] words of all passes, 0 at first
               int tile_rows, int tile_columns) {
    extern __shared__ __align__(16) float scratch[];
    const Sample& sample = samples[blockIdx.z];
    Tile tile;
    if (!sample.active || !make_tile(sample, tile_rows, tile_columns, tile)) return;
    const Block block = {int(threadIdx.x), int(blockDim.x)};
    augment_tile(block, sample, ops, tables, statistics, tile, scratch);
}

}  // namespace cuaug
