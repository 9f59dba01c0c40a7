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

struct Point {
    double y, x;
};

// Where in the source a strip's points lie, in pixels from index 0; pixel i covers [i, i + 1).
struct Points {
    double y[PIXELS], x[PIXELS];
};

// How far the field moves the output's point (y, x), by bilinear interpolation between its nodes, which span the image
// from corner to corner.
DEVICE Point displaced(const Sample& sample, const float* tables, double y, double x) {
    const int rows = sample.field_rows, columns = sample.field_columns;
    const double down = y / (sample.y.seen_high - sample.y.seen_low) * (rows - 1);
    const double across = x / (sample.x.seen_high - sample.x.seen_low) * (columns - 1);
    const int i = smaller(larger(whole(down), 0), rows - 2), j = smaller(larger(whole(across), 0), columns - 2);
    const double t = down - i, s = across - j;
    const float* node = tables + sample.field + (int64(i) * columns + j) * 2;
    const float* below = node + 2 * columns;
    const double dy = (node[0] * (1 - s) + node[2] * s) * (1 - t) + (below[0] * (1 - s) + below[2] * s) * t;
    const double dx = (node[1] * (1 - s) + node[3] * s) * (1 - t) + (below[1] * (1 - s) + below[3] * s) * t;
    return {y + dy, x + dx};
}

// Takes points of the output to the source.
DEVICE void map(const Sample& sample, const float* tables, Points& at) {
    if (sample.field_rows > 0) FOR_PIXELS(p) {
            const Point moved = displaced(sample, tables, at.y[p], at.x[p]);
            at.y[p] = moved.y, at.x[p] = moved.x;
        }
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

template <class T>
DEVICE Colour seen_colour(const Sample& sample, int y, int x) {
    y = continued(y, sample.y.inner_low, sample.y.inner_high, sample.border_before);
    x = continued(x, sample.x.inner_low, sample.x.inner_high, sample.border_before);
    if (y == -1 || x == -1) return colour_of(sample.fill_before);
    const T* pixel = row_of<T>(sample, y) + int64(x - sample.x.held_low) * 3;
    const float rgb[3] = {float(pixel[0]), float(pixel[1]), float(pixel[2])};
    return colour_of(rgb);
}

// The value between the taps x taps pixels from (y0, x0) on.
template <class T, int taps>
DEVICE Colour gather(const Sample& sample, int y0, int x0, const float* wy, const float* wx) {
    Colour value = no_colour();
    const bool within = y0 >= sample.y.inner_low && y0 + taps <= sample.y.inner_high && x0 >= sample.x.inner_low &&
                        x0 + taps <= sample.x.inner_high;
    for (int i = 0; i < taps; ++i) {
        Colour sum = no_colour();
        for (int k = 0; k < taps; k += 2) {
            Colour first, second;
            if (within) {
                load_two(row_of<T>(sample, y0 + i) + int64(x0 + k - sample.x.held_low) * 3, first, second);
            } else {
                first = seen_colour<T>(sample, y0 + i, x0 + k);
                second = seen_colour<T>(sample, y0 + i, x0 + k + 1);
            }
            multiply_add(sum, wx[k], first);
            multiply_add(sum, wx[k + 1], second);
        }
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
    for (int p = 0; p < pixels; ++p) {
        float down[taps], across[taps];
        for (int k = 0; k < taps; ++k) down[k] = wy[k][p], across[k] = wx[k][p];
        store(rgb + 3 * p, gather<T, taps>(sample, y0[p], x0[p], down, across));
    }
}

template <class T>
DEVICE void nearest_pixels(const Sample& sample, const Points& at, int pixels, float* rgb) {
    int y[PIXELS], x[PIXELS];
    FOR_PIXELS(p) { y[p] = whole(floor_of(at.y[p])), x[p] = whole(floor_of(at.x[p])); }
    for (int p = 0; p < pixels; ++p) store(rgb + 3 * p, seen_colour<T>(sample, y[p], x[p]));
}

// v[c][p] of PIXELS pixels of output row y from column x on; pixels from `pixels` on are 0.
template <class T>
DEVICE void warp_strip(const Sample& sample, const float* tables, int y, int x, int pixels, Strip& v) {
    const int row =
        continued(sample.y.start + sample.y.step * y, sample.y.seen_low, sample.y.seen_high, sample.border_after);
    int column[PIXELS];
    Points at;
    FOR_PIXELS(p) {
        column[p] = continued(sample.x.start + sample.x.step * (x + smaller(p, pixels - 1)), sample.x.seen_low,
                              sample.x.seen_high, sample.border_after);
        at.y[p] = row + 0.5, at.x[p] = column[p] + 0.5;
    }
    map(sample, tables, at);
    float rgb[3 * PIXELS + 1];
    switch (sample.filter) {
        case NEAREST: nearest_pixels<T>(sample, at, pixels, rgb); break;
        case BILINEAR: interpolate<T, 2>(sample, at, pixels, rgb); break;
        default: interpolate<T, 4>(sample, at, pixels, rgb);
    }
    for (int p = 0; p < pixels; ++p)
        if (row == -1 || column[p] == -1)
            for (int c = 0; c < 3; ++c) rgb[3 * p + c] = sample.fill_after[c];
    take_strip(rgb, pixels, 1, v);
}
