// Separable resampling: which source pixels an output row or column reads, and with which weights. Their sums are
// core/resample.h's.
//
// Tested against cv2.resize (no antialiasing), Pillow's resize (antialiasing) and tests/references/sampling.py.
#pragma once
#include "plan.h"
#include "cpu/deinterleave.h"

// The part of the output that a block makes.
struct Tile {
    int y, x, rows, columns;
};

// PIXELS neighbouring pixels of an output row, planar.
typedef float Strip[3][PIXELS] IN_LINES;
#define FOR_PIXELS(p) for (int p = 0; p < PIXELS; ++p)

// The first `count` pixels from the last to the first.
DEVICE void reverse(Strip& v, int count) {
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < count / 2; ++p) {
            const float left = v[c][p];
            v[c][p] = v[c][count - 1 - p];
            v[c][count - 1 - p] = left;
        }
}

// v = what lies packed at `pixels`, as a strip of that step.
template <class T>
DEVICE void take_strip(const T* pixels, int count, int step, Strip& v) {
    if (count == PIXELS)
        unpack(pixels, v);
    else
        for (int p = 0; p < PIXELS; ++p)
            for (int c = 0; c < 3; ++c) v[c][p] = p < count ? float(pixels[3 * p + c]) : 0.0f;
    if (step < 0) reverse(v, count);
}

// Index i of a row of pixels [low, high), 0 <= low < high, continued beyond its ends by a border; -1 where the constant
// fill stands.
DEVICE int continued(int i, int low, int high, int border) {
    if (i >= low && i < high) return i;
    if (border == CONSTANT) return -1;
    const int n = high - low;
    if (border == EDGE || n == 1) return i < low ? low : high - 1;
    if (border == WRAP) {
        const int k = (i - low) % n;
        return low + (k < 0 ? k + n : k);
    }
    // REFLECT turns at the centre of the last pixel, SYMMETRIC at its edge.
    const int period = border == REFLECT ? 2 * n - 2 : 2 * n;
    int k = (i - low) % period;
    if (k < 0) k += period;
    if (k >= n) k = (border == REFLECT ? period : period - 1) - k;
    return low + k;
}

// r[p] = the resized index that output index first + p shows, -1 where the fill colour stands; beyond `pixels` the last
// one again. Returns whether all lie between the borders.
DEVICE bool seen_strip(const Sample& sample, const Axis& axis, int first, int pixels, int* r) {
    const int begin = axis.start + axis.step * first, last = begin + axis.step * (pixels - 1);
    FOR_PIXELS(p) r[p] = begin + axis.step * smaller(p, pixels - 1);
    if (smaller(begin, last) >= axis.seen_low && larger(begin, last) < axis.seen_high) return true;
    FOR_PIXELS(p) r[p] = continued(r[p], axis.seen_low, axis.seen_high, sample.border_after);
    return false;
}

// Keys' cubic convolution kernel (1981); a = -0.5 is Pillow's and antialiasing's, -0.75 OpenCV's and PyTorch's without.
DEVICE float cubic(float x, float a) {
    x = x < 0.0f ? -x : x;
    if (x < 1.0f) return ((a + 2.0f) * x - (a + 3.0f)) * x * x + 1.0f;
    if (x < 2.0f) return ((a * x - 5.0f * a) * x + 8.0f * a) * x - 4.0f * a;
    return 0.0f;
}

DEVICE float triangle(float x) {
    x = x < 0.0f ? -x : x;
    return x < 1.0f ? 1.0f - x : 0.0f;
}

// The source span of one output index; count 0 where the fill colour stands.
struct Span {
    int first, count;
};

// Pillow's rule: the filter widens with the scale, what falls outside the window is dropped and the rest renormalised.
DEVICE Span antialiased(const Axis& axis, double centre, int filter, float* weights) {
    const double stretch = axis.scale > 1.0 ? axis.scale : 1.0;
    const double support = (filter == BICUBIC ? 2.0 : 1.0) * stretch;
    int first = larger(axis.low, axis.origin + int(floor_of(centre - support + 0.5)));
    int end = smaller(axis.high, axis.origin + int(floor_of(centre + support + 0.5)));
    first = smaller(first, axis.high - 1);
    end = smaller(larger(end, first + 1), first + axis.taps);
    float total = 0.0f;
    for (int k = 0; k < end - first; ++k) {
        const float x = float(((first - axis.origin) + k - centre + 0.5) / stretch);
        weights[k] = filter == BICUBIC ? cubic(x, -0.5f) : triangle(x);
        total += weights[k];
    }
    for (int k = 0; k < end - first; ++k) weights[k] = total == 0.0f ? float(k == 0) : weights[k] / total;
    return {first, end - first};
}

