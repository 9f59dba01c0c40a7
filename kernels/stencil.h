// Convolution with any weights: a list of taps, each an offset and a weight, so that a kernel of mostly zeros (a motion
// blur is a line) costs what its line costs. Pixels nearer to the edge than `frame` stay as they are.
//
// Tested against cv2.filter2D, Pillow's ImageEnhance.Sharpness and tests/references/filters.py.
#pragma once
#include "neighbourhood.h"

// v[c][p] of a plain strip: tap by tap over neighbouring values, which vectorises.
template <class T>
DEVICE void plain_stencil(const Sample& sample, const float* taps, const Shown& at, Strip& v) {
    const T* pixel = leftmost<T>(sample, at);
    const int64 pitch = sample.pitch / int64(sizeof(T));
    float sum[3 * PIXELS];
    for (int j = 0; j < 3 * PIXELS; ++j) sum[j] = 0.0f;
    for (int k = 0; k < sample.extent; ++k, taps += 3) {
        const T* tap = pixel + int64(taps[0]) * pitch + int64(taps[1]) * 3;
        const float weight = taps[2];
        if (at.pixels == PIXELS)
            for (int j = 0; j < 3 * PIXELS; ++j) sum[j] += weight * float(tap[j]);
        else
            for (int j = 0; j < 3 * at.pixels; ++j) sum[j] += weight * float(tap[j]);
    }
    for (int p = 0; p < PIXELS; ++p) {
        const int from = at.step > 0 ? p : larger(at.pixels - 1 - p, 0);
        for (int c = 0; c < 3; ++c) v[c][p] = sum[3 * from + c];
    }
}

DEVICE bool in_frame(const Sample& sample, int row, int column) {
    return row < sample.y.inner_low + sample.frame || row >= sample.y.inner_high - sample.frame ||
           column < sample.x.inner_low + sample.frame || column >= sample.x.inner_high - sample.frame;
}

template <class T>
DEVICE void stencil_strip(const Sample& sample, const float* tables, const Shown& at, Strip& v) {
    const float* taps = tables + sample.weights;
    if (at.plain) {
        plain_stencil<T>(sample, taps, at, v);
        return;
    }
    for (int p = 0; p < PIXELS; ++p) {
        const int row = at.row, column = at.column[p];
        const bool filled = row == -1 || column == -1, kept = !filled && in_frame(sample, row, column);
        for (int c = 0; c < 3; ++c) {
            float sum = 0.0f;
            if (filled)
                sum = sample.fill_after[c];
            else if (kept)
                sum = seen_value<T>(sample, row, column, c);
            else
                for (int k = 0; k < sample.extent; ++k)
                    sum += taps[3 * k + 2] *
                           seen_value<T>(sample, row + int(taps[3 * k]), column + int(taps[3 * k + 1]), c);
            v[c][p] = sum;
        }
    }
}
