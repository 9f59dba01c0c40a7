// Computes: contrast-limited adaptive histogram equalization (CLAHE) as OpenCV does it: a grid of cells over the image,
//           a histogram and a look-up table per cell and channel, and per pixel the blend of the four nearest tables.
//           Where the grid does not divide the image, OpenCV mirrors the lower and right edges until it does. Here a
//           pixel counts once for each place of that larger image that shows it.
// Threads:  counting and blending: one pixel block per thread. Tables: one thread per cell, channel and chunk.
// Reference: Zuiderveld, "Contrast limited adaptive histogram equalization", Graphics Gems IV,
//           1994; OpenCV's clahe.cpp.
// Tests:    tests/properties/test_statistics.py against cv2.createCLAHE and tests/references/statistics.py.
#pragma once
#include "core/pixel_block.h"
#include "core/scratch.h"

// Rounds a value >= 0 to nearest, halves to even.
DEVICE Vec32<int> round_to_even(Vec32<float> value) {
    const Vec32<int> low = to_int(value);
    const Vec32<float> remainder = value - to_float(low);
    const auto up = (remainder > 0.5f) | ((remainder == 0.5f) & ((low & 1) == 1));
    return up ? low + 1 : low;
}

// The next index that shows the same pixel as `at`, in a row of `size` pixels that mirrors at its first and last pixel
// without end.
DEVICE int next_mirrored(int at, int size) {
    const int period = size - 1, before = at < period ? 0 : period > 0 ? at / period : 0;
    return period > 0 ? 2 * (before + 1) * period - at : at + 1;
}

// The grid cells whose centers surround a tile's pixels.
struct CellRange {
    int row, column, rows, columns;
};

// The two cells around a pixel along an axis, and the pixel's fraction of the way from the first center to the second.
struct CellPosition {
    int low, high;
    float quota;
};

DEVICE CellPosition cell_position(int at, int size, int count) {
    const float position = float(at) * (1.0f / float(size)) - 0.5f, low = floor(position);
    return {max(int(low), 0), min(int(low) + 1, count - 1), position - low};
}

DEVICE CellRange cell_range(const Sample& sample, const Tile& tile) {
    const Grid& grid = sample.measured.grid;
    const Place first = place_of(sample, tile.y, tile.x);
    const Place last = place_of(sample, tile.y + tile.rows - 1, tile.x + tile.columns - 1);
    const int row = cell_position(first.y, grid.height, grid.rows).low;
    const int column = cell_position(first.x, grid.width, grid.columns).low;
    return {row, column, cell_position(last.y, grid.height, grid.rows).high + 1 - row,
            cell_position(last.x, grid.width, grid.columns).high + 1 - column};
}

// Floats of the tables, and of the sums that making them needs.
DEVICE int cell_table_floats(const CellRange& cells) { return cells.rows * cells.columns * CELL_FLOATS; }

// The bilinear blend of four cells: upper left, upper right, lower left, lower right. OpenCV rounds halves to even,
// core/store.h rounds them up: a tie that would differ moves down a little.
DEVICE Vec32<float> blend_levels(const Vec32<float>* corners, Vec32<float> below, Vec32<float> right) {
    const Vec32<float> upper = corners[0] * (1.0f - right) + corners[1] * right;
    const Vec32<float> lower = corners[2] * (1.0f - right) + corners[3] * right;
    const Vec32<float> level = upper * (1.0f - below) + lower * below;
    const Vec32<int> whole = to_int(level);
    const auto tie = (level - to_float(whole) == 0.5f) & ((whole & 1) == 0);
    return tie ? level - 1.0f / 1024 : level;
}

// cpu/clahe.h and cuda/clahe.h define these three.
DEVICE void count_cell_histograms(const Block& block, const Sample& sample, const Tile& tile, uint32* counts);
DEVICE void make_joint_tables(const Block& block, const CellRange& cells, float* scratch);
DEVICE void look_up_cells(const CellRange& cells, const float* tables, const int* y, const int* x, const float* below,
                          const float* right, float scale, float unit, PixelBlock& v);

