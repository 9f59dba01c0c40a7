// The CUDA entry point. Grid: (tiles down, tiles across, samples), since only the first side may be longer than 65,535.
// A tile is tile_rows x tile_columns output pixels.
// Dynamic shared memory: the scratch that augment.h describes, for the largest tile of the batch.
#include "augment.h"

// benchmarks/gpu_kernels.py tries __restrict__, with which most loads take the read-only way.
#ifndef READ_ONLY
#define READ_ONLY
#endif

// samples [N], ops [*], tables [T, 3, 256], statistics [*]: words of 0 at first, that all passes share.
KERNEL augment(const Sample* READ_ONLY samples, const Op* READ_ONLY ops, const float* READ_ONLY tables,
               int64* statistics, int tile_rows, int tile_columns) {
    extern __shared__ float scratch[];
    const Sample& sample = samples[blockIdx.z];
    Tile tile = {int(blockIdx.x) * tile_rows, int(blockIdx.y) * tile_columns, 0, 0};
    tile.rows = smaller(tile_rows, sample.y.out - tile.y);
    tile.columns = smaller(tile_columns, sample.x.out - tile.x);
    if (!sample.active || tile.rows <= 0 || tile.columns <= 0) return;  // the whole block leaves: no barrier waits

    const Block block = {int(threadIdx.x), int(blockDim.x)};
    augment_tile(block, sample, ops, tables, statistics, tile, scratch);
}
