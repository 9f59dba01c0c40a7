// Computes: the CPU half of core/resample.h: source rows summed into lines, lines summed into pixels. The values of
//           ROWS rows lie together in lines: lines[ROWS * (3 * i + c) + row].
// Threads:  one thread per tile: vectors of values, then PIXELS pixels of ROWS rows.
// Reference: core/resample.h.
// Tests:    tests/properties/test_sampling.py.
#pragma once
#include "core/resample.h"

// Sums of 1 ... 6 terms are unrolled: template parameter `known` tries each count, then UNKNOWN.
constexpr int UNKNOWN = 7;

// sums[j] = the sum over `rows` of value at + j of each row, for LANES * groups values. inside: no row needs a border.
// Rows of a constant border have the values of `fill`.
template <class T, int groups, int terms = 1>
DEVICE void sum_row(const Sample& sample, Span rows, const float* weights, bool inside, int64 at,
                    const float* fill_block, float* sums) {
    if constexpr (terms < UNKNOWN)
        if (!inside || rows.count != terms)
            return sum_row<T, groups, terms + 1>(sample, rows, weights, inside, at, fill_block, sums);
    const int count = terms < UNKNOWN ? terms : rows.count;
    FloatVec sum[groups];
    for (int g = 0; g < groups; ++g) sum[g] = FloatVec{};
#pragma GCC unroll 6
    for (int k = 0; k < count; ++k) {
        const int y = terms < UNKNOWN
                          ? rows.first + k
                          : border_index(rows.first + k, sample.y.inner_low, sample.y.inner_high, sample.before.border);
        if (terms == UNKNOWN && y == -1) {
            for (int g = 0; g < groups; ++g) multiply_add(sum[g], weights[k], fill_block + g * LANES);
            continue;
        }
        const T* row = row_of<T>(sample, y) + at;
        keep_in_register(row);
        for (int g = 0; g < groups; ++g) multiply_add(sum[g], weights[k], row + g * LANES);
    }
#pragma GCC unroll 8
    for (int g = 0; g < groups; ++g) store(sums + g * LANES, sum[g]);
}

// lines[ROWS * j + row] = the same sums for ROWS rows, with weights y.taps apart.
template <class T, int groups>
DEVICE void sum_row_group(const Sample& sample, const Span* rows, const float* weights, bool inside, int64 at,
                          const float* fill_block, float* lines) {
    float sums[ROWS][LANES * groups] CACHE_ALIGNED;
    for (int row = 0; row < ROWS; ++row, weights += sample.y.taps)
        sum_row<T, groups>(sample, rows[row], weights, inside, at, fill_block, sums[row]);
    for (int g = 0; g < groups; ++g) transpose(&sums[0][g * LANES], LANES * groups, lines + ROWS * LANES * g, ROWS);
}

