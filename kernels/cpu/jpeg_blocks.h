// Computes: JPEG samples and their DCT, a block of 8 x 8 at once.
// Threads:  one thread per tile.
// Reference: core/jpeg_compression.h.
// Tests:    tests/properties/test_jpeg.py.
#pragma once
#include "core/jpeg_compression.h"

// The levels of PIXELS window pixels of row y from column x on; the last column repeats.
template <class T>
DEVICE void load_levels(const Sample& sample, int y, int x, int width, PixelBlock& v) {
    if (x + PIXELS <= width) {
        unpack(window_pixel<T>(sample, y, x), v);
    } else {
        T pixels[3 * PIXELS];
        for (int p = 0; p < PIXELS; ++p)
            memcpy(pixels + 3 * p, window_pixel<T>(sample, y, min(x + p, width - 1)), 3 * sizeof(T));
        unpack(pixels, v);
    }
    if (sizeof(T) == sizeof(uint8) && sample.level == 1.0f) return;
    const float per = 1.0f / sample.level;
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < PIXELS; p += 8) store(&v[c][p], to_levels(load_vec32(&v[c][p]), per));
}

// Stores `count` values as samples x ... of a row of a plane, as far as they lie in it.
template <int count>
DEVICE void store_samples(const Plane& plane, int y, int x, const uint8* values) {
    const int begin = max(x, plane.x), end = min(x + count, plane.x + plane.columns);
    if (y < plane.y || y >= plane.y + plane.rows || begin >= end) return;
    uint8* const to = sample_at(plane, y, begin);
    if (end - begin == count)
        memcpy(to, values, count);
    else
        memcpy(to, values + (begin - x), size_t(end - begin));
}

// means[i] = (sums[2 * i] + sums[2 * i + 1]) / 4, rounded as chroma_mean.
DEVICE void to_means(const int* sums, uint8* means) {
    for (int i = 0; i < PIXELS / 2; ++i) means[i] = uint8(chroma_mean(sums[2 * i] + sums[2 * i + 1], i));
}

// Luma of window rows y and y + 1 for PIXELS columns, and chroma between the rows.
template <class T>
DEVICE void read_rows(const Sample& sample, const Plane* planes, int y, int x, int height, int width) {
    int luma[2][PIXELS], blue[PIXELS], red[PIXELS];
    uint8 bytes[PIXELS];
    PixelBlock v[2];
    for (int row = 0; row < 2; ++row) load_levels<T>(sample, min(y + row, height - 1), x, width, v[row]);
    for (int p = 0; p < PIXELS; p += 8) {
        Vec32<int> cb = {}, cr = {};
        for (int row = 0; row < 2; ++row) {
            const Vec32<float> r = load_vec32(&v[row][0][p]), g = load_vec32(&v[row][1][p]);
            const Vec32<float> b = load_vec32(&v[row][2][p]);
            store(luma[row] + p, to_luma(r, g, b));
            cb += to_cb(r, g, b), cr += to_cr(r, g, b);
        }
        store(blue + p, cb);
        store(red + p, cr);
    }
    for (int row = 0; row < 2; ++row) {
        to_bytes(luma[row], bytes);
        store_samples<PIXELS>(planes[0], y + row, x, bytes);
    }
    to_means(blue, bytes);
    store_samples<PIXELS / 2>(planes[1], y / 2, x / 2, bytes);
    to_means(red, bytes);
    store_samples<PIXELS / 2>(planes[2], y / 2, x / 2, bytes);
}

// Fills the rows of a plane from `end` on with the row before.
DEVICE void repeat_last_row(const Plane& plane, int end) {
    for (int y = end; y < plane.y + plane.rows; ++y)
        memcpy(sample_at(plane, y, plane.x), sample_at(plane, end - 1, plane.x), size_t(plane.columns));
}

template <class T>
DEVICE void read_samples(const Block&, const Sample& sample, const Plane* planes, int height, int width) {
    const Plane& chroma = planes[1];  // extends at least as far as luma
    const int end = min(chroma.y + chroma.rows, (height + 1) / 2);
    for (int y = chroma.y; y < end; ++y)
        for (int x = chroma.x; x < chroma.x + chroma.columns; x += PIXELS / 2)
            read_rows<T>(sample, planes, 2 * y, 2 * x, height, width);
    repeat_last_row(planes[0], height);
    for (int k = 1; k < 3; ++k) repeat_last_row(planes[k], (height + 1) / 2);
}

// Transforms, quantizes and inverts all blocks of a plane.
DEVICE void code_plane(const float* steps, uint8* samples, int rows, int columns) {
    for (int y = 0; y < rows; y += 8)
        for (int x = 0; x < columns; x += 8) {
            uint8* const block = samples + int64(y) * columns + x;
            int d[8][8], column[8];
            for (int k = 0; k < 8; ++k) {
                for (int i = 0; i < 8; ++i) d[k][i] = block[k * columns + i] - 128;
                forward_dct<false>(d[k]);
            }
            for (int i = 0; i < 8; ++i) {
                for (int k = 0; k < 8; ++k) column[k] = d[k][i];
                code_column(steps + i, column);
                for (int k = 0; k < 8; ++k) d[k][i] = column[k];
            }
            for (int k = 0; k < 8; ++k) {
                inverse_dct<false>(d[k]);
                for (int i = 0; i < 8; ++i) block[k * columns + i] = uint8(to_sample(d[k][i]));
            }
        }
}

DEVICE void code_blocks(const Block&, const float* tables, const Plane* planes) {
    for (int k = 0; k < 3; ++k)
        code_plane(k == 0 ? tables : tables + 64, planes[k].samples, planes[k].rows, planes[k].columns);
}
