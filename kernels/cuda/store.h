// Computes: the CUDA half of core/store.h.
// Threads:  one output column per thread, up to ROWS rows.
// Reference: core/store.h.
// Tests:    tests/kernels/test_scratch.py, tests/cuda/test_kernels.py.
#pragma once
#include "core/store.h"

// v[row][c][0]: the pixels of output column x from row y on; at most max_rows.
template <class Out, int max_rows>
DEVICE void store_as(const Sample& sample, const PixelBlock* v, int y, int x, int rows) {
    const int channels = sample.target.channels;
    const bool planar = sample.target.layout == CHW;
    if (MAY_BE_PACKED && sample.target.has_patches) {
        const int plane = patch_plane(sample.target), step = patch_step(sample.target);
        NO_UNROLL
        for (int copy = 0; copy < sample.target.copies; ++copy) {
            UNROLL
            for (int row = 0; row < max_rows; ++row) {
                if (row >= rows) break;
                Out* const to = reinterpret_cast<Out*>(sample.target.address) + patch_offset(sample, y + row, x);
                UNROLL
                for (int c = 0; c < 3; ++c)
                    if (c < channels) convert(v[row][c][0], to[c * plane + copy * step]);
            }
        }
        return;
    }
    const int64 width = stored_pitch(sample);
    // Bytes between neighboring pixels, and between the channels of one.
    const int64 stride = int64(sizeof(Out)) * (planar ? 1 : channels);
    const int64 plane = int64(sizeof(Out)) * (planar ? stored_plane(sample) : 1);
    const int64 down = stride * (sample.transposed ? 1 : width), across = stride * (sample.transposed ? width : 1);
    uint64 pixel = sample.target.address + uint64(y * down + x * across);
    UNROLL
    for (int row = 0; row < max_rows; ++row, pixel += down) {
        if (row >= rows) break;
        UNROLL
        for (int c = 0; c < 3; ++c)
            if (c < channels) convert(v[row][c][0], *reinterpret_cast<Out*>(pixel + c * plane));
    }
}

template <int max_rows>
DEVICE void store_rows(const Sample& sample, const PixelBlock* v, int y, int x, int rows) {
    const int type = sample.target.type;
    if (is<TargetTypes>(type, UINT8)) store_as<uint8, max_rows>(sample, v, y, x, rows);
    if (is<TargetTypes>(type, FLOAT16)) store_as<Half, max_rows>(sample, v, y, x, rows);
    if (is<TargetTypes>(type, BFLOAT16)) store_as<Bfloat16, max_rows>(sample, v, y, x, rows);
    if (is<TargetTypes>(type, FLOAT32)) store_as<float, max_rows>(sample, v, y, x, rows);
}
DEVICE void store_block(const Sample& sample, const PixelBlock& v, int y, int x, int) {
    store_rows<1>(sample, &v, y, x, 1);
}
