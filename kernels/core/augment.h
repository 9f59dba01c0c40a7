// One tile of one sample of one pass: sample or filter the source, run the program, store.
//
// Thread mapping: a block owns `rows` x `columns` output pixels of one sample. Inside it every loop is block-stride,
// so any number of threads computes the same bits; phases are separated by barriers that every thread reaches.
//
// Scratch, in floats, in this order (cpu/run.cpp and, for CUDA, core/scratch.h size it by the same sum):
//   what core/statistics.h takes, then
//   row spans 2 * rows, row weights rows * y.taps, column spans 2 * columns, column weights columns * x.taps,
//   from a multiple of LANES, and of four, on: ROWS lines of 3 * (the source columns that the columns read), each
//   rounded up to a multiple of four on CUDA
// JPEG passes have core/jpeg_compression.h's instead; those that gather pixel by pixel need none.
//
// Only what reads the source is compiled for each of its types; the program, most of the code, once for each way.
#pragma once
#include "cpu/uint8_path.h"
#include "core/jpeg_compression.h"
#include "core/resample.h"
#include "cpu/sliding_window.h"
#include "core/warp.h"

// What follows sampling, for one strip of output row y from column x on.
DEVICE void finish_strip(const Sample& sample, const Op* ops, const float* tables, const Statistics& statistics, int y,
                         int x, int pixels, Strip& v, Tally& tally) {
    limit_to(sample.clamp, v);
    if (sample.op_begin < sample.op_end) run_program(sample, ops, tables, statistics, y, x, v);
    measure(sample, statistics, v, pixels, tally);
    store_strip(sample, v, y, x, pixels);
}

// One strip of a pass whose pixels each gather for themselves.
template <class T>
DEVICE void gather_strip(const Sample& sample, const float* tables, const Plane* planes, int y, int x, int pixels,
                         Strip& v) {
    switch (sample.neighbourhood) {
        case STENCIL: stencil_strip<T>(sample, tables, shown_strip(sample, y, x, pixels), v); break;
        case MEDIAN: median_strip<T>(sample, shown_strip(sample, y, x, pixels), v); break;
        case JPEG: jpeg_strip(sample, planes, shown_strip(sample, y, x, pixels), v); break;
        default:
            if (sample.warped)
                warp_strip<T>(sample, tables, y, x, pixels, v);
            else
                moved_strip<T>(sample, shown_strip(sample, y, x, pixels), v);
    }
}

// How a row of `columns` pixels is divided into strips: for a filter that looks at its surroundings, those at the ends
// are apart, so that as few as can be are not plain.
struct Strips {
    int count, columns, edge;
};

DEVICE Strips strips_of(const Sample& sample, int columns) {
    const int most = reach(sample, sample.x), edge = PIXELS > 1 && columns > 2 * most ? larger(most, 0) : 0;
    return {(columns - 2 * edge + PIXELS - 1) / PIXELS + (edge > 0 ? 2 : 0), columns, edge};
}

DEVICE Span strip_of(const Strips& strips, int i) {
    if (strips.edge == 0) return {i * PIXELS, smaller(PIXELS, strips.columns - i * PIXELS)};
    if (i == 0) return {0, strips.edge};
    const int end = strips.columns - strips.edge, first = strips.edge + (i - 1) * PIXELS;
    return first < end ? Span{first, smaller(PIXELS, end - first)} : Span{end, strips.edge};
}

// Such a pass, strip by strip; a JPEG's first decodes what the tile needs.
DEVICE void gather_tile(const Block& block, const Sample& sample, const Op* ops, const float* tables,
                        const Statistics& statistics, Tally& tally, Tile tile, float* scratch) {
    Plane planes[3];
    if (sample.neighbourhood == JPEG) {
        const Span rows = shown_range(sample, sample.y, tile.y, tile.rows);
        const Span columns = shown_range(sample, sample.x, tile.x, tile.columns);
        Kept* const memory = reinterpret_cast<Kept*>(scratch);
        if (sample.source_type == UINT8)
            jpeg_planes<uint8>(block, sample, tables, rows, columns, memory, planes);
        else
            jpeg_planes<float>(block, sample, tables, rows, columns, memory, planes);
    }
    const Strips strips = strips_of(sample, tile.columns);
    for (int row = 0, i = block.thread;; i += block.threads) {
        for (; i >= strips.count; i -= strips.count) ++row;  // cheaper than a division
        if (row >= tile.rows) break;
        const Span span = strip_of(strips, i);
        const int y = tile.y + row, x = tile.x + span.first, pixels = span.count;
        if (sample.neighbourhood == JPEG && store_levels(sample, planes, y, x, pixels)) continue;
        Strip v;
        if (sample.source_type == UINT8)
            gather_strip<uint8>(sample, tables, planes, y, x, pixels, v);
        else
            gather_strip<float>(sample, tables, planes, y, x, pixels, v);
        finish_strip(sample, ops, tables, statistics, y, x, pixels, v, tally);
    }
}

DEVICE void make_tile(const Block& block, const Sample& sample, const Op* ops, const float* tables,
                      const Statistics& statistics, Tally& tally, Tile tile, float* scratch) {
    if (make_bytes(block, sample, ops, tables, statistics, tile, tally)) return;
    const auto finish = [&](int y, int x, int pixels, const float* values) {
        if (store_values(sample, values, y, x, pixels)) return;
        for (int p = 0; p < pixels; p += PIXELS) {
            const int some = smaller(PIXELS, pixels - p);
            Strip v;
            take_strip(values + 3 * p, some, 1, v);
            finish_strip(sample, ops, tables, statistics, y, x + p, some, v, tally);
        }
    };
    if (roll(block, sample, tables, tile, finish) || median_rows(block, sample, tile, finish)) return;
    if (sample.warped || sample.neighbourhood > SEPARABLE || only_moves(sample)) {  // the whole block, or none of it
        gather_tile(block, sample, ops, tables, statistics, tally, tile, scratch);
        return;
    }
    const auto sum = [&](const Span* rows, const float* weights, bool inside, Span columns, float* lines) {
        if (sample.source_type == UINT8)
            sum_rows<uint8>(block, sample, rows, weights, inside, columns, lines);
        else
            sum_rows<float>(block, sample, rows, weights, inside, columns, lines);
    };
    resample_tile(block, sample, tables, tile, scratch, sum, [&](int y, int x, int rows, int pixels, Strip* v) {
        NO_UNROLL
        for (int row = 0; row < rows; ++row)
            finish_strip(sample, ops, tables, statistics, y + row, x, pixels, v[row], tally);
    });
}

DEVICE void augment_tile(const Block& block, const Sample& sample, const Op* ops, const float* tables, int64* memory,
                         Tile tile, float* scratch) {
    const Statistics statistics = begin_statistics(block, sample, ops, memory, tile, scratch);
    Tally tally = empty_tally();
    make_tile(block, sample, ops, tables, statistics, tally, tile, scratch + statistics_floats(sample, tile));
    end_statistics(block, sample, statistics, tally, tile);
}
