// The cells of a grid laid over the image: their histograms, and what contrast-limited adaptive histogram equalization
// (CLAHE) makes of them, as OpenCV does it.
//
// Where the grid does not divide the image, OpenCV mirrors the lower and right edge until it does. Nothing is mirrored
// here: a pixel counts once for each place of that larger image that would show it.
//
// Tested against cv2.createCLAHE and tests/references/statistics.py.
#pragma once
#include "sampling.h"

constexpr int CHUNKS = 16;  // of a channel's counts, summed by one thread each
constexpr int EACH = 256 / CHUNKS;
constexpr int COUNTS = 3 * 256;
// Scratch: which cells; then for each of them the level that each level of each channel becomes, a byte each; and the
// sums of the chunks.
constexpr int CELLS_FLOATS = 4, CELL_FLOATS = COUNTS / 4 + 3 * CHUNKS;

struct Tile {
    int y, x, rows, columns;
};

// Where the pixels of a strip stand in the finished image: pixel p at row y + p * dy, column x + p * dx.
struct Place {
    int y, x, dy, dx;
};

DEVICE Place place_of(const Sample& sample, int y, int x) {
    return sample.transposed ? Place{x, y, 1, 0} : Place{y, x, 0, 1};
}

// The nearest uint8 level, halves up.
DEVICE int level_of(float value, float scale) { return int(clamp(value * scale + 0.5f, 255.0f)); }

// The nearest whole number, halves to the even one.
DEVICE float to_even(float value) {
    const float low = floor_of(value), rest = value - low, half = 0.5f * low;
    return rest > 0.5f || (rest == 0.5f && half != floor_of(half)) ? low + 1.0f : low;
}

// --- counting --------------------------------------------------------------------------------------------------------

// The next place that shows the same pixel as `at`, in a row of `size` pixels that is mirrored at its last and first
// pixel without end.
DEVICE int mirrored(int at, int size) {
    const int period = size - 1, before = at < period ? 0 : period > 0 ? at / period : 0;
    return period > 0 ? 2 * (before + 1) * period - at : at + 1;
}

// Counts a tile's pixels, which have just been stored for the next pass; counts: [grid.rows, grid.columns, 3, 256].
DEVICE void count_cells(const Block& block, const Sample& sample, const Tile& tile, uint32* counts) {
    const Grid& grid = sample.grid;
    const int height = sample.transposed ? sample.x.out : sample.y.out;
    const int width = sample.transposed ? sample.y.out : sample.x.out;
    const float* stored = reinterpret_cast<const float*>(sample.target);
    for (int i = block.thread; i < tile.rows * tile.columns; i += block.threads) {
        const Place at = place_of(sample, tile.y + i / tile.columns, tile.x + i % tile.columns);
        const float* pixel = stored + (int64(at.y) * width + at.x) * 3;
        int levels[3];
        for (int c = 0; c < 3; ++c) levels[c] = 256 * c + level_of(pixel[c], sample.measure_scale);
        for (int y = at.y; y < grid.rows * grid.height; y = mirrored(y, height)) {
            uint32* row = counts + int64(y / grid.height) * grid.columns * COUNTS;
            for (int x = at.x; x < grid.columns * grid.width; x = mirrored(x, width))
                for (int c = 0; c < 3; ++c) count_one(&row[x / grid.width * COUNTS + levels[c]]);
        }
    }
}

// --- using -----------------------------------------------------------------------------------------------------------

// The cells that a tile's pixels lie between.
struct Cells {
    int row, column, rows, columns;
};

// Between which two cells' centres a pixel lies along an axis, and how far it is from the first to the second.
struct Between {
    int low, high;
    float share;
};

DEVICE Between between(int at, int size, int count) {
    const float place = float(at) * (1.0f / float(size)) - 0.5f, low = floor_of(place);
    return {larger(int(low), 0), smaller(int(low) + 1, count - 1), place - low};
}

DEVICE Cells cells_of(const Sample& sample, const Tile& tile) {
    const Grid& grid = sample.measured_grid;
    const Place first = place_of(sample, tile.y, tile.x);
    const Place last = place_of(sample, tile.y + tile.rows - 1, tile.x + tile.columns - 1);
    const int row = between(first.y, grid.height, grid.rows).low;
    const int column = between(first.x, grid.width, grid.columns).low;
    return {row, column, between(last.y, grid.height, grid.rows).high + 1 - row,
            between(last.x, grid.width, grid.columns).high + 1 - column};
}

DEVICE int cells_floats(const Sample& sample, const Tile& tile) {
    const Cells cells = cells_of(sample, tile);
    return CELLS_FLOATS + cells.rows * cells.columns * CELL_FLOATS;
}

// The tables of a tile's cells from their counts, [grid.rows, grid.columns, 3, 256]. What exceeds `most` in a count is
// spread over all levels; a level becomes the part of the cell's pixels that are not brighter, times `scale`.
DEVICE void make_cells(const Block& block, const Sample& sample, const Tile& tile, const uint32* counts, float limit,
                       float scale, float* scratch) {
    const Cells cells = cells_of(sample, tile);
    if (block.thread == 0) *reinterpret_cast<Cells*>(scratch) = cells;
    scratch += CELLS_FLOATS;
    const Grid& grid = sample.measured_grid;
    const int chunks = cells.rows * cells.columns * 3 * CHUNKS, area = grid.height * grid.width, most = int(limit);
    uint8* tables = reinterpret_cast<uint8*>(scratch);
    int* sums = reinterpret_cast<int*>(scratch + int64(cells.rows) * cells.columns * (COUNTS / 4));
    for (int phase = 0; phase < 2; ++phase) {
        for (int i = block.thread; i < chunks; i += block.threads) {
            const int cell = i / (3 * CHUNKS), channel = i / CHUNKS % 3, chunk = i % CHUNKS;
            const int row = cells.row + cell / cells.columns, column = cells.column + cell % cells.columns;
            const uint32* own = counts + (int64(row) * grid.columns + column) * COUNTS + 256 * channel + EACH * chunk;
            if (phase == 0) {
                sums[i] = 0;
                for (int k = 0; k < EACH; ++k) sums[i] += smaller(int(own[k]), most);
                continue;
            }
            int kept = 0, darker = 0;
            for (int k = 0; k < CHUNKS; ++k) {
                const int sum = sums[i - chunk + k];
                kept += sum;
                darker += k < chunk ? sum : 0;
            }
            // Each level gets an equal share of the excess, and so many more, `apart` from one another, one of the
            // rest.
            const int excess = area - kept, share = excess / 256, rest = excess % 256;
            const int apart = rest > 0 ? 256 / rest : 1;
            for (int k = 0; k < EACH; ++k) {
                const int level = chunk * EACH + k;
                darker += smaller(int(own[k]), most);
                const int sum = darker + share * (level + 1) + smaller(level / apart + 1, rest);
                tables[256 * (3 * cell + channel) + level] = uint8(smaller(to_even(float(sum) * scale), 255.0f));
            }
        }
        if (phase == 0) block.sync();
    }
}
