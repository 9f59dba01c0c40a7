// Computes: a JPEG's samples: the planes of luma and chroma that a tile keeps in scratch, and their colors.
// Threads:  see core/jpeg_blocks.h and cpu/jpeg_blocks.h.
// Reference: JFIF 1.02; libjpeg's 16-bit color conversion, which rounds like this bit for bit.
// Tests:    tests/properties/test_jpeg.py.
#pragma once
#include "core/dct.h"
#include "core/neighborhood.h"
#include "core/scratch.h"

// Blocks of one component that a tile needs: the first sample, and the number of samples down and across.
struct Plane {
    int y, x, rows, columns;
    JpegSample* samples;
};

DEVICE JpegSample* sample_at(const Plane& plane, int y, int x) {
    return plane.samples + int64(y - plane.y) * plane.columns + (x - plane.x);
}

// The blocks that contain samples low ... high down and left ... right across, both included.
DEVICE Plane plane_over(int low, int high, int left, int right, JpegSample* samples) {
    const int y = low & ~7, x = left & ~7;
    return {y, x, (high & ~7) + 8 - y, (right & ~7) + 8 - x, samples};
}

// Rounds values to levels, as an encoder gets them. per: levels per unit.
template <class Real>
DEVICE Real to_levels(Real value, float per) {
    return to_float(to_int(min(max(value * per, Real{}), Real{} + 255.0f) + 0.5f));
}

// The address of pixel (y, x) of the window.
template <class T>
DEVICE const T* window_pixel(const Sample& sample, int y, int x) {
    return row_of<T>(sample, sample.y.inner_low + y) + int64(sample.x.inner_low + x - sample.x.held_low) * 3;
}

// JFIF's RGB to YCbCr in libjpeg's 16 bits. No sum reaches 2^24, so floats are exact.
template <class Real>
DEVICE auto to_luma(Real r, Real g, Real b) {
    return to_int((19595.0f * r + 38470.0f * g + 7471.0f * b + 32768.0f) * (1.0f / 65536));
}
template <class Real>
DEVICE auto to_cb(Real r, Real g, Real b) {
    return to_int((32768.0f * b - 11059.0f * r - 21709.0f * g + 8421375.0f) * (1.0f / 65536));
}
template <class Real>
DEVICE auto to_cr(Real r, Real g, Real b) {
    return to_int((32768.0f * r - 27439.0f * g - 5329.0f * b + 8421375.0f) * (1.0f / 65536));
}

// The mean of 2 x 2 chroma samples of column x; halves round down and up in turn.
DEVICE int chroma_mean(int sum, int x) { return (sum + 1 + (x & 1)) >> 2; }

// JFIF's YCbCr to RGB: the offsets that chroma adds to luma.
template <class Value>
DEVICE Value red_offset(Value red) {
    return (91881 * (red - 128) + 32768) >> 16;
}
template <class Value>
DEVICE Value green_offset(Value blue, Value red) {
    return (-22554 * (blue - 128) - 46802 * (red - 128) + 32768) >> 16;
}
template <class Value>
DEVICE Value blue_offset(Value blue) {
    return (116130 * (blue - 128) + 32768) >> 16;
}