// Writes the tables of a tile's cells. counts: [grid.rows, grid.columns, C, 256]. Counts above `limit` are clipped, and
// the excess is spread over all levels; a level's entry is the cumulative count times `scale`.
DEVICE void make_clahe_tables(const Block& block, const Sample& sample, const Tile& tile, const uint32* counts,
                              float limit, float scale, float* scratch) {
    const CellRange cells = cell_range(sample, tile);
    if (block.thread == 0) *reinterpret_cast<CellRange*>(scratch) = cells;
    scratch += CELL_RANGE_FLOATS;
    const Grid& grid = sample.measured.grid;
    const int chunks = cells.rows * cells.columns * 3 * CHUNKS, area = grid.height * grid.width, max_count = int(limit);
    const uint32* const first = counts + (int64(cells.row) * grid.columns + cells.column) * COUNTS;
    uint8* tables = reinterpret_cast<uint8*>(scratch);
    int* sums = reinterpret_cast<int*>(scratch + int64(cells.rows) * cells.columns * (COUNTS / 4));
    for (int phase = 0; phase < 2; ++phase) {
        for (int i = block.thread; i < chunks; i += block.threads) {
            const int cell = i / (3 * CHUNKS), channel = i / CHUNKS % 3, chunk = i % CHUNKS;
            // A tile as wide as the image contains all cells of a row.
            const int skipped =
                cells.columns == grid.columns ? 0 : cell / cells.columns * (grid.columns - cells.columns);
            const uint32* histogram = first + int64(cell + skipped) * COUNTS + 256 * channel + CHUNK_LEVELS * chunk;
            if (phase == 0) {
                sums[i] = 0;
                for (int k = 0; k < CHUNK_LEVELS; ++k) sums[i] += min(int(histogram[k]), max_count);
                continue;
            }
            int clipped = 0, darker = 0;
            for (int k = 0; k < CHUNKS; ++k) {
                const int sum = sums[i - chunk + k];
                clipped += sum;
                darker += k < chunk ? sum : 0;
            }
            // Each level gets excess / 256; the remainder goes to levels at equal steps, one each. Half a level keeps
            // the quotient away from integers, so a product replaces the division.
            const int excess = area - clipped, quota = excess / 256, remainder = excess % 256;
            const float per = 1.0f / float(int(256.0f / float(max(remainder, 1))));
            int values[CHUNK_LEVELS], levels[CHUNK_LEVELS];
            UNROLL
            for (int k = 0; k < CHUNK_LEVELS; ++k) {
                levels[k] = CHUNK_LEVELS * chunk + k;
                values[k] = darker += min(int(histogram[k]), max_count);
            }
            UNROLL
            for (int k = 0; k < CHUNK_LEVELS; k += VEC32_LANES) {
                const Vec32<int> level = load_vec32(&levels[k]);
                const Vec32<int> more = to_int((to_float(level) + 0.5f) * per) + 1;
                const Vec32<int> sum =
                    load_vec32(&values[k]) + quota * (level + 1) + (more < remainder ? more : splat32(remainder));
                store(&values[k], round_to_even(to_float(sum) * scale));
            }
            UNROLL
            for (int k = 0; k < CHUNK_LEVELS; ++k)
                tables[256 * (3 * cell + channel) + CHUNK_LEVELS * chunk + k] = uint8(min(values[k], 255));
        }
        if (phase == 0) block.sync();
    }
    make_joint_tables(block, cells, scratch);
}

// For each pixel of a block, the index of the cell pair around it, counted from the one before cell `first`, and the
// fraction. Entries past the tile's end are unused.
DEVICE void cell_positions(int at, int step, int size, int first, int count, int* pairs, float* fractions) {
    const float per = 1.0f / float(size);
    FOR_PIXELS(p) {
        const float position = float(at + p * step) * per - 0.5f, low = floor(position);
        pairs[p] = min(int(low) + 1 - first, count);
        fractions[p] = position - low;
    }
}

DEVICE void clahe(const Op& op, const Sample& sample, const float* scratch, Place at, PixelBlock& v) {
    const Grid& grid = sample.measured.grid;
    const CellRange& cells = *reinterpret_cast<const CellRange*>(scratch);
    int y[PIXELS], x[PIXELS];
    float below[PIXELS], right[PIXELS];
    cell_positions(at.y, at.dy, grid.height, cells.row, cells.rows, y, below);
    cell_positions(at.x, at.dx, grid.width, cells.column, cells.columns, x, right);
    look_up_cells(cells, scratch + CELL_RANGE_FLOATS, y, x, below, right, op.a[0], op.a[1], v);
}
