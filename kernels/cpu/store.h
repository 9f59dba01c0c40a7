// Computes: the CPU half of core/store.h: rows of pixels, and streaming stores, which bypass the caches.
// Threads:  PIXELS pixels of one output row at a time.
// Reference: Intel Intrinsics Guide, _mm_stream_si128.
// Tests:    tests/properties/test_store.py.
#pragma once
#include "core/store.h"

// PIXELS values of one channel.
DEVICE void store_plane(const float* values, uint8* target) { to_bytes(values, target); }
template <class Out>
DEVICE void store_plane(const float* values, Out* target) {
    FOR_PIXELS(p) convert(values[p], target[p]);
}

// PIXELS packed pixels.
DEVICE void store_packed(const PixelBlock& v, uint8* target) {
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        const Vec<float> r = load_vec(&v[0][p]), g = load_vec(&v[1][p]);
        store_pixels(r, g, load_vec(&v[2][p]), splat(255.0f), target + 3 * p);
    }
}
DEVICE void store_packed(const PixelBlock& v, float* target) { interleave(v, target); }
template <class Out>
DEVICE void store_packed(const PixelBlock& v, Out* target) {
    for (int p = 0; p < PIXELS; ++p)
        for (int c = 0; c < 3; ++c) convert(v[c][p], target[3 * p + c]);
}

// Streaming stores: the cache does not read a line before it is written. Addresses must be multiples of 16 bytes.
// streaming_fence() must come before other threads read.
#if defined(__SSE2__)
template <int count, class T>
DEVICE void stream(const T* from, T* to) {
    constexpr int each = 16 / int(sizeof(T));
    if (reinterpret_cast<uintptr_t>(to) % 16)
        memcpy(to, from, count * sizeof(T));
    else
        for (int i = 0; i < count; i += each)
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), load<__m128i>(from + i));
}
DEVICE void streaming_fence() { _mm_sfence(); }
#else
template <int count, class T>
DEVICE void stream(const T* from, T* to) {
    memcpy(to, from, count * sizeof(T));
}
DEVICE void streaming_fence() {}
#endif

DEVICE void stream_plane(const float* values, float* target) { stream<PIXELS>(values, target); }
template <class Out>
DEVICE void stream_plane(const float* values, Out* target) {
    Out finished[PIXELS] CACHE_ALIGNED;
    store_plane(values, finished);
    stream<PIXELS>(finished, target);
}
template <class Out>
DEVICE void stream_packed(const PixelBlock& v, Out* target) {
    Out finished[3 * PIXELS] CACHE_ALIGNED;
    store_packed(v, finished);
    stream<3 * PIXELS>(finished, target);
}

// Stores a whole block at pixel `at` with streaming stores, if the sample asks for them. Returns whether it did.
template <class Out>
DEVICE bool stream_block(const Sample& sample, const PixelBlock& v, Out* target, int64 plane, int64 at) {
    if (!sample.target.streaming_stores) return false;
    if (sample.target.layout == HWC && sample.target.channels != 3) return false;
    if (sample.target.layout == HWC)
        stream_packed(v, target + at * 3);
    else
        for (int c = 0; c < sample.target.channels; ++c) stream_plane(v[c], target + c * plane + at);
    return true;
}

// Stores runs of pixels that lie in one patch.
template <class Out>
DEVICE void store_patches(const Sample& sample, const PixelBlock& v, int y, int x, int count) {
    const Target& target = sample.target;
    const int channels = target.channels, plane = patch_plane(target), step = patch_step(target);
    Out finished[3][PIXELS] CACHE_ALIGNED;
    for (int c = 0; c < channels; ++c)
        if (count == PIXELS)
            store_plane(v[c], finished[c]);
        else
            for (int p = 0; p < count; ++p) convert(v[c][p], finished[c][p]);
    for (int p = 0, run; p < count; p += run) {
        run = sample.transposed ? 1 : min(count - p, target.pitch - (x + p) % target.pitch);
        Out* to = reinterpret_cast<Out*>(target.address) + patch_offset(sample, y, x + p);
        for (int copy = 0; copy < target.copies; ++copy, to += step)
            for (int c = 0; c < channels; ++c)
                if (target.layout == CHW)
                    memcpy(to + c * plane, finished[c] + p, run * sizeof(Out));
                else
                    for (int i = 0; i < run; ++i) to[channels * i + c] = finished[c][p + i];
    }
}

template <class Out>
DEVICE void store_as(const Sample& sample, const PixelBlock& v, int y, int x, int count) {
    if (MAY_BE_PACKED && sample.target.has_patches) return store_patches<Out>(sample, v, y, x, count);
    Out* target = reinterpret_cast<Out*>(sample.target.address);
    const int64 plane = stored_plane(sample), width = stored_pitch(sample);
    const int channels = sample.target.channels;
    if (sample.transposed) {
        const int64 at = int64(x) * width + y;
        const bool planar = sample.target.layout == CHW;
        for (int c = 0; c < channels; ++c)
            for (int p = 0; p < count; ++p) {
                const int64 pixel = at + p * width;
                convert(v[c][p], target[planar ? c * plane + pixel : pixel * channels + c]);
            }
        return;
    }
    const int64 at = int64(y) * width + x;
    if (count == PIXELS && stream_block(sample, v, target, plane, at)) return;
    if (sample.target.layout == CHW && count == PIXELS) {
        for (int c = 0; c < channels; ++c) store_plane(v[c], target + c * plane + at);
    } else if (sample.target.layout == CHW) {
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

DEVICE void store_block(const Sample& sample, const PixelBlock& v, int y, int x, int count) {
    switch (sample.target.type) {
        case UINT8: store_as<uint8>(sample, v, y, x, count); break;
        case FLOAT16: store_as<Half>(sample, v, y, x, count); break;
        case BFLOAT16: store_as<Bfloat16>(sample, v, y, x, count); break;
        case FLOAT32: store_as<float>(sample, v, y, x, count); break;
    }
}

// Whether only rounding to packed uint8 remains after sampling.
DEVICE bool only_rounds(const Sample& sample) {
    return is_packed_rgb8(sample) && !sample.transposed && sample.op_begin == sample.op_end &&
           sample.measure.kind == NOTHING && (sample.clamp < 0.0f || sample.clamp >= 255.0f);
}

// Stores packed values of neighboring pixels, if only rounding remains. Returns whether it did.
DEVICE bool store_values(const Sample& sample, const float* values, int y, int x, int pixels) {
    if (!only_rounds(sample)) return false;
    uint8* const target = reinterpret_cast<uint8*>(sample.target.address) + 3 * (int64(y) * sample.x.out + x);
    int i = 0;
    for (; i + PIXELS <= 3 * pixels; i += PIXELS) to_bytes(values + i, target + i);
    for (; i < 3 * pixels; ++i) target[i] = to_uint8(values[i]);
    return true;
}
