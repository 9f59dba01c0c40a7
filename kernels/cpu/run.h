// Computes: the declarations that cpu/c_api.cpp and the builds of cpu/run.cpp share.
// Threads:  see cpu/run.cpp.
// Reference: cpu/run.cpp.
// Tests:    see cpu/run.cpp.
#pragma once
#include <cstdint>

// A decoded image, or a region of one: `data` is pixel (y, x) of the whole image.
struct Image {
    const void* data;
    int64_t pitch;
    int32_t y, x;
};

#define CUAUG_DECLARE(isa)                                                                                            \
    namespace isa {                                                                                                   \
    int run(const void* rows, int64_t samples, int passes, const void* ops, const float* tables, int64_t* statistics, \
            const Image& image, void* target, int tile_rows, int tile_columns, int64_t max_floats);                   \
    void draw(uint32_t key0, uint32_t key1, const int64_t* index, int64_t n, uint32_t position, uint32_t first,       \
              int64_t count, double low, double span, double* out);                                                   \
    void interleave(const void* planes, int64_t plane_bytes, int64_t pixels, int bytes, void* out);                   \
    void convert_yuv_images(const void* images, int64_t count);                                                       \
    }
CUAUG_DECLARE(baseline)
CUAUG_DECLARE(avx2)
CUAUG_DECLARE(avx512)

// `run` of an instruction set (cpu/c_api.cpp).
int run_on(int isa, const void* rows, int64_t samples, int passes, const void* ops, const float* tables,
           int64_t* statistics, const Image& image, void* target, int tile_rows, int tile_columns, int64_t max_floats);
