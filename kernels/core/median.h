// The median of the size x size values around a pixel, for each channel; size is 3, 5 or 7. Only minima and maxima, at
// places that the compiler knows, so that all stay in registers: of bytes where the source is bytes.
//
// By forgetful selection: of n values the smallest and the largest of any n / 2 + 2 cannot be the median, so they are
// dropped and the next value taken in, until three are left. On the host, where neighbours are made together, each
// column of a window is sorted first, once for all windows that it is in, then their rows; what then lies on the
// diagonals from lower left to upper right leaves few candidates.
//
// Tested against cv2.medianBlur and tests/references/filters.py.
#pragma once
#include "core/clahe.h"
#include "core/neighbourhood.h"

template <class Values>
DEVICE void order(Values& low, Values& high) {
    const Values a = low, b = high;
    low = smaller(a, b);
    high = larger(a, b);
}

// The median is among kept[0 .. count) and next(k), next(k + 1) ..., count - 3 of them; it ends up in kept[1].
template <int count, class Values, class Next>
DEVICE void narrow(Values* kept, int k, const Next& next) {
    UNROLL
    for (int i = 1; i < count; ++i) order(kept[0], kept[i]);
    UNROLL
    for (int i = 1; i < count - 1; ++i) order(kept[i], kept[count - 1]);
    if constexpr (count > 3) {
        kept[0] = next(k);
        narrow<count - 1>(kept, k + 1, next);
    }
}

#if defined(__CUDACC__)

// Channel j of the k-th pixel, by rows, of the window around a pixel. Beyond the edge the window's pixels repeat.
template <class T, int size>
DEVICE T taken(const Sample& sample, const Shown& at, int j, int k) {
    const Axis &y = sample.y, &x = sample.x;
    const int row = smaller(larger(at.row + k / size - size / 2, y.inner_low), y.inner_high - 1);
    const int column = smaller(larger(at.column[0] + k % size - size / 2, x.inner_low), x.inner_high - 1);
    return row_of<T>(sample, row)[3 * int64(column - x.held_low) + j];
}

template <class T, int size>
DEVICE void median_of(const Sample& sample, const Shown& at, Strip& v) {
    constexpr int most = size * size / 2 + 2;
    const bool filled = at.row == AFTER || at.column[0] == AFTER;
    NO_UNROLL
    for (int j = 0; j < 3; ++j) {
        T kept[most];
        UNROLL
        for (int k = 0; k < most; ++k) kept[k] = taken<T, size>(sample, at, j, k);
        narrow<most>(kept, most, [&](int k) { return taken<T, size>(sample, at, j, k); });
        const float median = filled ? sample.fill_after[j] : float(kept[1]);
        UNROLL  // not v[j]: an index that is not known would put it into memory
            for (int c = 0; c < 3; ++c) v[c][0] = c == j ? median : v[c][0];
    }
}

template <class T>
DEVICE void median_strip(const Sample& sample, const Shown& at, Strip& v) {
    switch (sample.extent) {
        case 3: median_of<T, 3>(sample, at, v); break;
        case 5: median_of<T, 5>(sample, at, v); break;
        default: median_of<T, 7>(sample, at, v); break;
    }
}

template <class Finish>
DEVICE bool median_rows(const Block&, const Sample&, const Tile&, Finish) {
    return false;  // there, a thread makes a pixel
}

#else

constexpr int MEDIANS = 8 * PIXELS;  // as many pixels in a row are made together

// Of size x size values in sorted columns and then sorted rows, those of row i from `lowest` to `highest` can be the
// median: no more than half of the others are known to be greater, and no more than half to be less.
template <int size>
constexpr int lowest(int i) {
    const int greater = (size * size / 2 + 1) / (size - i);
    return greater < size ? size - greater : 0;
}
template <int size>
constexpr int highest(int i) {
    return size - 1 - lowest<size>(size - 1 - i);
}

// What sorts seven values with the fewest comparisons (Knuth, The Art of Computer Programming 3, 5.3.4).
constexpr int SORT_SEVEN[16][2] = {{0, 6}, {2, 3}, {4, 5}, {0, 2}, {1, 4}, {3, 6}, {0, 1}, {2, 5},
                                   {3, 4}, {1, 2}, {4, 6}, {2, 3}, {4, 5}, {1, 2}, {3, 4}, {5, 6}};

