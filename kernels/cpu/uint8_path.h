// Passes from bytes to bytes, on the host, of pixels that only move, or are medians. Of programs that take one channel
// of one pixel at a time, or erase rectangles, what they make of each level is found out once, by running them; the
// pixels never become floats. Those of others do, a few at a time. The bits are those that a pass of floats would have
// made.
//
// Tested by tests/properties/test_bytes.py.
#pragma once
#include "core/median.h"
#include "core/store.h"
#include "cpu/double_simd.h"

#if defined(__CUDACC__)

DEVICE bool make_bytes(const Block&, const Sample&, const Op*, const float*, const Statistics&, const Tile&, Tally&) {
    return false;  // there, what a pixel costs is its way through memory
}

#else

#include "cpu/uint8_color.h"
#include "cpu/rgb8_simd.h"
#include "cpu/copy_runs.h"

// --- what becomes of levels ------------------------------------------------------------------------------------------

struct Finish {
    bool through_tables;  // else all pixels run the program
    Map map;
    uint8 after[3], before[3];  // the fill colours: what the tables make of them, or as they are
};

// Whether channels just change places; from[c]: where c's values come from.
DEVICE bool permutes(const Op& op, int* from) {
    if (op.code != MATRIX) return false;
    for (int c = 0; c < 3; ++c) {
        const float* row = op.a + 4 * c;
        from[c] = row[0] == 1.0f ? 0 : row[1] == 1.0f ? 1 : 2;
        for (int i = 0; i < 4; ++i)
            if (row[i] != (i == from[c] ? 1.0f : 0.0f)) return false;
    }
    return true;
}

// Whether a program's levels can be looked up. Channels change places first or not at all: what operations leave need
// not be finite, and would not stay within its channel.
DEVICE bool by_channel(const Op& op, bool first) {
    int from[3];
    switch (op.code) {
        case SCALE:
        case LUT:
        case CONTRAST:
        case POSTERIZE:
        case SOLARIZE:
        case GAMMA:
        case AUTOCONTRAST:
        case EQUALIZE:
        case ERASE: return true;
        default: return first && permutes(op, from);
    }
}

DEVICE bool through_tables(const Sample& sample, const Op* ops) {
    bool all = true;
    for (int i = sample.op_begin; i < sample.op_end; ++i) all &= by_channel(ops[i], i == sample.op_begin);
    return all;
}

// v as bytes, after the program from `op` on, but for rectangles.
DEVICE void finish_levels(const Job& job, int op, Strip& v, uint8 (*bytes)[PIXELS]) {
    Sample one = job.sample;
    for (; op < job.sample.op_end; ++op) {
        one.op_begin = op, one.op_end = op + 1;
        if (job.ops[op].code != ERASE) run_program(one, job.ops, job.tables, job.statistics, 0, 0, v);
    }
    for (int c = 0; c < 3; ++c) to_bytes(v[c], bytes[c]);
}

DEVICE void finish_colour(const Job& job, int op, const float* rgb, float limit, uint8* out) {
    Strip v;
    uint8 bytes[3][PIXELS];
    for (int c = 0; c < 3; ++c) FOR_PIXELS(p) v[c][p] = rgb[c];
    limit_to(limit, v);
    finish_levels(job, op, v, bytes);
    for (int c = 0; c < 3; ++c) out[c] = bytes[c][0];
}

DEVICE void make_finish(const Job& job, Finish& finish) {
    const Sample& sample = job.sample;
    finish.through_tables = through_tables(sample, job.ops);
    if (!finish.through_tables) {
        for (int c = 0; c < 3; ++c)
            finish.after[c] = to_uint8(sample.fill_after[c]), finish.before[c] = to_uint8(sample.fill_before[c]);
        return;
    }
    finish_colour(job, sample.op_begin, sample.fill_after, sample.clamp, finish.after);
    finish_colour(job, sample.op_begin, sample.fill_before, sample.clamp, finish.before);
    for (int c = 0; c < 3; ++c) finish.map.from[c] = c;
    finish.map.nothing = sample.op_begin == sample.op_end && sample.clamp < 0.0f;
    if (finish.map.nothing) return;
    for (int level = 0; level < 256; level += PIXELS) {
        Strip v;
        uint8 bytes[3][PIXELS];
        for (int c = 0; c < 3; ++c) FOR_PIXELS(p) v[c][p] = float(level + p);
        limit_to(sample.clamp, v);
        finish_levels(job, sample.op_begin, v, bytes);
        for (int c = 0; c < 3; ++c) memcpy(finish.map.table[c] + level, bytes[c], PIXELS);
    }
    recognise(finish.map);
    if (sample.op_begin < sample.op_end) permutes(job.ops[sample.op_begin], finish.map.from);
}

