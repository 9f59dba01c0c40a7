// The cells of a grid laid over the image: their histograms, and what contrast-limited adaptive histogram equalization
// (CLAHE) makes of them, as OpenCV does it.
//
// Where the grid does not divide the image, OpenCV mirrors the lower and right edge until it does. Nothing is mirrored
// here: a pixel counts once for each place of that larger image that would show it.
//
// Tested against cv2.createCLAHE and tests/references/statistics.py.
#pragma once
#include "core/sampling.h"

constexpr int CHUNKS = 16;  // of a channel's counts, summed by one thread each
constexpr int EACH = 256 / CHUNKS;
constexpr int COUNTS = 3 * 256;
// Scratch: which cells; then for each of them the level that each level of each channel becomes, a byte each; and the
// sums of the chunks.
constexpr int CELLS_FLOATS = 4, CELL_FLOATS = COUNTS / 4 + 3 * CHUNKS;

// Where the pixels of a strip stand in the finished image: pixel p at row y + p * dy, column x + p * dx.
struct Place {
    int y, x, dy, dx;
};

DEVICE Place place_of(const Sample& sample, int y, int x) {
    return sample.transposed ? Place{x, y, 1, 0} : Place{y, x, 0, 1};
}

// The nearest uint8 level, halves up.
DEVICE int level_of(float value, float scale) { return int(clamp(value * scale + 0.5f, 255.0f)); }

// The whole number nearest to a value that is not negative, halves to the even one.
DEVICE Many<int> to_even(Many<float> value) {
    const Many<int> low = to_ints(value);
    const Many<float> rest = value - to_floats(low);
    const auto up = (rest > 0.5f) | ((rest == 0.5f) & ((low & 1) == 1));
    return up ? low + 1 : low;
}

// --- counting --------------------------------------------------------------------------------------------------------

// The next place that shows the same pixel as `at`, in a row of `size` pixels that is mirrored at its last and first
// pixel without end.
DEVICE int mirrored(int at, int size) {
    const int period = size - 1, before = at < period ? 0 : period > 0 ? at / period : 0;
    return period > 0 ? 2 * (before + 1) * period - at : at + 1;
}

#if defined(__CUDACC__)

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

#else

constexpr int COUNTED = 8 * PIXELS;  // so many pixels of a row are counted together

// The levels of `count` values, in `buffer` if they are none yet.
DEVICE const uint8* levels_of(const uint8* values, int, float, uint8*) { return values; }
DEVICE const uint8* levels_of(const float* values, int count, float scale, uint8* buffer) {
    float scaled[3 * COUNTED];
    for (int i = 0; i < count; ++i) scaled[i] = values[i] * scale;
    const int end = (count + PIXELS - 1) / PIXELS * PIXELS;
    for (int i = count; i < end; ++i) scaled[i] = 0.0f;
    for (int i = 0; i < end; i += PIXELS) to_bytes(scaled + i, buffer + i);
    return buffer;
}

// Counts the pixels of columns x ... x + pixels - 1, where a row of cells begins at `row`.
DEVICE void count_run(const Grid& grid, int width, int x, int pixels, const uint8* levels, uint32* row) {
    const int end = x + pixels, all = grid.columns * grid.width;
    const uint8* level = levels;
    for (int at = x; at < end;) {
        const int cell = at / grid.width, stop = smaller(end, (cell + 1) * grid.width);
        uint32* const counts = row + cell * COUNTS;
        for (; at < stop; ++at, level += 3)  // channels in turn: what was just counted need not be waited for
            for (int c = 0; c < 3; ++c) count_one(&counts[256 * c + level[c]]);
    }
    for (int i = larger(x, 2 * width - 1 - all); i < end; ++i)  // those that are mirrored into the cells
        for (int at = mirrored(i, width); at < all; at = mirrored(at, width))
            for (int c = 0; c < 3; ++c) count_one(&row[at / grid.width * COUNTS + 256 * c + levels[3 * (i - x) + c]]);
}

// `image`: the finished image, of rows `pitch` bytes apart.
template <class T>
DEVICE void count_rows(const Block& block, const Sample& sample, const Tile& tile, const void* image, int64 pitch,
                       uint32* counts) {
    const Grid& grid = sample.grid;
    const Place first = place_of(sample, tile.y, tile.x);
    const int height = sample.transposed ? sample.x.out : sample.y.out;
    const int width = sample.transposed ? sample.y.out : sample.x.out;
    const int rows = sample.transposed ? tile.columns : tile.rows;
    const int columns = sample.transposed ? tile.rows : tile.columns;
    uint8 buffer[3 * COUNTED];
    for (int i = block.thread; i < rows; i += block.threads) {
        const T* values = reinterpret_cast<const T*>(static_cast<const uint8*>(image) + (first.y + i) * pitch);
        for (int x = first.x; x < first.x + columns; x += COUNTED) {
            const int pixels = smaller(COUNTED, first.x + columns - x);
            const uint8* levels = levels_of(values + 3 * int64(x), 3 * pixels, sample.measure_scale, buffer);
            for (int y = first.y + i; y < grid.rows * grid.height; y = mirrored(y, height))
                count_run(grid, width, x, pixels, levels, counts + int64(y / grid.height) * grid.columns * COUNTS);
        }
    }
}

