// Writes finished pixels in the type and layout of the batch: uint8, float16, bfloat16 or float32; NCHW or NHWC.
//
// Tested against NumPy's and torch's own conversions.
#pragma once
#include "core/point_operations.h"

DEVICE void convert(float value, uint8& out) { out = to_uint8(value); }
DEVICE void convert(float value, float& out) { out = value; }

struct Half {
    uint16 bits;
};
struct Bfloat16 {
    uint16 bits;
};
DEVICE void convert(float value, Half& out) { out.bits = half_bits(value); }
DEVICE void convert(float value, Bfloat16& out) { out.bits = bfloat16_bits(value); }

// PIXELS values of one channel in a row.
DEVICE void store_plane(const float* values, uint8* target) { to_bytes(values, target); }
template <class Out>
DEVICE void store_plane(const float* values, Out* target) {
    FOR_PIXELS(p) convert(values[p], target[p]);
}

// PIXELS pixels in a row, packed.
#if defined(__CUDACC__)
DEVICE void store_packed(const Strip& v, uint8* target) {
    for (int c = 0; c < 3; ++c) target[c] = to_uint8(v[c][0]);
}
#else
DEVICE void store_packed(const Strip& v, uint8* target) {
    for (int p = 0; p < PIXELS; p += FULL) {
        const Full<float> r = load_full(&v[0][p]), g = load_full(&v[1][p]);
        store_pixels(r, g, load_full(&v[2][p]), full_of(255.0f), target + 3 * p);
    }
}
#endif
DEVICE void store_packed(const Strip& v, float* target) { interleave(v, target); }
template <class Out>
DEVICE void store_packed(const Strip& v, Out* target) {
    for (int p = 0; p < PIXELS; ++p)
        for (int c = 0; c < 3; ++c) convert(v[c][p], target[3 * p + c]);
}

#if !defined(__CUDACC__)
// Values written past the caches, from a multiple of 16 bytes on: lines that are not in them need not be read first.
// Before other threads may see them, comes `end_of_writing`.
#if defined(__SSE2__)
template <int count, class T>
DEVICE void write_past_caches(const T* from, T* to) {
    constexpr int each = 16 / int(sizeof(T));
    if (reinterpret_cast<uintptr_t>(to) % 16)
        memcpy(to, from, count * sizeof(T));
    else
        for (int i = 0; i < count; i += each)
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), load<__m128i>(from + i));
}
DEVICE void end_of_writing() { _mm_sfence(); }
#else
template <int count, class T>
DEVICE void write_past_caches(const T* from, T* to) {
    memcpy(to, from, count * sizeof(T));
}
DEVICE void end_of_writing() {}
#endif

DEVICE void store_plane_past_caches(const float* values, float* target) { write_past_caches<PIXELS>(values, target); }
template <class Out>
DEVICE void store_plane_past_caches(const float* values, Out* target) {
    Out finished[PIXELS] IN_LINES;
    store_plane(values, finished);
    write_past_caches<PIXELS>(finished, target);
}
template <class Out>
DEVICE void store_packed_past_caches(const Strip& v, Out* target) {
    Out finished[3 * PIXELS] IN_LINES;
    store_packed(v, finished);
    write_past_caches<3 * PIXELS>(finished, target);
}

// Stores a whole strip at pixel `at` of the target, if it is to be written past the caches.
template <class Out>
DEVICE bool store_past_caches(const Sample& sample, const Strip& v, Out* target, int64 plane, int64 at) {
    if (!sample.past_caches) return false;
    if (sample.target_layout == HWC && sample.target_channels != 3) return false;
    if (sample.target_layout == HWC)
        store_packed_past_caches(v, target + at * 3);
    else
        for (int c = 0; c < sample.target_channels; ++c) store_plane_past_caches(v[c], target + c * plane + at);
    return true;
}
#else
template <class Out>
DEVICE bool store_past_caches(const Sample&, const Strip&, Out*, int64, int64) {
    return false;
}
#endif

#if defined(__CUDACC__)

