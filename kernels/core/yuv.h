// Computes: RGB pixels of a video frame's planes: chroma upsampling, then the color matrix.
// Threads:  none: each function computes one pixel. cuda/convert_yuv.cu calls them; cpu/yuv_rows.h has the same bits.
// Reference: libswscale with SWS_BILINEAR, SWS_ACCURATE_RND and SWS_FULL_CHR_H_INT; ITU-R BT.601, BT.709, BT.2020.
// Tests:    tests/video/test_yuv.py, tests/kernels/test_convert_yuv.py.
//
// Upsampling is exact in floats: a chroma sample has at most 16 bits, and its four weights are multiples of 1/16. So
// the order of the sums does not matter.
#pragma once
#include "plan.h"

// The two chroma samples that a luma pixel lies between, and the weight of the near one.
struct ChromaPair {
    int near, far;
    float weight;
};

// index: of the luma row or column; chroma: number of chroma rows or columns.
DEVICE ChromaPair chroma_pair(int index, int shift, bool cosited, int chroma) {
    if (shift == 0) return {index, index, 1.0f};
    const int near = index >> 1, odd = index & 1;
    if (cosited) return {near, min(near + odd, chroma - 1), odd ? 0.5f : 1.0f};
    return {near, clamp(odd ? near + 1 : near - 1, 0, chroma - 1), 0.75f};
}

DEVICE int chroma_size(int luma, int shift) { return (luma + (1 << shift) - 1) >> shift; }

// YUV, or YCbCr, to RGB in [0, 255], not clamped. `u` and `v` are 0 for gray.
DEVICE void yuv_to_rgb(const YuvImage& image, float y, float u, float v, float* rgb) {
    const float luma = (y - image.y_offset) * image.y_scale;
    rgb[0] = luma + image.red_v * v;
    rgb[1] = luma + image.green_u * u + image.green_v * v;
    rgb[2] = luma + image.blue_u * u;
}

template <class T>
DEVICE float chroma_at(const YuvImage& image, uint64 plane, ChromaPair rows, ChromaPair columns) {
    const auto row = [&](int y) {
        const T* const samples = reinterpret_cast<const T*>(plane + uint64(y * image.uv_pitch));
        const float near = float(load_global(samples + columns.near * image.uv_step));
        const float far = float(load_global(samples + columns.far * image.uv_step));
        return near * columns.weight + far * (1.0f - columns.weight);
    };
    return row(rows.near) * rows.weight + row(rows.far) * (1.0f - rows.weight);
}

// The pixel at row y, column x of the stored frame.
template <class T>
DEVICE void yuv_pixel(const YuvImage& image, int y, int x, uint8* out) {
    const T* const luma = reinterpret_cast<const T*>(image.y + uint64(y * image.y_pitch));
    float u = 0.0f, v = 0.0f, rgb[3];
    if (image.u) {
        const int chroma_rows = chroma_size(image.height, image.shift_y);
        const int chroma_columns = chroma_size(image.width, image.shift_x);
        const ChromaPair rows = chroma_pair(y, image.shift_y, false, chroma_rows);
        const ChromaPair columns = chroma_pair(x, image.shift_x, image.cosited, chroma_columns);
        u = chroma_at<T>(image, image.u, rows, columns) - image.uv_offset;
        v = chroma_at<T>(image, image.v, rows, columns) - image.uv_offset;
    }
    yuv_to_rgb(image, float(load_global(luma + x)), u, v, rgb);
    for (int c = 0; c < 3; ++c) out[c] = to_uint8(rgb[c]);
}
