// Computes: an image after JPEG compression and decompression: baseline, 4:2:0, bit for bit as libjpeg, Pillow and
//           torchvision do by default: colors (core/jpeg_samples.h), DCT and quantizer (core/dct.h), and "fancy" chroma
//           upsampling. Entropy coding is lossless and is left out. core/scratch.h sizes the planes.
// Threads:  a block of threads computes the 8 x 8 blocks that its tile needs, in phases between barriers: samples; rows
//           forward; columns forward, quantized and inverse; rows inverse; pixels. Blocks that tiles share are computed
//           by each. The CPU has bytes for samples and computes a block of 8 x 8 at once.
// Reference: ITU-T T.81; JFIF 1.02; libjpeg's jccolor.c, jdsample.c.
// Tests:    tests/properties/test_jpeg.py against Pillow's save and load, and tests/references/jpeg.py.
#pragma once
#include "core/jpeg_samples.h"
#include "core/store.h"

// core/jpeg_blocks.h and cpu/jpeg_blocks.h define these two: levels of the window as samples, and their DCT, quantized
// and inverse.
template <class T>
DEVICE void read_samples(const Block& block, const Sample& sample, const Plane* planes, int height, int width);
DEVICE void code_blocks(const Block& block, const float* steps, const Plane* planes);

// cpu/jpeg_pixels.h defines these two, for neighboring pixels; on CUDA they do nothing (cuda/fast_paths.h). They
// return whether they have stored pixels from samples, or made a pixel block of them.
DEVICE bool store_levels(const Sample& sample, const Plane* planes, int y, int x, int pixels);
DEVICE bool decode_block(const Sample& sample, const Plane* planes, const SourcePixels& at, PixelBlock& v);

// Chroma at pixel (y, x): a quarter of the way to the neighboring samples; narrow images use the nearest one.
DEVICE int upsample(const Plane& plane, int y, int x, int height, int width) {
    const int last_row = (height - 1) / 2, last_column = (width - 1) / 2;
    if (last_column < 2) return *sample_at(plane, y / 2, x / 2);
    const int far = min(max(y / 2 + (y & 1 ? 1 : -1), 0), last_row);
    const int beside = min(max(x / 2 + (x & 1 ? 1 : -1), 0), last_column);
    const int near_sum = 3 * *sample_at(plane, y / 2, x / 2) + *sample_at(plane, far, x / 2);
    const int far_sum = 3 * *sample_at(plane, y / 2, beside) + *sample_at(plane, far, beside);
    return (3 * near_sum + far_sum + (x & 1 ? 7 : 8)) >> 4;
}

// The window pixels that output indices begin ... begin + count - 1 show; empty if all show the fill color.
DEVICE Span window_range(const Sample& sample, const Axis& axis, int begin, int count) {
    int low = 2147483647, high = -1;
    for (int i = begin; i < begin + count; ++i) {
        const int at = window_index(sample, axis, i);
        if (at == FILL_AFTER) continue;
        low = min(low, at - axis.inner_low);
        high = max(high, at - axis.inner_low);
    }
    return high < 0 ? Span{0, 0} : Span{low, high + 1 - low};
}

// Computes in scratch the decoded blocks that these window pixels need. All threads return together.
template <class T>
DEVICE void jpeg_planes(const Block& block, const Sample& sample, const float* tables, Span rows, Span columns,
                        JpegSample* scratch, Plane* planes) {
    if (rows.count == 0 || columns.count == 0) return;
    const int low = rows.first, high = rows.first + rows.count - 1;
    const int left = columns.first, right = columns.first + columns.count - 1;
    const int height = sample.y.inner_high - sample.y.inner_low, width = sample.x.inner_high - sample.x.inner_low;
    const int chroma_low = max(low / 2 - 1, 0), chroma_high = min(high / 2 + 1, (height - 1) / 2);
    const int chroma_left = max(left / 2 - 1, 0), chroma_right = min(right / 2 + 1, (width - 1) / 2);
    for (int k = 0; k < 3; ++k) {
        planes[k] = k == 0 ? plane_over(low, high, left, right, scratch)
                           : plane_over(chroma_low, chroma_high, chroma_left, chroma_right, scratch);
        scratch += planes[k].rows * planes[k].columns;
    }
    read_samples<T>(block, sample, planes, height, width);
    block.sync();
    code_blocks(block, tables + sample.weights, planes);
    block.sync();
}

DEVICE void jpeg_block(const Sample& sample, const Plane* planes, const SourcePixels& at, PixelBlock& v) {
    if (decode_block(sample, planes, at, v)) return;
    const int height = sample.y.inner_high - sample.y.inner_low, width = sample.x.inner_high - sample.x.inner_low;
    const int y = at.row - sample.y.inner_low;
    for (int p = 0; p < PIXELS; ++p) {
        const int x = at.column[p] - sample.x.inner_low;
        if (at.row == FILL_AFTER || at.column[p] == FILL_AFTER) {
            for (int c = 0; c < 3; ++c) v[c][p] = sample.after.fill[c];
            continue;
        }
        const int luma = *sample_at(planes[0], y, x);
        const int blue = upsample(planes[1], y, x, height, width), red = upsample(planes[2], y, x, height, width);
        const int parts[3] = {red_offset(red), green_offset(blue, red), blue_offset(blue)};
        for (int c = 0; c < 3; ++c) v[c][p] = float(min(max(luma + parts[c], 0), 255)) * sample.level;
    }
}
