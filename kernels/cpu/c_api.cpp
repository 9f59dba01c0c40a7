// Computes: the C interface of the CPU build, called from cuaug/_runtime/native.py. `isa` is an instruction set: 0
//           baseline, 1 AVX2, 2 AVX-512.
// Threads:  each call runs on the caller's thread; the stack functions use up to `threads` of their own.
// Reference: cuaug/_runtime/c_headers.py parses the exported functions.
// Tests:    tests/properties, tests/kernels/test_layout.py.
#include "cpu/old_libstdcxx.h"
#include "cpu/run.h"
#include "cpu/parallel_for.h"

#define EXPORT __attribute__((visibility("default")))

#include "cpu/stderr_capture.h"
#include "jpeg/decode_region.h"
#include "cpu/copy_rows.h"
#include "cpu/batch_work.h"
#include "cpu/first_headers.h"
#include "jpeg/headers.h"
#include "jpeg/crop.h"
#include "planner/c_api.h"
#include "jpeg/exif_transpose.h"
#include "cpu/cuda_launch.h"
#include "cpu/decode_jpeg.h"

#ifndef CUAUG_SOURCES
#define CUAUG_SOURCES 0
#endif

extern "C" {

// The checksum of the sources (setup.py); 0 in builds made another way.
EXPORT uint32_t cuaug_sources() { return CUAUG_SOURCES; }

EXPORT int cuaug_best_isa() {
#ifdef CUAUG_HAS_AVX512
    if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return 2;
#endif
#ifdef CUAUG_HAS_AVX2
    if (__builtin_cpu_supports("avx2")) return 1;
#endif
    return 0;
}
}

int run_on(int isa, const void* rows, int64_t samples, int passes, const void* ops, const float* tables,
           int64_t* statistics, const Image& image, void* target, int tile_rows, int tile_columns, int64_t max_floats) {
    auto* run = baseline::run;
#ifdef CUAUG_HAS_AVX2
    if (isa == 1) run = avx2::run;
#endif
#ifdef CUAUG_HAS_AVX512
    if (isa == 2) run = avx512::run;
#endif
    (void)isa;
    return run(rows, samples, passes, ops, tables, statistics, image, target, tile_rows, tile_columns, max_floats);
}

extern "C" {

// Runs all passes of one sample. Returns 0, or 1 when memory ran out.
// rows: address of this sample's row of the first pass, in [passes, samples] rows
// statistics: memory that measure.at and measured.at index; null: the thread's own
// source: address of pixel (y, x) of the image; pitch: bytes per row
// target: address of the finished image
// tile_rows, tile_columns: 0 for one tile
EXPORT int cuaug_run(int isa, const void* rows, int64_t samples, int passes, const void* ops, const float* tables,
                     int64_t* statistics, const void* source, int64_t pitch, int32_t y, int32_t x, void* target,
                     int tile_rows, int tile_columns) {
    return run_on(isa, rows, samples, passes, ops, tables, statistics, {source, pitch, y, x}, target, tile_rows,
                  tile_columns, INT64_MAX);
}

// Runs several samples, one after the other. Returns the number that failed.
// jobs: [count, 6]: sample number, source, pitch, y, x, target
// failed: [count]: 1 for a sample that needs a buffer of more than max_floats, or for which memory ran out
EXPORT int64_t cuaug_run_samples(int isa, const int64_t* jobs, int64_t count, const void* rows, int64_t row_bytes,
                                 int64_t samples, int passes, const void* ops, const float* tables, int64_t max_floats,
                                 uint8_t* failed) {
    int64_t failures = 0;
    for (int64_t i = 0; i < count; ++i, jobs += 6) {
        const void* const row = static_cast<const char*>(rows) + jobs[0] * row_bytes;
        const Image image = {reinterpret_cast<const void*>(jobs[1]), jobs[2], int32_t(jobs[3]), int32_t(jobs[4])};
        const int status = run_on(isa, row, samples, passes, ops, tables, nullptr, image,
                                  reinterpret_cast<void*>(jobs[5]), 0, 0, max_floats);
        failed[i] = status != 0;
        failures += failed[i];
    }
    return failures;
}

// Runs `samples` rows on a stack of images, image_bytes apart; each image has `views` rows. targets: [samples]
// addresses.
EXPORT int cuaug_run_stack(int isa, int threads, const void* rows, int64_t samples, int passes, const void* ops,
                           const float* tables, const char* images, int64_t image_bytes, int64_t pitch, int views,
                           const uint64_t* targets, int64_t row_bytes) {
    return parallel_for(samples, threads, [=](int64_t i) {
        return cuaug_run(isa, static_cast<const char*>(rows) + i * row_bytes, samples, passes, ops, tables, nullptr,
                         images + i / views * image_bytes, pitch, 0, 0, reinterpret_cast<void*>(targets[i]), 0, 0);
    });
}

// out [images, pixels, 3] = planes [images, 3, pixels] of values of `bytes` bytes, 1 or 4. Channels lie `apart` bytes
// apart, images image_bytes.
EXPORT void cuaug_interleave(int isa, int threads, const char* planes, int64_t images, int64_t image_bytes,
                             int64_t plane_bytes, int64_t pixels, int bytes, char* out) {
    parallel_for(images, threads, [=](int64_t i) {
        const void* const from = planes + i * image_bytes;
        void* const to = out + i * 3 * pixels * bytes;
#ifdef CUAUG_HAS_AVX512
        if (isa == 2) return avx512::interleave(from, plane_bytes, pixels, bytes, to), 0;
#endif
#ifdef CUAUG_HAS_AVX2
        if (isa == 1) return avx2::interleave(from, plane_bytes, pixels, bytes, to), 0;
#endif
        (void)isa;
        return baseline::interleave(from, plane_bytes, pixels, bytes, to), 0;
    });
}

// out [n, count]: draws first ... first + count - 1 of `position` for each index, uniform in [low, low + span), 32
// bits.
EXPORT void cuaug_draw(int isa, uint32_t key0, uint32_t key1, const int64_t* index, int64_t n, uint32_t position,
                       uint32_t first, int64_t count, double low, double span, double* out) {
#ifdef CUAUG_HAS_AVX512
    if (isa == 2) return avx512::draw(key0, key1, index, n, position, first, count, low, span, out);
#endif
#ifdef CUAUG_HAS_AVX2
    if (isa == 1) return avx2::draw(key0, key1, index, n, position, first, count, low, span, out);
#endif
    (void)isa;
    baseline::draw(key0, key1, index, n, position, first, count, low, span, out);
}

// Converts parts of video frames to RGB. images: [count] YuvImage
EXPORT void cuaug_convert_yuv(int isa, const void* images, int64_t count) {
#ifdef CUAUG_HAS_AVX512
    if (isa == 2) return avx512::convert_yuv_images(images, count);
#endif
#ifdef CUAUG_HAS_AVX2
    if (isa == 1) return avx2::convert_yuv_images(images, count);
#endif
    (void)isa;
    baseline::convert_yuv_images(images, count);
}
}
