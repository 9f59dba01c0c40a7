// Computes: the tile of a block, and what CUDA defines for core/: shared by cuda/augment.cu and cuda/resample.cu.
// Threads:  grid (tiles down, tiles across, samples): only the first side may exceed 65,535. A block computes a tile of
//           tile_rows x tile_columns output pixels. Dynamic shared memory: cuaug_scratch_words of the largest tile.
// Reference: core/augment.h.
// Tests:    tests/kernels/test_scratch.py, tests/cuda/test_kernels.py.
#pragma once
#include "core/augment.h"
#include "core/jpeg_blocks.h"
#include "cuda/clahe.h"
#include "cuda/fast_paths.h"
#include "cuda/median.h"
#include "cuda/pillow_resize.h"
#include "cuda/resample.h"
#include "cuda/store.h"

// The tile of this block; false if it lies outside the image. Then the whole block returns, so no barrier waits.
DEVICE bool make_tile(const Sample& sample, int rows, int columns, Tile& tile) {
    tile = {int(blockIdx.x) * rows, int(blockIdx.y) * columns, 0, 0};
    tile.rows = min(rows, sample.y.out - tile.y);
    tile.columns = min(columns, sample.x.out - tile.x);
    return tile.rows > 0 && tile.columns > 0;
}
