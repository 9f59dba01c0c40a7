// What encoding as a JPEG and decoding it again leaves of an image: baseline, 4:2:0, as libjpeg does both by default
// (and so Pillow and torchvision), bit for bit. All in integers: its "islow" DCT of Loeffler, Ligtenberg and Moschytz,
// its colour tables, its quantiser, its "fancy" upsampling. Entropy coding loses nothing and is left out.
//
// A block of threads makes the 8 x 8 blocks of luma and chroma that its tile needs, in scratch, in phases divided by
// barriers: samples; rows forwards; columns forwards, quantised, and columns back; rows back; pixels. Blocks that
// tiles share are made by each.
//
// Scratch, in integers (cuaug/devices/cuda.py sizes it by the same sum): one plane of luma, two of chroma, of
// 64 * blocks_over(rows) * blocks_over(columns); chroma's rows and columns are n / 2 + 3 of the tile's n.
//
// Tested against Pillow's save and load, and tests/references/jpeg.py.
#pragma once
#include "neighbourhood.h"
#include "store.h"

// The most blocks of 8 that n neighbouring samples lie in.
DEVICE int blocks_over(int n) { return (n + 14) / 8; }

DEVICE int64 jpeg_scratch(int rows, int columns) {
    const int64 luma = int64(blocks_over(rows)) * blocks_over(columns);
    const int64 chroma = int64(blocks_over(rows / 2 + 3)) * blocks_over(columns / 2 + 3);
    return 64 * (luma + 2 * chroma);
}

// value / 2^bits to nearest, halves up.
DEVICE int descaled(int value, int bits) { return (value + (1 << (bits - 1))) >> bits; }

// One row or column of the DCT, in place; the factors are cosines in 13 bits. Rows, which come first, keep 2 bits of
// fraction that columns drop.
template <bool columns>
DEVICE void forward_dct(int* d) {
    constexpr int shift = columns ? 15 : 11;
    const int t0 = d[0] + d[7], t7 = d[0] - d[7], t1 = d[1] + d[6], t6 = d[1] - d[6];
    const int t2 = d[2] + d[5], t5 = d[2] - d[5], t3 = d[3] + d[4], t4 = d[3] - d[4];
    const int t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;
    d[0] = columns ? descaled(t10 + t11, 2) : (t10 + t11) * 4;
    d[4] = columns ? descaled(t10 - t11, 2) : (t10 - t11) * 4;
    int z1 = (t12 + t13) * 4433;
    d[2] = descaled(z1 + t13 * 6270, shift);
    d[6] = descaled(z1 - t12 * 15137, shift);
    z1 = (t4 + t7) * -7373;
    const int z2 = (t5 + t6) * -20995, z5 = (t4 + t6 + t5 + t7) * 9633;
    const int z3 = (t4 + t6) * -16069 + z5, z4 = (t5 + t7) * -3196 + z5;
    d[7] = descaled(t4 * 2446 + z1 + z3, shift);
    d[5] = descaled(t5 * 16819 + z2 + z4, shift);
    d[3] = descaled(t6 * 25172 + z2 + z3, shift);
    d[1] = descaled(t7 * 12299 + z1 + z4, shift);
}

// Columns come first here, and keep 2 bits of fraction.
template <bool columns>
DEVICE void inverse_dct(int* d) {
    constexpr int shift = columns ? 11 : 18;
    int z1 = (d[2] + d[6]) * 4433;
    int t2 = z1 - d[6] * 15137, t3 = z1 + d[2] * 6270;
    int t0 = (d[0] + d[4]) * 8192, t1 = (d[0] - d[4]) * 8192;
    const int t10 = t0 + t3, t13 = t0 - t3, t11 = t1 + t2, t12 = t1 - t2;
    t0 = d[7], t1 = d[5], t2 = d[3], t3 = d[1];
    z1 = (t0 + t3) * -7373;
    const int z2 = (t1 + t2) * -20995, z5 = (t0 + t2 + t1 + t3) * 9633;
    const int z3 = (t0 + t2) * -16069 + z5, z4 = (t1 + t3) * -3196 + z5;
    t0 = t0 * 2446 + z1 + z3, t1 = t1 * 16819 + z2 + z4, t2 = t2 * 25172 + z2 + z3, t3 = t3 * 12299 + z1 + z4;
    d[0] = descaled(t10 + t3, shift), d[7] = descaled(t10 - t3, shift);
    d[1] = descaled(t11 + t2, shift), d[6] = descaled(t11 - t2, shift);
    d[2] = descaled(t12 + t1, shift), d[5] = descaled(t12 - t1, shift);
    d[3] = descaled(t13 + t0, shift), d[4] = descaled(t13 - t0, shift);
}

