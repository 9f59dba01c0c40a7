// Computes: passes from uint8 to uint8 whose pixels are copied (crop, flip, pad, transpose) or medians. A program
//           that acts on each channel alone is baked into a table of 256 entries per channel, by running it on all
//           levels; pixels then never become floats. Rectangles are filled afterwards. Other programs run on a few
//           pixels at a time (cpu/uint8_color.h).
// Threads:  one thread per output row, or per band of BAND_ROWS rows of a transposed image.
// Reference: core/augment.h, the common path, which gives the same bits.
// Tests:    tests/properties/test_bytes.py.
#pragma once
#include "cpu/median.h"
#include "cpu/copy_runs.h"
#include "cpu/rgb8_simd.h"
#include "cpu/uint8_color.h"

// --- look-up tables --------------------------------------------------------------------------------------------------

// A pass's program, prepared.
struct Program8 {
    bool uses_luts;  // else all pixels run the program
    ChannelLuts luts;
    uint8 fill_after[3], fill_before[3];  // through the tables, if it uses them
};

// Whether a matrix only permutes channels; channel c then comes from channel from[c].
DEVICE bool is_permutation(const Op& op, int* from) {
    if (op.code != MATRIX) return false;
    for (int c = 0; c < 3; ++c) {
        const float* row = op.a + 4 * c;
        from[c] = row[0] == 1.0f ? 0 : row[1] == 1.0f ? 1 : 2;
        for (int i = 0; i < 4; ++i)
            if (row[i] != (i == from[c] ? 1.0f : 0.0f)) return false;
    }
    return true;
}

enum ChannelUse { MIXED, ALONE };
enum PlaceUse { ANYWHERE, PLACED };
constexpr bool ACTS_ON_LEVELS[] = {
#define OPERATION(code, call, channels, place, ...) channels == ALONE &&place == ANYWHERE,
#include "ops.def"
#undef OPERATION
};

// Whether a table can hold the effect of an operation on levels. A permutation must come first: later, it could move
// values that are not finite to another channel.
DEVICE bool can_use_lut(const Op& op, bool first) {
    int from[3];
    return ACTS_ON_LEVELS[op.code] || op.code == ERASE || (first && is_permutation(op, from));
}

DEVICE bool uses_luts(const Sample& sample, const Op* ops) {
    bool all = true;
    for (int i = sample.op_begin; i < sample.op_end; ++i) all &= can_use_lut(ops[i], i == sample.op_begin);
    return all;
}

// bytes = v after the program from operation `op` on, without rectangles.
DEVICE void run_on_levels(const PassContext& pass, int op, PixelBlock& v, uint8 (*bytes)[PIXELS]) {
    Sample single = pass.sample;  // runs one operation
    for (; op < pass.sample.op_end; ++op) {
        single.op_begin = op, single.op_end = op + 1;
        if (pass.ops[op].code != ERASE) run_program({single, pass.ops, pass.tables, pass.statistics}, 0, 0, v);
    }
    for (int c = 0; c < 3; ++c) to_bytes(v[c], bytes[c]);
}

DEVICE void run_on_color(const PassContext& pass, int op, const float* rgb, float limit, uint8* out) {
    PixelBlock v;
    uint8 bytes[3][PIXELS];
    for (int c = 0; c < 3; ++c) FOR_PIXELS(p) v[c][p] = rgb[c];
    saturate(v, limit);
    run_on_levels(pass, op, v, bytes);
    for (int c = 0; c < 3; ++c) out[c] = bytes[c][0];
}

DEVICE void bake_luts(const PassContext& pass, Program8& program) {
    const Sample& sample = pass.sample;
    program.uses_luts = uses_luts(sample, pass.ops);
    if (!program.uses_luts) {
        for (int c = 0; c < 3; ++c)
            program.fill_after[c] = to_uint8(sample.after.fill[c]),
            program.fill_before[c] = to_uint8(sample.before.fill[c]);
        return;
    }
    run_on_color(pass, sample.op_begin, sample.after.fill, sample.clamp, program.fill_after);
    run_on_color(pass, sample.op_begin, sample.before.fill, sample.clamp, program.fill_before);
    for (int c = 0; c < 3; ++c) program.luts.from[c] = c;
    program.luts.identity = sample.op_begin == sample.op_end && sample.clamp < 0.0f;
    if (program.luts.identity) return;
    for (int level = 0; level < 256; level += PIXELS) {
        PixelBlock v;
        uint8 bytes[3][PIXELS];
        for (int c = 0; c < 3; ++c) FOR_PIXELS(p) v[c][p] = float(level + p);
        saturate(v, sample.clamp);
        run_on_levels(pass, sample.op_begin, v, bytes);
        for (int c = 0; c < 3; ++c) memcpy(program.luts.table[c] + level, bytes[c], PIXELS);
    }
    classify_luts(program.luts);
    if (sample.op_begin < sample.op_end) is_permutation(pass.ops[sample.op_begin], program.luts.from);
}

