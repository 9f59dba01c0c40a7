// General geometry: each output pixel goes through a matrix, and a field of displacements if there is one, to its place
// in the source, and gathers the pixels around it. For rotations, shears, perspective and elastic distortion; scaling
// and everything along the axes is sampling.h's, which can also antialias.
//
// A thread makes PIXELS neighbouring pixels of one output row. The coordinates are doubles: they are the same on
// every device, and far from 0 they do not lose the fraction.
//
// Tested against torch's grid_sample, cv2.warpAffine and warpPerspective, and tests/references/warp.py.
#pragma once
#include "sampling.h"

// Far outside is far enough: what `continued` and the taps add must not leave the range of int.
DEVICE int whole(double value) {
    const double most = 1000000000.0;
    return value > -most ? int(value < most ? value : most) : -1000000000;  // a NaN too
}

// Where in the source a strip's points lie, in pixels from index 0; pixel i covers [i, i + 1).
struct Points {
    double y[PIXELS], x[PIXELS];
};

// Moves points of the output by the field, interpolated bilinearly between its nodes, which span the image from corner
// to corner.
DEVICE void displace(const Sample& sample, const float* tables, Points& at) {
    const int rows = sample.field_rows, columns = sample.field_columns;
    const int height = sample.y.seen_high - sample.y.seen_low, width = sample.x.seen_high - sample.x.seen_low;
    double t[PIXELS], s[PIXELS], nodes[2][4][PIXELS];
    int first[PIXELS];
    FOR_PIXELS(p) {
        const double down = at.y[p] / height * (rows - 1), across = at.x[p] / width * (columns - 1);
        const int i = smaller(larger(whole(down), 0), rows - 2), j = smaller(larger(whole(across), 0), columns - 2);
        t[p] = down - i, s[p] = across - j;
        first[p] = i * columns + j;
    }
    for (int p = 0; p < PIXELS; ++p) {
        const float* node = tables + sample.field + int64(first[p]) * 2;
        for (int k = 0; k < 2; ++k) {
            nodes[k][0][p] = node[k], nodes[k][1][p] = node[2 + k];
            nodes[k][2][p] = node[2 * columns + k], nodes[k][3][p] = node[2 * columns + 2 + k];
        }
    }
    for (int k = 0; k < 2; ++k) {
        double* const moved = k == 0 ? at.y : at.x;
        FOR_PIXELS(p) {
            const double upper = nodes[k][0][p] * (1 - s[p]) + nodes[k][1][p] * s[p];
            const double lower = nodes[k][2][p] * (1 - s[p]) + nodes[k][3][p] * s[p];
            moved[p] += upper * (1 - t[p]) + lower * t[p];
        }
    }
}

// Takes points of the output to the source.
DEVICE void map(const Sample& sample, const float* tables, Points& at) {
    if (sample.field_rows > 0) displace(sample, tables, at);
    const double m0 = sample.matrix[0], m1 = sample.matrix[1], m2 = sample.matrix[2], m3 = sample.matrix[3];
    const double m4 = sample.matrix[4], m5 = sample.matrix[5], m6 = sample.matrix[6], m7 = sample.matrix[7];
    const double m8 = sample.matrix[8];
    if (m6 == 0.0 && m7 == 0.0) FOR_PIXELS(p) {
            const double y = at.y[p], x = at.x[p];
            at.y[p] = m3 * x + m4 * y + m5, at.x[p] = m0 * x + m1 * y + m2;
        }
    else
        FOR_PIXELS(p) {
            const double y = at.y[p], x = at.x[p], depth = m6 * x + m7 * y + m8;
            at.y[p] = (m3 * x + m4 * y + m5) / depth, at.x[p] = (m0 * x + m1 * y + m2) / depth;
        }
}

// A pixel as sampling sees it, inside the image or on its border.
template <class T>
DEVICE Colour seen_colour(const Sample& sample, int y, int x) {
    y = continued(y, sample.y.inner_low, sample.y.inner_high, sample.border_before);
    x = continued(x, sample.x.inner_low, sample.x.inner_high, sample.border_before);
    if (y == -1 || x == -1) return colour_of(sample.fill_before);
    const T* pixel = row_of<T>(sample, y) + int64(x - sample.x.held_low) * 3;
    const float rgb[3] = {float(pixel[0]), float(pixel[1]), float(pixel[2])};
    return colour_of(rgb);
}

