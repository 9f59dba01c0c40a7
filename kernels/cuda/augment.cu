// The CUDA entry points. Grid: (tiles down, tiles across, samples), since only the first side may be longer than
// 65,535. A tile is tile_rows x tile_columns output pixels. Dynamic shared memory: the scratch that core/augment.h
// describes, for the largest tile of the batch.
//
// `augment` does whatever a pass may ask for. `resample` does the one that most batches consist of (is_simple in
// core/scratch.h): bytes are cropped and resized, then scaled and erased. It takes fewer registers, so that more blocks
// run at once, and reads the program once for all rows of a thread.
#include "core/augment.h"

DEVICE bool tile_of(const Sample& sample, int rows, int columns, Tile& tile) {
    tile = {int(blockIdx.x) * rows, int(blockIdx.y) * columns, 0, 0};
    tile.rows = smaller(rows, sample.y.out - tile.y);
    tile.columns = smaller(columns, sample.x.out - tile.x);
    return tile.rows > 0 && tile.columns > 0;
}

// samples [N], ops [*], tables [T, 3, 256], statistics [*]: words of 0 at first, that all passes share.
KERNEL augment(const Sample* samples, const Op* ops, const float* tables, int64* statistics, int tile_rows,
               int tile_columns) {
    extern __shared__ __align__(16) float scratch[];
    const Sample& sample = samples[blockIdx.z];
    Tile tile;
    // The whole block leaves: no barrier waits.
    if (!sample.active || !tile_of(sample, tile_rows, tile_columns, tile)) return;
    const Block block = {int(threadIdx.x), int(blockDim.x)};
    augment_tile(block, sample, ops, tables, statistics, tile, scratch);
}

DEVICE void limit_rows(float limit, Strip* v) {
    if (limit < 0.0f) return;
    UNROLL
    for (int row = 0; row < ROWS; ++row) limit_to(limit, v[row]);
}

// Rows y ... y + rows - 1 of output column x, as finish_strip finishes them.
DEVICE void finish_rows(const Sample& sample, const Op* ops, int y, int x, int rows, Strip* v) {
    limit_rows(sample.clamp, v);
    for (int i = sample.op_begin; i < sample.op_end; ++i) {
        const Op& op = ops[i];
        if (op.code == SCALE) {
            UNROLL
            for (int row = 0; row < ROWS; ++row)
                for (int c = 0; c < 3; ++c) scale(op.a[c], op.a[4 + c], -1.0f, v[row][c]);
            limit_rows(op.limit, v);
        } else {
            UNROLL
            for (int row = 0; row < ROWS; ++row) erase(op, place_of(sample, y + row, x), v[row]);
        }
    }
    store_rows<ROWS>(sample, v, y, x, rows);
}

extern "C" __global__ void __launch_bounds__(256, 3)
    resample(const Sample* samples, const Op* ops, const float* tables, int64*, int tile_rows, int tile_columns) {
    extern __shared__ __align__(16) float scratch[];
    const Sample& sample = samples[blockIdx.z];
    Tile tile;
    if (!sample.active || !tile_of(sample, tile_rows, tile_columns, tile)) return;
    const Block block = {int(threadIdx.x), int(blockDim.x)};
    const auto sum = [&](const Span* rows, const float* weights, bool inside, Span columns, float* lines) {
        sum_rows<uint8>(block, sample, rows, weights, inside, columns, lines);
    };
    resample_tile(block, sample, tables, tile, scratch, sum,
                  [&](int y, int x, int rows, int, Strip* v) { finish_rows(sample, ops, y, x, rows, v); });
}
