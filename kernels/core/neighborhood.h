// Computes: the source pixels of passes that filter, or copy, without resampling. core/stencil.h, core/median.h and
//           core/jpeg_compression.h have the filters; separable convolution is a resampling with its own weights. An
//           output index shows one pixel of the window (plan.h): crops, flips and pads after the filter choose it.
// Threads:  one pixel block per thread.
// Reference: plan.h.
// Tests:    tests/properties/test_filters.py, tests/properties/test_bytes.py.
#pragma once
#include "core/sampling.h"

// In place of a source index: the pixel is after.fill. -1 may be an index, of padding before a resize.
constexpr int FILL_AFTER = -(1 << 30);

// The inner source index that output index o shows, or FILL_AFTER.
DEVICE int window_index(const Sample& sample, const Axis& axis, int o) {
    const int r = border_index(axis.start + axis.step * o, axis.seen_low, axis.seen_high, sample.after.border);
    return r == -1 ? FILL_AFTER : axis.origin + r;
}

// Pixels to either side that a filter reads: the padding of the window.
DEVICE int filter_radius(const Sample& sample, const Axis& axis) {
    return sample.neighborhood == NONE ? 0 : axis.inner_low - axis.low;
}

// Whether the output shows the window in source order, without borders.
DEVICE bool is_unflipped(const Axis& axis) {
    return axis.step == 1 && axis.start >= axis.seen_low && axis.start + axis.out <= axis.seen_high;
}

// The source pixels of PIXELS neighboring pixels of output row y from column x on.
struct SourcePixels {
    int row, pixels;
    int column[PIXELS];  // unset on the CPU for interior pixels, and for contiguous ones of JPEG
    bool contiguous;     // source columns left ... left + pixels - 1, in the order of `step`
    bool interior;       // contiguous; the filter reads only the window, and no pixel lies in the frame
    int step, left;
};

DEVICE SourcePixels source_pixels(const Sample& sample, int y, int x, int pixels) {
    SourcePixels at;
    at.row = window_index(sample, sample.y, y);
    at.pixels = pixels;
    at.step = sample.x.step;
    const int first = sample.x.start + at.step * x, last = first + at.step * (pixels - 1);
    const int low = min(first, last), high = max(first, last);
    at.contiguous = low >= sample.x.seen_low && high < sample.x.seen_high;
    at.left = sample.x.origin + low;
    const int down = max(filter_radius(sample, sample.y), sample.frame);
    const int across = max(filter_radius(sample, sample.x), sample.frame);
    at.interior = at.contiguous && at.row - down >= sample.y.inner_low && at.row + down < sample.y.inner_high &&
                  at.left - across >= sample.x.inner_low && at.left + pixels - 1 + across < sample.x.inner_high;
    if (PIXELS > 1 && (at.interior || (at.contiguous && sample.neighborhood == JPEG))) return at;
    if (at.contiguous) {
        FOR_PIXELS(p) at.column[p] = p < pixels ? sample.x.origin + first + at.step * p : FILL_AFTER;
    } else {
        FOR_PIXELS(p) at.column[p] = p < pixels ? window_index(sample, sample.x, x + p) : FILL_AFTER;
    }
    return at;
}

// The address of the leftmost source pixel of an interior block.
template <class T>
DEVICE const T* leftmost(const Sample& sample, const SourcePixels& at) {
    return row_of<T>(sample, at.row) + int64(at.left - sample.x.held_low) * 3;
}

// --- pixels that only move -------------------------------------------------------------------------------------------

template <class T>
DEVICE void copy_block(const Sample& sample, const SourcePixels& at, PixelBlock& v) {
    if (at.interior) {
        load_block(leftmost<T>(sample, at), at.pixels, at.step, v);
        return;
    }
    if (PIXELS == 1) {  // on CUDA the code below would need too many registers beside a warp's
        const bool filled = at.row == FILL_AFTER || at.column[0] == FILL_AFTER;
        for (int c = 0; c < 3; ++c)
            v[c][0] = filled ? sample.after.fill[c] : load_bordered<T>(sample, at.row, at.column[0], c);
        return;
    }
    // Row and columns are found once, not per channel.
    const Axis& x = sample.x;
    const bool after = at.row == FILL_AFTER;
    const int row = after ? -1 : border_index(at.row, sample.y.inner_low, sample.y.inner_high, sample.before.border);
    float rgb[3 * PIXELS];
    for (int p = 0; p < at.pixels; ++p) {
        const bool filled = after || at.column[p] == FILL_AFTER;
        const int column = filled ? -1 : border_index(at.column[p], x.inner_low, x.inner_high, sample.before.border);
        const bool inside = row != -1 && column != -1;
        const T* const pixel = inside ? row_of<T>(sample, row) + int64(column - x.held_low) * 3 : nullptr;
        const float* const fill = filled ? sample.after.fill : sample.before.fill;
        for (int c = 0; c < 3; ++c) rgb[3 * p + c] = inside ? float(pixel[c]) : fill[c];
    }
    load_block(rgb, at.pixels, 1, v);
}
