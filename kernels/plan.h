// What will be done to a batch, as the kernels read it. Mirrored field by field in cuaug/plan/layout.py;
// tests/kernels/test_layout.py compares every size and offset.
//
// One Sample row says how one image of the batch passes through one launch: where its pixels come from (two Axis
// rows), what they look like between taps (filter, borders), which operations then run on each output pixel (a range
// of Op rows), and where the result goes.
//
// Coordinates along an axis, from output to source:
//   output index o in [0, out)
//     -> resized index  r = start + step * o           crop, flip and pad made after the resize
//                       outside [seen_low, seen_high): `border_after` decides
//     -> centre         offset + (r + 0.5) * scale     in source pixels from `origin`; pixel i covers [i, i + 1)
//     -> taps           source indices in [low, high): the window that sampling may see
//                       outside [inner_low, inner_high): `border_before` decides (padding made before the resize)
//     -> memory         held_low is the first index that lies in memory: a decoder may have decoded just a region
//
// With `warped`, the resized index's centre (r + 0.5 on each axis) goes through `field` and `matrix` to the source
// instead, and only the window [inner_low, inner_high) and `border_before` stand between it and memory. With
// `transposed`, rows and columns change places at the very end: output (y, x) is stored as row x, column y, and
// operations that know where a pixel stands are told so.
//
// A pass with a `neighbourhood` does not resample (scale is 1): each resized index is a pixel of the window
// [inner_low, inner_high), whose surroundings, continued by `border_before`, become its value.
#pragma once
#include "platform.h"

struct Axis {
    double offset, scale;
    int origin, low, high, inner_low, inner_high, held_low;
    int start, step, out, seen_low, seen_high;
    int taps;  // the most source pixels that one output pixel needs
};

// Cells laid over an image: so many down and across, of so many pixels. They may reach over its lower and right edge.
struct Grid {
    int rows, columns, height, width;
};

enum Filter { NEAREST, BILINEAR, BICUBIC };
enum Neighbourhood { NONE, SEPARABLE, STENCIL, MEDIAN, JPEG };
enum Border { CONSTANT, EDGE, REFLECT, SYMMETRIC, WRAP };
enum Measure { NOTHING, GRAY_SUM, RANGE, HISTOGRAM, CELL_HISTOGRAMS };
enum Type { UINT8, FLOAT16, BFLOAT16, FLOAT32 };
enum Layout { HWC, CHW };

struct Sample {
    Axis y, x;
    double matrix[9];       // homogeneous (x, y, 1) of the resized image to source pixels, by rows
    uint64 source, target;  // addresses, filled in by the device
    int64 pitch;            // bytes from one source row to the next; within a row pixels are packed RGB
    int source_type;        // UINT8 or FLOAT32
    int filter, antialias;
    int border_before, border_after;
    float fill_before[3], fill_after[3];
    float clamp;  // limit the sampled values to [0, clamp]; below 0: leave them
    int op_begin, op_end;
    int measure, measured;        // what this pass measures for the operation that starts the next one, and what the
                                  // pass before did: core/statistics.h
    int measure_at, measured_at;  // where, in words of the statistics' memory
    float measure_scale;  // GRAY_SUM: gray level to the integer that is added up; RANGE: 1 rounds to levels, 0 does
                          // not; the histograms: value to level
    Grid grid, measured_grid;  // CELL_HISTOGRAMS: the cells of this pass's image, and of the image before
    int target_type, target_layout, target_channels;
    int streaming_stores;  // whether the target is written past the caches; filled in by the host
    int active;       // 0: this sample has no such pass
    int warped, transposed;
    int field, field_rows, field_columns;  // nodes (dy, dx) in pixels from tables[field] on; no rows: no field
    int field_height, field_width;         // of the resized image, which they span from corner to corner
    int neighbourhood;                     // what this pass makes of a pixel's surroundings, instead of resampling
    int weights;  // from tables[weights] on. SEPARABLE: y.taps of a column, x.taps of a row; STENCIL: `extent`
                  // taps (dy, dx, weight); JPEG: 64 steps of luma, 64 of chroma
    int extent;   // STENCIL: how many taps; MEDIAN: pixels on a side
    int frame;    // STENCIL: pixels nearer to the window's edge than this stay as they are
    float level;  // JPEG: a uint8 level in the units of the image
};

enum OpCode {
#define OPERATION(code, ...) code,
#include "ops.def"
#undef OPERATION
};

struct Op {
    int code;
    int table;
    uint32 key[2];  // of the per-pixel random numbers
    float a[12];
    float limit;  // the result is clamped to [0, limit]; below 0: left as it is
    float unused[3];
};
