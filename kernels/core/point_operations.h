// Computes: the operations on single pixels, and the program (a list of operations) that each sample runs. Values are
//           floats all the way: nothing is rounded between operations. ops.def lists the operations.
// Threads:  one pixel block, planar in v[channel][pixel], per thread. Each operation loops over it: the CPU build
//           vectorizes the loop, CUDA has one pixel in registers.
// Reference: torchvision's functional operations; HSV: Smith, "Color gamut transform pairs", SIGGRAPH 1978.
// Tests:    tests/properties against cv2.LUT, cv2.transform, Pillow's ImageOps and tests/references/.
#pragma once
#include "core/pixel_function.h"
#include "core/statistics.h"

// The tables that the operations of a pass read.
struct PassContext {
    const Sample& sample;
    const Op* ops;
    const float* tables;  // [T, C, 256], then filters, fields and quantization steps
    const Statistics& statistics;
};

// values[p] = f(values[p]) for PIXELS values.
template <class Function>
DEVICE void apply_elementwise(float* values, const Function& f) {
    for (int p = 0; p < PIXELS; p += VEC_LANES) store(values + p, f(load_vec(values + p)));
}

DEVICE void saturate(PixelBlock& v, float limit) {
    if (limit < 0.0f) return;
    for (int c = 0; c < 3; ++c) apply_elementwise(v[c], [&](Vec<float> values) { return saturate(values, limit); });
}

// values[p] = factor * values[p] + bias, saturated.
DEVICE void scale(float factor, float bias, float limit, float* values) {
    apply_elementwise(values, [&](Vec<float> value) { return saturate(value * factor + bias, limit); });
}

DEVICE void scale(const Op& op, PixelBlock& v) {
    for (int c = 0; c < 3; ++c) scale(op.a[c], op.a[4 + c], op.limit, v[c]);
}

// torch's order of operations. A level's product with the upper 16 bits of 1 / 255 is exact, so the sum of the two
// products is level / 255, rounded once; a division takes longer.
DEVICE void normalize(const Op& op, PixelBlock& v) {
    const float upper = op.a[8], lower = op.a[9];
    for (int c = 0; c < 3; ++c) {
        const float mean = op.a[c], std = op.a[4 + c];
        if (lower != 0.0f) apply_elementwise(v[c], [&](Vec<float> value) { return value * upper + value * lower; });
        apply_elementwise(v[c], [&](Vec<float> value) { return (value - mean) / std; });
    }
}

// The product of a matrix row (r, g, b, offset) with a vector of pixels.
template <class F>
DEVICE Vec<float> matrix_row(const F* row, Vec<float> r, Vec<float> g, Vec<float> b) {
    return row[0] * r + row[1] * g + row[2] * b + row[3];
}

// Whether all rows of a matrix have the same bits: its result is gray.
DEVICE bool is_gray_matrix(const Op& op) {
    uint32 different = 0;
    for (int i = 0; i < 8; ++i) different |= float_bits(op.a[i]) ^ float_bits(op.a[i + 4]);
    return different == 0;
}

DEVICE void matrix(const Op& op, PixelBlock& v) {
    float m[12];
    for (int i = 0; i < 12; ++i) m[i] = op.a[i];
    const float limit = op.limit;
    const bool gray = PIXELS > 1 && is_gray_matrix(op);
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        const Vec<float> r = load_vec(&v[0][p]), g = load_vec(&v[1][p]);
        const Vec<float> b = load_vec(&v[2][p]), first = saturate(matrix_row(m, r, g, b), limit);
        store(&v[0][p], first);
        store(&v[1][p], gray ? first : saturate(matrix_row(m + 4, r, g, b), limit));
        store(&v[2][p], gray ? first : saturate(matrix_row(m + 8, r, g, b), limit));
    }
}

// values[p] = the table's entry of the nearest level.
DEVICE void look_up(const float* table, float scale, float* values) {
    int levels[PIXELS];
    FOR_PIXELS(p) levels[p] = to_level(values[p], scale);
    FOR_PIXELS(p) values[p] = table[levels[p]];
}

DEVICE void look_up(const Op& op, const float* tables, PixelBlock& v) {
    for (int c = 0; c < 3; ++c) {
        const float* table = tables + (int64(op.table) * 3 + c) * 256;
        look_up(table, op.a[0], v[c]);
    }
}

DEVICE void posterize(const Op& op, PixelBlock& v) {
    const auto coarser = [&](Vec<float> value) {
        return saturate(floor((value + op.a[0]) * op.a[1]), op.a[2]) * op.a[3];
    };
    for (int c = 0; c < 3; ++c) apply_elementwise(v[c], coarser);
}

