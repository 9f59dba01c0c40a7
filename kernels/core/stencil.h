// Computes: convolution with a list of taps, each an offset and a weight: a kernel of mostly zeros (motion blur is a
//           line) costs only its nonzero taps. Pixels nearer to the edge than `frame` stay unchanged.
// Threads:  one pixel block per thread.
// Reference: cv2.filter2D; Pillow's ImageEnhance.Sharpness (frame).
// Tests:    tests/properties/test_filters.py against both and tests/references/filters.py.
#pragma once
#include "core/neighborhood.h"

// Sums LANES * groups neighboring values, tap by tap.
template <class T, int groups>
DEVICE void sum_taps(const T* values, int64 pitch, const float* taps, int count, float* out) {
    FloatVec sums[groups];
    for (int g = 0; g < groups; ++g) sums[g] = FloatVec{};
    for (int k = 0; k < count; ++k, taps += 3) {
        const T* tap = values + int64(taps[0]) * pitch + int64(taps[1]) * 3;
        for (int g = 0; g < groups; ++g) multiply_add(sums[g], taps[2], tap + g * LANES);
    }
    UNROLL
    for (int g = 0; g < groups; ++g) store(out + g * LANES, sums[g]);
}

// v[c][p] of an interior block.
template <class T>
DEVICE void interior_stencil(const Sample& sample, const float* taps, const SourcePixels& at, PixelBlock& v) {
    const T* pixel = leftmost<T>(sample, at);
    const int64 pitch = sample.source.pitch / int64(sizeof(T));
    const int n = PIXELS == 1 ? 3 : 3 * at.pixels;  // a constant index keeps `sum` in registers on CUDA
    float sum[3 * PIXELS] CACHE_ALIGNED;
    constexpr int wide = 3 * LANES;
    int j = 0;
    for (; j + wide <= n; j += wide) sum_taps<T, 3>(pixel + j, pitch, taps, sample.extent, sum + j);
    for (; j + LANES <= n; j += LANES) sum_taps<T, 1>(pixel + j, pitch, taps, sample.extent, sum + j);
    for (; j < n; ++j) {
        sum[j] = 0.0f;
        for (int k = 0; k < 3 * sample.extent; k += 3)
            sum[j] += taps[k + 2] * float(pixel[int64(taps[k]) * pitch + int64(taps[k + 1]) * 3 + j]);
    }
    load_block(sum, at.pixels, at.step, v);
}

DEVICE bool in_frame(const Sample& sample, int row, int column) {
    return row < sample.y.inner_low + sample.frame || row >= sample.y.inner_high - sample.frame ||
           column < sample.x.inner_low + sample.frame || column >= sample.x.inner_high - sample.frame;
}

template <class T>
DEVICE void stencil_block(const Sample& sample, const float* tables, const SourcePixels& at, PixelBlock& v) {
    const float* taps = tables + sample.weights;
    if (at.interior) {
        interior_stencil<T>(sample, taps, at, v);
        return;
    }
    for (int p = 0; p < PIXELS; ++p) {
        const int row = at.row, column = at.column[p];
        const bool filled = row == FILL_AFTER || column == FILL_AFTER, kept = !filled && in_frame(sample, row, column);
        // An array that a variable indexes would lie in local memory.
        UNROLL
        for (int c = 0; c < 3; ++c) {
            float sum = 0.0f;
            if (filled)
                sum = sample.after.fill[c];
            else if (kept)
                sum = load_bordered<T>(sample, row, column, c);
            else
                for (int k = 0; k < sample.extent; ++k)
                    sum += taps[3 * k + 2] *
                           load_bordered<T>(sample, row + int(taps[3 * k]), column + int(taps[3 * k + 1]), c);
            v[c][p] = sum;
        }
    }
}
