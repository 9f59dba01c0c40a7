// Computes: the signature, the entry point and the shared memory of a CUDA launch, for cuaug/devices/.
// Threads:  none.
// Reference: core/signature.h, core/scratch.h.
// Tests:    tests/kernels/test_cuda_executor.py, tests/kernels/test_scratch.py.
#pragma once
#include <algorithm>
#include <cstdint>

namespace {
#include "core/scratch.h"
}

extern "C" {

// The signature of a launch. rows [N]; ops [*] of all passes.
EXPORT uint64_t cuaug_signature(const void* rows, int64_t n, const void* ops) {
    const Sample* const samples = static_cast<const Sample*>(rows);
    uint64_t signature = 0;
    for (int64_t i = 0; i < n; ++i)
        if (samples[i].active) signature |= signature_of(samples[i], static_cast<const Op*>(ops));
    return signature;
}

// Whether `resample` can run a launch of this signature.
EXPORT int32_t cuaug_is_resample_signature(uint64_t signature, int32_t specialized) {
    return is_resample_signature(signature, specialized);
}

// words [N] = the scratch that a tile of each sample needs on CUDA, in words of 32 bits; 0 without such a pass.
EXPORT void cuaug_scratch_words(const void* rows, int64_t n, int32_t tile_rows, int32_t tile_columns, int64_t* words) {
    const Sample* const samples = static_cast<const Sample*>(rows);
    for (int64_t i = 0; i < n; ++i)
        words[i] = samples[i].active ? scratch_floats(CUDA_SCRATCH, samples[i], tile_rows, tile_columns) : 0;
}
}
