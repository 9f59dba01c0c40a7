// Computes: where the pixels of a warp lie in the source: an optional displacement field, then a 3 x 3 matrix, then the
//           taps around each point and their weights.
//           Coordinates are integers in fixed point, so every device, tile and vector computes the same bits, and
//           CUDA needs no doubles, which most GPUs compute at 1/32 to 1/64 of the speed of floats.
//           AFFINE: fixed_matrix holds units of 2^-32 pixels. Rounding it moves a point of an H x W image by at most
//           (H + W + 1) 2^-33 pixels: 1e-6 for 12 megapixels. Another 2^-24 is lost where the fraction becomes a float.
//           PERSPECTIVE: a point is numerator / denominator, in a unit that keeps the denominator below 2^59. Floats
//           give a whole number `whole` near the quotient. The remainder numerator - whole * denominator is exact
//           although all three are known modulo 2^64 only; divided as floats, it gives the rest of the point, which is
//           within 2^-24 + 2^-25 d pixels, d being the largest denominator of the image by that of the point.
//           It holds for points, and for terms of the numerator, below 2^26 pixels; others stay far outside the image.
//           DISPLACED points add floats: their error is 2^-23 of the displacement.
// Threads:  one pixel block per thread.
// Reference: OpenCV's warpPerspective; Keys' cubic kernel with a = -0.75, as OpenCV and PyTorch have it.
// Tests:    tests/properties/test_warp.py against cv2, torch's grid_sample and tests/references/warp.py;
//           tests/properties/test_warp_points.py against doubles, in images of up to 65,535 pixels.
#pragma once
#include "core/sampling.h"

// Limits of coordinates, in pixels: a border, taps or a `rest` added to FAR stay in the range of int, and a clamped
// `rest` leads no far point back into an image.
constexpr float FAR = 1000000000.0f, FAR_REST = 16777216.0f;

// The columns of a block's pixels in the resized image.
struct Columns {
    const int* index;
    bool even;  // index[p] = index[0] + p * step
    int step;
};

// whole + rest, in pixels.
struct Coordinates {
    int whole[PIXELS] CACHE_ALIGNED;
    float rest[PIXELS] CACHE_ALIGNED;
};
struct SourcePoints {
    Coordinates y, x;
};

// Displacements, in pixels of the resized image.
struct Moves {
    float y[PIXELS] CACHE_ALIGNED, x[PIXELS] CACHE_ALIGNED;
};

DEVICE Vec<float> clamp_rest(Vec<float> rest) { return min(max(rest, splat(-FAR_REST)), splat(FAR_REST)); }

// 64-bit numbers: upper * 2^32 + lower.
struct FixedPoint {
    int upper[PIXELS] CACHE_ALIGNED;
    uint32 lower[PIXELS] CACHE_ALIGNED;
};

// line[0] * column p + line[1] * y + line[2], modulo 2^64.
DEVICE void evaluate(const int64* line, int y, const Columns& columns, FixedPoint& values) {
    const uint64 slope = uint64(line[0]), first = uint64(line[1]) * uint32(y) + uint64(line[2]);
    if (PIXELS > 1 && columns.even) {
        const uint64 begin = first + slope * uint32(columns.index[0]);
        store_steps(begin, slope * uint64(int64(columns.step)), values.upper, values.lower);
        return;
    }
    FOR_PIXELS(p) {
        const uint64 value = first + slope * uint32(columns.index[p]);
        values.upper[p] = int(uint32(value >> 32)), values.lower[p] = uint32(value);
    }
}

// lower * 2^-32, rounded down to 24 bits.
template <class Word>
DEVICE auto to_fraction(Word lower) {
    return to_float(lower >> 8) * (1.0f / 16777216.0f);
}

// The upper words of i * (upper, lower).
DEVICE Vec<uint32> multiply_upper(Vec<int> i, Vec<int> upper, Vec<uint32> lower) {
    return Vec<uint32>(i) * Vec<uint32>(upper) + multiply_high(Vec<uint32>(i), lower) - (Vec<uint32>(i >> 31) & lower);
}

// The bilinear blend of four nodes, s to the right and t down.
DEVICE float between(float a, float b, float c, float d, float s, float t) {
    return (a * (1.0f - s) + b * s) * (1.0f - t) + (c * (1.0f - s) + d * s) * t;
}

// The field's displacements of points of row y, bilinear between its nodes, which span the image from corner to corner.
DEVICE void displace(const Sample& sample, const float* tables, int y, const Columns& columns, Moves& moves) {
    // The center of pixel i lies (i + 0.5) * field_step from the first node.
    const uint64 row = uint64(sample.field_step[0]) * uint32(y) + uint64(sample.field_step[0]) / 2;
    const int64 line[3] = {sample.field_step[1], 0, sample.field_step[1] / 2};
    const float t = to_fraction(uint32(row));
    FixedPoint at;
    evaluate(line, y, columns, at);
    const int* const cells = at.upper;
    int differs = 0;
    float s[PIXELS];
    for (int p = 0; p < PIXELS; p += VEC_LANES) store(s + p, to_fraction(load_vec(at.lower + p)));
    FOR_PIXELS(p) differs |= cells[p] ^ cells[0];
    const float* const upper = tables + sample.field.at + int64(row >> 32) * sample.field.columns * 2;
    const float* const lower = upper + 2 * sample.field.columns;
    if (differs == 0) {
        const float *a = upper + 2 * cells[0], *c = lower + 2 * cells[0];
        FOR_PIXELS(p) {
            moves.y[p] = between(a[0], a[2], c[0], c[2], s[p], t);
            moves.x[p] = between(a[1], a[3], c[1], c[3], s[p], t);
        }
        return;
    }
    float nodes[8][PIXELS];
    FOR_PIXELS(p)
    for (int k = 0; k < 4; ++k) nodes[k][p] = upper[2 * cells[p] + k], nodes[4 + k][p] = lower[2 * cells[p] + k];
    FOR_PIXELS(p) {
        moves.y[p] = between(nodes[0][p], nodes[2][p], nodes[4][p], nodes[6][p], s[p], t);
        moves.x[p] = between(nodes[1][p], nodes[3][p], nodes[5][p], nodes[7][p], s[p], t);
    }
}

