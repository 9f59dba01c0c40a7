// Computes: the CUDA half of core/pillow_resize.h.
// Threads:  sum_down: one value per thread; sum_across: one pixel per thread.
// Reference: core/pillow_resize.h.
// Tests:    tests/kernels/test_scratch.py.
#pragma once
#include "core/pillow_resize.h"

DEVICE void sum_down(const Block& block, LevelRows from, int first_row, const LevelSpan* spans, int rows,
                     const int* weights, int values, LevelRows to) {
    NO_UNROLL
    for (int row = 0, i = block.thread;; i += block.threads) {
        for (; i >= values; i -= values) ++row;  // cheaper than a division
        if (row >= rows) break;
        const LevelSpan span = spans[row];
        if (span.count == 0) continue;
        const uint8* p = from.first + (span.first - first_row) * from.pitch + i;
        int sum = 0;
        NO_UNROLL
        for (int k = 0; k < span.count; ++k, p += from.pitch) sum += weights[span.weights + k] * int(*p);
        to.first[row * to.pitch + i] = uint8(sum_to_level(sum));
    }
}

DEVICE void sum_across(const Block& block, LevelRows from, int first_column, const LevelSpan* spans, int columns,
                       const int* weights, int rows, LevelRows to) {
    NO_UNROLL
    for (int row = 0, i = block.thread;; i += block.threads) {
        for (; i >= columns; i -= columns) ++row;
        if (row >= rows) break;
        const LevelSpan span = spans[i];
        if (span.count == 0) continue;
        const uint8* p = from.first + row * from.pitch + 3 * (span.first - first_column);
        int sums[3] = {};
        NO_UNROLL
        for (int k = 0; k < span.count; ++k, p += 3) {
            const int weight = weights[span.weights + k];
            for (int c = 0; c < 3; ++c) sums[c] += weight * int(p[c]);
        }
        for (int c = 0; c < 3; ++c) to.first[row * to.pitch + 3 * i + c] = uint8(sum_to_level(sums[c]));
    }
}
