// Separable resampling of a tile of output pixels.
//
// A block first tabulates, for each of the tile's rows and columns, the span of source indices and their weights
// (core/sampling.h). Then, for ROWS output rows at a time, it sums source rows downwards into `lines` (contiguous
// reads, every thread its own columns), and each output pixel sums its span of the lines sideways, each weight for all
// ROWS rows. A product and a sum are rounded one by one, in the same order wherever this runs.
//
// Tested with core/sampling.h; what is CUDA's also by tests/kernels/test_scratch.py.
#pragma once
#include "core/sampling.h"

// The slow way, for values that a constant border takes part in.
template <class T>
DEVICE float sum_seen(const Sample& sample, Span rows, const float* weights, int x, int channel) {
    float sum = 0.0f;
    for (int k = 0; k < rows.count; ++k) sum += weights[k] * seen_value<T>(sample, rows.first + k, x, channel);
    return sum;
}

// Whether none of ROWS spans of rows needs a border.
DEVICE bool all_inside(const Sample& sample, const Span* rows) {
    bool inside = true;
    for (int row = 0; row < ROWS; ++row)
        inside = inside && (rows[row].count == 0 || (rows[row].first >= sample.y.inner_low &&
                                                     rows[row].first + rows[row].count <= sample.y.inner_high));
    return inside;
}

#if defined(__CUDACC__)

// A thread makes WIDE neighbouring values of a line. Lines lie one after the other, each from a multiple of four floats
// on: lines[row][3 * i + c] is channel c of source column columns.first + i.
constexpr int WIDE = 8;

DEVICE int line_floats(Span columns) { return (3 * columns.count + 3) & -4; }

// Eight bytes from anywhere, by the words that they lie in: only whole words can be loaded at once. Where memory ends
// within a word, compute-sanitizer reports it; the processor does not mind.
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

// sums[i] = the sum over `rows` of the value that lies `at` + i values into each row.
template <class T>
DEVICE void sum_wide(const Sample& sample, Span rows, const float* weights, bool inside, int64 at, float* sums) {
    UNROLL
    for (int i = 0; i < WIDE; ++i) sums[i] = 0.0f;
    const uint8* row = reinterpret_cast<const uint8*>(row_of<T>(sample, rows.first) + at);
    const int64 pitch = sample.pitch;
    for (int k = 0; k < rows.count; ++k, row += pitch) {
        if (!inside) {
            const Axis& y = sample.y;
            const int seen = continued(rows.first + k, y.inner_low, y.inner_high, sample.border_before);
            row = reinterpret_cast<const uint8*>(row_of<T>(sample, seen) + at);
        }
        float values[WIDE];
        load_wide(reinterpret_cast<const T*>(row), values);
        const float weight = weights[k];
        UNROLL
        for (int i = 0; i < WIDE; ++i) sums[i] += weight * values[i];
    }
}

// The values from number `first` on; `aligned`: number 0 lies at a multiple of four floats.
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

// lines[row] = sums over rows[row], whose weights lie y.taps apart; 0 over no rows. `inside`: none needs a border.
template <class T>
DEVICE void sum_rows(const Block& block, const Sample& sample, const Span* rows, const float* weights, bool inside,
                     Span columns, float* lines) {
    const int begin = columns.first, end = columns.first + columns.count, pitch = line_floats(columns);
    // [low, high): the columns that lie in memory and need no border. Fewer than `WIDE` values go the slow way, too.
    int low = inside || sample.border_before != CONSTANT ? smaller(larger(begin, sample.x.inner_low), end) : end;
    const int high = larger(low, smaller(end, sample.x.inner_high)), n = 3 * (high - low);
    if (n < WIDE) low = high;
    for (int j = block.thread; j < 3 * (columns.count - (high - low)); j += block.threads) {
        const int i = j / 3, x = begin + i < low ? begin + i : begin + i + (high - low);
        for (int row = 0; row < ROWS; ++row)
            lines[row * pitch + 3 * (x - begin) + j % 3] =
                sum_seen<T>(sample, rows[row], weights + row * sample.y.taps, x, j % 3);
    }
    float* const inner = lines + 3 * (low - begin);
    const bool aligned = (low - begin) % 4 == 0;
    const int64 at = 3 * int64(low - sample.x.held_low);
    for (int j = WIDE * block.thread; j < 3 * (high - low); j += WIDE * block.threads) {
        const int start = smaller(j, n - WIDE);  // the last may overlap those before, which store them
        UNROLL
        for (int row = 0; row < ROWS; ++row) {
            float sums[WIDE];
            sum_wide<T>(sample, rows[row], weights + row * sample.y.taps, inside, at + start, sums);
            store_wide(inner + row * pitch + start, aligned, j - start, sums);
        }
    }
}