// out = the pixels finished as columns x ... x + count - 1 of output row y; both may be the same.
DEVICE void finish_pixels(const Job& job, const Finish& finish, int y, int x, const uint8* pixels, int count,
                          uint8* out) {
    if (finish.through_tables)
        apply(finish.map, pixels, count, out);
    else
        run_on_bytes(job, y, x, pixels, count, out);
}

// --- rows ------------------------------------------------------------------------------------------------------------

// Source pixels, or their medians, from `column` on to the right or to the left; or `column` again and again. Finished
// as columns x ... x + count - 1 of output row y.
DEVICE void make_run(const Job& job, const Finish& finish, int y, int x, int row, int column, int step, int count,
                     uint8* out) {
    const Sample& sample = job.sample;
    const int different = step == 0 ? 1 : count, left = step < 0 ? column - (count - 1) : column;
    const int most = sample.neighbourhood == MEDIAN ? MEDIANS : different;
    for (int i = 0; i < different; i += most) {
        const int pixels = smaller(most, different - i), at = step < 0 ? different - i - pixels : i;
        uint8 buffer[3 * MEDIANS];
        uint8* const to = out + 3 * int64(at);
        const uint8* from = row_of<uint8>(sample, row) + 3 * int64(left + i - sample.x.held_low);
        if (sample.neighbourhood == MEDIAN) {
            uint8* const medians = step < 0 || 3 * pixels < values_in<uint8> ? buffer : to;
            take_medians(sample, row, left + i, pixels, medians);
            from = medians;
        }
        if (step < 0) reverse(from, pixels, to);
        if (step == 0) repeat(from, count, to);
        finish_pixels(job, finish, y, x + at, step > 0 ? from : to, step == 0 ? count : pixels, to);
    }
}

// What a row shows, measured.
DEVICE void measure_bytes(const Job& job, const uint8* pixels, int count, Tally& tally) {
    if (job.sample.measure == NOTHING || job.sample.measure == CELL_HISTOGRAMS) return;  // cells are counted later
    for (int x = 0; x < count; x += PIXELS) {
        const int some = smaller(PIXELS, count - x);
        Strip v;
        take_strip(pixels + 3 * int64(x), some, 1, v);
        measure(job.sample, job.statistics, v, some, tally);
    }
}

// Columns x ... x + count - 1 of output row y, and what they show measured.
DEVICE void make_row(const Job& job, const Finish& finish, const Runs& runs, int y, int x, int count, uint8* out,
                     Tally& tally) {
    const Sample& sample = job.sample;
    const int row = source_index(sample, sample.y, y);
    for (const Run* run = runs.run; run < runs.run + runs.count; ++run) {
        const int begin = larger(x, run->x), end = smaller(x + count, run->x + run->count), pixels = end - begin;
        uint8* const to = out + 3 * int64(begin - x);
        if (pixels <= 0) continue;
        if (row != AFTER && run->column != AFTER && row != BEFORE && run->column != BEFORE) {
            const int column = run->column + run->step * (begin - run->x);
            make_run(job, finish, y, begin, row, column, run->step, pixels, to);
            continue;
        }
        repeat(row == AFTER || run->column == AFTER ? finish.after : finish.before, pixels, to);
        if (!finish.through_tables) run_on_bytes(job, y, begin, to, pixels, to);
    }
    measure_bytes(job, out, count, tally);
}

// A pixel of the target, by its row and column there.
DEVICE uint8* stored(const Sample& sample, int row, int column) {
    const int64 width = sample.transposed ? sample.y.out : sample.x.out;
    return reinterpret_cast<uint8*>(sample.target) + 3 * (row * width + column);
}

