// The operations on single pixels, and the interpreter that runs a sample's program of them.
//
// A thread holds PIXELS neighbouring pixels of one output row, planar, in v[channel][pixel]. Each operation is a loop
// over them: on the host it vectorises, on CUDA it is one pixel in registers. Values are floats all the way: nothing is
// rounded between operations.
//
// To add one: an OpCode in plan.h and in cuaug/plan/layout.py, a function here and its line in run_program, its rows in
// cuaug/plan/operations.py, a reference in tests/references/; and its line in cpu/uint8_path.h if it takes a channel by
// itself.
//
// Tested against cv2.LUT, cv2.transform, Pillow's ImageOps and tests/references/.
#pragma once
#include "core/philox.h"
#include "core/statistics.h"

// values[p] = of(values[p]) for PIXELS values, as many at once as a register holds.
template <class Function>
DEVICE void change(float* values, const Function& of) {
    for (int p = 0; p < PIXELS; p += FULL) store_full(values + p, of(load_full(values + p)));
}

// Values limited as an operation says.
DEVICE Full<float> limited(float limit, Full<float> values) {
    return limit < 0.0f ? values : smaller(larger(values, full_of(0.0f)), full_of(limit));
}

DEVICE void limit_to(float limit, Strip& v) {
    if (limit < 0.0f) return;
    for (int c = 0; c < 3; ++c) change(v[c], [&](Full<float> values) { return limited(limit, values); });
}

// factor * value + bias, limited.
DEVICE void scale(float factor, float bias, float limit, float* values) {
    change(values, [&](Full<float> value) { return limited(limit, value * factor + bias); });
}

DEVICE void scale(const Op& op, Strip& v) {
    for (int c = 0; c < 3; ++c) scale(op.a[c], op.a[4 + c], op.limit, v[c]);
}

// A row (r, g, b, offset) of a matrix with many pixels.
template <class F>
DEVICE Full<float> product(const F* row, Full<float> r, Full<float> g, Full<float> b) {
    return row[0] * r + row[1] * g + row[2] * b + row[3];
}

// Whether all rows of a matrix are the same bits: its result is gray.
DEVICE bool makes_gray(const Op& op) {
    uint32 different = 0;
    for (int i = 0; i < 8; ++i) different |= float_bits(op.a[i]) ^ float_bits(op.a[i + 4]);
    return different == 0;
}

DEVICE void matrix(const Op& op, Strip& v) {
    float m[12];
    for (int i = 0; i < 12; ++i) m[i] = op.a[i];
    const float limit = op.limit;
    const bool gray = PIXELS > 1 && makes_gray(op);
    for (int p = 0; p < PIXELS; p += FULL) {
        const Full<float> r = load_full(&v[0][p]), g = load_full(&v[1][p]);
        const Full<float> b = load_full(&v[2][p]), first = limited(limit, product(m, r, g, b));
        store_full(&v[0][p], first);
        store_full(&v[1][p], gray ? first : limited(limit, product(m + 4, r, g, b)));
        store_full(&v[2][p], gray ? first : limited(limit, product(m + 8, r, g, b)));
    }
}

// values[p] = the table's entry for the level that each value is nearest to.
DEVICE void look_up(const float* table, float scale, float* values) {
    int levels[PIXELS];
    FOR_PIXELS(p) levels[p] = level_of(values[p], scale);
    FOR_PIXELS(p) values[p] = table[levels[p]];
}

DEVICE void look_up(const Op& op, const float* tables, Strip& v) {
    for (int c = 0; c < 3; ++c) {
        const float* table = tables + (int64(op.table) * 3 + c) * 256;
        look_up(table, op.a[0], v[c]);
    }
}

DEVICE void posterize(const Op& op, Strip& v) {
    const auto coarser = [&](Full<float> value) {
        return limited(op.a[2], floor_of((value + op.a[0]) * op.a[1])) * op.a[3];
    };
    for (int c = 0; c < 3; ++c) change(v[c], coarser);
}

DEVICE void solarize(const Op& op, Strip& v) {
    const float threshold = op.a[0], white = op.a[1];
    const auto solarized = [&](Full<float> value) { return value >= threshold ? white - value : value; };
    for (int c = 0; c < 3; ++c) change(v[c], solarized);
}

// No result is below 0; without a limit, the limit is infinity.
DEVICE void adjust_gamma(const Op& op, Strip& v) {
    const float gain = op.a[0], exponent = op.a[1], share = 1.0f / op.a[2];
    const Full<float> none = full_of(0.0f), most = full_of(op.limit < 0.0f ? float_of_bits(0x7f800000u) : op.limit);
    for (int c = 0; c < 3; ++c) {
        change(v[c], [&](Full<float> value) { return value * share; });
        to_power(exponent, v[c]);
        change(v[c], [&](Full<float> value) { return smaller(larger(gain * value, none), most); });
    }
}