// out = the program's results on columns x ... x + count - 1 of output row y. out may be pixels.
DEVICE void finish_pixels(const PassContext& pass, const Program8& program, int y, int x, const uint8* pixels,
                          int count, uint8* out) {
    if (program.uses_luts)
        apply_luts(program.luts, pixels, count, out);
    else
        run_on_pixels(pass, y, x, pixels, count, out);
}

// --- rows ------------------------------------------------------------------------------------------------------------

// Writes columns x ... x + count - 1 of output row y: the source pixels, or their medians, from `column` on, to the
// right (step 1), to the left (-1), or `column` repeated (0).
DEVICE void write_run(const PassContext& pass, const Program8& program, int y, int x, int row, int column, int step,
                      int count, uint8* out) {
    const Sample& sample = pass.sample;
    const int distinct = step == 0 ? 1 : count, left = step < 0 ? column - (count - 1) : column;
    const int chunk = sample.neighborhood == MEDIAN ? MAX_MEDIANS : distinct;
    for (int i = 0; i < distinct; i += chunk) {
        const int pixels = min(chunk, distinct - i), at = step < 0 ? distinct - i - pixels : i;
        uint8 buffer[3 * MAX_MEDIANS];
        uint8* const to = out + 3 * int64(at);
        const uint8* from = row_of<uint8>(sample, row) + 3 * int64(left + i - sample.x.held_low);
        if (sample.neighborhood == MEDIAN) {
            uint8* const medians = step < 0 || 3 * pixels < lanes_in<uint8> ? buffer : to;
            medians_of_row(sample, row, left + i, pixels, medians);
            from = medians;
        }
        if (step < 0) reverse(from, pixels, to);
        if (step == 0) repeat(from, count, to);
        finish_pixels(pass, program, y, x + at, step > 0 ? from : to, step == 0 ? count : pixels, to);
    }
}

DEVICE void measure_pixels(const PassContext& pass, const uint8* pixels, int count, PartialStats& stats) {
    if (pass.sample.measure.kind == NOTHING || pass.sample.measure.kind == CELL_HISTOGRAMS)
        return;  // cells are counted after the tile
    for (int x = 0; x < count; x += PIXELS) {
        const int n = min(PIXELS, count - x);
        PixelBlock v;
        load_block(pixels + 3 * int64(x), n, 1, v);
        measure(pass.sample, pass.statistics, v, n, stats);
    }
}

// Writes and measures columns x ... x + count - 1 of output row y.
DEVICE void write_row(const PassContext& pass, const Program8& program, const CopyRuns& runs, int y, int x, int count,
                      uint8* out, PartialStats& stats) {
    const Sample& sample = pass.sample;
    const int row = source_index(sample, sample.y, y);
    for (const CopyRun* run = runs.run; run < runs.run + runs.count; ++run) {
        const int begin = max(x, run->x), end = min(x + count, run->x + run->count), pixels = end - begin;
        uint8* const to = out + 3 * int64(begin - x);
        if (pixels <= 0) continue;
        if (row != FILL_AFTER && run->column != FILL_AFTER && row != FILL_BEFORE && run->column != FILL_BEFORE) {
            const int column = run->column + run->step * (begin - run->x);
            write_run(pass, program, y, begin, row, column, run->step, pixels, to);
            continue;
        }
        repeat(row == FILL_AFTER || run->column == FILL_AFTER ? program.fill_after : program.fill_before, pixels, to);
        if (!program.uses_luts) run_on_pixels(pass, y, begin, to, pixels, to);
    }
    measure_pixels(pass, out, count, stats);
}

// Pixel (row, column) of the target.
DEVICE uint8* target_pixel(const Sample& sample, int row, int column) {
    const int64 width = sample.transposed ? sample.y.out : sample.x.out;
    return reinterpret_cast<uint8*>(sample.target.address) + 3 * (row * width + column);
}

constexpr int BAND_ROWS = 16, BAND_COLUMNS = 64;

