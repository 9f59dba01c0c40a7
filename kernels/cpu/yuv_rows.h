// Computes: the RGB pixels of a part of a video frame on the CPU, with the bits of core/yuv.h.
// Threads:  the caller's.
// Reference: core/yuv.h.
// Tests:    tests/video/test_yuv.py.
#pragma once
#include "core/yuv.h"
#include "cpu/deinterleave.h"

constexpr int YUV_CHUNK = 64;  // luma pixels of a row that are computed together; even

// Chroma of one row for YUV_CHUNK pixels from the even column x on: samples blended down, then across.
template <class T>
void upsample_chroma(const YuvImage& image, uint64 plane, ChromaPair rows, int x, float* out) {
    const T* const near = reinterpret_cast<const T*>(plane + uint64(rows.near * image.uv_pitch));
    const T* const far = reinterpret_cast<const T*>(plane + uint64(rows.far * image.uv_pitch));
    const int step = image.uv_step, last = chroma_size(image.width, image.shift_x) - 1;
    const float weight = rows.weight, other = 1.0f - weight;
    const auto blend = [&](int begin, int count, float* samples) {
        if (begin >= 0 && begin + count - 1 <= last && step == 1) {
            for (int i = 0; i < count; ++i) samples[i] = near[begin + i] * weight + far[begin + i] * other;
            return;
        }
        for (int i = 0; i < count; ++i) {
            const int at = clamp(begin + i, 0, last) * step;
            samples[i] = near[at] * weight + far[at] * other;
        }
    };
    if (image.shift_x == 0) {
        blend(x, YUV_CHUNK, out);
    } else {
        float samples[YUV_CHUNK / 2 + 2];  // one more on each side
        blend(x / 2 - 1, YUV_CHUNK / 2 + 2, samples);
        if (image.cosited) {
            for (int i = 0; i < YUV_CHUNK / 2; ++i) {
                out[2 * i] = samples[i + 1];
                out[2 * i + 1] = (samples[i + 1] + samples[i + 2]) * 0.5f;
            }
        } else {
            for (int i = 0; i < YUV_CHUNK / 2; ++i) {
                out[2 * i] = samples[i + 1] * 0.75f + samples[i] * 0.25f;
                out[2 * i + 1] = samples[i + 1] * 0.75f + samples[i + 2] * 0.25f;
            }
        }
    }
    for (int i = 0; i < YUV_CHUNK; ++i) out[i] -= image.uv_offset;
}

// YUV_CHUNK pixels of row y from the even column x on. Beyond the image the last column repeats.
template <class T>
void yuv_chunk(const YuvImage& image, ChromaPair rows, int y, int x, uint8* out) {
    float luma[YUV_CHUNK], u[YUV_CHUNK], v[YUV_CHUNK];
    const T* const samples = reinterpret_cast<const T*>(image.y + uint64(y * image.y_pitch)) + x;
    if (x + YUV_CHUNK <= image.width)
        for (int i = 0; i < YUV_CHUNK; ++i) luma[i] = samples[i];
    else
        for (int i = 0; i < YUV_CHUNK; ++i) luma[i] = samples[min(i, image.width - 1 - x)];
    if (image.u) {
        upsample_chroma<T>(image, image.u, rows, x, u);
        upsample_chroma<T>(image, image.v, rows, x, v);
    } else {
        memset(u, 0, sizeof u), memset(v, 0, sizeof v);
    }
    for (int i = 0; i < YUV_CHUNK; i += VEC_LANES) {
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
            yuv_chunk<T>(image, pair, image.top + row, x, pixels);
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
