// Computes: copies of many blocks of rows in one call without the GIL: the C interface of
//           cuaug/pipeline/cuda/staging.py.
// Threads:  the caller's.
// Reference: memcpy.
// Tests:    tests/dry_run/test_staging.py.
#pragma once
#include <cstdint>
#include <cstring>

// A row of int64 that Python fills in.
struct RowCopy {
    int64_t source, pitch;  // address of the first row; bytes from one row to the next
    int64_t rows, bytes;    // number of rows; bytes of each
    int64_t target;         // address of the copy, which is packed
};

extern "C" {

EXPORT void cuaug_copy_rows(const RowCopy* copies, int64_t n) {
    for (const RowCopy* copy = copies; copy != copies + n; ++copy) {
        auto* target = reinterpret_cast<unsigned char*>(copy->target);
        const auto* source = reinterpret_cast<const unsigned char*>(copy->source);
        for (int64_t row = 0; row < copy->rows; ++row, target += copy->bytes, source += copy->pitch)
            memcpy(target, source, size_t(copy->bytes));
    }
}
}
