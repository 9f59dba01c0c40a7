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

#if defined(__CUDACC__)
#include "cuda/store.h"  // store_block
#else
#include "cpu/store.h"
#endif