// OpenCV's rule: 2 or 4 neighbours of the centre; those outside the window are the window's edge.
DEVICE Span interpolated(const Axis& axis, double centre, int filter, float* weights) {
    const int taps = filter == BICUBIC ? 4 : 2;
    const double left = floor_of(centre - 0.5);
    const float fraction = float(centre - 0.5 - left);
    const int wanted = axis.origin + int(left) - (taps / 2 - 1);
    const int first = smaller(larger(wanted, axis.low), axis.high - 1);
    const int count = larger(1, smaller(wanted + taps, axis.high) - first);
    for (int k = 0; k < count; ++k) weights[k] = 0.0f;
    for (int k = 0; k < taps; ++k) {
        const float x = float(k - (taps / 2 - 1)) - fraction;
        const int at = smaller(larger(wanted + k, axis.low), axis.high - 1) - first;
        weights[at] += filter == BICUBIC ? cubic(x, -0.75f) : triangle(x);
    }
    return {first, count};
}

DEVICE Span nearest(const Axis& axis, int r, float* weights) {
    const int at = axis.origin + int(floor_of(axis.offset + r * axis.scale));
    weights[0] = 1.0f;
    return {smaller(larger(at, axis.low), axis.high - 1), 1};
}

// As many source indices as every span of this axis has room for.
DEVICE int common_count(const Axis& axis) { return smaller(axis.taps, axis.high - axis.low); }

// Lengthens a span to `count` with weights of 0, inside the window. A loop over a count that never changes is
// predicted; one whose count is now 3, now 4, costs more in mispredictions than in arithmetic.
DEVICE Span lengthened(const Axis& axis, Span span, int count, float* weights) {
    const int first = smaller(span.first, axis.high - count), shift = span.first - first;
    for (int k = count - 1; k >= 0; --k) weights[k] = k >= shift && k - shift < span.count ? weights[k - shift] : 0.0f;
    return {first, count};
}

// The pixels around r, with weights of the sample's own.
DEVICE Span weighted(const Axis& axis, int r, const float* own, float* weights) {
    for (int k = 0; k < axis.taps; ++k) weights[k] = own[k];
    return {axis.low + r, axis.taps};
}

// Fills spans[i] and weights[i * axis.taps ...] for output indices begin + i, i in [0, count). `own` are this axis'
// weights of a SEPARABLE pass.
DEVICE void tabulate(const Block& block, const Sample& sample, const Axis& axis, const float* own, int begin, int count,
                     Span* spans, float* weights) {
    for (int i = block.thread; i < count; i += block.threads) {
        const int r =
            continued(axis.start + axis.step * (begin + i), axis.seen_low, axis.seen_high, sample.border_after);
        float* w = weights + int64(i) * axis.taps;
        const double centre = axis.offset + (r + 0.5) * axis.scale;
        if (r == -1)
            spans[i] = {0, 0};
        else if (sample.neighbourhood == SEPARABLE)
            spans[i] = weighted(axis, r, own, w);
        else if (sample.filter == NEAREST)
            spans[i] = nearest(axis, r, w);
        else
            spans[i] = sample.antialias ? antialiased(axis, centre, sample.filter, w)
                                        : interpolated(axis, centre, sample.filter, w);
    }
}

// Where source row `y` (an inner index) begins; the pixel that lies there is column x.held_low.
template <class T>
DEVICE const T* row_of(const Sample& sample, int y) {
    return reinterpret_cast<const T*>(sample.source + uint64(int64(y - sample.y.held_low) * sample.pitch));
}

// One value of the source as sampling sees it: inside the image, or its border.
template <class T>
DEVICE float seen_value(const Sample& sample, int y, int x, int channel) {
    y = continued(y, sample.y.inner_low, sample.y.inner_high, sample.border_before);
    x = continued(x, sample.x.inner_low, sample.x.inner_high, sample.border_before);
    const bool inside = y != -1 && x != -1;
    return inside ? float(row_of<T>(sample, y)[int64(x - sample.x.held_low) * 3 + channel])
                  : sample.fill_before[channel];
}
