// Computes: one tile of one sample of one pass: sample or filter the source, run the program, store. core/scratch.h
//           gives the order of the scratch.
// Threads:  a block of threads owns a tile of one sample. Loops are block-stride, so any number of threads computes the
//           same bits; every thread reaches every barrier.
// Reference: docs/design.md, the plan of a batch.
// Tests:    tests/properties; tests/kernels/test_scratch.py.
//
// Only the code that reads the source is compiled per source type; the program, most of the code, once per path.
#pragma once
#include "core/jpeg_compression.h"
#include "core/median.h"
#include "core/pillow_resize.h"
#include "core/resample.h"
#include "core/stencil.h"
#include "core/store.h"
#include "core/warp.h"

// Runs a tile, if it can; returns whether it did. finish(y, x, pixels, v) takes sampled pixel blocks. cpu/fast_paths.h
// defines it; on CUDA it does nothing (cuda/fast_paths.h).
template <class Finish>
DEVICE bool run_fast_path(const Block& block, const PassContext& pass, const Tile& tile, PartialStats& stats,
                          const Finish& finish);

// The steps after sampling, for `pixels` pixels of output row y from column x on.
DEVICE void finish_block(const PassContext& pass, int y, int x, int pixels, PixelBlock& v, PartialStats& stats) {
    const Sample& sample = pass.sample;
    saturate(v, sample.clamp);
    if (sample.op_begin < sample.op_end) run_program(pass, y, x, v);
    measure(sample, pass.statistics, v, pixels, stats);
    store_block(sample, v, y, x, pixels);
}

// Whether a pass that does not resample is a warp.
DEVICE bool is_warp(const Sample& sample) {
    return (may_be<Samplings>(WARP) || may_be<Samplings>(DISPLACE)) && (!may_be<Samplings>(COPY) || sample.warped);
}

// Samples `pixels` pixels, each from its own source pixels.
template <class T>
DEVICE void gather_block(const Sample& sample, const float* tables, const Plane* planes, int y, int x, int pixels,
                         PixelBlock& v) {
    const int kind = sample.neighborhood;
    if (is<Neighborhoods>(kind, STENCIL))
        stencil_block<T>(sample, tables, source_pixels(sample, y, x, pixels), v);
    else if (is<Neighborhoods>(kind, MEDIAN))
        median_block<T>(sample, source_pixels(sample, y, x, pixels), v);
    else if (is<Neighborhoods>(kind, JPEG))
        jpeg_block(sample, planes, source_pixels(sample, y, x, pixels), v);
    else if (is_warp(sample))
        warp_block<T>(sample, tables, y, x, pixels, v);
    else
        copy_block<T>(sample, source_pixels(sample, y, x, pixels), v);
}

// A row of `columns` pixels as `count` pixel blocks. The first and last `edge` pixels, where a filter reads across the
// border, are blocks of their own, so that most blocks lie in the interior.
struct RowSplit {
    int count, columns, edge;
};

DEVICE RowSplit split_row(const Sample& sample, int columns) {
    const int radius = filter_radius(sample, sample.x), edge = PIXELS > 1 && columns > 2 * radius ? max(radius, 0) : 0;
    return {(columns - 2 * edge + PIXELS - 1) / PIXELS + (edge > 0 ? 2 : 0), columns, edge};
}

DEVICE Span split_span(const RowSplit& split, int i) {
    if (split.edge == 0) return {i * PIXELS, min(PIXELS, split.columns - i * PIXELS)};
    if (i == 0) return {0, split.edge};
    const int end = split.columns - split.edge, first = split.edge + (i - 1) * PIXELS;
    return first < end ? Span{first, min(PIXELS, end - first)} : Span{end, split.edge};
}

