// The C interface of the host build, called from cuaug/_native.py. `isa` is one of cuaug_best_isa()'s values: the
// widest instruction set that this processor and this build both have.
#include <cstring>

#include "host.h"

#define EXPORT __attribute__((visibility("default")))

// Where in data[at .. size) a JPEG's entropy-coded data ends: at the first marker that is not a stuffed 0xFF, a fill
// byte or a restart; -1 where there is none.
static int64_t next_marker(const unsigned char* data, int64_t size, int64_t at) {
    const unsigned char* const end = data + size - 1;
    for (const unsigned char* p = data + (at < size ? at : size); p < end; ++p) {
        p = static_cast<const unsigned char*>(memchr(p, 0xff, size_t(end - p)));
        if (!p) return -1;
        if (p[1] != 0x00 && p[1] != 0xff && (p[1] < 0xd0 || p[1] > 0xd7)) return p - data;
    }
    return -1;
}

extern "C" {

EXPORT int cuaug_best_isa() {
#ifdef CUAUG_HAS_AVX2
    return __builtin_cpu_supports("avx2") ? 1 : 0;
#else
    return 0;
#endif
}

// rows: address of this sample's row in the first pass, of [passes, samples] rows. ops, tables: whole arrays.
// source: address of pixel (y, x) of the image; pitch: bytes a row. target: address of the finished image.
// statistics: the memory that the rows' measure_at and measured_at mean, or null for memory of its own.
// tile_rows, tile_columns: 0 for one tile. Returns 0, or 1 when memory ran out.
EXPORT int cuaug_run(int isa, const void* rows, int64_t samples, int passes, const void* ops, const float* tables,
                     int64_t* statistics, const void* source, int64_t pitch, int32_t y, int32_t x, void* target,
                     int tile_rows, int tile_columns) {
    const Image image = {source, pitch, y, x};
#ifdef CUAUG_HAS_AVX2
    if (isa == 1)
        return avx2::run(rows, samples, passes, ops, tables, statistics, image, target, tile_rows, tile_columns);
#endif
    (void)isa;
    return baseline::run(rows, samples, passes, ops, tables, statistics, image, target, tile_rows, tile_columns);
}

// out [n, count]: draws first .. first + count - 1 of `position` for each index, uniform in [low, low + span) with 32
// bits.
EXPORT void cuaug_draw(uint32_t key0, uint32_t key1, const int64_t* index, int64_t n, uint32_t position, uint32_t first,
                       int64_t count, double low, double span, double* out) {
    baseline::draw(key0, key1, index, n, position, first, count, low, span, out);
}

// Walks a JPEG's markers from the first to the last, as cuaug/codec/exif.py asks for: 1 if they are as an encoder
// writes them, else 0. exif [2]: from where to where its EXIF block's TIFF structure lies; 0, 0 where there is none.
EXPORT int cuaug_walk_jpeg(const unsigned char* data, int64_t size, int32_t most_scans, int64_t* exif) {
    int scans = 0, missing = -1;  // components of a sequential frame that no scan has brought yet; -1: no such frame
    exif[0] = exif[1] = 0;
    for (int64_t at = 2; at + 2 <= size && data[at] == 0xff;) {
        const int marker = data[at + 1];
        if (marker == 0xff) {  // a fill byte
            ++at;
            continue;
        }
        if (marker == 0xd9) return scans > 0 && missing <= 0;
        const bool table = marker == 0xc4 || marker == 0xcc || (marker >= 0xda && marker <= 0xdd) || marker >= 0xe0;
        const bool between = table && (marker < 0xf0 || marker == 0xfe);  // what may stand between scans
        if (marker < 0xc0 || (marker >= 0xd0 && marker <= 0xd8) || (scans && !between) || at + 4 > size) return 0;
        int64_t end = at + 2 + (data[at + 2] << 8 | data[at + 3]);
        if (marker == 0xda) {
            if (missing >= 0) {
                if (at + 4 >= size || missing < data[at + 4]) return 0;
                missing -= data[at + 4];
            }
            if (++scans > most_scans) return 0;
            end = next_marker(data, size, end);
            if (end < 0) return 0;
        } else if (marker == 0xc0 || marker == 0xc1 || marker == 0xc9) {
            if (at + 9 >= size) return 0;
            missing = data[at + 9];
        } else if (marker == 0xe1 && at + 10 <= size && memcmp(data + at + 4, "Exif\0", 6) == 0) {
            if (exif[1] || scans) return 0;
            exif[0] = at + 10, exif[1] = end;
        }
        at = end;
    }
    return 0;
}

// out [3]: bytes of a Sample, an Axis and an Op, for the check that Python's mirror fits.
EXPORT void cuaug_sizes(int64_t* out) { baseline::sizes(out); }
}

#include "host_plan.h"
