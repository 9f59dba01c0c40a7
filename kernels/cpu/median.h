// Computes: the CPU half of core/median.h: medians of many pixels of a row at once.
// Threads:  one thread per row; a vector per minimum and maximum.
// Reference: sorting network of seven values: Knuth, The Art of Computer Programming 3, 5.3.4.
// Tests:    tests/properties/test_filters.py, tests/properties/test_medians.py.
#pragma once
#include "core/median.h"

constexpr int MAX_MEDIANS = 8 * PIXELS;  // pixels of a row that are computed together

// After sorting the columns and then the rows of a window, values first_candidate ... last_candidate of row i can be
// the median: at most half of the others are known to be greater, and at most half to be less.
template <int size>
constexpr int first_candidate(int i) {
    const int greater = (size * size / 2 + 1) / (size - i);
    return greater < size ? size - greater : 0;
}
template <int size>
constexpr int last_candidate(int i) {
    return size - 1 - first_candidate<size>(size - 1 - i);
}

// The sorting network of seven values with the fewest comparisons.
constexpr int SORT_SEVEN[16][2] = {{0, 6}, {2, 3}, {4, 5}, {0, 2}, {1, 4}, {3, 6}, {0, 1}, {2, 5},
                                   {3, 4}, {1, 2}, {4, 6}, {2, 3}, {4, 5}, {1, 2}, {3, 4}, {5, 6}};

// Puts the first-th to last-th smallest of `size` values in place; the compiler drops comparisons that no result needs.
template <int size, int first, int last, class Values>
DEVICE void sort_range(Values* row) {
    if constexpr (size == 7 && last - first > 2) {
#pragma GCC unroll 16
        for (int k = 0; k < 16; ++k) sort_pair(row[SORT_SEVEN[k][0]], row[SORT_SEVEN[k][1]]);
    } else if constexpr (first > size - 1 - last) {
#pragma GCC unroll 8
        for (int end = size - 1; end >= first; --end)
#pragma GCC unroll 8
            for (int k = 0; k < end; ++k) sort_pair(row[k], row[k + 1]);
    } else {
#pragma GCC unroll 8
        for (int begin = 0; begin <= last; ++begin)
#pragma GCC unroll 8
            for (int k = size - 1; k > begin; --k) sort_pair(row[k - 1], row[k]);
    }
}

// candidates = the first-th to last-th smallest value on diagonal d, places (i, d - i), of a window.
template <int size, int d, int first, int last, class Values>
DEVICE void diagonal_candidates(const Values (&rows)[size][size], Values* candidates) {
    constexpr int begin = d < size ? 0 : d - size + 1, count = d < size ? d + 1 : 2 * size - 1 - d;
    Values diagonal[count];
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) diagonal[i] = rows[begin + i][d - begin - i];
    if constexpr (first == last && 2 * first + 1 == count) {
        forgetful_select<count / 2 + 2>(diagonal, count / 2 + 2, [&](int k) { return diagonal[k]; });
        candidates[0] = diagonal[1];
    } else {
        sort_range<count, first, last>(diagonal);
#pragma GCC unroll 8
        for (int k = first; k <= last; ++k) candidates[k - first] = diagonal[k];
    }
}

// The median of a window with sorted rows and columns, from few candidates per diagonal. Half of all other values are
// always less and half always greater; this holds if it holds for all windows of zeros and ones
// (tests/properties/test_medians.py checks them all).
template <class Values>
DEVICE Values median_of_sorted(const Values (&rows)[3][3]) {
    Values candidates[1];
    diagonal_candidates<3, 2, 1, 1>(rows, candidates);
    return candidates[0];
}
template <class Values>
DEVICE Values median_of_sorted(const Values (&rows)[5][5]) {
    Values candidates[3];
    diagonal_candidates<5, 3, 3, 3>(rows, candidates);
    diagonal_candidates<5, 4, 2, 2>(rows, candidates + 1);
    diagonal_candidates<5, 5, 0, 0>(rows, candidates + 2);
    forgetful_select<3>(candidates, 3, [&](int k) { return candidates[k]; });
    return candidates[1];
}
template <class Values>
DEVICE Values median_of_sorted(const Values (&rows)[7][7]) {
    Values candidates[11];
    diagonal_candidates<7, 4, 4, 4>(rows, candidates);
    diagonal_candidates<7, 5, 3, 5>(rows, candidates + 1);
    diagonal_candidates<7, 6, 2, 4>(rows, candidates + 4);
    diagonal_candidates<7, 7, 0, 2>(rows, candidates + 7);
    diagonal_candidates<7, 8, 0, 0>(rows, candidates + 10);
    forgetful_select<7>(candidates, 7, [&](int k) { return candidates[k]; });
    return candidates[1];
}

// Loads and sorts rows i ... of a window whose columns begin at value `at`, as far as the median needs.
template <int size, int i = 0, class T>
DEVICE void sort_rows(const T* const* columns, int at, Vec<T> (&rows)[size][size]) {
    if constexpr (i < size) {
#pragma GCC unroll 8
        for (int k = 0; k < size; ++k) rows[i][k] = load<Vec<T> >(columns[i] + at + 3 * k);
        sort_range<size, first_candidate<size>(i), last_candidate<size>(i)>(rows[i]);
        sort_rows<size, i + 1, T>(columns, at, rows);
    }
}

// The sorted columns of the windows around neighboring pixels; smallest[i] points at the i-th smallest values.
template <class T, int size>
struct SortedColumns {
    static constexpr int count = 3 * (MAX_MEDIANS + size - 1), line = 64 / int(sizeof(T));
    T memory[size][line + (count + line - 1) / line * line] CACHE_ALIGNED;
    const T* smallest[size];
};