// One coordinate of an affine map, of points `moved` by `moves`.
DEVICE void map_affine(const Sample& sample, int axis, int y, const Columns& columns, bool moved, const Moves& moves,
                       Coordinates& at) {
    const float* const slopes = sample.float_matrix + 3 * axis;
    FixedPoint values;
    evaluate(sample.fixed_matrix + 3 * axis, y, columns, values);
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        Vec<float> rest = to_fraction(load_vec(values.lower + p));
        if (moved) {
            rest += slopes[0] * load_vec(moves.x + p) + slopes[1] * load_vec(moves.y + p);
            rest = clamp_rest(rest);
        }
        store(at.whole + p, load_vec(values.upper + p));
        store(at.rest + p, rest);
    }
}

// Both coordinates of a perspective map, of points `moved` by `moves`.
DEVICE void map_perspective(const Sample& sample, int y, const Columns& columns, bool moved, const Moves& moves,
                            SourcePoints& at) {
    const float *const last = sample.float_matrix + 6, row = float(y);
    FixedPoint denominators, numerators;
    float divisors[PIXELS] CACHE_ALIGNED, moved_divisors[PIXELS] CACHE_ALIGNED;
    evaluate(sample.fixed_matrix + 6, y, columns, denominators);
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        // The denominator is 0 at the horizon: quotients are infinite or not a number.
        const Vec<float> denominator = to_float(load_vec(denominators.upper + p));
        store(divisors + p, 1.0f / denominator);
        if (!moved) continue;
        const Vec<float> move = last[0] * load_vec(moves.x + p) + last[1] * load_vec(moves.y + p);
        store(moved_divisors + p, 1.0f / (denominator + move));
    }
    UNROLL
    for (int axis = 0; axis < 2; ++axis) {
        const float* const slopes = sample.float_matrix + 3 * axis;
        const float first = slopes[1] * row + slopes[2];
        Coordinates& found = axis == 0 ? at.x : at.y;
        evaluate(sample.fixed_matrix + 3 * axis, y, columns, numerators);
        for (int p = 0; p < PIXELS; p += VEC_LANES) {
            const Vec<float> numerator = slopes[0] * to_float(load_vec(columns.index + p)) + first;
            Vec<float> divisor = load_vec(divisors + p);
            const Vec<float> whole = min(max(floor(numerator * divisor), splat(-FAR)), splat(FAR));
            const Vec<uint32> product =
                multiply_upper(to_int(whole), load_vec(denominators.upper + p), load_vec(denominators.lower + p));
            Vec<float> rest = to_float(Vec<int>(Vec<uint32>(load_vec(numerators.upper + p)) - product));
            if (moved) {
                rest += (slopes[0] - whole * last[0]) * load_vec(moves.x + p) +
                        (slopes[1] - whole * last[1]) * load_vec(moves.y + p);
                divisor = load_vec(moved_divisors + p);
            }
            store(found.whole + p, to_int(whole));
            store(found.rest + p, clamp_rest(rest * divisor));
        }
    }
}

// Maps pixels of row y of the resized image to the source. Pixel i of the source begins at i; for interpolation, the
// center of pixel i lies at i: set_kernel_matrices in planner/geometry.h has moved the matrix.
DEVICE void map(const Sample& sample, const float* tables, int y, const Columns& columns, SourcePoints& at) {
    Moves moves;
    const bool moved = may_be<Samplings>(DISPLACE) && sample.field.rows > 0;
    if (moved) displace(sample, tables, y, columns, moves);
    if (sample.warped == AFFINE) {
        map_affine(sample, 0, y, columns, moved, moves, at.x);
        map_affine(sample, 1, y, columns, moved, moves, at.y);
    } else {
        map_perspective(sample, y, columns, moved, moves, at);
    }
}

// Along one axis, the first tap of each point, and the weights.
template <int taps>
struct TapWeights {
    int first[PIXELS] CACHE_ALIGNED;
    float weights[taps][PIXELS] CACHE_ALIGNED;
};

template <int taps>
DEVICE TapWeights<taps> tap_weights(const Coordinates& at) {
    TapWeights<taps> found;
    float fraction[PIXELS] CACHE_ALIGNED;
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        const Vec<float> rest = load_vec(at.rest + p), below = floor(rest), right = rest - below;
        store(found.first + p, load_vec(at.whole + p) + to_int(below) - (taps / 2 - 1));
        store(fraction + p, right);
        if (taps == 2) store(found.weights[0] + p, 1.0f - right), store(found.weights[1] + p, 1.0f - (1.0f - right));
    }
    if (taps == 2) return found;
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
    const int outside = is<Borders>(sample.before.border, CONSTANT) ? OUTSIDE : PARTLY;
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
