// Computes: separable resampling of a tile. It first tabulates the source span and the weights of each row and column
//           (core/sampling.h). Then, for ROWS output rows at a time, it sums source rows into `lines` (contiguous
//           reads), and each output pixel sums its span of the lines, each weight for all ROWS rows. Products and sums
//           are rounded one by one, in the same order on every device.
// Threads:  spans: one per thread; lines: a group of columns of all rows (CPU) or of one row (CUDA) per thread; then a
//           pixel block of ROWS rows per thread.
// Reference: Pillow's Resample.c (antialiasing); OpenCV's resize (without).
// Tests:    tests/properties/test_sampling.py, tests/kernels/test_scratch.py.
#pragma once
#include "core/sampling.h"

// cpu/resample.h and cuda/resample.h define these two, and the layout of `lines`. sum_rows sums `height` spans of
// source rows into lines; sum_columns sums spans of the lines into the pixels of ROWS rows.
template <class T>
DEVICE void sum_rows(const Block& block, const Sample& sample, const Span* rows, int height, const float* weights,
                     bool inside, Span columns, float* lines);
DEVICE void sum_columns(const Sample& sample, const Span* spans, const float* weights, int count, const float* lines,
                        Span columns, int pixels, PixelBlock* v);

// Whether ROWS spans of rows all lie inside the borders.
DEVICE bool all_inside(const Sample& sample, const Span* rows) {
    bool inside = true;
    for (int row = 0; row < ROWS; ++row)
        inside = inside && (rows[row].count == 0 || (rows[row].first >= sample.y.inner_low &&
                                                     rows[row].first + rows[row].count <= sample.y.inner_high));
    return inside;
}

// Whether `count` output indices from `begin` on all lie between the borders after the resize.
DEVICE bool all_seen(const Axis& axis, int begin, int count) {
    const int at_first = axis.start + axis.step * begin, at_last = at_first + axis.step * (count - 1);
    return min(at_first, at_last) >= axis.seen_low && max(at_first, at_last) < axis.seen_high;
}

// The source indices of `count` output indices from `begin` on. Without a border between them, spans of equal length
// are monotonic, so the two at the ends suffice.
template <class AnySpan>
DEVICE Span span_union(const Axis& axis, int begin, const AnySpan* spans, int count) {
    const bool is_plain = all_seen(axis, begin, count);
    // `end - first` must not overflow: NVRTC 13.0 subtracts before it compares, and made 2 columns of an empty span.
    int first = 1 << 30, end = -(1 << 30);
    for (int i = 0; i < count; i += is_plain ? max(count - 1, 1) : 1) {
        if (spans[i].count == 0) continue;
        first = min(first, spans[i].first);
        end = max(end, spans[i].first + spans[i].count);
    }
    return end > first ? Span{first, end - first} : Span{0, 0};
}

DEVICE void fill_block(const Sample& sample, PixelBlock& v) {
    for (int c = 0; c < 3; ++c) FOR_PIXELS(p) v[c][p] = sample.after.fill[c];
}

// sum(rows, height, weights, inside, columns, lines) is sum_rows for the source type. finish(y, x, rows, pixels, v)
// takes blocks of up to ROWS rows, and may change them.
template <class Sum, class Finish>
DEVICE void resample_tile(const Block& block, const Sample& sample, const float* tables, Tile tile, float* scratch,
                          const Sum& sum, const Finish& finish) {
    Span* row_spans = reinterpret_cast<Span*>(scratch);
    float* row_weights = scratch + 2 * tile.rows;
    Span* column_spans = reinterpret_cast<Span*>(row_weights + int64(tile.rows) * sample.y.taps);
    float* column_weights = reinterpret_cast<float*>(column_spans) + 2 * tile.columns;
    float* lines = column_weights + int64(tile.columns) * sample.x.taps;
    lines += (scratch - lines) & (max(LANES, 4) - 1);  // no vector spans two cache lines

    const float* filter = tables + sample.weights;
    tabulate_spans(block, sample, sample.y, filter, tile.y, tile.rows, row_spans, row_weights);
    tabulate_spans(block, sample, sample.x, filter + sample.y.taps, tile.x, tile.columns, column_spans, column_weights);
    const int count = max_span(sample.x);
    if (PIXELS > 1)  // the spans that this thread has tabulated
        for (int j = block.thread; j < tile.columns; j += block.threads)
            if (column_spans[j].count > 0)
                column_spans[j] = pad_span(sample.x, column_spans[j], count, column_weights + int64(j) * sample.x.taps);
    block.sync();

    const Span columns = span_union(sample.x, tile.x, column_spans, tile.columns);
    const Span all = span_union(sample.y, tile.y, row_spans, tile.rows);
    const bool none_outside = all.first >= sample.y.inner_low && all.first + all.count <= sample.y.inner_high;
    for (int i = 0; i < tile.rows; i += ROWS) {
        const int height = min(ROWS, tile.rows - i);
        const Span* rows = row_spans + i;
        Span padded[ROWS];
        if (PIXELS > 1) {  // the CPU computes ROWS rows even where fewer are left
            for (int row = 0; row < ROWS; ++row) padded[row] = row < height ? rows[row] : Span{0, 0};
            rows = padded;
        }
        const bool inside = none_outside || (PIXELS > 1 && all_inside(sample, rows));  // CUDA tiles are small
        sum(rows, height, row_weights + int64(i) * sample.y.taps, inside, columns, lines);
        block.sync();
        for (int j = block.thread * PIXELS; j < tile.columns; j += block.threads * PIXELS) {
            const int pixels = min(PIXELS, tile.columns - j);
            PixelBlock v[ROWS];
            sum_columns(sample, column_spans + j, column_weights + int64(j) * sample.x.taps, count, lines, columns,
                        pixels, v);
            UNROLL
            for (int row = 0; row < ROWS; ++row)
                if (row < height && rows[row].count == 0) fill_block(sample, v[row]);
            finish(tile.y + i, tile.x + j, height, pixels, v);
        }
        block.sync();  // the next rows overwrite the lines
    }
}
