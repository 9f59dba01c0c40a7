// Computes: the entry point and the shared memory of a CUDA launch, for cuaug/devices/.
// Threads:  none.
// Reference: core/scratch.h.
// Tests:    tests/kernels/test_cuda_executor.py, tests/kernels/test_scratch.py.
#pragma once
#include <algorithm>
#include <cstdint>

namespace {
#include "core/scratch.h"
}

extern "C" {

// Whether `resample` can run a pass. rows [N]; ops [*] of all passes.
EXPORT int32_t cuaug_is_resample_pass(const void* rows, int64_t n, const void* ops) {
    const Sample* const samples = static_cast<const Sample*>(rows);
    return std::all_of(samples, samples + n, [&](const Sample& sample) {
        return !sample.active || is_resample_pass(sample, static_cast<const Op*>(ops));
    });
}

// words [N] = the scratch that a tile of each sample needs on CUDA, in words of 32 bits; 0 without such a pass.
EXPORT void cuaug_scratch_words(const void* rows, int64_t n, int32_t tile_rows, int32_t tile_columns, int64_t* words) {
    const Sample* const samples = static_cast<const Sample*>(rows);
    for (int64_t i = 0; i < n; ++i)
        words[i] = samples[i].active ? scratch_floats(CUDA_SCRATCH, samples[i], tile_rows, tile_columns) : 0;
}
}
