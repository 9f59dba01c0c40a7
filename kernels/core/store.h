// Computes: the conversion of finished pixels to the type and layout of the batch: uint8, float16, bfloat16 or float32;
//           HWC or CHW.
// Threads:  one pixel block per thread.
// Reference: IEEE 754-2019; NumPy's and torch's conversions.
// Tests:    tests/properties/test_store.py.
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

// Stores `pixels` pixels of output row y from column x on. cpu/store.h and cuda/store.h define it.
DEVICE void store_block(const Sample& sample, const PixelBlock& v, int y, int x, int pixels);
