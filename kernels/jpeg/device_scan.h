// Computes: the description of a JPEG whose segments a GPU finds, and the entry points that it found.
// Threads:  the caller's alone.
// Reference: core/scan_jpeg.h.
// Tests:    tests/kernels/test_scan_jpeg.py; under sanitizers: tests/kernels/test_sanitizers.py.
#pragma once
#include <algorithm>

#include "jpeg/index.h"

namespace {
#include "jpeg_batch.h"

// Bits of the data are counted in 32 bits, with room to read beyond it.
constexpr int64_t MAX_SCAN_BYTES = int64_t(1) << 28;
// A longer run has several cells. Each costs about 20 of the 1,500 instructions of 256 bytes; a thread that reads again
// needs about 250 bytes until it meets its last reading.
constexpr int64_t SCAN_CELL_BYTES = 256;

// Photos take 1 to 12 rounds, those of quality 100 with optimized tables up to 100; few threads read in most of them.
// The CPU scans and decodes such a file in 5 to 10 ms. By its instructions a round should take a GPU about 0.1 us
// per byte of a run, for all files of a batch: long runs, which nearly always synchronize, have fewer.
constexpr int64_t MIN_ROUNDS = 8, MAX_ROUNDS = 128, MAX_ROUND_BYTES = 1 << 17;

// Fills in all but addresses. False unless the entropy-coded data is followed by EOI, as EntryPoints::build demands.
bool describe_scan(const Frame& frame, const unsigned char* data, int64_t size, int64_t distance, JpegScan& scan) {
    const int64_t end = find_marker(data, size, frame.data_begin), bytes = end - frame.data_begin;
    if (end < 0 || data[end + 1] != EOI || bytes < 1 || bytes > MAX_SCAN_BYTES) return false;
    const int64_t run_bytes = std::max(ceil_div(bytes, MAX_SCAN_RUNS), int64_t(MIN_RUN_BYTES));
    scan.data_size = int(bytes);
    scan.cells_per_run = int(std::max(run_bytes / SCAN_CELL_BYTES, int64_t(1)));
    scan.cell_bytes = int(ceil_div(run_bytes, scan.cells_per_run));
    scan.cells = int(ceil_div(bytes, scan.cell_bytes));
    scan.max_rounds = int(std::min(std::max(MAX_ROUND_BYTES / run_bytes, MIN_ROUNDS), MAX_ROUNDS));
    scan.mcu_rows = int(frame.mcu_rows), scan.mcu_columns = int(frame.mcu_columns);
    scan.distance = int(distance), scan.across = int(ceil_div(frame.mcu_columns, distance));
    bool has_one_kind = true;
    scan.mcu_blocks = 0;
    for (int i = 0; i < frame.components; ++i) {
        const int* const tables = frame.component[i].tables;
        has_one_kind &= std::equal(tables, tables + 2, frame.component[0].tables);
        for (int block = 0; block < frame.component[i].blocks; ++block)
            scan.kinds[scan.mcu_blocks++] = uint32(i << 16 | (2 + tables[1]) << 8 | tables[0]);
    }
    scan.period = has_one_kind ? 1 : scan.mcu_blocks;
    return true;
}

// Device memory of an image's segments, of which the CPU gets a copy, and of its cells.
int64_t segment_bytes(const JpegScan& scan) {
    return (int64_t(scan.mcu_rows) * scan.across + 1) * int64_t(sizeof(JpegSegment));
}
int64_t cell_bytes(const JpegScan& scan) { return int64_t(scan.cells) * int64_t(sizeof(JpegScanCell)); }

// Makes entry points, which were reset, of all segments.
void list_points(const Frame& frame, const JpegSegment* segments, EntryPoints& points) {
    for (int64_t i = 0; i < points.expected(frame); ++i) {
        points.at.push_back(uint32_t(8 * frame.data_begin) + segments[i].bit);
        points.dc.insert(points.dc.end(), segments[i].dc, segments[i].dc + frame.components);
    }
}

// Makes entry points on the CPU. data: the entropy-coded data and EOI.
bool build_points(Frame frame, const HuffmanDefinitions& definitions, const unsigned char* data, int64_t size,
                  EntryPoints& points) {
    static thread_local HuffmanTables tables;
    for (int i = 0; i < frame.components; ++i) {
        const int* const numbers = frame.component[i].tables;
        if (!tables.dc[numbers[0]].build(definitions.dc[numbers[0]].counts) ||
            !tables.ac[numbers[1]].build(definitions.ac[numbers[1]].counts))
            return false;
    }
    const int64_t begin = frame.data_begin;
    frame.data_begin = 0;
    const bool is_built = points.build(frame, tables, data, size);
    for (uint32_t& bit : points.at) bit += uint32_t(8 * begin);
    return is_built;
}

}  // namespace
