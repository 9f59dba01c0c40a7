// Computes: the floats of scratch that one tile of a sample needs. core/augment.h divides them in this order:
//             statistics     a look-up table per channel, or CLAHE's tables; then this block's histogram
//             JPEG           one plane of luma, two of chroma, in blocks of 8 x 8
//             resampling     spans and weights of rows and of columns, then lines of source pixels
//             Pillow's       spans of rows and of columns, then bytes: the output, the source as levels unless it lies
//                            so in memory, and the levels between the two sums; of LEVEL_ROWS rows at a time
//           Warps, stencils and medians need no scratch for sampling.
// Threads:  the CPU calls it before a tile, and cuaug_scratch_words before CUDA launches.
// Reference: none.
// Tests:    tests/kernels/test_scratch.py finds writes beyond it; tests/kernels/test_sanitizers.py on the CPU.
#pragma once
#include "core/signature.h"

// How a build lays out its scratch.
struct ScratchLayout {
    int lines;            // output rows that resampling sums at a time
    int line_multiple;    // a line is a multiple of so many floats
    int tables_multiple;  // spans and weights together are a multiple of so many floats
    int sample_bytes;     // of a JPEG sample
    int extra_samples;    // that vectors read past the last JPEG sample
    bool joint_tables;    // CLAHE: cpu/clahe.h
};
constexpr ScratchLayout CUDA_SCRATCH = {CUDA_ROWS, 4, 4, 4, 0, false};
constexpr ScratchLayout SCRATCH =
    PIXELS == 1 ? CUDA_SCRATCH : ScratchLayout{ROWS, 1, LANES, sizeof(JpegSample), PIXELS, true};

constexpr int COUNTS = 3 * 256;  // a histogram: [C, 256]
constexpr int CHUNKS = 16;       // of a channel's histogram; one thread sums a chunk
constexpr int CHUNK_LEVELS = 256 / CHUNKS;
constexpr int EQUALIZE_FLOATS = COUNTS + 3 * CHUNKS;
// CLAHE: which cells; then a byte per level, channel and cell, and the sums of chunks.
constexpr int CELL_RANGE_FLOATS = 4, CELL_FLOATS = COUNTS / 4 + 3 * CHUNKS;

DEVICE int64 round_up(int64 value, int64 multiple) { return (value + multiple - 1) / multiple * multiple; }

// The tables of all cells whose centers may surround a tile's pixels.
DEVICE int clahe_floats(const ScratchLayout& layout, const Sample& sample, int tile_rows, int tile_columns) {
    const Grid& grid = sample.measured.grid;
    const int height = sample.transposed ? tile_columns : tile_rows,
              width = sample.transposed ? tile_rows : tile_columns;
    const int rows = min((height - 1) / max(grid.height, 1) + 3, grid.rows);
    const int columns = min((width - 1) / max(grid.width, 1) + 3, grid.columns);
    const int joint = layout.joint_tables ? (rows + 1) * (columns + 1) * COUNTS : 0;
    return CELL_RANGE_FLOATS + rows * columns * CELL_FLOATS + joint;
}

DEVICE int statistics_floats(const ScratchLayout& layout, const Sample& sample, int rows, int columns) {
    int floats = is<Measures>(sample.measure.kind, HISTOGRAM) ? COUNTS : 0;
    if (is<PriorMeasures>(sample.measured.kind, HISTOGRAM)) floats += EQUALIZE_FLOATS;
    if (is<PriorMeasures>(sample.measured.kind, CELL_HISTOGRAMS)) floats += clahe_floats(layout, sample, rows, columns);
    return floats;
}

// The most 8 x 8 blocks, along one axis, that n neighboring samples lie in.
DEVICE int64 blocks_across(int64 n) { return (n + 14) / 8; }

DEVICE int64 jpeg_floats(const ScratchLayout& layout, int rows, int columns) {
    const int64 luma = blocks_across(rows) * blocks_across(columns);
    const int64 chroma = blocks_across(rows / 2 + 3) * blocks_across(columns / 2 + 3);
    return (64 * (luma + 2 * chroma) + layout.extra_samples) * layout.sample_bytes / int64(sizeof(float));
}

constexpr int LEVEL_ROWS = 64;

// Bytes of a row of levels.
DEVICE int64 level_pitch(int64 pixels) { return round_up(3 * pixels, 4); }

// The most source pixels that `count` neighboring output pixels read.
DEVICE int64 most_read(const Axis& axis, int count) {
    const int64 read = int64(-floor(-double(count) * axis.scale)) + 2 * int64(axis.taps) + 2;
    return min(read, int64(axis.high) - axis.low);
}

DEVICE int64 levels_floats(const Sample& sample, int rows, int columns) {
    const Axis &y = sample.y, &x = sample.x;
    const int height = min(rows, LEVEL_ROWS);
    const bool wraps = sample.after.border == WRAP;
    const int64 read_rows = wraps ? int64(y.high) - y.low : most_read(y, height);
    const int64 read_columns = wraps ? int64(x.high) - x.low : most_read(x, columns);
    const bool in_memory = sample.source_type == UINT8 && y.low >= y.inner_low && y.high <= y.inner_high &&
                           x.low >= x.inner_low && x.high <= x.inner_high;
    const int64 source = in_memory ? 0 : read_rows * level_pitch(read_columns);
    const int64 between =
        sample.antialias == X_FIRST ? read_rows * level_pitch(columns) : height * level_pitch(read_columns);
    return 3 * (int64(rows) + columns) + (height * level_pitch(columns) + source + between) / int64(sizeof(float));
}

DEVICE int64 resampling_floats(const ScratchLayout& layout, const Sample& sample, int rows, int columns) {
    const Axis &y = sample.y, &x = sample.x;
    const int64 window = int64(x.high) - x.low;
    const int64 line = int64(-floor(-double(columns) * x.scale)) + 2 * int64(x.taps) + 2;
    // A border that wraps shows both ends of the window in one tile.
    const int64 columns_read = sample.after.border == WRAP ? window : min(line, window);
    const int64 tables = int64(rows) * (2 + y.taps) + int64(columns) * (2 + x.taps);
    return round_up(tables, layout.tables_multiple) + layout.lines * round_up(3 * columns_read, layout.line_multiple);
}

DEVICE int64 scratch_floats(const ScratchLayout& layout, const Sample& sample, int rows, int columns) {
    int64 floats = statistics_floats(layout, sample, rows, columns);
    if (sample.neighborhood == JPEG)
        floats += jpeg_floats(layout, rows, columns);
    else if (!sample.warped && sample.neighborhood <= SEPARABLE)
        floats += resizes_levels(sample) ? levels_floats(sample, rows, columns)
                                         : resampling_floats(layout, sample, rows, columns);
    return floats;
}