// Writes a band of output rows as columns of the target, through a buffer.
DEVICE void write_columns(const PassContext& pass, const Program8& program, const CopyRuns& runs, const Tile& band,
                          PartialStats& stats) {
    uint8 rows[BAND_ROWS][3 * BAND_COLUMNS];
    for (int x = band.x; x < band.x + band.columns; x += BAND_COLUMNS) {
        const int columns = min(BAND_COLUMNS, band.x + band.columns - x);
        for (int y = 0; y < band.rows; ++y) write_row(pass, program, runs, band.y + y, x, columns, rows[y], stats);
        for (int i = 0; i < columns; ++i)
            for (int y = 0; y < band.rows; ++y)
                memcpy(target_pixel(pass.sample, x + i, band.y + y), rows[y] + 3 * i, 3);
    }
}

DEVICE int ceil_to_int(float edge) { return int(clamp(-floor(-double(edge)), -1e9, 1e9)); }

// Fills the part of a rectangle that lies in this band of a tile.
DEVICE void fill_rectangle(const Sample& sample, const Op& op, const uint8* rgb, const Tile& band) {
    const Place at = place_of(sample, band.y, band.x);
    const int rows = sample.transposed ? band.columns : band.rows;
    const int columns = sample.transposed ? band.rows : band.columns;
    const int top = max(ceil_to_int(op.a[0]), at.y), bottom = min(ceil_to_int(op.a[2]), at.y + rows);
    const int left = max(ceil_to_int(op.a[1]), at.x), right = min(ceil_to_int(op.a[3]), at.x + columns);
    for (int y = top; y < bottom && left < right; ++y) repeat(rgb, right - left, target_pixel(sample, y, left));
}

// --- passes ----------------------------------------------------------------------------------------------------------

DEVICE bool copies_uint8(const Sample& sample) {
    return sample.source_type == UINT8 && (only_copies(sample) || sample.neighborhood == MEDIAN);
}

DEVICE bool is_level(float value) { return float_bits(value) == float_bits(float(to_uint8(value))); }

DEVICE bool fills_with_levels(const Sample& sample) {
    bool levels = true;
    for (int c = 0; c < 3; ++c) levels &= is_level(sample.after.fill[c]) && is_level(sample.before.fill[c]);
    return levels;
}

// Whether all values of a pass stay uint8 levels.
DEVICE bool keeps_uint8(const Sample& sample) {
    return copies_uint8(sample) && sample.op_begin == sample.op_end &&
           (sample.measure.kind != CELL_HISTOGRAMS || sample.measure_scale == 1.0f) &&
           (sample.clamp < 0.0f || sample.clamp >= 255.0f) && fills_with_levels(sample);
}

DEVICE bool is_uint8_pass(const PassContext& pass, const Tile& tile) {
    const Sample& sample = pass.sample;
    if (!copies_uint8(sample) || !is_packed_rgb8(sample)) return false;
    if (sample.op_begin == sample.op_end) return true;
    if (sample.measure.kind) return false;
    if (!uses_luts(sample, pass.ops)) return fills_with_levels(sample);
    return tile.rows * int64(tile.columns) > 256;  // a smaller tile is done before its tables
}

// Runs a tile of such a pass; returns whether it is one. A tile without a target is measured where it lies in the
// source.
DEVICE bool run_uint8_path(const Block& block, const PassContext& pass, const Tile& tile, PartialStats& stats) {
    const Sample& sample = pass.sample;
    CopyRuns runs;
    if (!is_uint8_pass(pass, tile) || !find_copy_runs(sample, tile, runs)) return false;
    Program8 program;
    bake_luts(pass, program);
    const auto for_each_band = [&](auto body) {
        const int rows = sample.transposed ? BAND_ROWS : 1;
        for (int y = rows * block.thread; y < tile.rows; y += rows * block.threads)
            body(Tile{tile.y + y, tile.x, min(rows, tile.rows - y), tile.columns});
    };
    for_each_band([&](const Tile& band) {
        if (sample.transposed)
            write_columns(pass, program, runs, band, stats);
        else if (sample.target.address != 0)
            write_row(pass, program, runs, band.y, band.x, band.columns, target_pixel(sample, band.y, band.x), stats);
        else
            measure_pixels(pass, copied_source(sample) + band.y * sample.source.pitch + 3 * int64(band.x), band.columns,
                           stats);
    });
    for (int i = sample.op_begin; i < sample.op_end && program.uses_luts; ++i) {
        if (pass.ops[i].code != ERASE) continue;
        uint8 rgb[3];
        run_on_color(pass, i + 1, pass.ops[i].a + 4, -1.0f, rgb);
        for_each_band([&](const Tile& band) { fill_rectangle(sample, pass.ops[i], rgb, band); });
    }
    return true;
}