DEVICE void solarize(const Op& op, PixelBlock& v) {
    const float threshold = op.a[0], white = op.a[1];
    const auto solarized = [&](Vec<float> value) { return value >= threshold ? white - value : value; };
    for (int c = 0; c < 3; ++c) apply_elementwise(v[c], solarized);
}

// Results are never negative; without a limit, infinity is the limit.
DEVICE void adjust_gamma(const Op& op, PixelBlock& v) {
    const float gain = op.a[0], exponent = op.a[1], share = 1.0f / op.a[2];
    const Vec<float> none = splat(0.0f), upper = splat(op.limit < 0.0f ? bits_to_float(0x7f800000u) : op.limit);
    for (int c = 0; c < 3; ++c) {
        apply_elementwise(v[c], [&](Vec<float> value) { return value * share; });
        fast_pow(exponent, v[c]);
        apply_elementwise(v[c], [&](Vec<float> value) { return min(max(gain * value, none), upper); });
    }
}

DEVICE void contrast(const Op& op, const Statistics& statistics, PixelBlock& v) {
    const float mean = float(double(*statistics.before) * double(op.a[1]));
    const float factor = op.a[0], offset = (1.0f - factor) * mean;
    for (int c = 0; c < 3; ++c) scale(factor, offset, op.limit, v[c]);
}

// A channel of a single value has no range and stays unchanged.
DEVICE void autocontrast(const Op& op, const Statistics& statistics, PixelBlock& v) {
    for (int c = 0; c < 3; ++c) {
        const float minimum = minimum_of(statistics.before, c), range = maximum_of(statistics.before, c) - minimum;
        if (range > 0.0f)
            apply_elementwise(v[c], [&](Vec<float> value) { return (value - minimum) * op.a[0] / range; });
    }
    saturate(v, op.limit);
}

DEVICE void equalize(const Op& op, const Statistics& statistics, PixelBlock& v) {
    const float level = op.a[1];
    for (int c = 0; c < 3; ++c) {
        look_up(statistics.scratch + 256 * c, op.a[0], v[c]);
        apply_elementwise(v[c], [&](Vec<float> value) { return value * level; });
    }
}

// HSV with the hue in sextants: red at 0, green at 2, blue at 4. A channel's distance from the largest, in chromas, is
// a ramp clamped to [0, 1]. Two loops for the same reason as in fast_pow.
DEVICE void rotate_hue(const Op& op, PixelBlock& v) {
    const float shift = 6.0f * op.a[0], limit = op.limit;
    float hues[PIXELS], chromas[PIXELS], highs[PIXELS];
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        const Vec<float> r = load_vec(&v[0][p]), g = load_vec(&v[1][p]);
        const Vec<float> b = load_vec(&v[2][p]);
        const Vec<float> high = max(r, max(g, b)), chroma = high - min(r, min(g, b));
        const Vec<float> per = 1.0f / (chroma > 0.0f ? chroma : splat(1.0f));
        const Vec<float> from_green = 2.0f + (b - r) * per, from_blue = 4.0f + (r - g) * per;
        Vec<float> hue = (high == r ? (g - b) * per : high == g ? from_green : from_blue) + shift;
        hue -= 6.0f * floor(hue * (1.0f / 6.0f));
        store(hues + p, hue), store(chromas + p, chroma), store(highs + p, high);
    }
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        const Vec<float> hue = load_vec(hues + p), chroma = load_vec(chromas + p), high = load_vec(highs + p);
        const auto store_below = [&](int c, Vec<float> chromas) {
            const Vec<float> ramp = min(max(chromas, splat(0.0f)), splat(1.0f));
            store(&v[c][p], saturate(high - chroma * ramp, limit));
        };
        store_below(0, 2.0f - absolute(hue - 3.0f));
        store_below(1, absolute(hue - 2.0f) - 1.0f);
        store_below(2, absolute(hue - 4.0f) - 1.0f);
    }
}

struct Rectangle {
    float top, left, bottom, right;
};

DEVICE Rectangle rectangle_of(const Op& op) { return {op.a[0], op.a[1], op.a[2], op.a[3]}; }

DEVICE bool contains(const Rectangle& box, float y, float x) {
    return y >= box.top && y < box.bottom && x >= box.left && x < box.right;
}

// Whether no pixel of a block lies in the rectangle.
DEVICE bool is_outside(const Op& op, Place at) {
    const float last_y = float(at.y + (PIXELS - 1) * at.dy), last_x = float(at.x + (PIXELS - 1) * at.dx);
    return last_y < op.a[0] || float(at.y) >= op.a[2] || last_x < op.a[1] || float(at.x) >= op.a[3];
}