// A coefficient, 8 times too large as the forward DCT leaves it, to the nearest multiple of the step.
DEVICE int quantised(int value, int step) {
    const int whole_steps = ((value < 0 ? -value : value) + 4 * step) / (8 * step);
    return (value < 0 ? -whole_steps : whole_steps) * step;
}

DEVICE int to_byte(int value) { return smaller(larger(value, 0), 255); }

// Blocks of one component that a tile needs: the first sample, and how many samples down and across.
struct Plane {
    int y, x, rows, columns;
    int* samples;
};

DEVICE int sample_at(const Plane& plane, int y, int x) {
    return plane.samples[(y - plane.y) * plane.columns + x - plane.x];
}

// The blocks of samples low .. high (both included) down and left .. right across.
DEVICE Plane plane_over(int low, int high, int left, int right, int* samples) {
    const int y = low & ~7, x = left & ~7;
    return {y, x, (high & ~7) + 8 - y, (right & ~7) + 8 - x, samples};
}

struct Levels {
    int r, g, b;
};

// Pixel (y, x) of the window in levels, as an encoder is given them.
template <class T>
DEVICE Levels levels_at(const Sample& sample, int y, int x) {
    const T* pixel = row_of<T>(sample, sample.y.inner_low + y) + int64(sample.x.inner_low + x - sample.x.held_low) * 3;
    const float per = 1.0f / sample.level;
    return {to_uint8(float(pixel[0]) * per), to_uint8(float(pixel[1]) * per), to_uint8(float(pixel[2]) * per)};
}

// JFIF's colours, in libjpeg's 16 bits, around 0.
DEVICE int luma_of(Levels v) { return ((19595 * v.r + 38470 * v.g + 7471 * v.b + 32768) >> 16) - 128; }
DEVICE int blue_of(Levels v) { return (-11059 * v.r - 21709 * v.g + 32768 * v.b + (128 << 16) + 32767) >> 16; }
DEVICE int red_of(Levels v) { return (32768 * v.r - 27439 * v.g - 5329 * v.b + (128 << 16) + 32767) >> 16; }

// Luma at each sample; beyond the window's last row and column they repeat.
template <class T>
DEVICE void read_luma(const Block& block, const Sample& sample, Plane plane, int height, int width) {
    for (int i = block.thread; i < plane.rows * plane.columns; i += block.threads) {
        const int y = plane.y + i / plane.columns, x = plane.x + i % plane.columns;
        plane.samples[i] = luma_of(levels_at<T>(sample, smaller(y, height - 1), smaller(x, width - 1)));
    }
}

// Chroma: the mean of 2 x 2 pixels, halves rounded down and up in turn. Downwards it is chroma's last row that
// repeats, sideways the window's last column.
template <class T>
DEVICE void read_chroma(const Block& block, const Sample& sample, Plane blue, Plane red, int height, int width) {
    for (int i = block.thread; i < blue.rows * blue.columns; i += block.threads) {
        const int y = 2 * smaller(blue.y + i / blue.columns, (height - 1) / 2), x = 2 * (blue.x + i % blue.columns);
        int cb = 1 + (x / 2 & 1), cr = cb;
        for (int k = 0; k < 4; ++k) {
            const Levels v = levels_at<T>(sample, smaller(y + k / 2, height - 1), smaller(x + k % 2, width - 1));
            cb += blue_of(v), cr += red_of(v);
        }
        blue.samples[i] = (cb >> 2) - 128, red.samples[i] = (cr >> 2) - 128;
    }
}

DEVICE void rows_forward(const Block& block, Plane plane) {
    for (int i = block.thread; i < plane.rows * plane.columns / 8; i += block.threads)
        forward_dct<false>(plane.samples + 8 * i);
}

DEVICE void rows_back(const Block& block, Plane plane) {
    for (int i = block.thread; i < plane.rows * plane.columns / 8; i += block.threads) {
        int* row = plane.samples + 8 * i;
        inverse_dct<false>(row);
        for (int k = 0; k < 8; ++k) row[k] = to_byte(row[k] + 128);
    }
}

DEVICE void columns_there_and_back(const Block& block, const float* steps, Plane plane) {
    for (int i = block.thread; i < plane.rows / 8 * plane.columns; i += block.threads) {
        int* top = plane.samples + i / plane.columns * 8 * plane.columns + i % plane.columns;
        int column[8];
        for (int k = 0; k < 8; ++k) column[k] = top[k * plane.columns];
        forward_dct<true>(column);
        for (int k = 0; k < 8; ++k) column[k] = quantised(column[k], int(steps[8 * k + (i & 7)]));
        inverse_dct<true>(column);
        for (int k = 0; k < 8; ++k) top[k * plane.columns] = column[k];
    }
}

