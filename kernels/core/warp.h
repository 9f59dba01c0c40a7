// Computes: rotations, shears, perspective and elastic distortion: each output pixel gathers the source pixels around
//           its point. core/resample.h does scaling along the axes, which can also antialias.
// Threads:  one pixel block per thread.
// Reference: core/warp_points.h.
// Tests:    tests/properties/test_warp.py against cv2, torch's grid_sample and tests/references/warp.py.
#pragma once
#include "core/warp_points.h"

// A source pixel, inside the image or on its border.
template <class T>
DEVICE Rgb load_bordered_rgb(const Sample& sample, int y, int x) {
    y = border_index(y, sample.y.inner_low, sample.y.inner_high, sample.before.border);
    x = border_index(x, sample.x.inner_low, sample.x.inner_high, sample.before.border);
    if (y == -1 || x == -1) return make_rgb(sample.before.fill);
    const T* pixel = row_of<T>(sample, y) + int64(x - sample.x.held_low) * 3;
    const float rgb[3] = {float(pixel[0]), float(pixel[1]), float(pixel[2])};
    return make_rgb(rgb);
}

// The weighted sum of the taps x taps pixels from (y0, x0) on, inside or on the border.
template <class T, int taps>
DEVICE Rgb interpolate_bordered(const Sample& sample, int y0, int x0, const float* wy, const float* wx) {
    Rgb value{};
    for (int i = 0; i < taps; ++i) {
        Rgb sum{};
        for (int k = 0; k < taps; ++k) multiply_add(sum, wx[k], load_bordered_rgb<T>(sample, y0 + i, x0 + k));
        multiply_add(value, wy[i], sum);
    }
    return value;
}

// v[c][p] = the weighted sums of the fill color, at points that see nothing else.
template <int taps>
DEVICE void gather_fill(const Sample& sample, const TapWeights<taps>& y, const TapWeights<taps>& x, const int* position,
                        PixelBlock& v) {
    for (int c = 0; c < 3; ++c) {
        const float fill = sample.before.fill[c];
        FOR_PIXELS(p) {
            float row = 0.0f, sum = 0.0f;
            for (int k = 0; k < taps; ++k) row += x.weights[k][p] * fill;
            for (int i = 0; i < taps; ++i) sum += y.weights[i][p] * row;
            v[c][p] = position[p] == OUTSIDE ? sum : v[c][p];
        }
    }
}

// v[c][p] = the interpolated values at the points.
template <class T, int taps>
DEVICE void interpolate(const Sample& sample, const SourcePoints& at, int pixels, PixelBlock& v) {
    const TapWeights<taps> y = tap_weights<taps>(at.y), x = tap_weights<taps>(at.x);
    int position[PIXELS];
    int64 first[PIXELS];
    const int pitch = int(sample.source.pitch / int64(sizeof(T)));
    const int found = classify_taps(sample, y, x, position);
    if (found & INSIDE) {
        first_tap_offsets(sample, pitch, y, x, found, position, first);
        gather_inside(reinterpret_cast<const T*>(sample.source.address), pitch, first, y, x, pixels, v);
    }
    if (found & OUTSIDE) gather_fill(sample, y, x, position, v);
    if (!(found & PARTLY)) return;
    for (int p = 0; p < pixels; ++p) {
        if (position[p] != PARTLY) continue;
        float wy[taps], wx[taps], rgb[4];
        for (int k = 0; k < taps; ++k) wy[k] = y.weights[k][p], wx[k] = x.weights[k][p];
        store(rgb, interpolate_bordered<T, taps>(sample, y.first[p], x.first[p], wy, wx));
        for (int c = 0; c < 3; ++c) v[c][p] = rgb[c];
    }
}

// v[c][p] = the pixels that contain the points: one tap of weight 1.
template <class T>
DEVICE void gather_nearest(const Sample& sample, const SourcePoints& at, int pixels, PixelBlock& v) {
    TapWeights<1> y, x;
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        store(y.first + p, load_vec(at.y.whole + p) + to_int(floor(load_vec(at.y.rest + p))));
        store(x.first + p, load_vec(at.x.whole + p) + to_int(floor(load_vec(at.x.rest + p))));
    }
    int position[PIXELS];
    int64 first[PIXELS];
    const int found = classify_taps(sample, y, x, position);
    if (found & INSIDE) {
        first_tap_offsets(sample, int(sample.source.pitch / int64(sizeof(T))), y, x, found, position, first);
        load_pixels_at(reinterpret_cast<const T*>(sample.source.address), first, pixels, v);
    }
    if (found & OUTSIDE)
        for (int c = 0; c < 3; ++c) {
            const float fill = sample.before.fill[c];
            FOR_PIXELS(p) v[c][p] = position[p] == OUTSIDE ? fill : v[c][p];
        }
    if (!(found & PARTLY)) return;
    for (int p = 0; p < pixels; ++p) {
        if (position[p] != PARTLY) continue;
        float rgb[4];
        store(rgb, load_bordered_rgb<T>(sample, y.first[p], x.first[p]));
        for (int c = 0; c < 3; ++c) v[c][p] = rgb[c];
    }
}

// v[c][p] of `pixels` pixels of output row y from column x on; later entries are undefined.
template <class T>
DEVICE void warp_block(const Sample& sample, const float* tables, int y, int x, int pixels, PixelBlock& v) {
    const int row =
        border_index(sample.y.start + sample.y.step * y, sample.y.seen_low, sample.y.seen_high, sample.after.border);
    int column[PIXELS] CACHE_ALIGNED;
    bool fills[PIXELS];
    const bool plain = resized_indices(sample, sample.x, x, pixels, column), filled = !plain || row == -1;
    if (filled) {
        int other = 0;
        while (other < pixels && (row == -1 || column[other] == -1)) ++other;
        if (other == pixels) {
            for (int c = 0; c < 3; ++c) FOR_PIXELS(p) v[c][p] = sample.after.fill[c];
            return;
        }
        // A pixel of the fill color takes the point of another pixel: its own may lie where no source pixels are held.
        FOR_PIXELS(p) {
            fills[p] = column[p] == -1;
            column[p] = fills[p] ? column[other] : column[p];
        }
    }
    SourcePoints at;
    map(sample, tables, row, {column, plain && pixels == PIXELS, sample.x.step}, at);
    if (is<Filters>(sample.filter, NEAREST)) {
        gather_nearest<T>(sample, at, pixels, v);
    } else if (is<Filters>(sample.filter, BILINEAR)) {
        interpolate<T, 2>(sample, at, pixels, v);
    } else if (is<Filters>(sample.filter, BICUBIC)) {
        interpolate<T, 4>(sample, at, pixels, v);
    }
    if (!filled) return;
    for (int p = 0; p < pixels; ++p)
        if (fills[p])
            for (int c = 0; c < 3; ++c) v[c][p] = sample.after.fill[c];
}