DEVICE void erase(const Op& op, Place at, PixelBlock& v) {
    if (is_outside(op, at)) return;
    const Rectangle box = rectangle_of(op);
    for (int c = 0; c < 3; ++c) {
        const float fill = op.a[4 + c];
        FOR_PIXELS(p) v[c][p] = contains(box, float(at.y + p * at.dy), float(at.x + p * at.dx)) ? fill : v[c][p];
    }
}

DEVICE void erase_with_noise(const Op& op, Place at, PixelBlock& v) {
    if (is_outside(op, at)) return;
    FOR_PIXELS(p) {
        const int y = at.y + p * at.dy, x = at.x + p * at.dx;
        if (!contains(rectangle_of(op), float(y), float(x))) continue;
        const Philox a = philox(op.key[0], op.key[1], uint32(x), uint32(y), 0, 0);
        const Philox b = philox(op.key[0], op.key[1], uint32(x), uint32(y), 1, 0);
        v[0][p] = op.a[4] + op.a[5] * standard_normal(a.word[0], a.word[1]);
        v[1][p] = op.a[4] + op.a[5] * standard_normal(a.word[2], a.word[3]);
        v[2][p] = op.a[4] + op.a[5] * standard_normal(b.word[0], b.word[1]);
    }
}

DEVICE void add_normal_noise(float mean, float deviation, const uint32 (*words)[PIXELS], float* values) {
    float squares[PIXELS];
    for (int p = 0; p < PIXELS; p += VEC_LANES) store(squares + p, box_muller_square(load_vec(&words[0][p])));
    for (int p = 0; p < PIXELS; p += VEC_LANES) {
        const auto normal = sqrt(load_vec(squares + p)) * fast_cos_turns(uniform(load_vec(&words[1][p])));
        store(values + p, load_vec(values + p) + (mean + deviation * normal));
    }
}

DEVICE void add_noise(const Op& op, Place at, PixelBlock& v) {
    const float mean = op.a[4], deviation = op.a[5];
    RandomWords a, b;
    philox_block(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 0, a);
    philox_block(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 1, b);
    add_normal_noise(mean, deviation, a.first, v[0]);
    add_normal_noise(mean, deviation, a.last, v[1]);
    add_normal_noise(mean, deviation, b.first, v[2]);
    saturate(v, op.limit);
}

// The linear light of a value is its 2.2th power; it arrives in photons of a[0] each.
DEVICE void add_shot_noise(const Op& op, Place at, PixelBlock& v) {
    RandomWords a, b;
    philox_block(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 0, a);
    philox_block(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 1, b);
    for (int c = 0; c < 3; ++c) {
        const uint32 *const word0 = c < 2 ? a.first[c] : a.last[0], *const word1 = c < 2 ? b.first[c] : b.last[0];
        FOR_PIXELS(p) v[c][p] = clamp(v[c][p] / op.a[1], 0.0f, 1.0f);
        fast_pow(2.2f, v[c]);
        FOR_PIXELS(p) v[c][p] = clamp(poisson(v[c][p] / op.a[0], word0[p], word1[p]) * op.a[0], 0.0f, 1.0f);
        fast_pow(1.0f / 2.2f, v[c]);
        FOR_PIXELS(p) v[c][p] *= op.a[1];
    }
}

DEVICE void mask_grid(const Op& op, Place at, PixelBlock& v) {
    FOR_PIXELS(p) {
        const float y = float(at.y + p * at.dy) + 0.5f, x = float(at.x + p * at.dx) + 0.5f;
        const float down = op.a[0] * y + op.a[1] * x + op.a[8], across = op.a[2] * y + op.a[3] * x + op.a[9];
        const bool inside = down - floor(down) < op.a[7] && across - floor(across) < op.a[7];
        for (int c = 0; c < 3; ++c) v[c][p] = inside ? op.a[4 + c] : v[c][p];
    }
}

DEVICE void mask_pixels(const Op& op, Place at, PixelBlock& v) {
    const float share = op.a[0];
    RandomWords draws;
    philox_block(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 0, draws);
    for (int c = 0; c < 3; ++c) {
        const float value = op.a[4 + c];
        FOR_PIXELS(p) v[c][p] = uniform(draws.first[0][p]) < share ? value : v[c][p];
    }
}

// Runs the sample's program on PIXELS pixels of output row y from column x on.
DEVICE void run_program(const PassContext& pass, int y, int x, PixelBlock& v) {
    const Sample& sample = pass.sample;
    const float* const tables = pass.tables;
    const Statistics& statistics = pass.statistics;
    const auto at = [&] { return place_of(sample, y, x); };
    for (int i = sample.op_begin; i < sample.op_end; ++i) {
        const Op& op = pass.ops[i];
        switch (op.code) {
#define OPERATION(code, call, ...)      \
    case code:                          \
        if (may_be<Operations>(code)) { \
            call;                       \
        }                               \
        break;
#include "ops.def"
#undef OPERATION
        }
    }
}