DEVICE const uint8* in_place(const Sample& sample);

// Counts a tile's pixels, which have just been stored for the next pass, or lie in its source; counts: [grid.rows,
// grid.columns, 3, 256].
DEVICE void count_cells(const Block& block, const Sample& sample, const Tile& tile, uint32* counts) {
    const int64 width = sample.transposed ? sample.y.out : sample.x.out;
    const void* const target = reinterpret_cast<const void*>(sample.target);
    if (sample.target == 0)
        count_rows<uint8>(block, sample, tile, in_place(sample), sample.pitch, counts);
    else if (sample.target_type == UINT8)
        count_rows<uint8>(block, sample, tile, target, 3 * width, counts);
    else
        count_rows<float>(block, sample, tile, target, 3 * width * int64(sizeof(float)), counts);
}

#endif

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

// Floats of the cells' own tables, and of what making them takes.
DEVICE int own_floats(const Cells& cells) { return cells.rows * cells.columns * CELL_FLOATS; }

#if defined(__CUDACC__)

DEVICE int joint_floats(const Cells&) { return 0; }

#else

// The host has tables of places besides, [rows + 1, columns + 1, 3, 256]: what a level becomes in the four cells around
// a place, a byte each, to be looked up at once. Places lie between any two cells, and beside the first and the last.
DEVICE int joint_floats(const Cells& cells) { return (cells.rows + 1) * (cells.columns + 1) * COUNTS; }

DEVICE void join_tables(const Block& block, const Cells& cells, float* scratch) {
    const uint8* const tables = reinterpret_cast<const uint8*>(scratch);
    float* const joint = scratch + own_floats(cells);
    for (int i = block.thread; i < (cells.rows + 1) * (cells.columns + 1); i += block.threads) {
        const int y = i / (cells.columns + 1), x = i % (cells.columns + 1);
        const int top = larger(y - 1, 0) * cells.columns, bottom = smaller(y, cells.rows - 1) * cells.columns;
        const int left = larger(x - 1, 0), right = smaller(x, cells.columns - 1);
        const uint8* const around[4] = {tables + COUNTS * (top + left), tables + COUNTS * (top + right),
                                        tables + COUNTS * (bottom + left), tables + COUNTS * (bottom + right)};
        for (int level = 0; level < COUNTS; level += PIXELS) {
            int words[PIXELS];
            for (int p = 0; p < PIXELS; ++p)
                words[p] = int(uint32(around[0][level + p]) | uint32(around[1][level + p]) << 8 |
                               uint32(around[2][level + p]) << 16 | uint32(around[3][level + p]) << 24);
            memcpy(joint + i * COUNTS + level, words, sizeof words);
        }
    }
}

#endif

DEVICE int cells_floats(const Sample& sample, const Tile& tile) {
    const Cells cells = cells_of(sample, tile);
    return CELLS_FLOATS + own_floats(cells) + joint_floats(cells);
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
    const uint32* const first = counts + (int64(cells.row) * grid.columns + cells.column) * COUNTS;
    uint8* tables = reinterpret_cast<uint8*>(scratch);
    int* sums = reinterpret_cast<int*>(scratch + int64(cells.rows) * cells.columns * (COUNTS / 4));
    for (int phase = 0; phase < 2; ++phase) {
        for (int i = block.thread; i < chunks; i += block.threads) {
            const int cell = i / (3 * CHUNKS), channel = i / CHUNKS % 3, chunk = i % CHUNKS;
            // A tile as wide as the image has all cells of a row.
            const int beyond =
                cells.columns == grid.columns ? 0 : cell / cells.columns * (grid.columns - cells.columns);
            const uint32* own = first + int64(cell + beyond) * COUNTS + 256 * channel + EACH * chunk;
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
            // rest. Half a level keeps the quotient away from whole numbers, so that it can be a product.
            const int excess = area - kept, share = excess / 256, rest = excess % 256;
            const float per = 1.0f / float(int(256.0f / float(larger(rest, 1))));
            int values[EACH], levels[EACH];
            UNROLL
            for (int k = 0; k < EACH; ++k) {
                levels[k] = EACH * chunk + k;
                values[k] = darker += smaller(int(own[k]), most);
            }
            UNROLL
            for (int k = 0; k < EACH; k += MANY) {
                const Many<int> level = load_many(&levels[k]);
                const Many<int> more = to_ints((to_floats(level) + 0.5f) * per) + 1;
                const Many<int> sum = load_many(&values[k]) + share * (level + 1) + (more < rest ? more : all_of(rest));
                store_many(&values[k], to_even(to_floats(sum) * scale));
            }
            UNROLL
            for (int k = 0; k < EACH; ++k)
                tables[256 * (3 * cell + channel) + EACH * chunk + k] = uint8(smaller(values[k], 255));
        }
        if (phase == 0) block.sync();
    }
#if !defined(__CUDACC__)
    block.sync();
    join_tables(block, cells, scratch);
#endif
}

