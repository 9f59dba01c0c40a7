// The tables that describe a batch, as the kernels read them. cuaug/plan/layout.py parses this file;
// tests/kernels/test_layout.py compares every size and offset.
//
// A Sample row describes how one image passes through one launch: its source pixels (two Axis rows), the filter and the
// borders, the operations that run on each output pixel (a range of Op rows), and the target.
//
// Coordinates along an axis, from output to source:
//   output index o in [0, out)
//     -> resized index  r = start + step * o           crop, flip and pad after the resize
//                       outside [seen_low, seen_high): `after` decides
//     -> center         offset + (r + 0.5) * scale     in source pixels from `origin`; pixel i covers [i, i + 1)
//     -> taps           source indices in [low, high): the window that sampling may read
//                       outside [inner_low, inner_high): `before` decides (padding before the resize)
//     -> memory         held_low is the first index in memory: a decoder may have decoded only a region
//
// With `warped`, the center r + 0.5 on each axis goes through `field` and `matrix` to the source instead; the window is
// [inner_low, inner_high), with `before`. With `transposed`, rows and columns swap at the very end: output (y,
// x) is stored as row x, column y, and operations that depend on the position get that one.
//
// A pass with a `neighborhood` does not resample (scale is 1): each resized index is a pixel of the window
// [inner_low, inner_high), and a filter computes its value from the pixels around it, with `before`.
#pragma once
#include "platform.h"

struct Axis {
    double offset, scale;
    int origin, low, high, inner_low, inner_high, held_low;
    int start, step, out, seen_low, seen_high;
    int taps;  // maximum of source pixels per output pixel
};

// The cells of a grid over an image: their number down and across, and their size in pixels. They may extend past the
// lower and right edges.
struct Grid {
    int rows, columns, height, width;
};

// Whether a resize widens its filter when it shrinks. The last two are Pillow's, of uint8 levels in integers, which
// runs its pass along x, or along y, first.
enum Antialias { NO_ANTIALIAS, ANTIALIAS, X_FIRST, Y_FIRST };
enum Filter { NEAREST, BILINEAR, BICUBIC, BOX, HAMMING, LANCZOS, NEAREST_EXACT };  // rows hold no NEAREST_EXACT
enum Neighborhood { NONE, SEPARABLE, STENCIL, MEDIAN, JPEG };
enum Warp { AFFINE = 1, PERSPECTIVE };
enum Border { CONSTANT, EDGE, REFLECT, SYMMETRIC, WRAP };
enum Measure { NOTHING, GRAY_SUM, RANGE, HISTOGRAM, CELL_HISTOGRAMS };
enum Type { UINT8, FLOAT16, BFLOAT16, FLOAT32 };
enum Layout { HWC, CHW };

// The pixels that a pass reads; the executor fills in the addresses of sources and targets.
struct Source {
    uint64 address;
    int64 pitch;  // bytes from one row to the next; pixels of a row are packed RGB
};

// The pixels that a pass stores: rows of pixels, or square patches, each of consecutive values. The layout is then that
// of a patch: (channels, temporal, pitch, pitch), or HWC (temporal, pitch, pitch, channels).
struct Target {
    uint64 address;
    uint8 type, layout, channels;
    uint8 streaming_stores;  // whether it is written with streaming stores; filled in by the CPU executor
    uint8 has_patches;
    uint8 merge;             // patches per side of a block; the patches of a block follow each other
    uint8 temporal, copies;  // images in a patch, and how many of them this image is; 0 copies: it is not stored
    int pitch, rows;         // size of the memory that holds the image, in pixels; 0: the image's own size.
                             // has_patches: pitch is the side of a patch
};

// What lies beyond an edge.
struct Padding {
    int border;
    float fill[3];  // of a CONSTANT border
};

// A statistic of an image: core/statistics.h.
struct Statistic {
    int kind;   // a Measure
    int at;     // its place, in words of the statistics
    Grid grid;  // CELL_HISTOGRAMS
};