// lines[ROWS * (3 * i + c) + row] = the sum over rows[row] of column columns.first + i, channel c; 0 for no rows.
template <class T>
DEVICE void sum_rows(const Block& block, const Sample& sample, const Span* rows, int, const float* weights, bool inside,
                     Span columns, float* lines) {
    const int begin = columns.first, end = columns.first + columns.count;
    const auto sum_one = [&](int x, int channel) {
        float* const to = lines + ROWS * (3 * int64(x - begin) + channel);
        for (int row = 0; row < ROWS; ++row)
            to[row] = sum_bordered<T>(sample, rows[row], weights + row * int64(sample.y.taps), x, channel);
    };
    // [low, high): columns in memory without a border.
    const int low = min(max(begin, sample.x.inner_low), end);
    const int high = max(low, min(end, sample.x.inner_high));
    float* inner = lines + ROWS * 3 * int64(low - begin);
    const int64 at = 3 * int64(low - sample.x.held_low);
    const int n = 3 * (high - low);
    constexpr int wide = LANES * GROUPS;
    float fills[wide + 3];  // a row of a constant border, from any channel on
    if (!inside)
        for (int i = 0; i < wide + 3; ++i) fills[i] = sample.before.fill[i % 3];
    int j = block.thread * wide;
    for (; j + wide <= n; j += block.threads * wide)
        sum_row_group<T, GROUPS>(sample, rows, weights, inside, at + j, fills + j % 3, inner + ROWS * j);
    const int wide_end = n / wide * wide, lanes_end = n / LANES * LANES;
    if (block.threads == 1 && n >= wide) {  // the remainder, together with values that are already done
        j = n - wide;
        if (wide_end < n)
            sum_row_group<T, GROUPS>(sample, rows, weights, inside, at + j, fills + j % 3, inner + ROWS * j);
    } else {
        for (j = wide_end + block.thread * LANES; j < lanes_end; j += block.threads * LANES)
            sum_row_group<T, 1>(sample, rows, weights, inside, at + j, fills + j % 3, inner + ROWS * j);
        for (j = lanes_end + block.thread; j < n; j += block.threads) sum_one(low + j / 3, j % 3);
    }

    // Columns outside show one of these columns, or the constant border.
    int filled = end;  // the last computed column of a constant border
    for (int i = block.thread; i < columns.count - (high - low); i += block.threads) {
        const int x = begin + i < low ? begin + i : begin + i + (high - low);
        const int index = border_index(x, sample.x.inner_low, sample.x.inner_high, sample.before.border);
        const int copy_from = index == -1 ? filled : index;
        const bool computed = index == -1 ? filled < end : index >= low && index < high;
        if (computed && block.threads == 1)  // otherwise another thread may be writing it
            memcpy(lines + ROWS * 3 * int64(x - begin), lines + ROWS * 3 * int64(copy_from - begin),
                   3 * ROWS * sizeof(float));
        else
            for (int c = 0; c < 3; ++c) sum_one(x, c);
        if (index == -1) filled = x;
    }
}

// out[p][c][row] = the sum over spans[p] of channel c of the lines, which begin at column `begin`; the fill color for
// an empty span. All other spans have `count` terms.
template <int terms = 1>
DEVICE void sum_spans(const Sample& sample, const Span* spans, const float* weights, int count, const float* lines,
                      int begin, int pixels, float (*out)[3][ROWS]) {
    if constexpr (terms < UNKNOWN)
        if (count != terms) return sum_spans<terms + 1>(sample, spans, weights, count, lines, begin, pixels, out);
    const int n = terms < UNKNOWN ? terms : count;
    for (int p = 0; p < pixels; ++p, weights += sample.x.taps) {
        if (spans[p].count == 0) {
            for (int c = 0; c < 3; ++c)
                for (int row = 0; row < ROWS; ++row) out[p][c][row] = sample.after.fill[c];
            continue;
        }
        const float* const values = lines + ROWS * 3 * int64(spans[p].first - begin);
        FloatVec sum[3] = {};
        for (int k = 0; k < n; ++k)
#pragma GCC unroll 3
            for (int c = 0; c < 3; ++c) multiply_add(sum[c], weights[k], values + ROWS * (3 * k + c));
#pragma GCC unroll 3
        for (int c = 0; c < 3; ++c) store(out[p][c], sum[c]);
    }
}

// v[row][c][p] for ROWS rows and PIXELS pixels; 0 from pixel `pixels` on.
DEVICE void sum_columns(const Sample& sample, const Span* spans, const float* weights, int count, const float* lines,
                        Span columns, int pixels, PixelBlock* v) {
    float out[PIXELS][3][ROWS] CACHE_ALIGNED;
    for (int p = pixels; p < PIXELS; ++p)
        for (int c = 0; c < 3; ++c) store(out[p][c], FloatVec{});
    sum_spans(sample, spans, weights, count, lines, columns.first, pixels, out);
    for (int c = 0; c < 3; ++c)
        for (int p = 0; p < PIXELS; p += LANES) transpose(out[p][c], 3 * ROWS, &v[0][c][p], 3 * PIXELS);
}
