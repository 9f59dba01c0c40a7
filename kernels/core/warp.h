// General geometry: each output pixel goes through a matrix, and a field of displacements if there is one, to its place
// in the source, and gathers the pixels around it. For rotations, shears, perspective and elastic distortion; scaling
// and everything along the axes is core/sampling.h's, which can also antialias.
//
// A thread makes PIXELS neighbouring pixels of one output row. The coordinates are doubles: they are the same on
// every device, and far from 0 they do not lose the fraction.
//
// Tested against torch's grid_sample, cv2.warpAffine and warpPerspective, and tests/references/warp.py.
#pragma once
#include "cpu/double_simd.h"
#include "core/sampling.h"
#include "cpu/bilinear_gather.h"

// Where in the source a strip's points lie, in pixels from index 0; pixel i covers [i, i + 1).
struct Points {
    double y[PIXELS] IN_LINES, x[PIXELS] IN_LINES;
};

// What lies s to the right and t below the first of four nodes.
template <class Value>
DEVICE Doubles between(const Value (&nodes)[2][2], Doubles s, double t) {
    const Doubles upper = nodes[0][0] * (1.0 - s) + nodes[0][1] * s, lower = nodes[1][0] * (1.0 - s) + nodes[1][1] * s;
    return upper * (1.0 - t) + lower * t;
}

