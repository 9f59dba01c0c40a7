// Computes: programs that mix channels, or depend on the place, on packed uint8 pixels: a few at a time become floats
//           and bytes again.
// Threads:  one thread per output row; PIXELS pixels, or a vector of them, at a time.
// Reference: core/point_operations.h, which gives the same bits.
// Tests:    tests/properties/test_bytes.py.
#pragma once
#include "cpu/store.h"

// out = the pixels times a matrix, from register to register. out may be pixels.
template <bool gray, bool has_offset>
DEVICE void multiply_matrix(const Op& op, const uint8* pixels, int count, uint8* out) {
    const Vec<float> limit = splat(op.limit < 0.0f ? 255.0f : min(op.limit, 255.0f));
    Vec<float> m[12];
    for (int i = 0; i < 12; ++i) m[i] = splat(op.a[i]);
    uint8 rest[3 * VEC_LANES] = {};
    const int whole = count / VEC_LANES * VEC_LANES;
    memcpy(rest, pixels + 3 * int64(whole), 3 * size_t(count - whole));
    for (int in_rest = 0; in_rest < 2; ++in_rest) {
        const uint8* from = in_rest ? rest : pixels;
        uint8* to = in_rest ? rest : out;
        for (int p = in_rest ? VEC_LANES : whole; p > 0; p -= VEC_LANES, from += 3 * VEC_LANES, to += 3 * VEC_LANES) {
            const Vec<uint32> packed = load_pixels(from);
            const Vec<float> r = channel_of(packed, 0), g = channel_of(packed, 1), b = channel_of(packed, 2);
            Vec<float> rgb[3];
            for (int i = 0; i < 3; ++i) {
                const Vec<float>* row = m + (gray ? 0 : 4 * i);
                rgb[i] = has_offset ? matrix_row(row, r, g, b) : row[0] * r + row[1] * g + row[2] * b;
            }
            store_pixels(rgb[0], rgb[1], rgb[2], limit, to);
        }
    }
    memcpy(out + 3 * int64(whole), rest, 3 * size_t(count - whole));
}

DEVICE void multiply_matrix(const Op& op, const uint8* pixels, int count, uint8* out) {
    if (op.a[3] != 0.0f || op.a[7] != 0.0f || op.a[11] != 0.0f)
        multiply_matrix<false, true>(op, pixels, count, out);
    else if (is_gray_matrix(op))
        multiply_matrix<true, false>(op, pixels, count, out);
    else
        multiply_matrix<false, false>(op, pixels, count, out);
}

// out = the program's results on columns x ... x + count - 1 of output row y. out may be pixels.
DEVICE void run_on_pixels(const PassContext& pass, int y, int x, const uint8* pixels, int count, uint8* out) {
    const Sample& sample = pass.sample;
    if (sample.op_end - sample.op_begin == 1 && pass.ops[sample.op_begin].code == MATRIX && sample.clamp < 0.0f) {
        multiply_matrix(pass.ops[sample.op_begin], pixels, count, out);
        return;
    }
    for (int p = 0; p < count; p += PIXELS, pixels += 3 * PIXELS, out += 3 * PIXELS) {
        const int n = min(PIXELS, count - p);
        uint8 rest[3 * PIXELS];
        if (n < PIXELS) memset(rest, 0, sizeof rest), memcpy(rest, pixels, 3 * size_t(n));
        PixelBlock v;
        unpack(n < PIXELS ? rest : pixels, v);
        saturate(v, sample.clamp);
        run_program(pass, y, x + p, v);
        store_packed(v, n < PIXELS ? rest : out);
        if (n < PIXELS) memcpy(out, rest, 3 * size_t(n));
    }
}
