// Computes: Pillow's resize of a tile of uint8 levels: sums of integers along one axis, rounded to levels, then along
//           the other. The planner gives each output row and column its source pixels and weights
//           (planner/pillow_weights.h); floats and borders are rounded to levels first.
// Threads:  spans: one per thread; sums: cpu/pillow_resize.h and cuda/pillow_resize.h; then a pixel block of ROWS rows
//           per thread.
// Reference: Pillow's Resample.c.
// Tests:    tests/properties/test_pillow.py, tests/kernels/test_scratch.py.
#pragma once
#include "core/resample.h"

// The source span of one output index, and where its weights begin among the sample's.
struct LevelSpan {
    int first, count, weights;
};

// Rows of packed uint8 pixels.
struct LevelRows {
    uint8* first;
    int64 pitch;  // bytes
};

// A sum of weights and levels as a level.
DEVICE int sum_to_level(int sum) { return clamp(descale<WEIGHT_BITS>(sum), 0, 255); }

// cpu/pillow_resize.h and cuda/pillow_resize.h define these two. All spans have one length, but empty
// ones, whose values in `to` mean nothing.
//   sum_down    `values` values of each row of `to`, over its span of the rows of `from`, which begin at first_row
//   sum_across  pixels of each of `rows` rows of `to`, over their spans of columns of `from`, which begin at first_column
DEVICE void sum_down(const Block& block, LevelRows from, int first_row, const LevelSpan* spans, int rows,
                     const int* weights, int values, LevelRows to);
DEVICE void sum_across(const Block& block, LevelRows from, int first_column, const LevelSpan* spans, int columns,
                       const int* weights, int rows, LevelRows to);

// spans[i] of output index begin + i, i in [0, count). table: of planner/pillow_weights.h.
DEVICE void tabulate_levels(const Block& block, const Sample& sample, const Axis& axis, const int* table, int begin,
                            int count, LevelSpan* spans) {
    for (int i = block.thread; i < count; i += block.threads) {
        const int r =
            border_index(axis.start + axis.step * (begin + i), axis.seen_low, axis.seen_high, sample.after.border);
        if (r == -1) {
            spans[i] = {0, 0, 0};
            continue;
        }
        const int at = 1 + (r - table[0]) * (1 + axis.taps);
        spans[i] = {axis.low + table[at], axis.taps, at + 1};
    }
}

template <class T>
DEVICE void load_levels(const Block& block, const Sample& sample, Span rows, Span columns, LevelRows to) {
    for (int row = 0; row < rows.count; ++row)
        for (int i = block.thread; i < 3 * columns.count; i += block.threads) {
            const float value = load_bordered<T>(sample, rows.first + row, columns.first + i / 3, i % 3);
            to.first[row * to.pitch + i] = to_uint8(value);
        }
}

// The source's rows and columns: where they lie, if they are uint8 inside the borders; else rounded into `memory`,
// which then begins after them.
DEVICE LevelRows source_levels(const Block& block, const Sample& sample, Span rows, Span columns, uint8*& memory) {
    const bool inside = rows.first >= sample.y.inner_low && rows.first + rows.count <= sample.y.inner_high &&
                        columns.first >= sample.x.inner_low && columns.first + columns.count <= sample.x.inner_high;
    if (is<SourceTypes>(sample.source_type, UINT8) && inside) {
        const uint8* const first = row_of<uint8>(sample, rows.first) + 3 * int64(columns.first - sample.x.held_low);
        return {const_cast<uint8*>(first), sample.source.pitch};
    }
    const LevelRows levels = {memory, level_pitch(columns.count)};
    memory += rows.count * levels.pitch;
    if (is<SourceTypes>(sample.source_type, UINT8))
        load_levels<uint8>(block, sample, rows, columns, levels);
    else
        load_levels<float>(block, sample, rows, columns, levels);
    block.sync();
    return levels;
}

DEVICE void fill_pixels(const Sample& sample, const LevelSpan* columns, int pixels, PixelBlock& v) {
    for (int p = 0; p < pixels; ++p)
        for (int c = 0; c < 3; ++c)
            if (columns[p].count == 0) v[c][p] = sample.after.fill[c];
}

// finish(y, x, rows, pixels, v) takes blocks of up to ROWS rows, and may change them.
template <class Finish>
DEVICE void resize_levels(const Block& block, const Sample& sample, const float* tables, Tile tile, float* scratch,
                          const Finish& finish) {
    const int* const y_weights = reinterpret_cast<const int*>(tables + sample.weights);
    const int* const x_weights = reinterpret_cast<const int*>(tables + sample.extent);
    LevelSpan* const row_spans = reinterpret_cast<LevelSpan*>(scratch);
    LevelSpan* const columns = row_spans + tile.rows;
    tabulate_levels(block, sample, sample.y, y_weights, tile.y, tile.rows, row_spans);
    tabulate_levels(block, sample, sample.x, x_weights, tile.x, tile.columns, columns);
    block.sync();

    const bool seen = all_seen(sample.x, tile.x, tile.columns);
    const Span read_columns = span_union(sample.x, tile.x, columns, tile.columns);
    const LevelRows out = {reinterpret_cast<uint8*>(columns + tile.columns), level_pitch(tile.columns)};
    for (int i = 0; i < tile.rows; i += LEVEL_ROWS) {
        const int height = min(LEVEL_ROWS, tile.rows - i);
        const LevelSpan* const rows = row_spans + i;
        const Span read_rows = span_union(sample.y, tile.y + i, rows, height);
        if (read_rows.count > 0 && read_columns.count > 0) {
            uint8* memory = out.first + height * out.pitch;
            const LevelRows source = source_levels(block, sample, read_rows, read_columns, memory);
            if (sample.antialias == X_FIRST) {
                const LevelRows lines = {memory, out.pitch};
                sum_across(block, source, read_columns.first, columns, tile.columns, x_weights, read_rows.count, lines);
                block.sync();
                sum_down(block, lines, read_rows.first, rows, height, y_weights, 3 * tile.columns, out);
            } else {
                const LevelRows lines = {memory, level_pitch(read_columns.count)};
                sum_down(block, source, read_rows.first, rows, height, y_weights, 3 * read_columns.count, lines);
                block.sync();
                sum_across(block, lines, read_columns.first, columns, tile.columns, x_weights, height, out);
            }
        }
        block.sync();
        for (int k = 0; k < height; k += ROWS)
            for (int j = block.thread * PIXELS; j < tile.columns; j += block.threads * PIXELS) {
                const int pixels = min(PIXELS, tile.columns - j), count = min(ROWS, height - k);
                PixelBlock v[ROWS];
                UNROLL
                for (int row = 0; row < ROWS; ++row) {
                    if (row >= count) continue;
                    load_block(out.first + (k + row) * out.pitch + 3 * j, pixels, 1, v[row]);
                    if (rows[k + row].count == 0) fill_block(sample, v[row]);
                    if (!seen) fill_pixels(sample, columns + j, pixels, v[row]);
                }
                finish(tile.y + i + k, tile.x + j, count, pixels, v);
            }
        block.sync();  // the next band overwrites the levels
    }
}
