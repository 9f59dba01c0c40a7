// Computes: where the pixels of a warp lie in the source: an optional displacement field, then a 3 x 3 matrix, then the
//           taps around each point and their weights. Coordinates are doubles: the same on every device, and far from
//           0 they keep the fraction.
// Threads:  one pixel block per thread.
// Reference: OpenCV's warpPerspective; Keys' cubic kernel with a = -0.75, as OpenCV and PyTorch have it.
// Tests:    tests/properties/test_warp.py against cv2, torch's grid_sample and tests/references/warp.py.
#pragma once
#include "core/sampling.h"

// Source coordinates of a block's pixels, in pixels from index 0; pixel i covers [i, i + 1).
struct SourcePoints {
    double y[PIXELS] CACHE_ALIGNED, x[PIXELS] CACHE_ALIGNED;
};

// The bilinear blend of four nodes, s to the right and t down.
template <class Value>
DEVICE DoubleVec between(const Value (&nodes)[2][2], DoubleVec s, double t) {
    const DoubleVec upper = nodes[0][0] * (1.0 - s) + nodes[0][1] * s,
                    lower = nodes[1][0] * (1.0 - s) + nodes[1][1] * s;
    return upper * (1.0 - t) + lower * t;
}

// Moves points of one output row by the field, bilinear between its nodes, which span the image from corner to corner.
DEVICE void displace(const Sample& sample, const float* tables, SourcePoints& at) {
    const int rows = sample.field_rows, columns = sample.field_columns;
    const double down = at.y[0] / sample.field_height * (rows - 1), width = sample.field_width;
    const int i = int(min(max(down, 0.0), rows - 2.0));
    const double t = down - i;
    double s[PIXELS];
    int cells[PIXELS], differs = 0;
    FOR_PIXELS(p) {
        const double across = at.x[p] / width * (columns - 1);
        cells[p] = int(min(max(across, 0.0), columns - 2.0));
        s[p] = across - cells[p];
    }
    FOR_PIXELS(p) differs |= cells[p] ^ cells[0];
    const float* const upper = tables + sample.field + int64(i) * columns * 2;
    const float* const lower = upper + 2 * columns;
    if (differs == 0) {
        for (int k = 0; k < 2; ++k) {
            const int j = 2 * cells[0] + k;
            const double nodes[2][2] = {{upper[j], upper[j + 2]}, {lower[j], lower[j + 2]}};
            double* const moved = k == 0 ? at.y : at.x;
            for (int p = 0; p < PIXELS; p += DOUBLE_LANES)
                store(moved + p, load_doubles(moved + p) + between(nodes, load_doubles(s + p), t));
        }
        return;
    }
    float nodes[2][2][2][PIXELS];
    for (int p = 0; p < PIXELS; ++p)
        for (int k = 0; k < 2; ++k) {
            const int j = 2 * cells[p] + k;
            nodes[k][0][0][p] = upper[j], nodes[k][0][1][p] = upper[j + 2];
            nodes[k][1][0][p] = lower[j], nodes[k][1][1][p] = lower[j + 2];
        }
    for (int k = 0; k < 2; ++k) {
        double* const moved = k == 0 ? at.y : at.x;
        for (int p = 0; p < PIXELS; p += DOUBLE_LANES) {
            DoubleVec nodes_at[2][2];
            UNROLL
            for (int n = 0; n < 4; ++n) nodes_at[n / 2][n % 2] = to_doubles(nodes[k][n / 2][n % 2] + p);
            store(moved + p, load_doubles(moved + p) + between(nodes_at, load_doubles(s + p), t));
        }
    }
}

// Maps output points to the source.
DEVICE void map(const Sample& sample, const float* tables, SourcePoints& at) {
    if (may_be<Samplings>(DISPLACE) && sample.field_rows > 0) displace(sample, tables, at);
    const double m0 = sample.matrix[0], m1 = sample.matrix[1], m2 = sample.matrix[2], m3 = sample.matrix[3];
    const double m4 = sample.matrix[4], m5 = sample.matrix[5], m6 = sample.matrix[6], m7 = sample.matrix[7];
    const double m8 = sample.matrix[8];
    const bool affine = m6 == 0.0 && m7 == 0.0 && m8 == 1.0;
    for (int p = 0; p < PIXELS; p += DOUBLE_LANES) {
        const DoubleVec y = load_doubles(at.y + p), x = load_doubles(at.x + p);
        DoubleVec down = m3 * x + m4 * y + m5, across = m0 * x + m1 * y + m2;
        if (!affine) {
            const DoubleVec depth = m6 * x + m7 * y + m8;
            // The depth is 0 at the horizon.
            down = clamp_coordinate(down / depth), across = clamp_coordinate(across / depth);
        }
        store(at.y + p, down), store(at.x + p, across);
    }
}

