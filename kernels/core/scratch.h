// What cuaug/devices/cuda.py must know before it launches a pass: how much scratch each block takes (core/augment.h,
// core/statistics.h, core/clahe.h and core/jpeg_compression.h say what it holds), and which of cuda/augment.cu's entry
// points can do it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace {

// A table for each channel, and what making it takes: core/statistics.h.
const int64_t TABLE = 3 * 256, MAKING = 3 * 16;

// Resampling: spans and weights of the tile's rows and columns, and lines of source pixels.
int64_t resampling_floats(const Sample& sample, int64_t rows, int64_t columns) {
    const Axis &y = sample.y, &x = sample.x;
    const int64_t window = int64_t(x.high) - x.low;
    const int64_t line = int64_t(std::ceil(double(columns) * x.scale)) + 2 * int64_t(x.taps) + 2;
    // A border that wraps shows both ends of the window in one tile.
    const int64_t shown = sample.border_after == WRAP ? window : std::min(line, window);
    const int64_t tables = rows * (2 + y.taps) + columns * (2 + x.taps);
    return (tables + 3) / 4 * 4 + CUDA_ROWS * ((3 * shown + 3) / 4 * 4);
}

int64_t jpeg_integers(int64_t rows, int64_t columns) {
    const auto plane = [](int64_t h, int64_t w) { return (h + 14) / 8 * ((w + 14) / 8); };
    return 64 * (plane(rows, columns) + 2 * plane(rows / 2 + 3, columns / 2 + 3));
}

// The tables of all cells between whose centres a tile may lie.
int64_t cells_floats(const Grid& grid, int64_t down, int64_t across) {
    const int64_t rows = std::min<int64_t>((down - 1) / std::max(grid.height, 1) + 3, grid.rows);
    const int64_t columns = std::min<int64_t>((across - 1) / std::max(grid.width, 1) + 3, grid.columns);
    return 4 + rows * columns * (TABLE / 4 + MAKING);
}

int64_t scratch_floats(const Sample& sample, int64_t rows, int64_t columns) {
    const bool gathers = sample.warped || sample.neighbourhood > SEPARABLE;
    int64_t floats = sample.neighbourhood == JPEG ? jpeg_integers(rows, columns)
                     : gathers                    ? 0
                                                  : resampling_floats(sample, rows, columns);
    if (sample.measured == HISTOGRAM) floats += TABLE + MAKING;
    if (sample.measured == CELL_HISTOGRAMS)
        floats +=
            cells_floats(sample.measured_grid, sample.transposed ? columns : rows, sample.transposed ? rows : columns);
    return floats + (sample.measure == HISTOGRAM ? TABLE : 0);
}

// Bytes that are resampled or moved, then scaled and erased.
bool is_simple(const Sample& sample, const Op* ops) {
    bool simple = sample.source_type == UINT8 && !sample.warped && sample.neighbourhood <= SEPARABLE &&
                  sample.measure == NOTHING && sample.measured == NOTHING;
    for (int i = sample.op_begin; i < sample.op_end; ++i)
        simple = simple && (ops[i].code == SCALE || ops[i].code == ERASE);
    return simple;
}

}  // namespace

extern "C" {

// Whether `resample` can do a pass of n samples; `ops` are those of all passes.
EXPORT int32_t cuaug_is_simple(const void* rows, int64_t n, const void* ops) {
    const Sample* const all = static_cast<const Sample*>(rows);
    const auto refuses = [&](const Sample& sample) {
        return sample.active && !is_simple(sample, static_cast<const Op*>(ops));
    };
    return std::none_of(all, all + n, refuses);
}

// The most that a tile of any of n samples needs, in words of 32 bits.
EXPORT int64_t cuaug_scratch_words(const void* rows, int64_t n, int32_t tile_rows, int32_t tile_columns) {
    const Sample* const all = static_cast<const Sample*>(rows);
    int64_t most = 0;
    for (int64_t i = 0; i < n; ++i) most = std::max(most, scratch_floats(all[i], tile_rows, tile_columns));
    return most;
}
}
