// Computes: the CUDA half of core/simd.h: every vector is one value.
// Threads:  one pixel per thread.
// Reference: cpu/simd.h, cpu/deinterleave.h and cpu/double_simd.h, which compute the same bits.
// Tests:    tests/cuda/test_kernels.py, tests/kernels/test_scratch.py.
#pragma once
#include "platform.h"

constexpr int VEC_LANES = 1, VEC32_LANES = 1, DOUBLE_LANES = 1;
template <class T>
using Vec = T;
template <class T>
using Vec32 = T;
typedef float FloatVec;
typedef double DoubleVec;

template <class T>
DEVICE T load_vec(const T* p) {
    return *p;
}
template <class T>
DEVICE T load_vec32(const T* p) {
    return *p;
}
template <class T>
DEVICE void store(T* p, T value) {
    *p = value;
}
template <class T>
DEVICE T splat(T value) {
    return value;
}
template <class T>
DEVICE T splat32(T value) {
    return value;
}

template <class T>
DEVICE void multiply_add(FloatVec& sum, float weight, const T* p) {
    sum += weight * float(*p);
}
template <class T>
DEVICE void keep_in_register(T*&) {}

struct Rgb {
    float value[3];
};
template <class T>
DEVICE Rgb load_rgb(const T* p) {
    return {{float(p[0]), float(p[1]), float(p[2])}};
}
DEVICE Rgb make_rgb(const float* rgb) { return load_rgb(rgb); }
DEVICE void multiply_add(Rgb& sum, float weight, const Rgb& rgb) {
    for (int c = 0; c < 3; ++c) sum.value[c] += weight * rgb.value[c];
}
DEVICE void store(float* p, const Rgb& rgb) {
    for (int c = 0; c < 3; ++c) p[c] = rgb.value[c];
}

template <class T>
DEVICE void unpack(const T* pixels, float (*v)[PIXELS]) {
    for (int c = 0; c < 3; ++c) v[c][0] = float(pixels[c]);
}
template <class T>
DEVICE void interleave(const T (*planes)[PIXELS], T* pixels) {
    for (int c = 0; c < 3; ++c) pixels[c] = planes[c][0];
}
DEVICE void to_bytes(const float* values, uint8* bytes) { *bytes = to_uint8(*values); }

DEVICE DoubleVec splat_double(double value) { return value; }
DEVICE DoubleVec load_doubles(const double* p) { return *p; }
DEVICE double clamp_coordinate(double value) { return clamp(value, -FAR, FAR); }
DEVICE int coordinate_to_int(double value) { return int(clamp_coordinate(value)); }
template <class T>
DEVICE DoubleVec to_doubles(const T* value) {
    return *value;
}
DEVICE void floor_to_ints(const double* at, int* whole) { *whole = coordinate_to_int(floor(*at)); }
DEVICE void split_at_centre(const double* at, int* before, float* fraction) {
    const double centred = *at - 0.5, below = floor(centred);
    *before = coordinate_to_int(below), *fraction = float(centred - below);
}
