// Computes: the CUDA half of core/resample.h: source rows summed into lines, lines summed into pixels. Lines lie one
//           after the other, each from a multiple of four floats on: lines[row][3 * i + c] is channel c of source
//           column columns.first + i.
// Threads:  WIDE neighboring values of one line per thread, then one output column of ROWS rows.
// Reference: core/resample.h.
// Tests:    tests/kernels/test_scratch.py, tests/cuda/test_kernels.py.
#pragma once
#include "core/resample.h"

// values of a line per thread
constexpr int WIDE = 8;

DEVICE int line_floats(Span columns) { return (3 * columns.count + 3) & -4; }

// Loads eight bytes from any address through the aligned words that contain them. compute-sanitizer reports a read past
// the end of memory inside a word; the processor allows it.
DEVICE void load_wide(const uint8* p, float* values) {
    const uint64 at = reinterpret_cast<uint64>(p);
    const uint32* const words = reinterpret_cast<const uint32*>(at & ~uint64(3));
    const uint32 first = load_global(words), second = load_global(words + 1);
    const uint32 last = load_global(words + ((at & 3) == 0 ? 1 : 2));
    const uint32 low = __funnelshift_r(first, second, 8 * uint32(at));
    const uint32 high = (at & 3) == 0 ? second : __funnelshift_r(second, last, 8 * uint32(at));
    UNROLL
    for (int i = 0; i < WIDE; ++i) values[i] = float((i < 4 ? low : high) >> 8 * (i % 4) & 255);
}
DEVICE void load_wide(const float* p, float* values) {
    UNROLL
    for (int i = 0; i < WIDE; ++i) values[i] = load_global(p + i);
}

// sums[i] = the sum over `rows` of value at + i of each row.
template <class T>
DEVICE void sum_wide(const Sample& sample, Span rows, const float* weights, bool inside, int64 at, float* sums) {
    UNROLL
    for (int i = 0; i < WIDE; ++i) sums[i] = 0.0f;
    const uint8* row = reinterpret_cast<const uint8*>(row_of<T>(sample, rows.first) + at);
    const int64 pitch = sample.source.pitch;
    NO_UNROLL  // else 64 registers do not suffice
        for (int k = 0; k < rows.count; ++k, row += pitch) {
        if (!inside) {
            const Axis& y = sample.y;
            const int index = border_index(rows.first + k, y.inner_low, y.inner_high, sample.before.border);
            row = reinterpret_cast<const uint8*>(row_of<T>(sample, index) + at);
        }
        float values[WIDE];
        load_wide(reinterpret_cast<const T*>(row), values);
        const float weight = weights[k];
        UNROLL
        for (int i = 0; i < WIDE; ++i) sums[i] += weight * values[i];
    }
}

// Stores values `first` and on. aligned: value 0 lies at a multiple of four floats.
DEVICE void store_wide(float* line, bool aligned, int first, const float* values) {
    if (aligned && first == 0) {
        UNROLL
        for (int i = 0; i < WIDE; i += 4)
            *reinterpret_cast<float4*>(line + i) = make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
    } else {
        UNROLL
        for (int i = 0; i < WIDE; ++i)
            if (i >= first) line[i] = values[i];
    }
}

// lines[row] = the sums over rows[row], row < height, with weights y.taps apart; 0 for no rows. inside: no row needs a
// border.
template <class T>
DEVICE void sum_rows(const Block& block, const Sample& sample, const Span* rows, int height, const float* weights,
                     bool inside, Span columns, float* lines) {
    const int begin = columns.first, end = columns.first + columns.count, pitch = line_floats(columns);
    // [low, high): columns in memory without a border. Fewer than WIDE values take the slow path too.
    int low = inside || !is<Borders>(sample.before.border, CONSTANT) ? min(max(begin, sample.x.inner_low), end) : end;
    const int high = max(low, min(end, sample.x.inner_high)), n = 3 * (high - low);
    if (n < WIDE) low = high;
    for (int j = block.thread; j < 3 * (columns.count - (high - low)); j += block.threads) {
        const int i = j / 3, x = begin + i < low ? begin + i : begin + i + (high - low);
        for (int row = 0; row < height; ++row)
            lines[row * pitch + 3 * (x - begin) + j % 3] =
                sum_bordered<T>(sample, rows[row], weights + row * sample.y.taps, x, j % 3);
    }
    float* const inner = lines + 3 * (low - begin);
    const bool aligned = (low - begin) % 4 == 0;
    const int64 at = 3 * int64(low - sample.x.held_low);
    // Pairs of a row and a vector: a line has fewer vectors than a block has threads.
    const int vectors = (3 * (high - low) + WIDE - 1) / WIDE;
    NO_UNROLL
    for (int row = 0, i = block.thread; vectors > 0; i += block.threads) {
        for (; i >= vectors; i -= vectors) ++row;  // cheaper than a division
        if (row >= height) break;
        const int start = min(WIDE * i, n - WIDE);  // the last vector overlaps those before, which store shared values
        float sums[WIDE];
        sum_wide<T>(sample, rows[row], weights + row * sample.y.taps, inside, at + start, sums);
        store_wide(inner + row * pitch + start, aligned, WIDE * i - start, sums);
    }
}

// v[row][c][0] = the sum over a column's span of channel c of line `row`; the fill color for an empty span.
DEVICE void sum_columns(const Sample& sample, const Span* spans, const float* weights, int, const float* lines,
                        Span columns, int, PixelBlock* v) {
    const Span span = *spans;
    const int pitch = line_floats(columns);
    const float* values = lines + 3 * (span.first - columns.first);
    UNROLL
    for (int row = 0; row < ROWS; ++row)
        for (int c = 0; c < 3; ++c) v[row][c][0] = span.count == 0 ? sample.after.fill[c] : 0.0f;
    for (int k = 0; k < span.count; ++k, values += 3) {
        const float weight = weights[k];
        UNROLL
        for (int row = 0; row < ROWS; ++row) {
            UNROLL
            for (int c = 0; c < 3; ++c) v[row][c][0] += weight * values[row * pitch + c];
        }
    }
}