// A tile whose pixels each gather their own source pixels.
DEVICE void gather_tile(const Block& block, const PassContext& pass, PartialStats& stats, Tile tile, float* scratch) {
    const Sample& sample = pass.sample;
    Plane planes[3];
    if (is<Neighborhoods>(sample.neighborhood, JPEG)) {
        const Span rows = window_range(sample, sample.y, tile.y, tile.rows);
        const Span columns = window_range(sample, sample.x, tile.x, tile.columns);
        JpegSample* const samples = reinterpret_cast<JpegSample*>(scratch);
        if (is<SourceTypes>(sample.source_type, UINT8))
            jpeg_planes<uint8>(block, sample, pass.tables, rows, columns, samples, planes);
        else
            jpeg_planes<float>(block, sample, pass.tables, rows, columns, samples, planes);
    }
    const RowSplit split = split_row(sample, tile.columns);
    for (int row = 0, i = block.thread;; i += block.threads) {
        for (; i >= split.count; i -= split.count) ++row;  // cheaper than a division
        if (row >= tile.rows) break;
        const Span span = split_span(split, i);
        const int y = tile.y + row, x = tile.x + span.first, pixels = span.count;
        if (is<Neighborhoods>(sample.neighborhood, JPEG) && store_levels(sample, planes, y, x, pixels)) continue;
        PixelBlock v;
        if (is<SourceTypes>(sample.source_type, UINT8))
            gather_block<uint8>(sample, pass.tables, planes, y, x, pixels, v);
        else
            gather_block<float>(sample, pass.tables, planes, y, x, pixels, v);
        finish_block(pass, y, x, pixels, v, stats);
    }
}

// Calls function(row, v[row]) for `rows` rows; v is lost. On CUDA the rows move through v[0]: an array that a variable
// indexes lies in local memory, and an unrolled loop would have the code of all operations ROWS times.
template <class Function>
DEVICE void for_each_row(PixelBlock* v, int rows, const Function& function) {
    NO_UNROLL
    for (int row = 0; row < rows; ++row) {
        function(row, v[PIXELS > 1 ? row : 0]);
        if (PIXELS > 1) continue;
        UNROLL
        for (int k = 1; k < ROWS; ++k)
            for (int c = 0; c < 3; ++c) v[k - 1][c][0] = v[k][c][0];
    }
}

DEVICE void run_tile(const Block& block, const PassContext& pass, PartialStats& stats, Tile tile, float* scratch) {
    const Sample& sample = pass.sample;
    const auto finish = [&](int y, int x, int pixels, PixelBlock& v) { finish_block(pass, y, x, pixels, v, stats); };
    if (run_fast_path(block, pass, tile, stats, finish)) return;
    if (!is<Samplings>(sampling_of(sample), RESAMPLE)) {  // the same for all threads
        gather_tile(block, pass, stats, tile, scratch);
        return;
    }
    const auto finish_rows = [&](int y, int x, int rows, int pixels, PixelBlock* v) {
        for_each_row(v, rows, [&](int row, PixelBlock& pixel_block) {
            finish_block(pass, y + row, x, pixels, pixel_block, stats);
        });
    };
    if (resizes_levels(sample)) {
        resize_levels(block, sample, pass.tables, tile, scratch, finish_rows);
        return;
    }
    const auto sum = [&](const Span* rows, int height, const float* weights, bool inside, Span columns, float* lines) {
        if (is<SourceTypes>(sample.source_type, UINT8))
            sum_rows<uint8>(block, sample, rows, height, weights, inside, columns, lines);
        else
            sum_rows<float>(block, sample, rows, height, weights, inside, columns, lines);
    };
    resample_tile(block, sample, pass.tables, tile, scratch, sum, finish_rows);
}

// memory: the statistics of all samples and passes.
DEVICE void augment_tile(const Block& block, const Sample& sample, const Op* ops, const float* tables, int64* memory,
                         Tile tile, float* scratch) {
    const Statistics statistics = begin_statistics(block, sample, ops, memory, tile, scratch);
    PartialStats stats = empty_stats();
    const PassContext pass = {sample, ops, tables, statistics};
    run_tile(block, pass, stats, tile, scratch + statistics_floats(SCRATCH, sample, tile.rows, tile.columns));
    end_statistics(block, sample, statistics, stats, tile);
}
