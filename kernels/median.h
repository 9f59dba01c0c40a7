// The median of the size x size values around a pixel, for each channel; size is 3, 5 or 7.
//
// By forgetful selection: of n values the smallest and the largest of any n / 2 + 2 cannot be the median, so they are
// dropped and the next value taken in, until three are left. Only minima and maxima, at places that the compiler knows,
// so that all stay in registers: of bytes where the source is bytes.
//
// Tested against cv2.medianBlur and tests/references/filters.py.
#pragma once
#include "neighbourhood.h"

// The k-th values, by rows, of the windows around neighbouring values of a strip, from the j-th on; R, G and B of a
// pixel are neighbours. Beyond the edge the window's pixels repeat.
template <class T, int size>
DEVICE Many<T> taken(const Sample& sample, const Shown& at, int j, int k) {
    constexpr int count = int(sizeof(Many<T>) / sizeof(T));
    const int dy = k / size - size / 2, dx = k % size - size / 2;
    if (count > 1 && at.plain && j + count <= 3 * at.pixels)
        return load<Many<T>>(leftmost<T>(sample, at) + dy * (sample.pitch / int64(sizeof(T))) + 3 * dx + j);
    const Axis &y = sample.y, &x = sample.x;
    const T* row = row_of<T>(sample, smaller(larger(at.row + dy, y.inner_low), y.inner_high - 1));
    T values[count] = {};
    for (int i = 0; i < smaller(count, 3 * at.pixels - j); ++i) {
        const int from = at.plain ? at.left + (j + i) / 3 : at.column[(j + i) / 3];
        const int column = smaller(larger(from + dx, x.inner_low), x.inner_high - 1);
        values[i] = row[3 * int64(column - x.held_low) + (j + i) % 3];
    }
    return load<Many<T>>(values);
}

template <class Values>
DEVICE void order(Values& low, Values& high) {
    const Values a = low, b = high;
    low = smaller(a, b);
    high = larger(a, b);
}

// The median is among kept[0 .. count) and the window's last count - 3 values; it ends up in kept[1].
template <class T, int size, int count>
DEVICE void narrow(const Sample& sample, const Shown& at, int j, Many<T>* kept) {
    UNROLL
    for (int i = 1; i < count; ++i) order(kept[0], kept[i]);
    UNROLL
    for (int i = 1; i < count - 1; ++i) order(kept[i], kept[count - 1]);
    if constexpr (count > 3) {
        kept[0] = taken<T, size>(sample, at, j, size * size + 3 - count);
        narrow<T, size, count - 1>(sample, at, j, kept);
    }
}

template <class T, int size>
DEVICE void median_of(const Sample& sample, const Shown& at, Strip& v) {
    constexpr int most = size * size / 2 + 2, count = int(sizeof(Many<T>) / sizeof(T));
    const int n = 3 * at.pixels;
    T medians[3 * PIXELS];
    NO_UNROLL
    for (int i = 0; i < n; i += count) {
        const int j = larger(smaller(i, n - count),
                             0);  // the last ones may overlap those before
        Many<T> kept[most];
        UNROLL
        for (int k = 0; k < most; ++k) kept[k] = taken<T, size>(sample, at, j, k);
        narrow<T, size, most>(sample, at, j, kept);
        if constexpr (count > 1) {
            store_many(medians + j, kept[1]);
        } else {  // not medians[j]: an index that is not known would put it into memory
            UNROLL
            for (int k = 0; k < 3; ++k) medians[k] = k == j ? kept[1] : medians[k];
        }
    }
    take_strip(medians, at.pixels, at.plain ? at.step : 1, v);
    for (int p = 0; p < PIXELS; ++p)
        for (int c = 0; c < 3; ++c) v[c][p] = at.row == -1 || at.column[p] == -1 ? sample.fill_after[c] : v[c][p];
}

template <class T>
DEVICE void median_strip(const Sample& sample, const Shown& at, Strip& v) {
    switch (sample.extent) {
        case 3: median_of<T, 3>(sample, at, v); break;
        case 5: median_of<T, 5>(sample, at, v); break;
        default: median_of<T, 7>(sample, at, v); break;
    }
}
