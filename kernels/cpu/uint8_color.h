// Programs that need a pixel's three channels together, or its place, on packed bytes in a row: a few pixels at a time
// become floats and bytes again. For the host alone.
//
// Tested by tests/properties/test_bytes.py.
#pragma once
#include "core/store.h"

// A sample and what its program asks for.
struct Job {
    const Sample& sample;
    const Op* ops;
    const float* tables;
    const Statistics& statistics;
};

// out = the pixels through a matrix alone, from register to register; both may be the same.
template <bool gray, bool shifted>
DEVICE void multiply(const Op& op, const uint8* pixels, int count, uint8* out) {
    const Full<float> most = full_of(op.limit < 0.0f ? 255.0f : smaller(op.limit, 255.0f));
    Full<float> m[12];
    for (int i = 0; i < 12; ++i) m[i] = full_of(op.a[i]);
    uint8 rest[3 * FULL] = {};
    const int whole = count / FULL * FULL;
    memcpy(rest, pixels + 3 * int64(whole), 3 * size_t(count - whole));
    for (int part = 0; part < 2; ++part) {
        const uint8* from = part == 0 ? pixels : rest;
        uint8* to = part == 0 ? out : rest;
        for (int p = part == 0 ? whole : FULL; p > 0; p -= FULL, from += 3 * FULL, to += 3 * FULL) {
            const Full<uint32> some = load_pixels(from);
            const Full<float> r = channel_of(some, 0), g = channel_of(some, 1), b = channel_of(some, 2);
            Full<float> made[3];
            for (int i = 0; i < 3; ++i) {
                const Full<float>* row = m + (gray ? 0 : 4 * i);
                made[i] = shifted ? product(row, r, g, b) : row[0] * r + row[1] * g + row[2] * b;
            }
            store_pixels(made[0], made[1], made[2], most, to);
        }
    }
    memcpy(out + 3 * int64(whole), rest, 3 * size_t(count - whole));
}

DEVICE void multiply(const Op& op, const uint8* pixels, int count, uint8* out) {
    if (op.a[3] != 0.0f || op.a[7] != 0.0f || op.a[11] != 0.0f)
        multiply<false, true>(op, pixels, count, out);
    else if (makes_gray(op))
        multiply<true, false>(op, pixels, count, out);
    else
        multiply<false, false>(op, pixels, count, out);
}

// out = what the program makes of columns x ... x + count - 1 of output row y; both may be the same.
DEVICE void run_on_bytes(const Job& job, int y, int x, const uint8* pixels, int count, uint8* out) {
    const Sample& sample = job.sample;
    if (sample.op_end - sample.op_begin == 1 && job.ops[sample.op_begin].code == MATRIX && sample.clamp < 0.0f) {
        multiply(job.ops[sample.op_begin], pixels, count, out);
        return;
    }
    for (int p = 0; p < count; p += PIXELS, pixels += 3 * PIXELS, out += 3 * PIXELS) {
        const int some = smaller(PIXELS, count - p);
        uint8 rest[3 * PIXELS];
        if (some < PIXELS) memset(rest, 0, sizeof rest), memcpy(rest, pixels, 3 * size_t(some));
        Strip v;
        unpack(some < PIXELS ? rest : pixels, v);
        limit_to(sample.clamp, v);
        run_program(sample, job.ops, job.tables, job.statistics, y, x + p, v);
        store_packed(v, some < PIXELS ? rest : out);
        if (some < PIXELS) memcpy(out, rest, 3 * size_t(some));
    }
}
