// Computes: the conversion of finished pixels to the type and layout of the batch: uint8, float16, bfloat16 or float32;
//           HWC or CHW, of images or of patches.
// Threads:  one pixel block per thread.
// Reference: IEEE 754-2019; NumPy's and torch's conversions. Patches: Qwen2-VL's image processor in Transformers.
// Tests:    tests/properties/test_store.py, tests/transforms/test_packing.py.
#pragma once
#include "core/point_operations.h"
#include "core/signature.h"

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

// Columns and rows of the memory of a target that holds rows of pixels.
DEVICE int stored_pitch(const Sample& sample) {
    if (MAY_BE_PACKED && sample.target.pitch > 0) return sample.target.pitch;
    return sample.transposed ? sample.y.out : sample.x.out;
}
DEVICE int64 stored_plane(const Sample& sample) {
    if (MAY_BE_PACKED && sample.target.pitch > 0) return int64(sample.target.rows) * sample.target.pitch;
    return int64(sample.y.out) * sample.x.out;
}

// Whether a target holds rows of packed RGB bytes, without a gap between rows.
DEVICE bool is_packed_rgb8(const Sample& sample) {
    const Target& target = sample.target;
    return target.type == UINT8 && target.layout == HWC && target.channels == 3 && target.pitch == 0;
}

// Values from the first of a target of patches to the first channel of output pixel (y, x).
DEVICE int64 patch_offset(const Sample& sample, int y, int x) {
    const Target& target = sample.target;
    const int row = sample.transposed ? x : y, column = sample.transposed ? y : x;
    const int size = target.pitch, merge = target.merge;
    const int across = (sample.transposed ? sample.y.out : sample.x.out) / size;
    const int down = row / size, right = column / size;
    const int block = (down / merge * (across / merge) + right / merge) * merge * merge;
    const int patch = block + down % merge * merge + right % merge;
    const int values = size * size * target.channels;
    const int within = (row - down * size) * size + column - right * size;
    return int64(patch) * (values * target.temporal) + within * (target.layout == CHW ? 1 : target.channels);
}

// Values of a patch from one channel to the next, and from one image to the next.
DEVICE int patch_plane(const Target& target) {
    return target.layout == CHW ? target.temporal * target.pitch * target.pitch : 1;
}
DEVICE int patch_step(const Target& target) {
    return target.pitch * target.pitch * (target.layout == CHW ? 1 : target.channels);
}

// Stores `pixels` pixels of output row y from column x on. cpu/store.h and cuda/store.h define it.
DEVICE void store_block(const Sample& sample, const PixelBlock& v, int y, int x, int pixels);
