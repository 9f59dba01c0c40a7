// Computes: the CUDA half of simd.h: every vector is one value.
// Threads:  one pixel per thread.
// Reference: cpu/simd.h and cpu/deinterleave.h, which compute the same bits.
// Tests:    tests/cuda/test_kernels.py, tests/kernels/test_scratch.py.
#pragma once
#include "platform.h"

constexpr int VEC_LANES = 1, VEC32_LANES = 1;
template <class T>
using Vec = T;
template <class T>
using Vec32 = T;
typedef float FloatVec;

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

DEVICE void store_steps(uint64 value, uint64, int* upper, uint32* lower) {
    *upper = int(uint32(value >> 32)), *lower = uint32(value);
}
DEVICE uint32 multiply_high(uint32 a, uint32 b) { return uint32(uint64(a) * b >> 32); }
