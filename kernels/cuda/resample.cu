// Computes: the CUDA entry point for the pass that most batches consist of (is_resample_signature in core/signature.h):
//           uint8 cropped and resized, then scaled, normalized and erased, into a target that is not PACKED. It takes fewer
//           registers than `augment`, so more blocks run at once, and reads the program once for all rows of a thread.
// Threads:  cuda/tile.h.
// Reference: core/augment.h.
// Tests:    tests/cuda/test_kernels.py; tests/kernels/test_scratch.py runs this file on a CPU.
#define CUAUG_NEVER_PACKED
namespace cuaug {

#include "cuda/tile.h"

DEVICE void saturate_rows(PixelBlock* v, float limit) {
    if (limit < 0.0f) return;
    UNROLL
    for (int row = 0; row < ROWS; ++row) saturate(v[row], limit);
}

// Rows y ... y + rows - 1 of output column x, as finish_block finishes them.
DEVICE void finish_rows(const Sample& sample, const Op* ops, int y, int x, int rows, PixelBlock* v) {
    saturate_rows(v, sample.clamp);
    for (int i = sample.op_begin; i < sample.op_end; ++i) {
        const Op& op = ops[i];
        if (is<Operations>(op.code, SCALE)) {
            UNROLL
            for (int row = 0; row < ROWS; ++row)
                for (int c = 0; c < 3; ++c) scale(op.a[c], op.a[4 + c], -1.0f, v[row][c]);
            saturate_rows(v, op.limit);
        } else if (is<Operations>(op.code, NORMALIZE)) {
            UNROLL
            for (int row = 0; row < ROWS; ++row) normalize(op, v[row]);
        } else if (may_be<Operations>(ERASE)) {
            UNROLL
            for (int row = 0; row < ROWS; ++row) erase(op, place_of(sample, y + row, x), v[row]);
        }
    }
    store_rows<ROWS>(sample, v, y, x, rows);
}

// The parameters of `augment`; no statistics are measured.
KERNEL resample(const Sample* samples, const Op* ops, const float* tables, int64*, int tile_rows, int tile_columns) {
    extern __shared__ __align__(16) float scratch[];
    const Sample& sample = samples[blockIdx.z];
    Tile tile;
    if (!sample.active || !make_tile(sample, tile_rows, tile_columns, tile)) return;
    const Block block = {int(threadIdx.x), int(blockDim.x)};
    const auto sum = [&](const Span* rows, int height, const float* weights, bool inside, Span columns, float* lines) {
        sum_rows<uint8>(block, sample, rows, height, weights, inside, columns, lines);
    };
    const auto finish = [&](int y, int x, int rows, int, PixelBlock* v) { finish_rows(sample, ops, y, x, rows, v); };
    // In the kernel for every signature the registers do not suffice for both.
    if (CUAUG_SIGNATURE != ~uint64(0) && resizes_levels(sample))
        resize_levels(block, sample, tables, tile, scratch, finish);
    else
        resample_tile(block, sample, tables, tile, scratch, sum, finish);
}

}  // namespace cuaug
