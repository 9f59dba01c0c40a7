// Computes: the CPU half of core/clahe.h: histograms of grid cells, and look-ups in joint tables.
// Threads:  one thread per tile; PIXELS pixels at a time.
// Reference: core/clahe.h.
// Tests:    tests/properties/test_statistics.py.
#pragma once
#include "core/clahe.h"

constexpr int MAX_COUNTED = 8 * PIXELS;  // pixels of a row that are counted together

// The levels of `count` values; floats are converted into `buffer`.
DEVICE const uint8* levels_of(const uint8* values, int, float, uint8*) { return values; }
DEVICE const uint8* levels_of(const float* values, int count, float scale, uint8* buffer) {
    float scaled[3 * MAX_COUNTED];
    for (int i = 0; i < count; ++i) scaled[i] = values[i] * scale;
    const int end = (count + PIXELS - 1) / PIXELS * PIXELS;
    for (int i = count; i < end; ++i) scaled[i] = 0.0f;
    for (int i = 0; i < end; i += PIXELS) to_bytes(scaled + i, buffer + i);
    return buffer;
}

// Counts the pixels of columns x ... x + pixels - 1; `row` holds the histograms of a row of cells.
DEVICE void count_pixels(const Grid& grid, int width, int x, int pixels, const uint8* levels, uint32* row) {
    const int end = x + pixels, padded_width = grid.columns * grid.width;
    const uint8* level = levels;
    for (int at = x; at < end;) {
        const int cell = at / grid.width, stop = min(end, (cell + 1) * grid.width);
        uint32* const counts = row + cell * COUNTS;
        for (; at < stop; ++at, level += 3)  // channels alternate, so an increment does not wait for the last one
            for (int c = 0; c < 3; ++c) increment(&counts[256 * c + level[c]]);
    }
    for (int i = max(x, 2 * width - 1 - padded_width); i < end; ++i)  // columns that mirroring repeats
        for (int at = next_mirrored(i, width); at < padded_width; at = next_mirrored(at, width))
            for (int c = 0; c < 3; ++c) increment(&row[at / grid.width * COUNTS + 256 * c + levels[3 * (i - x) + c]]);
}

// image: the finished image, whose rows begin `pitch` bytes apart.
template <class T>
DEVICE void count_rows(const Block& block, const Sample& sample, const Tile& tile, const void* image, int64 pitch,
                       uint32* counts) {
    const Grid& grid = sample.measure.grid;
    const Place first = place_of(sample, tile.y, tile.x);
    const int height = sample.transposed ? sample.x.out : sample.y.out;
    const int width = sample.transposed ? sample.y.out : sample.x.out;
    const int rows = sample.transposed ? tile.columns : tile.rows;
    const int columns = sample.transposed ? tile.rows : tile.columns;
    uint8 buffer[3 * MAX_COUNTED];
    for (int i = block.thread; i < rows; i += block.threads) {
        const T* values = reinterpret_cast<const T*>(static_cast<const uint8*>(image) + (first.y + i) * pitch);
        for (int x = first.x; x < first.x + columns; x += MAX_COUNTED) {
            const int pixels = min(MAX_COUNTED, first.x + columns - x);
            const uint8* levels = levels_of(values + 3 * int64(x), 3 * pixels, sample.measure_scale, buffer);
            for (int y = first.y + i; y < grid.rows * grid.height; y = next_mirrored(y, height))
                count_pixels(grid, width, x, pixels, levels, counts + int64(y / grid.height) * grid.columns * COUNTS);
        }
    }
}

DEVICE const uint8* copied_source(const Sample& sample);

// Counts the pixels of a tile, which this pass has stored or which lie in its source. counts: [grid.rows, grid.columns,
// C, 256]
DEVICE void count_cell_histograms(const Block& block, const Sample& sample, const Tile& tile, uint32* counts) {
    const int64 width = sample.transposed ? sample.y.out : sample.x.out;
    const void* const target = reinterpret_cast<const void*>(sample.target.address);
    if (sample.target.address == 0)
        count_rows<uint8>(block, sample, tile, copied_source(sample), sample.source.pitch, counts);
    else if (sample.target.type == UINT8)
        count_rows<uint8>(block, sample, tile, target, 3 * width, counts);
    else
        count_rows<float>(block, sample, tile, target, 3 * width * int64(sizeof(float)), counts);
}

// Packs, for each group of four neighboring cells and each level, the four table entries into a word, which one load
// finds. Groups lie between two cells, and before the first and after the last. Writes [rows + 1, columns + 1, C, 256]
// words after the tables.
DEVICE void make_joint_tables(const Block& block, const CellRange& cells, float* scratch) {
    block.sync();
    const uint8* const tables = reinterpret_cast<const uint8*>(scratch);
    float* const joint = scratch + cell_table_floats(cells);
    for (int i = block.thread; i < (cells.rows + 1) * (cells.columns + 1); i += block.threads) {
        const int y = i / (cells.columns + 1), x = i % (cells.columns + 1);
        const int top = max(y - 1, 0) * cells.columns, bottom = min(y, cells.rows - 1) * cells.columns;
        const int left = max(x - 1, 0), right = min(x, cells.columns - 1);
        const uint8* const corners[4] = {tables + COUNTS * (top + left), tables + COUNTS * (top + right),
                                         tables + COUNTS * (bottom + left), tables + COUNTS * (bottom + right)};
        for (int level = 0; level < COUNTS; level += PIXELS) {
            int words[PIXELS];
            for (int p = 0; p < PIXELS; ++p)
                words[p] = int(uint32(corners[0][level + p]) | uint32(corners[1][level + p]) << 8 |
                               uint32(corners[2][level + p]) << 16 | uint32(corners[3][level + p]) << 24);
            memcpy(joint + i * COUNTS + level, words, sizeof words);
        }
    }
}

// v[c][p] = its level between the tables of four cells, times `unit`.
DEVICE void look_up_cells(const CellRange& cells, const float* tables, const int* y, const int* x, const float* below,
                          const float* right, float scale, float unit, PixelBlock& v) {
    const float* const joint = tables + cell_table_floats(cells);
    int groups[PIXELS], levels[PIXELS], words[PIXELS];
    FOR_PIXELS(p) groups[p] = COUNTS * (y[p] * (cells.columns + 1) + x[p]);
    for (int c = 0; c < 3; ++c) {
        for (int p = 0; p < PIXELS; p += VEC32_LANES) {
            const Vec32<float> value = load_vec32(&v[c][p]) * scale + 0.5f;  // as to_level
            const Vec32<int> level = to_int(min(max(value, splat32(0.0f)), splat32(255.0f)));
            store(levels + p, load_vec32(groups + p) + level + 256 * c);
        }
        FOR_PIXELS(p) words[p] = load<int>(joint + levels[p]);
        for (int p = 0; p < PIXELS; p += VEC32_LANES) {
            const Vec32<int> word = load_vec32(words + p);
            const Vec32<float> corners[4] = {to_float(word & 255), to_float(word >> 8 & 255),
                                             to_float(word >> 16 & 255), to_float(word >> 24 & 255)};
            const Vec32<float> level = blend_levels(corners, load_vec32(below + p), load_vec32(right + p));
            store(&v[c][p], level * unit);
        }
    }
}
