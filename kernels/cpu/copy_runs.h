// Computes: output rows of copied pixels as a few runs of neighboring source pixels, to the right or left, and
//           of fill colors.
// Threads:  none: the CPU's uint8 path only.
// Reference: core/neighborhood.h.
// Tests:    tests/properties/test_bytes.py.
#pragma once
#include "core/neighborhood.h"
#include "core/statistics.h"

// In place of a source index: the pixel is before.fill. No real index is near it.
constexpr int FILL_BEFORE = -(1 << 29);

// The source index in memory that output index o shows, or FILL_AFTER, or FILL_BEFORE.
DEVICE int source_index(const Sample& sample, const Axis& axis, int o) {
    const int at = window_index(sample, axis, o);
    if (at == FILL_AFTER) return FILL_AFTER;
    const int i = border_index(at, axis.inner_low, axis.inner_high, sample.before.border);
    return i == -1 ? FILL_BEFORE : i;
}

// Output columns x ... x + count - 1 show source columns column, column + step, ...; step is 1, -1 or 0.
struct CopyRun {
    int x, count, column, step;
};
// A tile with more runs, such as a small image repeated, takes the common path.
struct CopyRuns {
    int count;
    CopyRun run[32];
};

// Finds the runs of a tile's columns; returns whether they fit.
DEVICE bool find_copy_runs(const Sample& sample, const Tile& tile, CopyRuns& runs) {
    runs.count = 0;
    for (int x = tile.x; x < tile.x + tile.columns; ++x) {
        const int column = source_index(sample, sample.x, x);
        if (runs.count > 0) {
            CopyRun& run = runs.run[runs.count - 1];
            const int distance = column - run.column;
            if (run.count == 1 && distance >= -1 && distance <= 1) run.step = distance;
            if (distance == run.step * run.count) {
                ++run.count;
                continue;
            }
        }
        if (runs.count == int(sizeof runs.run / sizeof(CopyRun))) return false;
        runs.run[runs.count++] = {x, 1, column, 0};
    }
    return true;
}

DEVICE bool is_inside_window(const Axis& axis) {
    const int first = axis.origin + axis.start;
    return is_unflipped(axis) && first >= axis.inner_low && first + axis.out <= axis.inner_high;
}

// The address of the pass's output in its own source, if it lies there as it is; otherwise null.
DEVICE const uint8* copied_source(const Sample& sample) {
    if (sample.transposed || sample.neighborhood != NONE || !is_inside_window(sample.y) || !is_inside_window(sample.x))
        return nullptr;
    const int64 column = sample.x.origin + sample.x.start - sample.x.held_low;
    return row_of<uint8>(sample, sample.y.origin + sample.y.start) + 3 * column;
}