// A displacement field: nodes (dy, dx), in pixels, from tables[at] on; 0 rows: no field.
struct Field {
    int at, rows, columns;
};

struct Sample {
    int active;  // 0: the sample has no such pass
    int transposed;
    Source source;
    Target target;
    int source_type;  // UINT8 or FLOAT32
    int warped;       // 0: not; AFFINE or PERSPECTIVE
    // Resampling.
    Axis y, x;
    int filter, antialias;  // an Antialias
    Padding before, after;  // the resize
    // Warps.
    double matrix[9];       // [3, 3]: (x, y, 1) of the resized image to source pixels
    int64 fixed_matrix[9];  // [3, 3]: `matrix` from (column, row, 1) of the resized image to taps: core/warp_points.h
    int64 field_step[2];    // nodes per pixel, down and across, times 2^32: they span the resized image
    float float_matrix[8];  // fixed_matrix as floats, without its last entry
    Field field;
    // Filters that replace resampling.
    int neighborhood;
    int weights;  // from tables[weights] on. SEPARABLE: y.taps of a column, x.taps of a row; STENCIL: `extent`
                  // taps (dy, dx, weight); JPEG: 64 steps of luma, 64 of chroma; Pillow's resize: the table of y
                  // (planner/pillow_weights.h)
    int extent;   // STENCIL: number of taps; MEDIAN: pixels per side; Pillow's resize: place of the table of x
    int frame;    // STENCIL: pixels nearer to the window's edge stay unchanged
    float level;  // JPEG: one uint8 level in the units of the image
    // The program, and what it reads of the whole image.
    float clamp;  // clamps sampled values to [0, clamp]; negative: no clamp
    int op_begin, op_end;
    Statistic measured, measure;  // that of the pass before, which this pass reads, and the one for the next pass
    float measure_scale;  // GRAY_SUM: gray level to the integer that is summed; RANGE: 1 rounds to levels, 0 does not;
                          // histograms: value to level
};

static_assert(sizeof(Sample) == 512, "with another size, cuda/resample.cu needs more than 64 registers on sm_75");

// Half the width of a filter that antialiasing does not widen, in source pixels.
DEVICE double support_of(int filter) {
    return filter == BILINEAR || filter == HAMMING ? 1.0 : filter == BICUBIC ? 2.0 : filter == LANCZOS ? 3.0 : 0.5;
}

constexpr int WEIGHT_BITS = 22;  // fraction of Pillow's integer weights

enum OpCode {
#define OPERATION(code, ...) code,
#include "ops.def"
#undef OPERATION
    OPERATION_COUNT
};

struct Op {
    int code;
    int table;
    uint32 key[2];  // of the random numbers per pixel
    float a[12];
    float limit;      // white, for operations that know it, of which most clamp to [0, limit]; negative: no clamp
    float per_white;  // of a pixel function: the inverse of white
    uint64 function;  // of a pixel function: its number; the CPU executor puts the address of its compiled code here,
                      // or 0
};

// A decoded video frame and the part of it that becomes RGB pixels.
struct YuvImage {
    uint64 y, u, v;           // addresses of the planes' first samples; u = 0: gray
    int64 y_pitch, uv_pitch;  // bytes from one row to the next
    int height, width;        // of the luma plane
    int sample_bytes;         // 1, or 2 for more than 8 bits
    int uv_step;              // samples from one U, or V, to the next: 1, or 2 where they alternate
    int shift_y, shift_x;     // log2 of chroma subsampling, 0 or 1
    int cosited;              // whether chroma columns lie on even luma columns (MPEG-2), or between two (MPEG-1)
    float y_offset, y_scale, uv_offset;
    float red_v, green_u, green_v, blue_u;
    int top, left, rows, columns;     // the part, as stored
    uint64 target;                    // address of the part's first pixel, three bytes
    int64 target_row, target_column;  // bytes from one stored row, or column, to the next, in the target
};