// v[row][c][0] = the sum over a column's span of channel c of line `row`; the fill colour where the span is empty.
DEVICE void sum_columns(const Sample& sample, const Span* spans, const float* weights, int, const float* lines,
                        Span columns, int, Strip* v) {
    const Span span = *spans;
    const int pitch = line_floats(columns);
    const float* values = lines + 3 * (span.first - columns.first);
    UNROLL
    for (int row = 0; row < ROWS; ++row)
        for (int c = 0; c < 3; ++c) v[row][c][0] = span.count == 0 ? sample.fill_after[c] : 0.0f;
    for (int k = 0; k < span.count; ++k, values += 3) {
        const float weight = weights[k];
        UNROLL
        for (int row = 0; row < ROWS; ++row) {
            UNROLL
            for (int c = 0; c < 3; ++c) v[row][c][0] += weight * values[row * pitch + c];
        }
    }
}

#else

// In lines the values of ROWS rows lie together: lines[ROWS * (3 * i + c) + row].
//
// How many terms a sum has, where the compiler is to know it and so unroll the sum: 1 ... 6 are tried, then UNKNOWN.
constexpr int UNKNOWN = 7;

// sums[j] = the sum over `rows` of the value that lies `at` + j values into each row, LANES * groups of them; `inside`:
// no row needs a border. Rows of a constant border have the values of `fill`.
template <class T, int groups, int known = 1>
DEVICE void sum_strip(const Sample& sample, Span rows, const float* weights, bool inside, int64 at, const float* fill,
                      float* sums) {
    if constexpr (known < UNKNOWN)
        if (!inside || rows.count != known)
            return sum_strip<T, groups, known + 1>(sample, rows, weights, inside, at, fill, sums);
    const int count = known < UNKNOWN ? known : rows.count;
    Lanes sum[groups];
    for (int g = 0; g < groups; ++g) sum[g] = zero_lanes();
#pragma GCC unroll 6
    for (int k = 0; k < count; ++k) {
        const int y = known < UNKNOWN
                          ? rows.first + k
                          : continued(rows.first + k, sample.y.inner_low, sample.y.inner_high, sample.border_before);
        if (known == UNKNOWN && y == -1) {
            for (int g = 0; g < groups; ++g) multiply_add(sum[g], weights[k], fill + g * LANES);
            continue;
        }
        const T* row = row_of<T>(sample, y) + at;
        keep_in_register(row);
        for (int g = 0; g < groups; ++g) multiply_add(sum[g], weights[k], row + g * LANES);
    }
#pragma GCC unroll 8
    for (int g = 0; g < groups; ++g) store(sums + g * LANES, sum[g]);
}

// lines[ROWS * j + row] = the same sums for each of ROWS rows, whose weights lie y.taps apart; `inside`: none needs a
// border.
template <class T, int groups>
DEVICE void sum_strips(const Sample& sample, const Span* rows, const float* weights, bool inside, int64 at,
                       const float* fill, float* lines) {
    float sums[ROWS][LANES * groups] IN_LINES;
    for (int row = 0; row < ROWS; ++row, weights += sample.y.taps)
        sum_strip<T, groups>(sample, rows[row], weights, inside, at, fill, sums[row]);
    for (int g = 0; g < groups; ++g) transpose(&sums[0][g * LANES], LANES * groups, lines + ROWS * LANES * g, ROWS);
}