DEVICE void contrast(const Op& op, const Statistics& statistics, Strip& v) {
    const float mean = float(double(*statistics.before) * double(op.a[1]));
    const float factor = op.a[0], rest = (1.0f - factor) * mean;
    for (int c = 0; c < 3; ++c) scale(factor, rest, op.limit, v[c]);
}

// A channel of one value has no range, and stays as it is.
DEVICE void autocontrast(const Op& op, const Statistics& statistics, Strip& v) {
    for (int c = 0; c < 3; ++c) {
        const float least = least_of(statistics.before, c), range = greatest_of(statistics.before, c) - least;
        if (range > 0.0f) change(v[c], [&](Full<float> value) { return (value - least) * op.a[0] / range; });
    }
    limit_to(op.limit, v);
}

DEVICE void equalize(const Op& op, const Statistics& statistics, Strip& v) {
    const float level = op.a[1];
    for (int c = 0; c < 3; ++c) {
        look_up(statistics.scratch + 256 * c, op.a[0], v[c]);
        change(v[c], [&](Full<float> value) { return value * level; });
    }
}

DEVICE Full<float> magnitude(Full<float> values) { return float_of_bits(float_bits(values) & 0x7fffffffu); }

// HSV (Smith 1978) with the hue in sextants: red at 0, green at 2, blue at 4. How far a channel is from the largest, in
// chromas, is a ramp limited to [0, 1]. In two loops for the same reason as powers.
DEVICE void turn_hue(const Op& op, Strip& v) {
    const float turn = 6.0f * op.a[0], limit = op.limit;
    float hues[PIXELS], chromas[PIXELS], highs[PIXELS];
    for (int p = 0; p < PIXELS; p += FULL) {
        const Full<float> r = load_full(&v[0][p]), g = load_full(&v[1][p]);
        const Full<float> b = load_full(&v[2][p]);
        const Full<float> high = larger(r, larger(g, b)), chroma = high - smaller(r, smaller(g, b));
        const Full<float> per = 1.0f / (chroma > 0.0f ? chroma : full_of(1.0f));
        const Full<float> from_green = 2.0f + (b - r) * per, from_blue = 4.0f + (r - g) * per;
        Full<float> hue = (high == r ? (g - b) * per : high == g ? from_green : from_blue) + turn;
        hue -= 6.0f * floor_of(hue * (1.0f / 6.0f));
        store_full(hues + p, hue), store_full(chromas + p, chroma), store_full(highs + p, high);
    }
    for (int p = 0; p < PIXELS; p += FULL) {
        const Full<float> hue = load_full(hues + p), chroma = load_full(chromas + p), high = load_full(highs + p);
        const auto store_below = [&](int c, Full<float> chromas) {
            const Full<float> ramp = smaller(larger(chromas, full_of(0.0f)), full_of(1.0f));
            store_full(&v[c][p], limited(limit, high - chroma * ramp));
        };
        store_below(0, 2.0f - magnitude(hue - 3.0f));
        store_below(1, magnitude(hue - 2.0f) - 1.0f);
        store_below(2, magnitude(hue - 4.0f) - 1.0f);
    }
}

struct Box {
    float top, left, bottom, right;
};

DEVICE Box box_of(const Op& op) { return {op.a[0], op.a[1], op.a[2], op.a[3]}; }

DEVICE bool is_in(const Box& box, float y, float x) {
    return y >= box.top && y < box.bottom && x >= box.left && x < box.right;
}

// Whether no pixel of a strip is in the rectangle.
DEVICE bool misses(const Op& op, Place at) {
    const float last_y = float(at.y + (PIXELS - 1) * at.dy), last_x = float(at.x + (PIXELS - 1) * at.dx);
    return last_y < op.a[0] || float(at.y) >= op.a[2] || last_x < op.a[1] || float(at.x) >= op.a[3];
}

DEVICE void erase(const Op& op, Place at, Strip& v) {
    if (misses(op, at)) return;
    const Box box = box_of(op);
    for (int c = 0; c < 3; ++c) {
        const float fill = op.a[4 + c];
        FOR_PIXELS(p) v[c][p] = is_in(box, float(at.y + p * at.dy), float(at.x + p * at.dx)) ? fill : v[c][p];
    }
}

DEVICE void erase_with_noise(const Op& op, Place at, Strip& v) {
    if (misses(op, at)) return;
    FOR_PIXELS(p) {
        const int y = at.y + p * at.dy, x = at.x + p * at.dx;
        if (!is_in(box_of(op), float(y), float(x))) continue;
        const Philox a = philox(op.key[0], op.key[1], uint32(x), uint32(y), 0, 0);
        const Philox b = philox(op.key[0], op.key[1], uint32(x), uint32(y), 1, 0);
        v[0][p] = op.a[4] + op.a[5] * normal(a.word[0], a.word[1]);
        v[1][p] = op.a[4] + op.a[5] * normal(a.word[2], a.word[3]);
        v[2][p] = op.a[4] + op.a[5] * normal(b.word[0], b.word[1]);
    }
}