// Moves points of one output row by the field, interpolated bilinearly between its nodes, which span the image from
// corner to corner.
DEVICE void displace(const Sample& sample, const float* tables, Points& at) {
    const int rows = sample.field_rows, columns = sample.field_columns;
    const double down = at.y[0] / sample.field_height * (rows - 1), width = sample.field_width;
    const int i = int(smaller(larger(down, 0.0), rows - 2.0));
    const double t = down - i;
    double s[PIXELS];
    int cells[PIXELS], others = 0;
    FOR_PIXELS(p) {
        const double across = at.x[p] / width * (columns - 1);
        cells[p] = int(smaller(larger(across, 0.0), columns - 2.0));
        s[p] = across - cells[p];
    }
    FOR_PIXELS(p) others |= cells[p] ^ cells[0];
    const float* const upper = tables + sample.field + int64(i) * columns * 2;
    const float* const lower = upper + 2 * columns;
    if (others == 0) {
        for (int k = 0; k < 2; ++k) {
            const int j = 2 * cells[0] + k;
            const double nodes[2][2] = {{upper[j], upper[j + 2]}, {lower[j], lower[j + 2]}};
            double* const moved = k == 0 ? at.y : at.x;
            for (int p = 0; p < PIXELS; p += DOUBLES)
                store_doubles(moved + p, load_doubles(moved + p) + between(nodes, load_doubles(s + p), t));
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
        for (int p = 0; p < PIXELS; p += DOUBLES) {
            Doubles own[2][2];
            UNROLL
            for (int n = 0; n < 4; ++n) own[n / 2][n % 2] = to_doubles(nodes[k][n / 2][n % 2] + p);
            store_doubles(moved + p, load_doubles(moved + p) + between(own, load_doubles(s + p), t));
        }
    }
}

// Takes points of the output to the source.
DEVICE void map(const Sample& sample, const float* tables, Points& at) {
    if (sample.field_rows > 0) displace(sample, tables, at);
    const double m0 = sample.matrix[0], m1 = sample.matrix[1], m2 = sample.matrix[2], m3 = sample.matrix[3];
    const double m4 = sample.matrix[4], m5 = sample.matrix[5], m6 = sample.matrix[6], m7 = sample.matrix[7];
    const double m8 = sample.matrix[8];
    const bool affine = m6 == 0.0 && m7 == 0.0 && m8 == 1.0;
    for (int p = 0; p < PIXELS; p += DOUBLES) {
        const Doubles y = load_doubles(at.y + p), x = load_doubles(at.x + p);
        Doubles down = m3 * x + m4 * y + m5, across = m0 * x + m1 * y + m2;
        if (!affine) {
            const Doubles depth = m6 * x + m7 * y + m8;
            // At the horizon the depth is 0.
            down = limited(down / depth), across = limited(across / depth);
        }
        store_doubles(at.y + p, down), store_doubles(at.x + p, across);
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
    Colour value = no_colour();
    for (int i = 0; i < taps; ++i) {
        Colour sum = no_colour();
        for (int k = 0; k < taps; ++k) multiply_add(sum, wx[k], seen_colour<T>(sample, y0 + i, x0 + k));
        multiply_add(value, wy[i], sum);
    }
    return value;
}

// Which pixels a strip's points lie between, along one axis: the first of the taps, and their weights.
template <int taps>
struct Neighbours {
    int first[PIXELS] IN_LINES;
    float weights[taps][PIXELS] IN_LINES;
};

template <int taps>
DEVICE Neighbours<taps> neighbours_along(const double* at) {
    Neighbours<taps> found;
    float fraction[PIXELS] IN_LINES;
    for (int p = 0; p < PIXELS; p += FULL) {
        split_at_centre(at + p, found.first + p, fraction + p);
        if (taps != 2) continue;
        const Full<float> right = load_full(fraction + p);
        store_full(found.weights[0] + p, 1.0f - right), store_full(found.weights[1] + p, 1.0f - (1.0f - right));
    }
    if (taps == 2) return found;
    FOR_PIXELS(p) found.first[p] -= taps / 2 - 1;
    for (int k = 0; k < taps; ++k) FOR_PIXELS(p) found.weights[k][p] = cubic(float(k - 1) - fraction[p], -0.75f);
    return found;
}

// Where the taps around a strip's points lie, bits to be set: all in the image, and so one pixel more to the right, for
// what is read beyond the last one; some beyond a border; all in a constant one.
enum Where { INSIDE = 1, ACROSS = 2, FILLED = 4 };

// Whether i lies in [low, low + count); count may be negative.
DEVICE bool within(int i, int low, int count) { return uint32(i - low) < uint32(larger(count, 0)); }

// Returns all that occurs; `where` is filled in if that is more than INSIDE.
template <int taps>
DEVICE int locate(const Sample& sample, const Neighbours<taps>& y, const Neighbours<taps>& x, int* where) {
    const int top = sample.y.inner_low, bottom = sample.y.inner_high;
    const int left = sample.x.inner_low, right = sample.x.inner_high;
    const auto holds_all = [&](int p) {
        return within(y.first[p], top, bottom - top - taps + 1) & within(x.first[p], left, right - left - taps);
    };
    int inside = 1;
    FOR_PIXELS(p) inside &= holds_all(p);
    if (inside) return INSIDE;
    const int outside = sample.border_before == CONSTANT ? FILLED : ACROSS;
    int any = 0;
    FOR_PIXELS(p) {
        const bool some = within(y.first[p], top - taps + 1, bottom - top + taps - 1) &
                          within(x.first[p], left - taps + 1, right - left + taps - 1);
        where[p] = holds_all(p) ? INSIDE : some ? ACROSS : outside;
        any |= where[p];
    }
    return any;
}

// Where the first taps lie in memory, in values. Points that are not inside have those of one that is: more than what
// some point reads need not be there.
template <int taps>
DEVICE void locate_first(const Sample& sample, int pitch, const Neighbours<taps>& y, const Neighbours<taps>& x, int any,
                         const int* where, int64* first) {
    const int top = sample.y.held_low, left = sample.x.held_low;
    FOR_PIXELS(p) first[p] = int64(y.first[p] - top) * pitch + 3 * int64(x.first[p] - left);
    if (any == INSIDE) return;
    int one = 0;
    while (where[one] != INSIDE) ++one;
    const int64 inside = first[one];
    FOR_PIXELS(p) first[p] = where[p] == INSIDE ? first[p] : inside;
}

// v[c][p] = the sums around the points.
template <class T, int taps>
DEVICE void sum_inside(const T* image, int pitch, const int64* first, const Neighbours<taps>& y,
                       const Neighbours<taps>& x, int pixels, Strip& v) {
    float rgb[3 * PIXELS + 1];
    for (int p = 0; p < pixels; ++p) {
        float wy[taps], wx[taps];
        for (int k = 0; k < taps; ++k) wy[k] = y.weights[k][p], wx[k] = x.weights[k][p];
        store(rgb + 3 * p, weighted_sum(Taps<taps>(), image + first[p], pitch, wy, wx));
    }
    take_strip(rgb, pixels, 1, v);
}

#if !defined(__CUDACC__)

// The same of four pixels, as many points as a register holds at once. On CUDA a strip is one point.
template <class T>
DEVICE void sum_inside(const T* image, int pitch, const int64* first, const Neighbours<2>& y, const Neighbours<2>& x,
                       int, Strip& v) {
    for (int p = 0; p < PIXELS; p += FULL) {
        const Full<float> wy[2] = {load_full(y.weights[0] + p), load_full(y.weights[1] + p)};
        const Full<float> wx[2] = {load_full(x.weights[0] + p), load_full(x.weights[1] + p)};
        // A row of points crosses many rows of the source, and returns to those below soon: no prefetcher foresees
        // that.
        for (int i = 0; i < FULL; i += 4) __builtin_prefetch(image + first[p + i] + 8 * pitch);
        Full<float> sums[3];
        sum_four(image, pitch, first + p, wy, wx, sums);
#pragma GCC unroll 3
        for (int c = 0; c < 3; ++c) store_full(v[c] + p, sums[c]);
    }
}

#endif

// v[c][p] = the sums of the fill colour around the points that see nothing else.
template <int taps>
DEVICE void sum_filled(const Sample& sample, const Neighbours<taps>& y, const Neighbours<taps>& x, const int* where,
                       Strip& v) {
    for (int c = 0; c < 3; ++c) {
        const float fill = sample.fill_before[c];
        FOR_PIXELS(p) {
            float row = 0.0f, sum = 0.0f;
            for (int k = 0; k < taps; ++k) row += x.weights[k][p] * fill;
            for (int i = 0; i < taps; ++i) sum += y.weights[i][p] * row;
            v[c][p] = where[p] == FILLED ? sum : v[c][p];
        }
    }
}

// v[c][p] = the values between the pixels around the points.
template <class T, int taps>
DEVICE void interpolate(const Sample& sample, const Points& at, int pixels, Strip& v) {
    const Neighbours<taps> y = neighbours_along<taps>(at.y), x = neighbours_along<taps>(at.x);
    int where[PIXELS];
    int64 first[PIXELS];
    const int pitch = int(sample.pitch / int64(sizeof(T)));
    const int any = locate(sample, y, x, where);
    if (any & INSIDE) {
        locate_first(sample, pitch, y, x, any, where, first);
        sum_inside(reinterpret_cast<const T*>(sample.source), pitch, first, y, x, pixels, v);
    }
    if (any & FILLED) sum_filled(sample, y, x, where, v);
    if (!(any & ACROSS)) return;
    for (int p = 0; p < pixels; ++p) {
        if (where[p] != ACROSS) continue;
        float wy[taps], wx[taps], rgb[4];
        for (int k = 0; k < taps; ++k) wy[k] = y.weights[k][p], wx[k] = x.weights[k][p];
        store(rgb, seen_between<T, taps>(sample, y.first[p], x.first[p], wy, wx));
        for (int c = 0; c < 3; ++c) v[c][p] = rgb[c];
    }
}

// v[c][p] = the pixels that begin at `first`.
template <class T>
DEVICE void take_pixels(const T* image, const int64* first, int pixels, Strip& v) {
    float rgb[3 * PIXELS + 1];
    for (int p = 0; p < pixels; ++p) store(rgb + 3 * p, load_colour(image + first[p]));
    take_strip(rgb, pixels, 1, v);
}

#if defined(__AVX2__) && !defined(__CUDACC__)

// Not by way of memory: a load of what several stores wrote waits until they have left for the cache.
DEVICE void take_pixels(const float* image, const int64* first, int, Strip& v) {
    for (int p = 0; p < PIXELS; p += FULL) {
        Full<float> pixels[4], planes[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) pixels[i] = fours(image, first + p + i);
        transpose_fours(pixels, planes);
#pragma GCC unroll 3
        for (int c = 0; c < 3; ++c) store_full(v[c] + p, planes[c]);
    }
}

#endif

// v[c][p] = the pixels that the points lie in: sums of one tap whose weight is 1.
template <class T>
DEVICE void nearest_pixels(const Sample& sample, const Points& at, int pixels, Strip& v) {
    Neighbours<1> y, x;
    for (int p = 0; p < PIXELS; p += FULL) {
        floor_to_ints(at.y + p, y.first + p);
        floor_to_ints(at.x + p, x.first + p);
    }
    int where[PIXELS];
    int64 first[PIXELS];
    const int any = locate(sample, y, x, where);
    if (any & INSIDE) {
        locate_first(sample, int(sample.pitch / int64(sizeof(T))), y, x, any, where, first);
        take_pixels(reinterpret_cast<const T*>(sample.source), first, pixels, v);
    }
    if (any & FILLED)
        for (int c = 0; c < 3; ++c) {
            const float fill = sample.fill_before[c];
            FOR_PIXELS(p) v[c][p] = where[p] == FILLED ? fill : v[c][p];
        }
    if (!(any & ACROSS)) return;
    for (int p = 0; p < pixels; ++p) {
        if (where[p] != ACROSS) continue;
        float rgb[4];
        store(rgb, seen_colour<T>(sample, y.first[p], x.first[p]));
        for (int c = 0; c < 3; ++c) v[c][p] = rgb[c];
    }
}

// v[c][p] of the first `pixels` pixels of output row y from column x on; what follows them is nobody's.
template <class T>
DEVICE void warp_strip(const Sample& sample, const float* tables, int y, int x, int pixels, Strip& v) {
    const int row =
        continued(sample.y.start + sample.y.step * y, sample.y.seen_low, sample.y.seen_high, sample.border_after);
    int column[PIXELS];
    bool fills[PIXELS];
    const bool filled = !seen_strip(sample, sample.x, x, pixels, column) || row == -1;
    if (filled) {
        int other = 0;
        while (other < pixels && (row == -1 || column[other] == -1)) ++other;
        if (other == pixels) {
            for (int c = 0; c < 3; ++c) FOR_PIXELS(p) v[c][p] = sample.fill_after[c];
            return;
        }
        // What shows the fill colour is mapped as a pixel that does not: where it would lie, the source need not be.
        FOR_PIXELS(p) {
            fills[p] = column[p] == -1;
            column[p] = fills[p] ? column[other] : column[p];
        }
    }
    Points at;
    for (int p = 0; p < PIXELS; p += DOUBLES) {
        store_doubles(at.y + p, all_of(row + 0.5));
        store_doubles(at.x + p, to_doubles(column + p) + 0.5);
    }
    map(sample, tables, at);
    if (sample.filter == NEAREST) {
        nearest_pixels<T>(sample, at, pixels, v);
    } else if (sample.filter == BILINEAR) {
        interpolate<T, 2>(sample, at, pixels, v);
    } else {
        interpolate<T, 4>(sample, at, pixels, v);
    }
    if (!filled) return;
    for (int p = 0; p < pixels; ++p)
        if (fills[p])
            for (int c = 0; c < 3; ++c) v[c][p] = sample.fill_after[c];
}