// The value between the taps x taps pixels from (y0, x0) on, wherever those are.
template <class T, int taps>
DEVICE Colour seen_between(const Sample& sample, int y0, int x0, const float* wy, const float* wx) {
    const bool all_filled =
        sample.border_before == CONSTANT && (y0 <= sample.y.inner_low - taps || y0 >= sample.y.inner_high ||
                                             x0 <= sample.x.inner_low - taps || x0 >= sample.x.inner_high);
    const Colour filling = colour_of(sample.fill_before);
    Colour value = no_colour();
    for (int i = 0; i < taps; ++i) {
        Colour sum = no_colour();
        for (int k = 0; k < taps; ++k)
            multiply_add(sum, wx[k], all_filled ? filling : seen_colour<T>(sample, y0 + i, x0 + k));
        multiply_add(value, wy[i], sum);
    }
    return value;
}

template <int taps>
DEVICE float tap_weight(int k, float fraction) {
    const float x = float(k - (taps / 2 - 1)) - fraction;
    return taps == 4 ? cubic(x, -0.75f) : triangle(x);
}

// rgb = the pixels between those around the points, packed, for the first `pixels` of a strip.
template <class T, int taps>
DEVICE void interpolate(const Sample& sample, const Points& at, int pixels, float* rgb) {
    int y0[PIXELS], x0[PIXELS];
    float wy[taps][PIXELS], wx[taps][PIXELS];
    FOR_PIXELS(p) {
        const double top = floor_of(at.y[p] - 0.5), left = floor_of(at.x[p] - 0.5);
        const float down = float(at.y[p] - 0.5 - top), across = float(at.x[p] - 0.5 - left);
        y0[p] = whole(top) - (taps / 2 - 1), x0[p] = whole(left) - (taps / 2 - 1);
        for (int k = 0; k < taps; ++k) wy[k][p] = tap_weight<taps>(k, down), wx[k][p] = tap_weight<taps>(k, across);
    }
    // One pixel more to the right: what is read beyond the last one lies in the image.
    const int top = sample.y.inner_low, below = sample.y.inner_high - taps;
    const int left = sample.x.inner_low, right = sample.x.inner_high - taps - 1;
    bool within[PIXELS];
    FOR_PIXELS(p) within[p] = (y0[p] >= top) & (y0[p] <= below) & (x0[p] >= left) & (x0[p] <= right);
    const T* const origin = row_of<T>(sample, 0) - int64(sample.x.held_low) * 3;
    const int64 pitch = sample.pitch / int64(sizeof(T));
    for (int p = 0; p < pixels; ++p) {
        float down[taps], across[taps];
        for (int k = 0; k < taps; ++k) down[k] = wy[k][p], across[k] = wx[k][p];
        const Colour value =
            within[p] ? weighted_sum(Taps<taps>(), origin + y0[p] * pitch + int64(x0[p]) * 3, pitch, down, across)
                      : seen_between<T, taps>(sample, y0[p], x0[p], down, across);
        store(rgb + 3 * p, value);
    }
}

// v[c][p] = the pixels that the points lie in.
template <class T>
DEVICE void nearest_pixels(const Sample& sample, const Points& at, int pixels, Strip& v) {
    const Axis &down = sample.y, &across = sample.x;
    int y[PIXELS], x[PIXELS];
    FOR_PIXELS(p) { y[p] = whole(floor_of(at.y[p])), x[p] = whole(floor_of(at.x[p])); }
    for (int p = 0; p < PIXELS; ++p) {
        const int row = p < pixels ? continued(y[p], down.inner_low, down.inner_high, sample.border_before) : -1;
        const int column = continued(x[p], across.inner_low, across.inner_high, sample.border_before);
        const T* pixel = row_of<T>(sample, row) + int64(column - across.held_low) * 3;
        const bool filled = row == -1 || column == -1;
        for (int c = 0; c < 3; ++c) v[c][p] = filled ? sample.fill_before[c] : float(pixel[c]);
    }
}

// v[c][p] of the first `pixels` pixels of output row y from column x on; what follows them is nobody's.
template <class T>
DEVICE void warp_strip(const Sample& sample, const float* tables, int y, int x, int pixels, Strip& v) {
    const int row =
        continued(sample.y.start + sample.y.step * y, sample.y.seen_low, sample.y.seen_high, sample.border_after);
    int column[PIXELS];
    const bool filled = !seen_strip(sample, sample.x, x, pixels, column) || row == -1;
    Points at;
    FOR_PIXELS(p) at.y[p] = row + 0.5, at.x[p] = column[p] + 0.5;
    map(sample, tables, at);
    if (sample.filter == NEAREST) {
        nearest_pixels<T>(sample, at, pixels, v);
    } else {
        float rgb[3 * PIXELS + 1];
        if (sample.filter == BILINEAR)
            interpolate<T, 2>(sample, at, pixels, rgb);
        else
            interpolate<T, 4>(sample, at, pixels, rgb);
        take_strip(rgb, pixels, 1, v);
    }
    if (!filled) return;
    for (int p = 0; p < pixels; ++p)
        if (row == -1 || column[p] == -1)
            for (int c = 0; c < 3; ++c) v[c][p] = sample.fill_after[c];
}
