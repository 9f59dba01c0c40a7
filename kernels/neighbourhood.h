// Passes that make a pixel of those around it: which pixels those are. The filters themselves are in stencil.h,
// median.h and jpeg.h; separable convolution is a resampling with weights of its own, and sampling.h's.
//
// An output index shows one pixel of the window (plan.h): crops, flips and pads made after the filter choose which.
#pragma once
#include "sampling.h"

// The inner source index that output index o shows; -1 where the fill colour stands.
DEVICE int shown(const Sample& sample, const Axis& axis, int o) {
    const int r = continued(axis.start + axis.step * o, axis.seen_low, axis.seen_high, sample.border_after);
    return r == -1 ? -1 : axis.origin + r;
}

// How many pixels to either side a filter looks at: what padding added to the window.
DEVICE int reach(const Axis& axis) { return axis.inner_low - axis.low; }

// The source pixels that PIXELS neighbouring pixels of output row y show, from column x on.
struct Shown {
    int row, column[PIXELS], pixels;
    // Whether they are neighbours in the source too, in the order of `step`, and all that the filter looks at lies in
    // the window: then pixel p is source column first + step * p.
    bool plain;
    int step;
};

DEVICE Shown shown_strip(const Sample& sample, int y, int x, int pixels) {
    Shown at;
    at.row = shown(sample, sample.y, y);
    for (int p = 0; p < PIXELS; ++p) at.column[p] = p < pixels ? shown(sample, sample.x, x + p) : -1;
    at.pixels = pixels;
    at.step = sample.x.step;
    const int first = at.column[0], last = at.column[pixels - 1], down = reach(sample.y), across = reach(sample.x);
    at.plain = first >= 0 && last >= 0 && (last - first) * at.step == pixels - 1 &&
               at.row - down >= sample.y.inner_low && at.row + down < sample.y.inner_high &&
               smaller(first, last) - across >= sample.x.inner_low &&
               larger(first, last) + across < sample.x.inner_high;
    return at;
}

// The leftmost source pixel of a plain strip, in memory.
template <class T>
DEVICE const T* leftmost(const Sample& sample, const Shown& at) {
    const int left = smaller(at.column[0], at.column[at.pixels - 1]);
    return row_of<T>(sample, at.row) + int64(left - sample.x.held_low) * 3;
}
