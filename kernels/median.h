// The median of the size x size values around a pixel, for each channel; size is 3, 5 or 7.
//
// By forgetful selection: of n values the smallest and the largest of any n / 2 + 2 cannot be the median, so they are
// dropped and the next value taken in, until three are left. Only minima and maxima, at places that the compiler
// knows: registers on CUDA, vectors of PIXELS on the host.
//
// Tested against cv2.medianBlur and tests/references/filters.py.
#pragma once
#include "neighbourhood.h"

// The k-th value, by rows, of the window around each pixel of a strip. Beyond the edge its pixels repeat.
template <class T, int size>
DEVICE void take(const Sample& sample, const Shown& at, int channel, int k, float* values) {
    const Axis &y = sample.y, &x = sample.x;
    const int dy = k / size - size / 2, dx = k % size - size / 2;
    const T* row = row_of<T>(sample, smaller(larger(at.row + dy, y.inner_low), y.inner_high - 1)) + channel;
    for (int p = 0; p < PIXELS; ++p) {
        const int column = smaller(larger(at.column[p] + dx, x.inner_low), x.inner_high - 1);
        values[p] = float(row[3 * int64(column - x.held_low)]);
    }
}

DEVICE void order(float* low, float* high) {
    for (int p = 0; p < PIXELS; ++p) {
        const float a = low[p], b = high[p];
        low[p] = smaller(a, b);
        high[p] = larger(a, b);
    }
}

// The median is among kept[0 .. count) and the window's last count - 3 values; it ends up in kept[1].
template <class T, int size, int count>
DEVICE void narrow(const Sample& sample, const Shown& at, int channel, float (*kept)[PIXELS]) {
    UNROLL
    for (int i = 1; i < count; ++i) order(kept[0], kept[i]);
    UNROLL
    for (int i = 1; i < count - 1; ++i) order(kept[i], kept[count - 1]);
    if constexpr (count > 3) {
        take<T, size>(sample, at, channel, size * size + 3 - count, kept[0]);
        narrow<T, size, count - 1>(sample, at, channel, kept);
    }
}

template <class T, int size>
DEVICE void median_of(const Sample& sample, const Shown& at, Strip& v) {
    constexpr int most = size * size / 2 + 2;
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < PIXELS; ++p) v[c][p] = sample.fill_after[c];
    NO_UNROLL
    for (int c = 0; c < 3; ++c) {
        float kept[most][PIXELS];
        UNROLL
        for (int k = 0; k < most; ++k) take<T, size>(sample, at, c, k, kept[k]);
        narrow<T, size, most>(sample, at, c, kept);
        for (int p = 0; p < PIXELS; ++p) {
            const bool filled = at.row == -1 || at.column[p] == -1;
            // Not v[c]: an index that is not known would put v into memory.
            UNROLL
            for (int k = 0; k < 3; ++k) v[k][p] = k != c || filled ? v[k][p] : kept[1][p];
        }
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