// Chroma at pixel (y, x): a quarter of the way to the neighbouring samples; narrow images have the nearest.
DEVICE int upsampled(const Plane& plane, int y, int x, int height, int width) {
    const int last_row = (height - 1) / 2, last_column = (width - 1) / 2;
    if (last_column < 2) return sample_at(plane, y / 2, x / 2);
    const int far = smaller(larger(y / 2 + (y & 1 ? 1 : -1), 0), last_row);
    const int beside = smaller(larger(x / 2 + (x & 1 ? 1 : -1), 0), last_column);
    const int near_sum = 3 * sample_at(plane, y / 2, x / 2) + sample_at(plane, far, x / 2);
    const int far_sum = 3 * sample_at(plane, y / 2, beside) + sample_at(plane, far, beside);
    return (3 * near_sum + far_sum + (x & 1 ? 7 : 8)) >> 4;
}

DEVICE void decoded_pixel(const Sample& sample, const Plane* planes, int y, int x, int height, int width, float* rgb) {
    const int luma = sample_at(planes[0], y, x);
    const int blue = upsampled(planes[1], y, x, height, width) - 128;
    const int red = upsampled(planes[2], y, x, height, width) - 128;
    rgb[0] = float(to_byte(luma + ((91881 * red + 32768) >> 16))) * sample.level;
    rgb[1] = float(to_byte(luma + ((-22554 * blue - 46802 * red + 32768) >> 16))) * sample.level;
    rgb[2] = float(to_byte(luma + ((116130 * blue + 32768) >> 16))) * sample.level;
}

// The pixels of the window that some output indices show; none where they show fill alone.
DEVICE Span shown_range(const Sample& sample, const Axis& axis, int begin, int count) {
    int low = 2147483647, high = -1;
    for (int i = begin; i < begin + count; ++i) {
        const int at = shown(sample, axis, i);
        if (at == AFTER) continue;
        low = smaller(low, at - axis.inner_low);
        high = larger(high, at - axis.inner_low);
    }
    return high < 0 ? Span{0, 0} : Span{low, high + 1 - low};
}

// The decoded blocks that a tile of these pixels of the window needs, in scratch. All threads leave together.
template <class T>
DEVICE void jpeg_planes(const Block& block, const Sample& sample, const float* tables, Span rows, Span columns,
                        int* scratch, Plane* planes) {
    if (rows.count == 0 || columns.count == 0) return;
    const int low = rows.first, high = rows.first + rows.count - 1;
    const int left = columns.first, right = columns.first + columns.count - 1;
    const int height = sample.y.inner_high - sample.y.inner_low, width = sample.x.inner_high - sample.x.inner_low;
    const int chroma_low = larger(low / 2 - 1, 0), chroma_high = smaller(high / 2 + 1, (height - 1) / 2);
    const int chroma_left = larger(left / 2 - 1, 0), chroma_right = smaller(right / 2 + 1, (width - 1) / 2);
    for (int k = 0; k < 3; ++k) {
        planes[k] = k == 0 ? plane_over(low, high, left, right, scratch)
                           : plane_over(chroma_low, chroma_high, chroma_left, chroma_right, scratch);
        scratch += planes[k].rows * planes[k].columns;
    }
    read_luma<T>(block, sample, planes[0], height, width);
    read_chroma<T>(block, sample, planes[1], planes[2], height, width);
    block.sync();
    for (int k = 0; k < 3; ++k) rows_forward(block, planes[k]);
    block.sync();
    const float* steps = tables + sample.weights;
    for (int k = 0; k < 3; ++k) columns_there_and_back(block, k == 0 ? steps : steps + 64, planes[k]);
    block.sync();
    for (int k = 0; k < 3; ++k) rows_back(block, planes[k]);
    block.sync();
}

DEVICE void jpeg_strip(const Sample& sample, const Plane* planes, const Shown& at, Strip& v) {
    const int height = sample.y.inner_high - sample.y.inner_low, width = sample.x.inner_high - sample.x.inner_low;
    for (int p = 0; p < PIXELS; ++p) {
        float rgb[3] = {sample.fill_after[0], sample.fill_after[1], sample.fill_after[2]};
        const int y = at.row - sample.y.inner_low, x = at.column[p] - sample.x.inner_low;
        if (at.row != AFTER && at.column[p] != AFTER) decoded_pixel(sample, planes, y, x, height, width, rgb);
        for (int c = 0; c < 3; ++c) v[c][p] = rgb[c];
    }
}