// lines[ROWS * (3 * i + c) + row] = sum over rows[row] of source column columns.first + i, channel c; 0 over no rows.
template <class T>
DEVICE void sum_rows(const Block& block, const Sample& sample, const Span* rows, const float* weights, bool inside,
                     Span columns, float* lines) {
    const int begin = columns.first, end = columns.first + columns.count;
    const auto one = [&](int x, int channel) {
        float* const to = lines + ROWS * (3 * int64(x - begin) + channel);
        for (int row = 0; row < ROWS; ++row)
            to[row] = sum_seen<T>(sample, rows[row], weights + row * int64(sample.y.taps), x, channel);
    };
    // [low, high): the columns that lie in memory and need no border.
    const int low = smaller(larger(begin, sample.x.inner_low), end);
    const int high = larger(low, smaller(end, sample.x.inner_high));
    float* inner = lines + ROWS * 3 * int64(low - begin);
    const int64 at = 3 * int64(low - sample.x.held_low);
    const int n = 3 * (high - low);
    constexpr int wide = LANES * GROUPS;
    float fills[wide + 3];  // a row of a constant border, from any channel on
    if (!inside)
        for (int i = 0; i < wide + 3; ++i) fills[i] = sample.fill_before[i % 3];
    int j = block.thread * wide;
    for (; j + wide <= n; j += block.threads * wide)
        sum_strips<T, GROUPS>(sample, rows, weights, inside, at + j, fills + j % 3, inner + ROWS * j);
    const int wide_end = n / wide * wide, lanes_end = n / LANES * LANES;
    if (block.threads == 1 && n >= wide) {  // what is left over, together with some of what is done already
        j = n - wide;
        if (wide_end < n) sum_strips<T, GROUPS>(sample, rows, weights, inside, at + j, fills + j % 3, inner + ROWS * j);
    } else {
        for (j = wide_end + block.thread * LANES; j < lanes_end; j += block.threads * LANES)
            sum_strips<T, 1>(sample, rows, weights, inside, at + j, fills + j % 3, inner + ROWS * j);
        for (j = lanes_end + block.thread; j < n; j += block.threads) one(low + j / 3, j % 3);
    }

    // The columns beside those show what one of them shows, or all of them a constant border.
    int filled = end;  // the last of the latter that is made
    for (int i = block.thread; i < columns.count - (high - low); i += block.threads) {
        const int x = begin + i < low ? begin + i : begin + i + (high - low);
        const int seen = continued(x, sample.x.inner_low, sample.x.inner_high, sample.border_before);
        const int same = seen == -1 ? filled : seen;
        const bool made = seen == -1 ? filled < end : seen >= low && seen < high;
        if (made && block.threads == 1)  // else another thread may be at it
            memcpy(lines + ROWS * 3 * int64(x - begin), lines + ROWS * 3 * int64(same - begin),
                   3 * ROWS * sizeof(float));
        else
            for (int c = 0; c < 3; ++c) one(x, c);
        if (seen == -1) filled = x;
    }
}

// out[p][c][row] = the sum over spans[p] of channel c of the lines, which begin at source column `begin`; the fill
// colour where a span is empty. The others are `count` long.
template <int known = 1>
DEVICE void sum_spans(const Sample& sample, const Span* spans, const float* weights, int count, const float* lines,
                      int begin, int pixels, float (*out)[3][ROWS]) {
    if constexpr (known < UNKNOWN)
        if (count != known) return sum_spans<known + 1>(sample, spans, weights, count, lines, begin, pixels, out);
    const int n = known < UNKNOWN ? known : count;
    for (int p = 0; p < pixels; ++p, weights += sample.x.taps) {
        if (spans[p].count == 0) {
            for (int c = 0; c < 3; ++c)
                for (int row = 0; row < ROWS; ++row) out[p][c][row] = sample.fill_after[c];
            continue;
        }
        const float* const values = lines + ROWS * 3 * int64(spans[p].first - begin);
        Lanes sum[3] = {zero_lanes(), zero_lanes(), zero_lanes()};
        for (int k = 0; k < n; ++k)
#pragma GCC unroll 3
            for (int c = 0; c < 3; ++c) multiply_add(sum[c], weights[k], values + ROWS * (3 * k + c));
#pragma GCC unroll 3
        for (int c = 0; c < 3; ++c) store(out[p][c], sum[c]);
    }
}

