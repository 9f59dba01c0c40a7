// Computes: passes that the CPU runs whole rows at a time: uint8 to uint8, small filters, medians. The same bits as
//           the common path.
// Threads:  one thread per tile, row, or group of columns.
// Reference: core/augment.h, the common path.
// Tests:    tests/properties/test_bytes.py, tests/properties/test_filters.py.
#pragma once
#include "core/augment.h"
#include "cpu/median.h"
#include "cpu/sliding_window.h"
#include "cpu/uint8_path.h"

// A function that cuaug/devices/cpu_functions.py has compiled.
typedef void MachineCode(const Op*, const Sample*, const Place*, float (*v)[PIXELS]);

DEVICE bool run_machine_code(const Op& op, const Sample& sample, Place at, PixelBlock& v) {
    if (op.function == 0) return false;
    reinterpret_cast<MachineCode*>(uintptr_t(op.function))(&op, &sample, &at, v);
    return true;
}

template <class Finish>
DEVICE bool run_fast_path(const Block& block, const PassContext& pass, const Tile& tile, PartialStats& stats,
                          const Finish& finish) {
    if (run_uint8_path(block, pass, tile, stats)) return true;
    const auto finish_row = [&](int y, int x, int pixels, const float* values) {
        if (store_values(pass.sample, values, y, x, pixels)) return;
        for (int p = 0; p < pixels; p += PIXELS) {
            const int count = min(PIXELS, pixels - p);
            PixelBlock v;
            load_block(values + 3 * p, count, 1, v);
            finish(y, x + p, count, v);
        }
    };
    return run_sliding_window(block, pass.sample, pass.tables, tile, finish_row) ||
           median_rows(block, pass.sample, tile, finish_row);
}