// The `first`-th to `last`-th smallest of `size` values, in their places; what the others do not need, the compiler
// leaves out.
template <int size, int first, int last, class Values>
DEVICE void sort_some(Values* row) {
    if constexpr (size == 7 && last - first > 2) {
#pragma GCC unroll 16
        for (int k = 0; k < 16; ++k) order(row[SORT_SEVEN[k][0]], row[SORT_SEVEN[k][1]]);
    } else if constexpr (first > size - 1 - last) {
#pragma GCC unroll 8
        for (int end = size - 1; end >= first; --end)
#pragma GCC unroll 8
            for (int k = 0; k < end; ++k) order(row[k], row[k + 1]);
    } else {
#pragma GCC unroll 8
        for (int begin = 0; begin <= last; ++begin)
#pragma GCC unroll 8
            for (int k = size - 1; k > begin; --k) order(row[k - 1], row[k]);
    }
}

// kept = of the window's diagonal d, the places (i, d - i), the `first`-th to `last`-th smallest value.
template <int size, int d, int first, int last, class Values>
DEVICE void take_diagonal(const Values (&rows)[size][size], Values* kept) {
    constexpr int begin = d < size ? 0 : d - size + 1, count = d < size ? d + 1 : 2 * size - 1 - d;
    Values diagonal[count];
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) diagonal[i] = rows[begin + i][d - begin - i];
    if constexpr (first == last && 2 * first + 1 == count) {
        narrow<count / 2 + 2>(diagonal, count / 2 + 2, [&](int k) { return diagonal[k]; });
        kept[0] = diagonal[1];
    } else {
        sort_some<count, first, last>(diagonal);
#pragma GCC unroll 8
        for (int k = first; k <= last; ++k) kept[k - first] = diagonal[k];
    }
}

// The median of a window that is sorted along its rows and its columns. Of each diagonal only those values are taken
// that can be it; of all others half are always less and half always greater, which is so if it is in all such windows
// of zeros and ones (tests/properties/test_medians.py goes through them).
template <class Values>
DEVICE Values median_of_sorted(const Values (&rows)[3][3]) {
    Values kept[1];
    take_diagonal<3, 2, 1, 1>(rows, kept);
    return kept[0];
}
template <class Values>
DEVICE Values median_of_sorted(const Values (&rows)[5][5]) {
    Values kept[3];
    take_diagonal<5, 3, 3, 3>(rows, kept);
    take_diagonal<5, 4, 2, 2>(rows, kept + 1);
    take_diagonal<5, 5, 0, 0>(rows, kept + 2);
    narrow<3>(kept, 3, [&](int k) { return kept[k]; });
    return kept[1];
}
template <class Values>
DEVICE Values median_of_sorted(const Values (&rows)[7][7]) {
    Values kept[11];
    take_diagonal<7, 4, 4, 4>(rows, kept);
    take_diagonal<7, 5, 3, 5>(rows, kept + 1);
    take_diagonal<7, 6, 2, 4>(rows, kept + 4);
    take_diagonal<7, 7, 0, 2>(rows, kept + 7);
    take_diagonal<7, 8, 0, 0>(rows, kept + 10);
    narrow<7>(kept, 7, [&](int k) { return kept[k]; });
    return kept[1];
}

// rows[i ...] = row i and those that follow of the window whose columns begin `at` values on, sorted as far as is
// needed.
template <int size, int i = 0, class T>
DEVICE void sort_rows(const T* const* columns, int at, Full<T> (&rows)[size][size]) {
    if constexpr (i < size) {
#pragma GCC unroll 8
        for (int k = 0; k < size; ++k) rows[i][k] = load<Full<T> >(columns[i] + at + 3 * k);
        sort_some<size, lowest<size>(i), highest<size>(i)>(rows[i]);
        sort_rows<size, i + 1, T>(columns, at, rows);
    }
}

// The columns of the windows around neighbouring pixels, each sorted; `smallest[i]` begins the i-th smallest values.
template <class T, int size>
struct Columns {
    static constexpr int most = 3 * (MEDIANS + size - 1), line = 64 / int(sizeof(T));
    T memory[size][line + (most + line - 1) / line * line] IN_LINES;
    const T* smallest[size];
};

