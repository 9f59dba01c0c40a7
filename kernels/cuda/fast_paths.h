// Computes: stubs of the CPU's fast paths (cpu/fast_paths.h), which CUDA does not have. Each returns that it did no
// work. Threads:  a thread has one pixel, so whole rows are no faster. Reference: cpu/fast_paths.h, cpu/jpeg_pixels.h.
// Tests:    tests/kernels/test_scratch.py.
#pragma once
#include "platform.h"

template <class... Arguments>
DEVICE bool run_fast_path(const Arguments&...) {
    return false;
}
template <class... Arguments>
DEVICE bool store_levels(const Arguments&...) {
    return false;
}
template <class... Arguments>
DEVICE bool decode_block(const Arguments&...) {
    return false;
}
