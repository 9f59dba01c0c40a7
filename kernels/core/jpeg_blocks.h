// Computes: JPEG samples and their DCT, each step shared by the threads of a block, with barriers between the steps.
//           CUDA's build, and the CPU's with several threads per block, in which ThreadSanitizer sees the barriers.
// Threads:  a sample, or a row or column of 8 samples, per thread.
// Reference: core/jpeg_compression.h.
// Tests:    tests/properties/test_jpeg.py, tests/kernels/test_sanitizers.py.
#pragma once
#include "core/jpeg_compression.h"

// rgb = the levels of the window pixel nearest to (y, x).
template <class T>
DEVICE void load_levels(const Sample& sample, int y, int x, int height, int width, float* rgb) {
    const T* pixel = window_pixel<T>(sample, min(y, height - 1), min(x, width - 1));
    for (int c = 0; c < 3; ++c) rgb[c] = to_levels(float(pixel[c]), 1.0f / sample.level);
}

// Past the window, chroma's last row repeats downwards, and the window's last column sideways.
template <class T>
DEVICE void read_samples(const Block& block, const Sample& sample, const Plane* planes, int height, int width) {
    float rgb[3];
    for (int i = block.thread; i < planes[0].rows * planes[0].columns; i += block.threads) {
        const int y = planes[0].y + i / planes[0].columns, x = planes[0].x + i % planes[0].columns;
        load_levels<T>(sample, y, x, height, width, rgb);
        planes[0].samples[i] = to_luma(rgb[0], rgb[1], rgb[2]) - 128;
    }
    for (int i = block.thread; i < planes[1].rows * planes[1].columns; i += block.threads) {
        const int y = min(planes[1].y + i / planes[1].columns, (height - 1) / 2);
        const int x = planes[1].x + i % planes[1].columns;
        int blue = 0, red = 0;
        for (int k = 0; k < 4; ++k) {
            load_levels<T>(sample, 2 * y + k / 2, 2 * x + k % 2, height, width, rgb);
            blue += to_cb(rgb[0], rgb[1], rgb[2]), red += to_cr(rgb[0], rgb[1], rgb[2]);
        }
        planes[1].samples[i] = chroma_mean(blue, x) - 128, planes[2].samples[i] = chroma_mean(red, x) - 128;
    }
}

DEVICE void forward_rows(const Block& block, Plane plane) {
    for (int i = block.thread; i < plane.rows * plane.columns / 8; i += block.threads)
        forward_dct<false>(plane.samples + 8 * i);
}

DEVICE void inverse_rows(const Block& block, Plane plane) {
    for (int i = block.thread; i < plane.rows * plane.columns / 8; i += block.threads) {
        int* row = plane.samples + 8 * i;
        inverse_dct<false>(row);
        for (int k = 0; k < 8; ++k) row[k] = to_sample(row[k]);
    }
}

DEVICE void code_columns(const Block& block, const float* steps, Plane plane) {
    for (int i = block.thread; i < plane.rows / 8 * plane.columns; i += block.threads) {
        int* top = plane.samples + i / plane.columns * 8 * plane.columns + i % plane.columns;
        int column[8];
        for (int k = 0; k < 8; ++k) column[k] = top[k * plane.columns];
        code_column(steps + (i & 7), column);
        for (int k = 0; k < 8; ++k) top[k * plane.columns] = column[k];
    }
}

DEVICE void code_blocks(const Block& block, const float* tables, const Plane* planes) {
    for (int k = 0; k < 3; ++k) forward_rows(block, planes[k]);
    block.sync();
    for (int k = 0; k < 3; ++k) code_columns(block, k == 0 ? tables : tables + 64, planes[k]);
    block.sync();
    for (int k = 0; k < 3; ++k) inverse_rows(block, planes[k]);
}
