// Computes: convolutions, separable and by taps, of images in source order. A window of source rows slides down a group
//           of columns; its rows are kept as floats, borders included, so each byte is converted once, not once per
//           tap. Sums have the order of core/resample.h and core/stencil.h, so the bits are the same.
// Threads:  a group of MAX_COLUMNS columns per thread.
// Reference: core/stencil.h, core/resample.h.
// Tests:    tests/properties/test_filters.py, which also compares it with those two.
#pragma once
#include "core/stencil.h"
#include "cpu/store.h"

constexpr int MAX_COLUMNS = 8 * PIXELS;                          // pixels of an output row that are computed together
constexpr int MAX_LINES = 32, MAX_WEIGHTS = 64;                  // rows, columns and weights of the largest filter
constexpr int LINE = 3 * (MAX_COLUMNS + MAX_LINES) + 2 * LANES;  // values of a line, and room for whole vectors

// The source span that the filter reads for output index 0 of an axis.
DEVICE Span filter_span_of(const Sample& sample, const Axis& axis) {
    const int around = filter_radius(sample, axis);
    return sample.neighborhood == SEPARABLE ? Span{axis.low + axis.start, axis.taps}
                                            : Span{axis.origin + axis.start - around, 2 * around + 1};
}

// out = `pixels` pixels of source row y from column x on, inside or on the border.
template <class T>
DEVICE void load_line(const Sample& sample, int y, int x, int pixels, float* out) {
    const int row = border_index(y, sample.y.inner_low, sample.y.inner_high, sample.before.border), last = x + pixels;
    const int begin = row == -1 ? last : min(max(x, sample.x.inner_low), last);
    const int end = max(begin, min(last, sample.x.inner_high));
    for (int i = 0; i < 3 * (begin - x); ++i) out[i] = load_bordered<T>(sample, y, x + i / 3, i % 3);
    for (int i = 3 * (end - x); i < 3 * pixels; ++i) out[i] = load_bordered<T>(sample, y, x + i / 3, i % 3);
    if (begin == end) return;
    const T* from = row_of<T>(sample, row) + 3 * int64(begin - sample.x.held_low);
    float* const to = out + 3 * (begin - x);
    const int n = 3 * (end - begin);
    int i = 0;
    for (; i + LANES <= n; i += LANES) store(to + i, load_floats(from + i));
    for (; i < n; ++i) to[i] = float(from[i]);
}

// Terms of a sum: weights[stride * k] * from[k].
struct Sum {
    const float* weights;
    int stride;
    const float* const* from;
    int count;
};

// out[j] = the sum over k of weights[stride * k] * from[k][j], for LANES * groups values from j on.
template <int groups>
DEVICE void sum_vectors(const Sum& sum, int j, float* out) {
    FloatVec sums[groups];
#pragma GCC unroll 8
    for (int g = 0; g < groups; ++g) sums[g] = FloatVec{};
    for (int k = 0; k < sum.count; ++k) {
        const float* const from = sum.from[k] + j;
        const float weight = sum.weights[sum.stride * k];
#pragma GCC unroll 8
        for (int g = 0; g < groups; ++g) multiply_add(sums[g], weight, from + g * LANES);
    }
#pragma GCC unroll 8
    for (int g = 0; g < groups; ++g) store(out + j + g * LANES, sums[g]);
}

// The sums for j < n; up to a vector more is written.
DEVICE void sum_lines(const Sum& sum, int n, float* out) {
    int j = 0;
    for (; j + GROUPS * LANES <= n; j += GROUPS * LANES) sum_vectors<GROUPS>(sum, j, out);
    for (; j < n; j += 2 * LANES) sum_vectors<2>(sum, j, out);
}

// Computes `pixels` pixels from column x on of each row of the tile. finish(y, x, pixels, packed values)
template <class T, class Finish>
DEVICE void slide_down(const Sample& sample, const float* weights, const Tile& tile, int x, int pixels, Finish finish) {
    const Span rows = filter_span_of(sample, sample.y), columns = filter_span_of(sample, sample.x);
    const bool separable = sample.neighborhood == SEPARABLE;
    const int count = separable ? rows.count : sample.extent, down = rows.count / 2, across = columns.count / 2;
    const int wide = pixels + columns.count - 1;
    int row_of_tap[MAX_WEIGHTS], shift_of_tap[MAX_WEIGHTS];
    for (int k = 0; k < count; ++k) {
        row_of_tap[k] = separable ? k : int(weights[3 * k]) + down;
        shift_of_tap[k] = separable ? 0 : 3 * (int(weights[3 * k + 1]) + across);
    }
    float kept[MAX_LINES][LINE] CACHE_ALIGNED, sums[LINE] CACHE_ALIGNED, out[LINE] CACHE_ALIGNED;
    memset(kept, 0, sizeof kept[0] * size_t(rows.count));
    const float *lines[MAX_LINES], *from[MAX_WEIGHTS];
    for (int i = 1 - rows.count; i < tile.rows; ++i) {
        const int slot = i + rows.count - 1, newest = rows.first + tile.y + slot, y = tile.y + i;
        load_line<T>(sample, newest, columns.first + x, wide, kept[slot % rows.count]);
        if (i < 0) continue;
        for (int k = 0; k < rows.count; ++k) lines[k] = kept[(i + k) % rows.count];
        for (int k = 0; k < count; ++k) from[k] = lines[row_of_tap[k]] + shift_of_tap[k];
        if (separable) {
            sum_lines({weights, 1, from, count}, 3 * wide, sums);
            for (int k = 0; k < columns.count; ++k) from[k] = sums + 3 * k;
            sum_lines({weights + count, 1, from, columns.count}, 3 * pixels, out);
        } else {
            sum_lines({weights + 2, 3, from, count}, 3 * pixels, out);
            const int row = rows.first + down + y, column = columns.first + across + x;
            const bool all = row < sample.y.inner_low + sample.frame || row >= sample.y.inner_high - sample.frame;
            const int begin = all ? pixels : min(max(sample.x.inner_low + sample.frame - column, 0), pixels);
            const int end = max(begin, min(sample.x.inner_high - sample.frame - column, pixels));
            memcpy(out, lines[down] + 3 * across, 3 * sizeof(float) * size_t(begin));
            memcpy(out + 3 * end, lines[down] + 3 * (across + end), 3 * sizeof(float) * size_t(pixels - end));
        }
        finish(y, x, pixels, out);
    }
}

// Runs a tile of such a filter; returns whether it is one.
template <class Finish>
DEVICE bool run_sliding_window(const Block& block, const Sample& sample, const float* tables, const Tile& tile,
                               Finish finish) {
    const bool separable = sample.neighborhood == SEPARABLE;
    if (!separable && sample.neighborhood != STENCIL) return false;
    if (!is_unflipped(sample.y) || !is_unflipped(sample.x)) return false;
    if (filter_span_of(sample, sample.y).count > MAX_LINES || filter_span_of(sample, sample.x).count > MAX_LINES ||
        (!separable && sample.extent > MAX_WEIGHTS))
        return false;
    for (int x = MAX_COLUMNS * block.thread; x < tile.columns; x += MAX_COLUMNS * block.threads) {
        const int pixels = min(MAX_COLUMNS, tile.columns - x);
        if (sample.source_type == UINT8)
            slide_down<uint8>(sample, tables + sample.weights, tile, tile.x + x, pixels, finish);
        else
            slide_down<float>(sample, tables + sample.weights, tile, tile.x + x, pixels, finish);
    }
    return true;
}
