// Computes: the RGB pixels of a part of a video frame on the CPU, with the bits of core/yuv.h.
// Threads:  the caller's.
// Reference: core/yuv.h.
// Tests:    tests/video/test_yuv.py.
#pragma once
#include "core/yuv.h"
#include "cpu/deinterleave.h"

constexpr int YUV_CHUNK = 512;  // luma pixels of a row that are computed together, at most

// The integer that holds a chroma sample times sixteen.
template <class T>
struct ChromaSum {
    typedef int type;
};
template <>
struct ChromaSum<uint8> {
    typedef uint16 type;
};

// Chroma of one row for `count` pixels from the even column x on: samples blended down, then across. The weights are
// multiples of 1/16, so integers have the bits of core/yuv.h's floats, and more of them fit into a vector.
template <class T>
void upsample_chroma(const YuvImage& image, uint64 plane, ChromaPair rows, int x, int count, float* out) {
    typedef typename ChromaSum<T>::type Sum;
    const T* const near = reinterpret_cast<const T*>(plane + uint64(rows.near * image.uv_pitch));
    const T* const far = reinterpret_cast<const T*>(plane + uint64(rows.far * image.uv_pitch));
    const int step = image.uv_step, last = chroma_size(image.width, image.shift_x) - 1;
    const Sum weight = Sum(rows.weight * 4.0f), other = Sum(4 - weight);
    Sum samples[YUV_CHUNK], wide[YUV_CHUNK];  // samples: in quarters
    const auto blend = [&](int begin, int needed) {
        const int first = max(begin, 0), end = min(begin + needed, last + 1);
        if (step == 1)
            for (int i = first; i < end; ++i) samples[i - begin] = Sum(near[i] * weight + far[i] * other);
        else
            for (int i = first; i < end; ++i) samples[i - begin] = Sum(near[i * step] * weight + far[i * step] * other);
        for (int i = begin; i < first; ++i) samples[i - begin] = samples[first - begin];
        for (int i = end; i < begin + needed; ++i) samples[i - begin] = samples[end - 1 - begin];
    };
    if (image.shift_x == 0) {
        blend(x, count);
        for (int i = 0; i < count; ++i) wide[i] = Sum(samples[i] * 4);
    } else {
        blend(x / 2 - 1, count / 2 + 2);  // one more on each side
        for (int i = 0; i < count / 2; ++i) {
            const Sum left = samples[i], middle = samples[i + 1], right = samples[i + 2];
            wide[2 * i] = Sum(image.cosited ? middle * 4 : middle * 3 + left);
            wide[2 * i + 1] = Sum(image.cosited ? (middle + right) * 2 : middle * 3 + right);
        }
    }
    for (int i = 0; i < count; ++i) out[i] = float(int(wide[i])) * 0.0625f - image.uv_offset;
}

// `count` pixels, a multiple of VEC_LANES, of row y from the even column x on. Beyond the image the last column
// repeats.
template <class T>
void yuv_chunk(const YuvImage& image, ChromaPair rows, int y, int x, int count, uint8* out) {
    float luma[YUV_CHUNK], u[YUV_CHUNK], v[YUV_CHUNK];
    const T* const samples = reinterpret_cast<const T*>(image.y + uint64(y * image.y_pitch)) + x;
    const int stored = min(count, image.width - x);
    for (int i = 0; i < stored; ++i) luma[i] = samples[i];
    for (int i = stored; i < count; ++i) luma[i] = samples[stored - 1];
    if (image.u) {
        upsample_chroma<T>(image, image.u, rows, x, count, u);
        upsample_chroma<T>(image, image.v, rows, x, count, v);
    } else {
        memset(u, 0, sizeof u), memset(v, 0, sizeof v);
    }
    for (int i = 0; i < count; i += VEC_LANES) {
        const Vec<float> us = load_vec(u + i), vs = load_vec(v + i);
        const Vec<float> level = (load_vec(luma + i) - image.y_offset) * image.y_scale;
        store_pixels(level + image.red_v * vs, level + image.green_u * us + image.green_v * vs,
                     level + image.blue_u * us, splat(255.0f), out + 3 * i);
    }
}

template <class T>
void convert_yuv(const YuvImage& image) {
    const int chroma_rows = chroma_size(image.height, image.shift_y), end = image.left + image.columns;
    for (int row = 0; row < image.rows; ++row) {
        const ChromaPair pair = chroma_pair(image.top + row, image.shift_y, false, chroma_rows);
        uint8* const target = reinterpret_cast<uint8*>(image.target + uint64(row * image.target_row));
        for (int x = image.left & ~1; x < end; x += YUV_CHUNK) {
            uint8 pixels[3 * YUV_CHUNK];
            const int needed = min(YUV_CHUNK, (end - x + VEC_LANES - 1) / VEC_LANES * VEC_LANES);
            yuv_chunk<T>(image, pair, image.top + row, x, needed, pixels);
            const int begin = max(x, image.left), count = min(x + YUV_CHUNK, end) - begin;
            const uint8* const from = pixels + 3 * (begin - x);
            uint8* const to = target + (begin - image.left) * image.target_column;
            if (image.target_column == 3)
                memcpy(to, from, size_t(3 * count));
            else
                for (int i = 0; i < count; ++i) memcpy(to + i * image.target_column, from + 3 * i, 3);
        }
    }
}
