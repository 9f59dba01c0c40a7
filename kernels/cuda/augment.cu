// Computes: the CUDA entry points. `augment` runs any pass. `resample` runs the pass that most batches consist of
//           (is_resample_signature in core/signature.h): uint8 cropped and resized, then scaled and erased. It takes
//           fewer registers, so more blocks run at once, and reads the program once for all rows of a thread.
//           CUAUG_ONLY_AUGMENT and CUAUG_ONLY_RESAMPLE leave out the other one. CUAUG_ONLY_CONVERT_YUV leaves out both,
//           and has `convert_yuv` in their place: cuda/convert_yuv.h.
// Threads:  grid (tiles down, tiles across, samples): only the first side may exceed 65,535. A block computes a tile of
//           tile_rows x tile_columns output pixels. Dynamic shared memory: cuaug_scratch_words of the largest tile.
// Reference: core/augment.h.
// Tests:    tests/cuda/test_kernels.py; tests/kernels/test_scratch.py runs this file on a CPU.
namespace cuaug {

#if defined(CUAUG_ONLY_CONVERT_YUV)
#include "cuda/convert_yuv.h"
#else
#include "core/augment.h"

DEVICE bool make_tile(const Sample& sample, int rows, int columns, Tile& tile) {
    tile = {int(blockIdx.x) * rows, int(blockIdx.y) * columns, 0, 0};
    tile.rows = min(rows, sample.y.out - tile.y);
    tile.columns = min(columns, sample.x.out - tile.x);
    return tile.rows > 0 && tile.columns > 0;
}

#if !defined(CUAUG_ONLY_RESAMPLE)
KERNEL augment(const Sample* samples,  // [N]
               const Op* ops,          // [*] of all samples
               const float* tables,    // [T, C, 256], then filters, fields and quantisation steps
               int64* statistics,      // [*] words of all passes, 0 at first
               int tile_rows, int tile_columns) {
    extern __shared__ __align__(16) float scratch[];
    const Sample& sample = samples[blockIdx.z];
    Tile tile;
    // The whole block returns, so no barrier waits.
    if (!sample.active || !make_tile(sample, tile_rows, tile_columns, tile)) return;
    const Block block = {int(threadIdx.x), int(blockDim.x)};
    augment_tile(block, sample, ops, tables, statistics, tile, scratch);
}
#endif

#if !defined(CUAUG_ONLY_AUGMENT)
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
        } else if (may_be<Operations>(ERASE)) {
            UNROLL
            for (int row = 0; row < ROWS; ++row) erase(op, place_of(sample, y + row, x), v[row]);
        }
    }
    store_rows<ROWS>(sample, v, y, x, rows);
}

#if defined(CUAUG_ONLY_RESAMPLE)
#define BOUNDS  // nvrtc.py limits the registers
#else
#define BOUNDS __launch_bounds__(256, 3)  // 80 registers per thread
#endif

// The parameters of `augment`; no statistics are measured.
extern "C" __global__ void BOUNDS resample(const Sample* samples, const Op* ops, const float* tables, int64*,
                                           int tile_rows, int tile_columns) {
    extern __shared__ __align__(16) float scratch[];
    const Sample& sample = samples[blockIdx.z];
    Tile tile;
    if (!sample.active || !make_tile(sample, tile_rows, tile_columns, tile)) return;
    const Block block = {int(threadIdx.x), int(blockDim.x)};
    const auto sum = [&](const Span* rows, int height, const float* weights, bool inside, Span columns, float* lines) {
        sum_rows<uint8>(block, sample, rows, height, weights, inside, columns, lines);
    };
    resample_tile(block, sample, tables, tile, scratch, sum,
                  [&](int y, int x, int rows, int, PixelBlock* v) { finish_rows(sample, ops, y, x, rows, v); });
}
#endif
#endif  // CUAUG_ONLY_CONVERT_YUV

}  // namespace cuaug