// v[row][c][0] are the pixels of output column x, from row y on; `most` rows at the most.
template <class Out, int most>
DEVICE void store_as(const Sample& sample, const Strip* v, int y, int x, int rows) {
    const int channels = sample.target_channels;
    const int64 height = sample.y.out, width = sample.x.out;
    const bool planar = sample.target_layout == CHW;
    // How many bytes lie between neighbours, down and across, and between a pixel's channels.
    const int64 apart = int64(sizeof(Out)) * (planar ? 1 : channels);
    const int64 plane = int64(sizeof(Out)) * (planar ? height * width : 1);
    const int64 down = apart * (sample.transposed ? 1 : width), across = apart * (sample.transposed ? height : 1);
    uint64 pixel = sample.target + uint64(y * down + x * across);
    UNROLL
    for (int row = 0; row < most; ++row, pixel += down) {
        if (row >= rows) break;
        UNROLL
        for (int c = 0; c < 3; ++c)
            if (c < channels) convert(v[row][c][0], *reinterpret_cast<Out*>(pixel + c * plane));
    }
}

#else

template <class Out>
DEVICE void store_as(const Sample& sample, const Strip& v, int y, int x, int count) {
    Out* target = reinterpret_cast<Out*>(sample.target);
    const int64 plane = int64(sample.y.out) * sample.x.out;
    const int channels = sample.target_channels;
    if (sample.transposed) {
        const int64 width = sample.y.out, at = int64(x) * width + y;
        const bool planar = sample.target_layout == CHW;
        for (int c = 0; c < channels; ++c)
            for (int p = 0; p < count; ++p) {
                const int64 pixel = at + p * width;
                convert(v[c][p], target[planar ? c * plane + pixel : pixel * channels + c]);
            }
        return;
    }
    const int64 at = int64(y) * sample.x.out + x;
    if (count == PIXELS && store_past_caches(sample, v, target, plane, at)) return;
    if (sample.target_layout == CHW && count == PIXELS) {
        for (int c = 0; c < channels; ++c) store_plane(v[c], target + c * plane + at);
    } else if (sample.target_layout == CHW) {
        for (int c = 0; c < channels; ++c)
            for (int p = 0; p < count; ++p) convert(v[c][p], target[c * plane + at + p]);
    } else if (channels == 3 && count == PIXELS) {
        store_packed(v, target + at * 3);
    } else if (channels == 3) {
        for (int p = 0; p < count; ++p)
            for (int c = 0; c < 3; ++c) convert(v[c][p], target[(at + p) * 3 + c]);
    } else {
        for (int p = 0; p < count; ++p) convert(v[0][p], target[at + p]);
    }
}

#endif

#if defined(__CUDACC__)
template <int most>
DEVICE void store_rows(const Sample& sample, const Strip* v, int y, int x, int rows) {
    switch (sample.target_type) {
        case UINT8: store_as<uint8, most>(sample, v, y, x, rows); break;
        case FLOAT16: store_as<Half, most>(sample, v, y, x, rows); break;
        case BFLOAT16: store_as<Bfloat16, most>(sample, v, y, x, rows); break;
        case FLOAT32: store_as<float, most>(sample, v, y, x, rows); break;
    }
}
DEVICE void store_strip(const Sample& sample, const Strip& v, int y, int x, int) { store_rows<1>(sample, &v, y, x, 1); }
#else
DEVICE void store_strip(const Sample& sample, const Strip& v, int y, int x, int count) {
    switch (sample.target_type) {
        case UINT8: store_as<uint8>(sample, v, y, x, count); break;
        case FLOAT16: store_as<Half>(sample, v, y, x, count); break;
        case BFLOAT16: store_as<Bfloat16>(sample, v, y, x, count); break;
        case FLOAT32: store_as<float>(sample, v, y, x, count); break;
    }
}
#endif

// Whether all that is left to do with what a pass samples is to round it, and to store it packed.
DEVICE bool only_packs(const Sample& sample) {
    return sample.target_type == UINT8 && sample.target_layout == HWC && sample.target_channels == 3 &&
           !sample.transposed && sample.op_begin == sample.op_end && sample.measure == NOTHING &&
           (sample.clamp < 0.0f || sample.clamp >= 255.0f);
}

// Stores values of neighbouring pixels as they lie packed, in such a pass; returns whether it is one.
DEVICE bool store_values(const Sample& sample, const float* values, int y, int x, int pixels) {
    if (!only_packs(sample)) return false;
    uint8* const target = reinterpret_cast<uint8*>(sample.target) + 3 * (int64(y) * sample.x.out + x);
    int i = 0;
    for (; i + PIXELS <= 3 * pixels; i += PIXELS) to_bytes(values + i, target + i);
    for (; i < 3 * pixels; ++i) target[i] = to_uint8(values[i]);
    return true;
}