// Output rows as columns of the target, through a buffer.
constexpr int DEEP = 16, WIDE = 64;
DEVICE void make_columns(const Job& job, const Finish& finish, const Runs& runs, const Tile& part, Tally& tally) {
    uint8 rows[DEEP][3 * WIDE];
    for (int x = part.x; x < part.x + part.columns; x += WIDE) {
        const int columns = smaller(WIDE, part.x + part.columns - x);
        for (int y = 0; y < part.rows; ++y) make_row(job, finish, runs, part.y + y, x, columns, rows[y], tally);
        for (int i = 0; i < columns; ++i)
            for (int y = 0; y < part.rows; ++y) memcpy(stored(job.sample, x + i, part.y + y), rows[y] + 3 * i, 3);
    }
}

// The first whole number that is not below `edge`.
DEVICE int from_on(float edge) { return limited_ints(-floor_of(-double(edge))); }

// Covers what of the rectangle lies in this part of a tile.
DEVICE void cover(const Sample& sample, const Op& op, const uint8* rgb, const Tile& part) {
    const Place at = place_of(sample, part.y, part.x);
    const int rows = sample.transposed ? part.columns : part.rows;
    const int columns = sample.transposed ? part.rows : part.columns;
    const int top = larger(from_on(op.a[0]), at.y), bottom = smaller(from_on(op.a[2]), at.y + rows);
    const int left = larger(from_on(op.a[1]), at.x), right = smaller(from_on(op.a[3]), at.x + columns);
    for (int y = top; y < bottom && left < right; ++y) repeat(rgb, right - left, stored(sample, y, left));
}

// --- passes ----------------------------------------------------------------------------------------------------------

DEVICE bool of_bytes(const Sample& sample) {
    return sample.source_type == UINT8 && (only_moves(sample) || sample.neighbourhood == MEDIAN);
}

DEVICE bool is_level(float value) { return float_bits(value) == float_bits(float(to_uint8(value))); }

DEVICE bool fills_with_levels(const Sample& sample) {
    bool levels = true;
    for (int c = 0; c < 3; ++c) levels &= is_level(sample.fill_after[c]) && is_level(sample.fill_before[c]);
    return levels;
}

// Whether all values that a pass takes in, and hands on as they are, are levels.
DEVICE bool hands_on_levels(const Sample& sample) {
    return of_bytes(sample) && sample.op_begin == sample.op_end &&
           (sample.measure != CELL_HISTOGRAMS || sample.measure_scale == 1.0f) &&
           (sample.clamp < 0.0f || sample.clamp >= 255.0f) && fills_with_levels(sample);
}

DEVICE bool makes_bytes(const Sample& sample, const Op* ops, const Tile& tile) {
    if (!of_bytes(sample) || sample.target_type != UINT8 || sample.target_layout != HWC || sample.target_channels != 3)
        return false;
    if (sample.op_begin == sample.op_end) return true;
    if (sample.measure) return false;
    if (!through_tables(sample, ops)) return fills_with_levels(sample);
    return tile.rows * int64(tile.columns) > 256;  // else levels are more work
}

// Makes a tile, if it is of such a pass. Without a target it is only measured, where it lies.
DEVICE bool make_bytes(const Block& block, const Sample& sample, const Op* ops, const float* tables,
                       const Statistics& statistics, const Tile& tile, Tally& tally) {
    Runs runs;
    if (!makes_bytes(sample, ops, tile) || !find_runs(sample, tile, runs)) return false;
    const Job job = {sample, ops, tables, statistics};
    Finish finish;
    make_finish(job, finish);
    const auto each_part = [&](auto body) {
        const int deep = sample.transposed ? DEEP : 1;
        for (int y = deep * block.thread; y < tile.rows; y += deep * block.threads)
            body(Tile{tile.y + y, tile.x, smaller(deep, tile.rows - y), tile.columns});
    };
    each_part([&](const Tile& part) {
        if (sample.transposed)
            make_columns(job, finish, runs, part, tally);
        else if (sample.target != 0)
            make_row(job, finish, runs, part.y, part.x, part.columns, stored(sample, part.y, part.x), tally);
        else
            measure_bytes(job, in_place(sample) + part.y * sample.pitch + 3 * int64(part.x), part.columns, tally);
    });
    for (int i = sample.op_begin; i < sample.op_end && finish.through_tables; ++i) {
        if (ops[i].code != ERASE) continue;
        uint8 rgb[3];
        finish_colour(job, i + 1, ops[i].a + 4, -1.0f, rgb);
        each_part([&](const Tile& part) { cover(sample, ops[i], rgb, part); });
    }
    return true;
}

#endif
