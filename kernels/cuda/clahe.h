// Computes: the CUDA half of core/clahe.h: histograms of grid cells, and tables looked up in four cells.
// Threads:  one pixel per thread.
// Reference: core/clahe.h.
// Tests:    tests/kernels/test_scratch.py, tests/cuda/test_kernels.py.
#pragma once
#include "core/clahe.h"

// Counts the pixels of a tile that this pass has stored. counts: [grid.rows, grid.columns, C, 256]
DEVICE void count_cell_histograms(const Block& block, const Sample& sample, const Tile& tile, uint32* counts) {
    const Grid& grid = sample.measure.grid;
    const int height = sample.transposed ? sample.x.out : sample.y.out;
    const int width = sample.transposed ? sample.y.out : sample.x.out;
    const float* stored = reinterpret_cast<const float*>(sample.target.address);
    for (int i = block.thread; i < tile.rows * tile.columns; i += block.threads) {
        const Place at = place_of(sample, tile.y + i / tile.columns, tile.x + i % tile.columns);
        const float* pixel = stored + (int64(at.y) * width + at.x) * 3;
        int levels[3];
        for (int c = 0; c < 3; ++c) levels[c] = 256 * c + to_level(pixel[c], sample.measure_scale);
        for (int y = at.y; y < grid.rows * grid.height; y = next_mirrored(y, height)) {
            uint32* row = counts + int64(y / grid.height) * grid.columns * COUNTS;
            for (int x = at.x; x < grid.columns * grid.width; x = next_mirrored(x, width))
                for (int c = 0; c < 3; ++c) increment(&row[x / grid.width * COUNTS + levels[c]]);
        }
    }
}

DEVICE void make_joint_tables(const Block&, const CellRange&, float*) {}

// v[c] = its level between the tables of four cells, times `unit`.
DEVICE void look_up_cells(const CellRange& cells, const float* tables, const int* y, const int* x, const float* below,
                          const float* right, float scale, float unit, PixelBlock& v) {
    UNROLL
    for (int c = 0; c < 3; ++c) {
        const uint8* const bytes = reinterpret_cast<const uint8*>(tables) + 256 * c + to_level(v[c][0], scale);
        const int top = max(*y - 1, 0) * cells.columns, bottom = min(*y, cells.rows - 1) * cells.columns;
        const int left = max(*x - 1, 0), beside = min(*x, cells.columns - 1);
        const float corners[4] = {float(bytes[COUNTS * (top + left)]), float(bytes[COUNTS * (top + beside)]),
                                  float(bytes[COUNTS * (bottom + left)]), float(bytes[COUNTS * (bottom + beside)])};
        v[c][0] = blend_levels(corners, *below, *right) * unit;
    }
}