// Along one axis, the first tap of each point, and the weights.
template <int taps>
struct TapWeights {
    int first[PIXELS] CACHE_ALIGNED;
    float weights[taps][PIXELS] CACHE_ALIGNED;
};

template <int taps>
DEVICE TapWeights<taps> tap_weights(const double* at) {
    TapWeights<taps> found;
    float fraction[PIXELS] CACHE_ALIGNED;
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        split_at_centre(at + p, found.first + p, fraction + p);
        if (taps != 2) continue;
        const Vec<float> right = load_vec(fraction + p);
        store(found.weights[0] + p, 1.0f - right), store(found.weights[1] + p, 1.0f - (1.0f - right));
    }
    if (taps == 2) return found;
    FOR_PIXELS(p) found.first[p] -= taps / 2 - 1;
    for (int k = 0; k < taps; ++k) FOR_PIXELS(p) found.weights[k][p] = cubic(float(k - 1) - fraction[p], -0.75f);
    return found;
}

// Positions of the taps, as bits: all inside the image, with one more pixel to the right, which loads may read; some
// across a border; all on a constant border.
enum TapPosition { INSIDE = 1, PARTLY = 2, OUTSIDE = 4 };

// Whether i lies in [low, low + count); count may be negative.
DEVICE bool in_range(int i, int low, int count) { return uint32(i - low) < uint32(max(count, 0)); }

// Returns the union of the positions; `position` is set unless that is INSIDE.
template <int taps>
DEVICE int classify_taps(const Sample& sample, const TapWeights<taps>& y, const TapWeights<taps>& x, int* position) {
    const int top = sample.y.inner_low, bottom = sample.y.inner_high;
    const int left = sample.x.inner_low, right = sample.x.inner_high;
    const auto is_inside = [&](int p) {
        return in_range(y.first[p], top, bottom - top - taps + 1) & in_range(x.first[p], left, right - left - taps);
    };
    int inside = 1;
    FOR_PIXELS(p) inside &= is_inside(p);
    if (inside) return INSIDE;
    const int outside = is<Borders>(sample.border_before, CONSTANT) ? OUTSIDE : PARTLY;
    int found = 0;
    FOR_PIXELS(p) {
        const bool touches = in_range(y.first[p], top - taps + 1, bottom - top + taps - 1) &
                             in_range(x.first[p], left - taps + 1, right - left + taps - 1);
        position[p] = is_inside(p) ? INSIDE : touches ? PARTLY : outside;
        found |= position[p];
    }
    return found;
}

// Offsets of the first taps in memory, in values. Points that are not inside get the offset of one that is: memory may
// hold no more than inside points read.
template <int taps>
DEVICE void first_tap_offsets(const Sample& sample, int pitch, const TapWeights<taps>& y, const TapWeights<taps>& x,
                              int found, const int* position, int64* first) {
    const int top = sample.y.held_low, left = sample.x.held_low;
    FOR_PIXELS(p) first[p] = int64(y.first[p] - top) * pitch + 3 * int64(x.first[p] - left);
    if (found == INSIDE) return;
    int inside_point = 0;
    while (position[inside_point] != INSIDE) ++inside_point;
    const int64 inside = first[inside_point];
    FOR_PIXELS(p) first[p] = position[p] == INSIDE ? first[p] : inside;
}

// The sum of taps x taps pixels from `pixels` on, rows `pitch` values apart: along the rows first. It reads one value
// past a row's last pixel.
template <int taps, class T>
DEVICE Rgb weighted_sum(const T* pixels, int64 pitch, const float* wy, const float* wx) {
    Rgb value{};
    for (int i = 0; i < taps; ++i) {
        Rgb sum{};
        for (int k = 0; k < taps; ++k) multiply_add(sum, wx[k], load_rgb(pixels + i * pitch + 3 * k));
        multiply_add(value, wy[i], sum);
    }
    return value;
}

// v[c][p] = the weighted sums around the points.
template <class T, int taps>
DEVICE void gather_inside(const T* image, int pitch, const int64* first, const TapWeights<taps>& y,
                          const TapWeights<taps>& x, int pixels, PixelBlock& v) {
    float rgb[3 * PIXELS + 1];
    for (int p = 0; p < pixels; ++p) {
        float wy[taps], wx[taps];
        for (int k = 0; k < taps; ++k) wy[k] = y.weights[k][p], wx[k] = x.weights[k][p];
        store(rgb + 3 * p, weighted_sum<taps>(image + first[p], pitch, wy, wx));
    }
    load_block(rgb, pixels, 1, v);
}

// v[c][p] = the pixels at offsets `first`.
template <class T>
DEVICE void load_pixels_at(const T* image, const int64* first, int pixels, PixelBlock& v) {
    float rgb[3 * PIXELS + 1];
    for (int p = 0; p < pixels; ++p) store(rgb + 3 * p, load_rgb(image + first[p]));
    load_block(rgb, pixels, 1, v);
}