// v[row][c][p], for ROWS rows and PIXELS pixels; pixels from `pixels` on are 0.
DEVICE void sum_columns(const Sample& sample, const Span* spans, const float* weights, int count, const float* lines,
                        Span columns, int pixels, Strip* v) {
    float out[PIXELS][3][ROWS] IN_LINES;
    for (int p = pixels; p < PIXELS; ++p)
        for (int c = 0; c < 3; ++c) store(out[p][c], zero_lanes());
    sum_spans(sample, spans, weights, count, lines, columns.first, pixels, out);
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < PIXELS; p += LANES) transpose(out[p][c], 3 * ROWS, &v[0][c][p], 3 * PIXELS);
}

#endif

// The source indices that `count` output indices from `begin` on read together. Where no border comes between
// them their spans, of one length, go one way: the two at the ends tell.
DEVICE Span cover(const Axis& axis, int begin, const Span* spans, int count) {
    const int one = axis.start + axis.step * begin, other = one + axis.step * (count - 1);
    const bool plain = smaller(one, other) >= axis.seen_low && larger(one, other) < axis.seen_high;
    int first = 2147483647, end = -2147483647;
    for (int i = 0; i < count; i += plain ? larger(count - 1, 1) : 1) {
        if (spans[i].count == 0) continue;
        first = smaller(first, spans[i].first);
        end = larger(end, spans[i].first + spans[i].count);
    }
    return end > first ? Span{first, end - first} : Span{0, 0};
}

DEVICE void fill(const Sample& sample, Strip& v) {
    for (int c = 0; c < 3; ++c) FOR_PIXELS(p) v[c][p] = sample.fill_after[c];
}

// sum(rows, weights, inside, columns, lines) is sum_rows for the source's type; finish(y, x, rows, pixels, v) is called
// for each strip of up to ROWS rows, and may change it.
template <class Sum, class Finish>
DEVICE void resample_tile(const Block& block, const Sample& sample, const float* tables, Tile tile, float* scratch,
                          const Sum& sum, const Finish& finish) {
    Span* row_spans = reinterpret_cast<Span*>(scratch);
    float* row_weights = scratch + 2 * tile.rows;
    Span* column_spans = reinterpret_cast<Span*>(row_weights + int64(tile.rows) * sample.y.taps);
    float* column_weights = reinterpret_cast<float*>(column_spans) + 2 * tile.columns;
    float* lines = column_weights + int64(tile.columns) * sample.x.taps;
    lines += (scratch - lines) & (larger(LANES, 4) - 1);  // a vector of them never lies across two lines of the cache

    const float* own = tables + sample.weights;
    tabulate(block, sample, sample.y, own, tile.y, tile.rows, row_spans, row_weights);
    tabulate(block, sample, sample.x, own + sample.y.taps, tile.x, tile.columns, column_spans, column_weights);
    const int count = common_count(sample.x);
    if (PIXELS > 1)  // those this thread has just tabulated
        for (int j = block.thread; j < tile.columns; j += block.threads)
            if (column_spans[j].count > 0)
                column_spans[j] =
                    lengthened(sample.x, column_spans[j], count, column_weights + int64(j) * sample.x.taps);
    block.sync();

    const Span columns = cover(sample.x, tile.x, column_spans, tile.columns);
    const Span all = cover(sample.y, tile.y, row_spans, tile.rows);
    const bool none_outside = all.first >= sample.y.inner_low && all.first + all.count <= sample.y.inner_high;
    for (int i = 0; i < tile.rows; i += ROWS) {
        const int height = smaller(ROWS, tile.rows - i);
        Span rows[ROWS];
        for (int row = 0; row < ROWS; ++row) rows[row] = row < height ? row_spans[i + row] : Span{0, 0};
        const bool inside = none_outside || (PIXELS > 1 && all_inside(sample, rows));  // on CUDA tiles are small
        sum(rows, row_weights + int64(i) * sample.y.taps, inside, columns, lines);
        block.sync();
        for (int j = block.thread * PIXELS; j < tile.columns; j += block.threads * PIXELS) {
            const int pixels = smaller(PIXELS, tile.columns - j);
            Strip v[ROWS];
            sum_columns(sample, column_spans + j, column_weights + int64(j) * sample.x.taps, count, lines, columns,
                        pixels, v);
            UNROLL
            for (int row = 0; row < ROWS; ++row)
                if (row < height && rows[row].count == 0) fill(sample, v[row]);
            finish(tile.y + i, tile.x + j, height, pixels, v);
        }
        block.sync();  // the lines are read to the end before the next rows overwrite them
    }
}
