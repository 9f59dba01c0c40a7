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

// Where in the source the output's point (y, x) lies, in pixels from index 0; pixel i covers [i, i + 1).
DEVICE Point mapped(const Sample& sample, const float* tables, double y, double x) {
    if (sample.field_rows > 0) {
        const Point moved = displaced(sample, tables, y, x);
        y = moved.y, x = moved.x;
    }
    const double* m = sample.matrix;
    const double down = m[3] * x + m[4] * y + m[5], across = m[0] * x + m[1] * y + m[2];
    if (m[6] == 0.0 && m[7] == 0.0) return {down, across};
    const double depth = m[6] * x + m[7] * y + m[8];
    return {down / depth, across / depth};
}

// The value between the taps x taps pixels around a point.
template <class T, int taps>
DEVICE void gather(const Sample& sample, Point at, float* value) {
    const double top = floor_of(at.y - 0.5), left = floor_of(at.x - 0.5);
    const float down = float(at.y - 0.5 - top), across = float(at.x - 0.5 - left);
    const int y0 = whole(top) - (taps / 2 - 1), x0 = whole(left) - (taps / 2 - 1);
    float wy[taps], wx[taps];
    for (int k = 0; k < taps; ++k) {
        const float at_k = float(k - (taps / 2 - 1));
        wy[k] = taps == 4 ? cubic(at_k - down, -0.75f) : triangle(at_k - down);
        wx[k] = taps == 4 ? cubic(at_k - across, -0.75f) : triangle(at_k - across);
    }
    for (int c = 0; c < 3; ++c) value[c] = 0.0f;
    const bool inside = y0 >= sample.y.inner_low && y0 + taps <= sample.y.inner_high && x0 >= sample.x.inner_low &&
                        x0 + taps <= sample.x.inner_high;
    for (int i = 0; i < taps; ++i) {
        float sum[3] = {0.0f, 0.0f, 0.0f};
        if (inside) {
            const T* pixel = row_of<T>(sample, y0 + i) + int64(x0 - sample.x.held_low) * 3;
            for (int k = 0; k < taps; ++k)
                for (int c = 0; c < 3; ++c) sum[c] += wx[k] * float(pixel[3 * k + c]);
        } else {
            for (int k = 0; k < taps; ++k)
                for (int c = 0; c < 3; ++c) sum[c] += wx[k] * seen_value<T>(sample, y0 + i, x0 + k, c);
        }
        for (int c = 0; c < 3; ++c) value[c] += wy[i] * sum[c];
    }
}

// v[c][p] of PIXELS pixels of output row y from column x on; pixels from `pixels` on are 0.
template <class T>
DEVICE void warp_strip(const Sample& sample, const float* tables, int y, int x, int pixels, Strip& v) {
    const int row =
        continued(sample.y.start + sample.y.step * y, sample.y.seen_low, sample.y.seen_high, sample.border_after);
    for (int p = 0; p < PIXELS; ++p) {
        float value[3] = {0.0f, 0.0f, 0.0f};
        if (p < pixels) {
            const int column = continued(sample.x.start + sample.x.step * (x + p), sample.x.seen_low,
                                         sample.x.seen_high, sample.border_after);
            if (row == -1 || column == -1) {
                for (int c = 0; c < 3; ++c) value[c] = sample.fill_after[c];
            } else {
                const Point at = mapped(sample, tables, row + 0.5, column + 0.5);
                if (sample.filter == NEAREST)
                    for (int c = 0; c < 3; ++c)
                        value[c] = seen_value<T>(sample, whole(floor_of(at.y)), whole(floor_of(at.x)), c);
                else if (sample.filter == BILINEAR)
                    gather<T, 2>(sample, at, value);
                else
                    gather<T, 4>(sample, at, value);
            }
        }
        for (int c = 0; c < 3; ++c) v[c][p] = value[c];
    }
}