// Those around `pixels` source pixels of a row from column `left` on, `all` values. Beyond the edge pixels repeat, and
// so do their columns.
template <class T, int size>
DEVICE void sort_columns(const Sample& sample, int row, int left, int pixels, int all, Columns<T, size>& columns) {
    constexpr int count = values_in<T>;
    const Axis &y = sample.y, &x = sample.x;
    const int begin = left - size / 2, end = left + pixels + size / 2;
    const int low = larger(begin, x.inner_low), high = smaller(end, x.inner_high);
    const int before = 3 * (low - begin), held = 3 * (high - low);
    const T* rows[size];
    T copies[size][count];  // of what is less than a register holds
    for (int i = 0; i < size; ++i) {
        const int at = smaller(larger(row + i - size / 2, y.inner_low), y.inner_high - 1);
        rows[i] = row_of<T>(sample, at) + 3 * int64(low - x.held_low);
        if (held >= count) continue;
        memset(copies[i], 0, sizeof copies[i]);
        memcpy(copies[i], rows[i], size_t(held) * sizeof(T));
        rows[i] = copies[i];
    }
    T* sorted[size];
    for (int i = 0; i < size; ++i) sorted[i] = columns.memory[i] + columns.line;
    for (int j = 0; j < held; j += count) {
        const int at = larger(smaller(j, held - count), 0);  // the last ones may overlap those before
        Full<T> column[size];
#pragma GCC unroll 8
        for (int i = 0; i < size; ++i) column[i] = load<Full<T> >(rows[i] + at);
        sort_some<size, 0, size - 1>(column);
#pragma GCC unroll 8
        for (int i = 0; i < size; ++i) store_full(sorted[i] + at, column[i]);
    }
    for (int i = 0; i < size; ++i) {
        for (int k = 1; k <= before; ++k) sorted[i][-k] = sorted[i][3 - k];
        for (int k = held; k < all - before; ++k) sorted[i][k] = sorted[i][k - 3];
        columns.smallest[i] = sorted[i] - before;
    }
}

template <class T, int size>
DEVICE void medians_of(const Sample& sample, int row, int left, int pixels, T* out) {
    constexpr int count = values_in<T>;
    const int n = larger(3 * pixels, count);
    Columns<T, size> columns;
    sort_columns(sample, row, left, pixels, n + 3 * (size - 1), columns);
    for (int j = 0; j < n; j += count) {
        const int at = smaller(j, n - count);
        Full<T> window[size][size];
        sort_rows<size, 0, T>(columns.smallest, at, window);
        store_full(out + at, median_of_sorted(window));
    }
}

// out = the medians around `pixels` source pixels of a row, at most MEDIANS, from column `left` on, packed. There is
// room for a register. Not inlined: what it keeps on the stack made passes slower that take no medians.
template <class T>
__attribute__((noinline)) static void take_medians(const Sample& sample, int row, int left, int pixels, T* out) {
    switch (sample.extent) {
        case 3: medians_of<T, 3>(sample, row, left, pixels, out); break;
        case 5: medians_of<T, 5>(sample, row, left, pixels, out); break;
        default: medians_of<T, 7>(sample, row, left, pixels, out); break;
    }
}

// The same, as floats.
template <class T>
DEVICE void take_medians_as_floats(const Sample& sample, int row, int left, int pixels, float* out) {
    T medians[3 * MEDIANS] IN_LINES;
    take_medians(sample, row, left, pixels, medians);
    for (int i = 0; i < 3 * pixels; ++i) out[i] = float(medians[i]);
}

// Makes a tile of medians that lie as in the source; whether it is one. `finish` takes (y, x, pixels, packed values).
template <class Finish>
DEVICE bool median_rows(const Block& block, const Sample& sample, const Tile& tile, Finish finish) {
    if (sample.neighbourhood != MEDIAN || !shows_as_it_lies(sample.y) || !shows_as_it_lies(sample.x)) return false;
    for (int i = block.thread; i < tile.rows; i += block.threads) {
        const int row = shown(sample, sample.y, tile.y + i), left = shown(sample, sample.x, tile.x);
        // Not more at once: what is finished is written while the next ones are made.
        constexpr int some = MEDIANS / 2;
        for (int j = 0; j < tile.columns; j += some) {
            const int pixels = smaller(some, tile.columns - j);
            float medians[3 * some] IN_LINES;
            if (sample.source_type == UINT8)
                take_medians_as_floats<uint8>(sample, row, left + j, pixels, medians);
            else
                take_medians(sample, row, left + j, pixels, medians);
            finish(tile.y + i, tile.x + j, pixels, medians);
        }
    }
    return true;
}

template <class T>
DEVICE void median_strip(const Sample& sample, const Shown& at, Strip& v) {
    T medians[3 * MEDIANS] IN_LINES;
    if (at.row != AFTER && at.neighbours) {
        take_medians(sample, at.row, at.left, at.pixels, medians);
        take_strip(medians, at.pixels, at.step, v);
        return;
    }
    for (int p = 0; p < PIXELS; ++p) {
        const bool filled = at.row == AFTER || at.column[p] == AFTER;
        if (!filled) take_medians(sample, at.row, at.column[p], 1, medians);
        for (int c = 0; c < 3; ++c) v[c][p] = filled ? sample.fill_after[c] : float(medians[c]);
    }
}

#endif
