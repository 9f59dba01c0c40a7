// Computes: the kernels of cuda/decode_jpeg.cu on a CPU, from the same source. Tests compare them with Pillow, and the
//           fakes of CUDA run them; no loader does.
// Threads:  the caller's alone. One thread is a whole warp or block.
// Reference: core/scan_jpeg.h, core/decode_jpeg.h, core/color_jpeg.h.
// Tests:    tests/kernels/test_decode_jpeg.py, test_scan_jpeg.py; under sanitizers: tests/kernels/test_sanitizers.py.
#pragma once
#include <memory>

#include "jpeg/device_batch.h"

namespace {
#include "core/decode_jpeg.h"
#include "core/color_jpeg.h"
#include "core/scan_jpeg.h"
}  // namespace

extern "C" {

// definitions [sets]: HuffmanDefinitions. lookups [sets]: HuffmanLookups.
EXPORT void cuaug_build_lookups(const void* definitions, int64_t sets, void* lookups) {
    for (int64_t i = 0; i < sets; ++i)
        for (int number = 0; number < 4; ++number)
            build_table({}, static_cast<const HuffmanDefinitions*>(definitions)[i], number,
                        static_cast<HuffmanLookups*>(lookups)[i]);
}

// scans [count]: JpegScan. rounds [count]: receives how often runs of each were read again.
EXPORT void cuaug_scan_jpegs(const void* scans, int64_t count, int32_t* rounds) {
    const auto scratch = std::make_unique<ScanScratch>();
    for (int64_t i = 0; i < count; ++i) {
        scratch->scan = static_cast<const JpegScan*>(scans)[i];
        rounds[i] = scan_image({}, *scratch);
    }
}

// images: JpegImage. work [blocks]: JpegWork.
EXPORT void cuaug_decode_jpegs(const void* images, const void* work, int64_t blocks) {
    WarpScratch scratch = {};
    for (int64_t i = 0; i < blocks; ++i) {
        const JpegWork own = static_cast<const JpegWork*>(work)[i];
        const JpegImage& image = static_cast<const JpegImage*>(images)[own.image];
        const auto& lookups = *reinterpret_cast<const HuffmanLookups*>(image.lookups);
        for (int begin = 0; begin < own.count; begin += WARP_LANES)
            decode_segments({}, image, lookups, own.first + begin, own.count - begin, scratch);
    }
}

// images: JpegImage. tiles [count]: JpegTile.
EXPORT void cuaug_color_jpegs(const void* images, const void* tiles, int64_t count) {
    alignas(16) uint32 rows[TILE_WORDS];
    for (int64_t i = 0; i < count; ++i) {
        const JpegTile own = static_cast<const JpegTile*>(tiles)[i];
        color_tile({}, static_cast<const JpegImage*>(images)[own.image], own.y, own.x, rows);
    }
}
}