// Sorts the columns around `pixels` source pixels of a row from column `left` on, `all` values. Pixels past the edge
// repeat, and so do their columns.
template <class T, int size>
DEVICE void sort_columns(const Sample& sample, int row, int left, int pixels, int all,
                         SortedColumns<T, size>& columns) {
    constexpr int count = lanes_in<T>;
    const Axis &y = sample.y, &x = sample.x;
    const int begin = left - size / 2, end = left + pixels + size / 2;
    const int low = max(begin, x.inner_low), high = min(end, x.inner_high);
    const int before = 3 * (low - begin), held = 3 * (high - low);
    const T* rows[size];
    T copies[size][count];  // for rows shorter than a vector
    for (int i = 0; i < size; ++i) {
        const int at = min(max(row + i - size / 2, y.inner_low), y.inner_high - 1);
        rows[i] = row_of<T>(sample, at) + 3 * int64(low - x.held_low);
        if (held >= count) continue;
        memset(copies[i], 0, sizeof copies[i]);
        memcpy(copies[i], rows[i], size_t(held) * sizeof(T));
        rows[i] = copies[i];
    }
    T* sorted[size];
    for (int i = 0; i < size; ++i) sorted[i] = columns.memory[i] + columns.line;
    for (int j = 0; j < held; j += count) {
        const int at = max(min(j, held - count), 0);  // the last vector may overlap the one before
        Vec<T> column[size];
#pragma GCC unroll 8
        for (int i = 0; i < size; ++i) column[i] = load<Vec<T> >(rows[i] + at);
        sort_range<size, 0, size - 1>(column);
#pragma GCC unroll 8
        for (int i = 0; i < size; ++i) store(sorted[i] + at, column[i]);
    }
    for (int i = 0; i < size; ++i) {
        for (int k = 1; k <= before; ++k) sorted[i][-k] = sorted[i][3 - k];
        for (int k = held; k < all - before; ++k) sorted[i][k] = sorted[i][k - 3];
        columns.smallest[i] = sorted[i] - before;
    }
}

template <class T, int size>
DEVICE void medians_of(const Sample& sample, int row, int left, int pixels, T* out) {
    constexpr int count = lanes_in<T>;
    const int n = max(3 * pixels, count);
    SortedColumns<T, size> columns;
    sort_columns(sample, row, left, pixels, n + 3 * (size - 1), columns);
    for (int j = 0; j < n; j += count) {
        const int at = min(j, n - count);
        Vec<T> window[size][size];
        sort_rows<size, 0, T>(columns.smallest, at, window);
        store(out + at, median_of_sorted(window));
    }
}

// out = the medians around at most MAX_MEDIANS source pixels of a row from column `left` on, packed, with room for a
// vector. Not inlined: its stack frame slowed passes without medians.
template <class T>
__attribute__((noinline)) static void medians_of_row(const Sample& sample, int row, int left, int pixels, T* out) {
    switch (sample.extent) {
        case 3: medians_of<T, 3>(sample, row, left, pixels, out); break;
        case 5: medians_of<T, 5>(sample, row, left, pixels, out); break;
        default: medians_of<T, 7>(sample, row, left, pixels, out); break;
    }
}

template <class T>
DEVICE void float_medians_of_row(const Sample& sample, int row, int left, int pixels, float* out) {
    T medians[3 * MAX_MEDIANS] CACHE_ALIGNED;
    medians_of_row(sample, row, left, pixels, medians);
    for (int i = 0; i < 3 * pixels; ++i) out[i] = float(medians[i]);
}

// Runs a tile of medians in source order; returns whether it is one. finish(y, x, pixels, packed values)
template <class Finish>
DEVICE bool median_rows(const Block& block, const Sample& sample, const Tile& tile, Finish finish) {
    if (sample.neighborhood != MEDIAN || !is_unflipped(sample.y) || !is_unflipped(sample.x)) return false;
    for (int i = block.thread; i < tile.rows; i += block.threads) {
        const int row = window_index(sample, sample.y, tile.y + i), left = window_index(sample, sample.x, tile.x);
        // Half as many at once: stores of finished pixels overlap the next medians.
        constexpr int together = MAX_MEDIANS / 2;
        for (int j = 0; j < tile.columns; j += together) {
            const int pixels = min(together, tile.columns - j);
            float medians[3 * together] CACHE_ALIGNED;
            if (sample.source_type == UINT8)
                float_medians_of_row<uint8>(sample, row, left + j, pixels, medians);
            else
                medians_of_row(sample, row, left + j, pixels, medians);
            finish(tile.y + i, tile.x + j, pixels, medians);
        }
    }
    return true;
}

template <class T>
DEVICE void median_block(const Sample& sample, const SourcePixels& at, PixelBlock& v) {
    T medians[3 * MAX_MEDIANS] CACHE_ALIGNED;
    if (at.row != FILL_AFTER && at.contiguous) {
        medians_of_row(sample, at.row, at.left, at.pixels, medians);
        load_block(medians, at.pixels, at.step, v);
        return;
    }
    for (int p = 0; p < PIXELS; ++p) {
        const bool filled = at.row == FILL_AFTER || at.column[p] == FILL_AFTER;
        if (!filled) medians_of_row(sample, at.row, at.column[p], 1, medians);
        for (int c = 0; c < 3; ++c) v[c][p] = filled ? sample.after.fill[c] : float(medians[c]);
    }
}