// Where the pixels of a strip lie among the cells along an axis: between which, in places from that before cell
// `first` on, and the share of the one behind. Beyond a tile's end they are nobody's.
DEVICE void between_cells(int at, int step, int size, int first, int count, int* places, float* shares) {
    const float per = 1.0f / float(size);
    FOR_PIXELS(p) {
        const float place = float(at + p * step) * per - 0.5f, low = floor_of(place);
        places[p] = smaller(int(low) + 1 - first, count);
        shares[p] = place - low;
    }
}

// What lies between the values of four cells: upper left, upper right, lower left, lower right. OpenCV rounds halves to
// even and core/store.h rounds them up: those that would differ are moved out of the way.
DEVICE Many<float> level_between(const Many<float>* found, Many<float> below, Many<float> right) {
    const Many<float> upper = found[0] * (1.0f - right) + found[1] * right;
    const Many<float> lower = found[2] * (1.0f - right) + found[3] * right;
    const Many<float> level = upper * (1.0f - below) + lower * below;
    const Many<int> whole = to_ints(level);
    const auto tie = (level - to_floats(whole) == 0.5f) & ((whole & 1) == 0);
    return tie ? level - 1.0f / 1024 : level;
}

#if defined(__CUDACC__)

// The values of the four cells around a place, of level `level` of all channels.
DEVICE void look_up(const Cells& cells, const float* tables, int y, int x, int level, float* found) {
    const uint8* const bytes = reinterpret_cast<const uint8*>(tables) + level;
    const int top = larger(y - 1, 0), bottom = smaller(y, cells.rows - 1);
    const int left = larger(x - 1, 0), right = smaller(x, cells.columns - 1);
    found[0] = float(bytes[COUNTS * (top * cells.columns + left)]);
    found[1] = float(bytes[COUNTS * (top * cells.columns + right)]);
    found[2] = float(bytes[COUNTS * (bottom * cells.columns + left)]);
    found[3] = float(bytes[COUNTS * (bottom * cells.columns + right)]);
}

#endif

DEVICE void clahe(const Op& op, const Sample& sample, const float* scratch, Place at, Strip& v) {
    const Grid& grid = sample.measured_grid;
    const Cells& cells = *reinterpret_cast<const Cells*>(scratch);
    const float* const tables = scratch + CELLS_FLOATS;
    const float scale = op.a[0], unit = op.a[1];
    int y[PIXELS], x[PIXELS];
    float below[PIXELS], right[PIXELS];
    between_cells(at.y, at.dy, grid.height, cells.row, cells.rows, y, below);
    between_cells(at.x, at.dx, grid.width, cells.column, cells.columns, x, right);
#if defined(__CUDACC__)
    UNROLL
    for (int c = 0; c < 3; ++c) {
        float found[4];
        look_up(cells, tables, y[0], x[0], 256 * c + level_of(v[c][0], scale), found);
        v[c][0] = level_between(found, below[0], right[0]) * unit;
    }
#else
    const float* const joint = tables + own_floats(cells);
    int places[PIXELS], levels[PIXELS], words[PIXELS];
    FOR_PIXELS(p) places[p] = COUNTS * (y[p] * (cells.columns + 1) + x[p]);
    for (int c = 0; c < 3; ++c) {
        for (int p = 0; p < PIXELS; p += MANY) {
            const Many<float> value = load_many(&v[c][p]) * scale + 0.5f;  // as level_of
            const Many<int> level = to_ints(smaller(larger(value, all_of(0.0f)), all_of(255.0f)));
            store_many(levels + p, load_many(places + p) + level + 256 * c);
        }
        FOR_PIXELS(p) words[p] = load<int>(joint + levels[p]);
        for (int p = 0; p < PIXELS; p += MANY) {
            const Many<int> word = load_many(words + p);
            const Many<float> found[4] = {to_floats(word & 255), to_floats(word >> 8 & 255),
                                          to_floats(word >> 16 & 255), to_floats(word >> 24 & 255)};
            const Many<float> level = level_between(found, load_many(below + p), load_many(right + p));
            store_many(&v[c][p], level * unit);
        }
    }
#endif
}
