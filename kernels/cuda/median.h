// Computes: the CUDA half of core/median.h.
// Threads:  one pixel per thread.
// Reference: core/median.h.
// Tests:    tests/kernels/test_scratch.py, tests/cuda/test_kernels.py.
#pragma once
#include "core/median.h"

// Channel j of pixel k, by rows, of the window around a pixel. Pixels past the edge repeat.
template <class T, int size>
DEVICE T window_value(const Sample& sample, const SourcePixels& at, int j, int k) {
    const Axis &y = sample.y, &x = sample.x;
    const int row = min(max(at.row + k / size - size / 2, y.inner_low), y.inner_high - 1);
    const int column = min(max(at.column[0] + k % size - size / 2, x.inner_low), x.inner_high - 1);
    return row_of<T>(sample, row)[3 * int64(column - x.held_low) + j];
}

template <class T, int size>
DEVICE void median_of(const Sample& sample, const SourcePixels& at, PixelBlock& v) {
    constexpr int count = size * size / 2 + 2;
    typedef decltype(T() + 0) Value;  // a register holds a word: int, not uint8
    const bool filled = at.row == FILL_AFTER || at.column[0] == FILL_AFTER;
    NO_UNROLL
    for (int j = 0; j < 3; ++j) {
        Value candidates[count];
        UNROLL
        for (int k = 0; k < count; ++k) candidates[k] = window_value<T, size>(sample, at, j, k);
        forgetful_select<count>(candidates, count,
                                [&](int k) { return Value(window_value<T, size>(sample, at, j, k)); });
        const float median = filled ? sample.after.fill[j] : float(candidates[1]);
        UNROLL  // not v[j]: an unknown index would put v into local memory
            for (int c = 0; c < 3; ++c) v[c][0] = c == j ? median : v[c][0];
    }
}

template <class T>
DEVICE void median_block(const Sample& sample, const SourcePixels& at, PixelBlock& v) {
    switch (sample.extent) {
        case 3: median_of<T, 3>(sample, at, v); break;
        case 5: median_of<T, 5>(sample, at, v); break;
        default: median_of<T, 7>(sample, at, v); break;
    }
}
