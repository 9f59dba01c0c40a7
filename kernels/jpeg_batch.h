// The tables that describe a batch of JPEGs for a GPU: jpeg/device_batch.h fills them in, core/decode_jpeg.h,
// core/color_jpeg.h and core/scan_jpeg.h read them.
//
// Entropy-coded data is cut into segments: consecutive MCUs that one lane of a warp decodes. A segment begins at an
// entry point, which the JPEG index or a scan gives, or after a restart marker. It has to end where the next begins.
//
// A rectangle of MCUs is decoded: those that a region needs. Samples are stored by component, block by block, 64 bytes
// each, in raster order of the rectangle's blocks. Then the region becomes RGB.
//
// Addresses are of device memory. Coordinates are of the stored image; the target has the displayed one.
#pragma once
#include "platform.h"

// --- launches --------------------------------------------------------------------------------------------------------

// Threads of a block of each kernel. `cuaug_jpeg_threads` hands them to Python.
constexpr int TABLES_PER_SET = 4, LOOKUP_THREADS = 512;  // a block per table
constexpr int SCAN_THREADS = 512;                        // a thread per run
constexpr int DECODE_THREADS = 128;                      // a thread per segment
constexpr int TILE_WIDTH = 128, TILE_HEIGHT = 16, COLOR_PIXELS = 16;
constexpr int COLOR_THREADS = TILE_WIDTH * TILE_HEIGHT / COLOR_PIXELS;  // a thread per COLOR_PIXELS of a row

constexpr int JPEG_COMPONENTS = 3;
constexpr int BLOCK_SAMPLES = 64;
constexpr int MAX_MCU_BLOCKS = 10;  // T.81, B.2.3

// --- Huffman tables --------------------------------------------------------------------------------------------------

// As in a DHT segment (T.81, B.2.4.2): the number of codes of 1 to 16 bits, then their symbols.
struct HuffmanDefinition {
    uint8 counts[16], symbols[256];
};

struct HuffmanDefinitions {
    HuffmanDefinition dc[2], ac[2];
};

// Indexed by the next FIRST_BITS bits: bits of the code << 8 | symbol, or NO_CODE. For longer codes IS_LONGER | bits of
// an index into `longer` << 12 | where their entries begin.
constexpr int FIRST_BITS = 9, FIRST_ENTRIES = 1 << FIRST_BITS;
constexpr int NO_CODE = 0, IS_LONGER = 0x8000;
constexpr int DC_LONGER = 256, AC_LONGER = 1024;

template <int LONGER_ENTRIES>
struct HuffmanLookup {
    uint16 first[FIRST_ENTRIES], longer[LONGER_ENTRIES];
};

struct HuffmanLookups {
    HuffmanLookup<DC_LONGER> dc[2];
    HuffmanLookup<AC_LONGER> ac[2];
};

// --- images ----------------------------------------------------------------------------------------------------------

// How libjpeg upsamples a component: repeats samples, or interpolates down, across or both.
enum Upsampling { REPEAT, DOWN, ACROSS, BOTH };

enum JpegColor { GRAY_ONLY, YCC, STORED_RGB };

// Sizes and coordinates in samples of the component.
struct JpegComponent {
    uint64 samples;                // address of the rectangle's blocks
    int h, v;                      // blocks of an MCU, across and down
    int blocks_across;             // of the rectangle
    int left, top, right, bottom;  // the rectangle, inside the component; the ends are excluded
    int scale_x, scale_y;          // pixels of a sample: 1, 2 or 4
    int upsampling;
    int dc_table, ac_table;
    int unused[2];
};

struct JpegImage {
    uint64 data;                // address of the entropy-coded data, a multiple of 16
    uint64 segments;            // address of the first
    uint64 lookups;             // address of its HuffmanLookups
    uint64 target;              // address of pixel (top, left)
    uint64 status;              // address of a `JpegStatus`
    int row_step, column_step;  // bytes in the target from a stored row, or column, to the next
    int data_size;
    int color, components;
    int max_mcus;         // of a segment
    int across, stride;   // segments in a row to decode; from the first of a row to the first of the next
    int ends_at_markers;  // whether segments end at restart markers instead of entry points
    int mcu_columns;      // of the image
    int mcu_x, mcu_y, mcu_width, mcu_height;  // the rectangle, in MCUs
    int left, top, right, bottom;             // the region, in pixels
    JpegComponent component[JPEG_COMPONENTS];
    uint32 quantizer[JPEG_COMPONENTS][64];  // in zigzag order: place in the block << 16 | step
};

// MCUs in raster order. The last segment of a run is followed by one without MCUs, of which `bit` and `dc` count.
struct JpegSegment {
    uint32 bit;                 // of its first bit in the data, stuffed zeros included
    short dc[JPEG_COMPONENTS];  // DC prediction
    uint16 mcu_x, mcu_y;        // the first MCU, in the image
    uint16 mcus;
};

// A JPEG whose segments a GPU finds. Its data is cut into cells, and consecutive cells into runs.
constexpr int MAX_SCAN_RUNS = SCAN_THREADS, MIN_RUN_BYTES = 128;

struct JpegScan {
    uint64 data;      // address of the entropy-coded data, up to EOI, a multiple of 16
    uint64 lookups;   // address of its HuffmanLookups
    uint64 status;    // address of a `JpegStatus`
    uint64 segments;  // address of the first one; receives `across` of each row of MCUs, and the one after the last
    uint64 cells_at;  // address of its `JpegScanCell`s
    int data_size;
    int cell_bytes, cells, cells_per_run;  // up to MAX_SCAN_RUNS runs of MIN_RUN_BYTES or more
    int mcu_rows, mcu_columns, mcu_blocks;
    int distance, across;          // MCUs of a segment, segments of a row
    int period;                    // blocks of an MCU; 1 if all use the same tables, so that nothing tells them apart
    int max_rounds;                // after which the scan gives up
    uint32 kinds[MAX_MCU_BLOCKS];  // of each block of an MCU: component << 16 | 2 + AC table << 8 | DC table
    int unused;
};

// The state in which a cell ends, and how many blocks end in it.
struct alignas(8) JpegScanCell {
    uint32 end, blocks;
};

// The work of a block of threads: `count` segments of an image from `first` on.
struct JpegWork {
    int image, first, count, unused;
};

// Another block's: the tile of an image whose first pixel is (y, x).
struct JpegTile {
    int image, y, x, unused;
};

enum JpegStatus { JPEG_FINE, JPEG_DAMAGED };
