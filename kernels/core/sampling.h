// Computes: the source pixels and weights of each output row and column of a separable resampling.
//           core/resample.h sums them.
// Threads:  one output row or column per thread.
// Reference: Pillow's Resample.c (antialiasing), OpenCV's resize (without); Keys, "Cubic convolution interpolation for
//           digital image processing", 1981; Turkowski, "Filters for common resampling tasks", 1990 (Lanczos).
// Tests:    tests/properties/test_sampling.py against cv2.resize, Pillow and tests/references/sampling.py.
#pragma once
#include "core/fast_math.h"
#include "core/pixel_block.h"

// Keys' cubic kernel. a = -0.5 for antialiasing, as Pillow; -0.75 without, as OpenCV and PyTorch.
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

// sin(pi t), t in [0, 1].
DEVICE float sin_half_turns(float t) { return fast_sin_quarter(0.5f * min(t, 1.0f - t)); }

// sinc(x) (0.54 + 0.46 cos(pi x)), as Pillow.
DEVICE float hamming(float x) {
    x = x < 0.0f ? -x : x;
    if (x == 0.0f) return 1.0f;
    return x < 1.0f ? sin_half_turns(x) / (3.14159265f * x) * (0.54f + 0.46f * fast_cos_turns(0.5f * x)) : 0.0f;
}

// sinc(x) sinc(x / 3). The fraction of x makes it 0 at whole pixels.
DEVICE float lanczos(float x) {
    x = x < 0.0f ? -x : x;
    if (x == 0.0f) return 1.0f;
    if (x >= 3.0f) return 0.0f;
    const int whole = int(x);
    const float sine = sin_half_turns(x - float(whole)), angle = 3.14159265f * x;
    return (whole == 1 ? -sine : sine) * sin_half_turns(x / 3.0f) * 3.0f / (angle * angle);
}

// The weight of a source pixel x from the center, in units of a filter that antialiasing has widened.
DEVICE float antialias_weight(int filter, float x) {
    if (is<Filters>(filter, BILINEAR)) return triangle(x);
    if (is<Filters>(filter, BICUBIC)) return cubic(x, -0.5f);
    if (is<Filters>(filter, LANCZOS)) return lanczos(x);
    if (is<Filters>(filter, HAMMING)) return hamming(x);
    return x > -0.5f && x <= 0.5f ? 1.0f : 0.0f;  // BOX
}

// The source span of one output index; count 0 means the fill color.
struct Span {
    int first, count;
};

// Pillow's rule: the filter widens with the scale; weights outside the window are dropped and the others renormalized.
DEVICE Span antialias_span(const Axis& axis, double center, int filter, float* weights) {
    const double stretch = axis.scale > 1.0 ? axis.scale : 1.0;
    const double support = support_of(filter) * stretch;
    if (is<Filters>(filter, BOX))
        center += 1e-9;  // a pixel between two boxes belongs to the first, however positions are rounded
    int first = max(axis.low, axis.origin + int(floor(center - support + 0.5)));
    int end = min(axis.high, axis.origin + int(floor(center + support + 0.5)));
    first = min(first, axis.high - 1);
    end = min(max(end, first + 1), first + axis.taps);
    const double reciprocal = 1.0 / stretch;
    float total = 0.0f;
    for (int k = 0; k < end - first; ++k) {
        const float x = divide_to_float((first - axis.origin) + k - center + 0.5, stretch, reciprocal);
        weights[k] = antialias_weight(filter, x);
        total += weights[k];
    }
    for (int k = 0; k < end - first; ++k) weights[k] = total == 0.0f ? float(k == 0) : weights[k] / total;
    return {first, end - first};
}

// OpenCV's rule: the 2 or 4 neighbors of the center; those outside the window repeat its edge.
DEVICE Span interpolate_span(const Axis& axis, double center, int filter, float* weights) {
    const bool bicubic = is<Filters>(filter, BICUBIC);
    const int taps = bicubic ? 4 : 2;
    const double left = floor(center - 0.5);
    const float fraction = float(center - 0.5 - left);
    const int first_tap = axis.origin + int(left) - (taps / 2 - 1);
    const int first = min(max(first_tap, axis.low), axis.high - 1);
    const int count = max(1, min(first_tap + taps, axis.high) - first);
    for (int k = 0; k < count; ++k) weights[k] = 0.0f;
    for (int k = 0; k < taps; ++k) {
        const float x = float(k - (taps / 2 - 1)) - fraction;
        const int at = min(max(first_tap + k, axis.low), axis.high - 1) - first;
        weights[at] += bicubic ? cubic(x, -0.75f) : triangle(x);
    }
    return {first, count};
}

DEVICE Span nearest_span(const Axis& axis, int r, float* weights) {
    const int at = axis.origin + int(floor(axis.offset + r * axis.scale));
    weights[0] = 1.0f;
    return {min(max(at, axis.low), axis.high - 1), 1};
}

// The number of source indices that every span of this axis has room for.
DEVICE int max_span(const Axis& axis) { return min(axis.taps, axis.high - axis.low); }

// Extends a span to `count` with weights of 0, inside the window. A constant loop count is predicted; a count that
// alternates costs more in mispredictions than the extra arithmetic.
DEVICE Span pad_span(const Axis& axis, Span span, int count, float* weights) {
    const int first = min(span.first, axis.high - count), shift = span.first - first;
    for (int k = count - 1; k >= 0; --k) weights[k] = k >= shift && k - shift < span.count ? weights[k - shift] : 0.0f;
    return {first, count};
}

// The pixels around r, with the filter's own weights.
DEVICE Span filter_span(const Axis& axis, int r, const float* filter, float* weights) {
    for (int k = 0; k < axis.taps; ++k) weights[k] = filter[k];
    return {axis.low + r, axis.taps};
}

// Fills spans[i] and weights[i * axis.taps ...] for output indices begin + i, i in [0, count). filter: weights of a
// SEPARABLE pass.
DEVICE void tabulate_spans(const Block& block, const Sample& sample, const Axis& axis, const float* filter, int begin,
                           int count, Span* spans, float* weights) {
    for (int i = block.thread; i < count; i += block.threads) {
        const int r =
            border_index(axis.start + axis.step * (begin + i), axis.seen_low, axis.seen_high, sample.after.border);
        float* w = weights + int64(i) * axis.taps;
        const double center = axis.offset + (r + 0.5) * axis.scale;
        if (r == -1)
            spans[i] = {0, 0};
        else if (is<Neighborhoods>(sample.neighborhood, SEPARABLE))
            spans[i] = filter_span(axis, r, filter, w);
        else if (is<Filters>(sample.filter, NEAREST))
            spans[i] = nearest_span(axis, r, w);
        else
            spans[i] = is<Antialiases>(sample.antialias, ANTIALIAS) ? antialias_span(axis, center, sample.filter, w)
                                                                    : interpolate_span(axis, center, sample.filter, w);
    }
}

// The sum over rows of values that may lie on a constant border.
template <class T>
DEVICE float sum_bordered(const Sample& sample, Span rows, const float* weights, int x, int channel) {
    float sum = 0.0f;
    for (int k = 0; k < rows.count; ++k) sum += weights[k] * load_bordered<T>(sample, rows.first + k, x, channel);
    return sum;
}
