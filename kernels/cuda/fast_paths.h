// Computes: nothing: the CPU's faster paths (cpu/fast_paths.h, cpu/jpeg_pixels.h), which CUDA does not have. Each
//           returns that it did no work.
// Threads:  a thread has one pixel, so whole rows are no faster.
// Reference: core/augment.h, core/jpeg_compression.h.
// Tests:    tests/kernels/test_scratch.py.
#pragma once
#include "core/augment.h"

template <class Finish>
DEVICE bool run_fast_path(const Block&, const PassContext&, const Tile&, PartialStats&, const Finish&) {
    return false;
}
DEVICE bool run_machine_code(const Op&, const Sample&, Place, PixelBlock&) { return false; }
DEVICE bool store_levels(const Sample&, const Plane*, int, int, int) { return false; }
DEVICE bool decode_block(const Sample&, const Plane*, const SourcePixels&, PixelBlock&) { return false; }