DEVICE void add_normal(float mean, float deviation, const uint32 (*words)[PIXELS], float* values) {
    float squares[PIXELS];
    for (int p = 0; p < PIXELS; p += FULL) store_full(squares + p, squared_radius(load_full(&words[0][p])));
    for (int p = 0; p < PIXELS; p += FULL) {
        const auto drawn = root(load_full(squares + p)) * cosine_of_turns(uniform(load_full(&words[1][p])));
        store_full(values + p, load_full(values + p) + (mean + deviation * drawn));
    }
}

DEVICE void add_noise(const Op& op, Place at, Strip& v) {
    const float mean = op.a[4], deviation = op.a[5];
    Draws a, b;
    philox_strip(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 0, a);
    philox_strip(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 1, b);
    add_normal(mean, deviation, a.first, v[0]);
    add_normal(mean, deviation, a.last, v[1]);
    add_normal(mean, deviation, b.first, v[2]);
    limit_to(op.limit, v);
}

// The linear light of a value is its power of 2.2; how much of it arrives is counted in photons of a[0] each.
DEVICE void add_shot_noise(const Op& op, Place at, Strip& v) {
    Draws a, b;
    philox_strip(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 0, a);
    philox_strip(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 1, b);
    for (int c = 0; c < 3; ++c) {
        const uint32 *const word0 = c < 2 ? a.first[c] : a.last[0], *const word1 = c < 2 ? b.first[c] : b.last[0];
        FOR_PIXELS(p) v[c][p] = clamp(v[c][p] / op.a[1], 1.0f);
        to_power(2.2f, v[c]);
        FOR_PIXELS(p) v[c][p] = clamp(poisson(v[c][p] / op.a[0], word0[p], word1[p]) * op.a[0], 1.0f);
        to_power(1.0f / 2.2f, v[c]);
        FOR_PIXELS(p) v[c][p] *= op.a[1];
    }
}

DEVICE void cover_grid(const Op& op, Place at, Strip& v) {
    FOR_PIXELS(p) {
        const float y = float(at.y + p * at.dy) + 0.5f, x = float(at.x + p * at.dx) + 0.5f;
        const float down = op.a[0] * y + op.a[1] * x + op.a[8], across = op.a[2] * y + op.a[3] * x + op.a[9];
        const bool inside = down - floor_of(down) < op.a[7] && across - floor_of(across) < op.a[7];
        for (int c = 0; c < 3; ++c) v[c][p] = inside ? op.a[4 + c] : v[c][p];
    }
}

DEVICE void mask(const Op& op, Place at, Strip& v) {
    const float share = op.a[0];
    Draws draws;
    philox_strip(op.key[0], op.key[1], at.x, at.dx, at.y, at.dy, 0, draws);
    for (int c = 0; c < 3; ++c) {
        const float value = op.a[4 + c];
        FOR_PIXELS(p) v[c][p] = uniform(draws.first[0][p]) < share ? value : v[c][p];
    }
}

// Runs the sample's program on PIXELS pixels of output row y from column x on.
DEVICE void run_program(const Sample& sample, const Op* ops, const float* tables, const Statistics& statistics, int y,
                        int x, Strip& v) {
    const auto at = [&] { return place_of(sample, y, x); };
    for (int i = sample.op_begin; i < sample.op_end; ++i) {
        const Op& op = ops[i];
        switch (op.code) {
            case SCALE: scale(op, v); break;
            case MATRIX: matrix(op, v); break;
            case LUT: look_up(op, tables, v); break;
            case CONTRAST: contrast(op, statistics, v); break;
            case HUE: turn_hue(op, v); break;
            case ERASE: erase(op, at(), v); break;
            case ERASE_NOISE: erase_with_noise(op, at(), v); break;
            case MASK: mask(op, at(), v); break;
            case GRID: cover_grid(op, at(), v); break;
            case NOISE: add_noise(op, at(), v); break;
            case SHOT_NOISE: add_shot_noise(op, at(), v); break;
            case POSTERIZE: posterize(op, v); break;
            case SOLARIZE: solarize(op, v); break;
            case GAMMA: adjust_gamma(op, v); break;
            case AUTOCONTRAST: autocontrast(op, statistics, v); break;
            case EQUALIZE: equalize(op, statistics, v); break;
            case CLAHE: clahe(op, sample, statistics.scratch, at(), v); break;
        }
    }
}
