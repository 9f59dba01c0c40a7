// Computes: the layout of a JPEG with one scan: its tables, MCUs and entropy-coded data, for
//           jpeg/crop.h and jpeg/device_batch.h.
// Threads:  the caller's alone.
// Reference: ITU-T T.81, B.2.2 (frame header), B.2.3 (scan header), B.2.4.1 (DQT), B.2.4.2 (DHT), B.2.4.4
//           (DRI), A.2 (MCUs).
// Tests:    tests/codec/test_index.py, test_restarts.py; under sanitizers: tests/kernels/test_sanitizers.py.
#pragma once
#include "jpeg/headers.h"

namespace {

constexpr int MAX_COMPONENTS = 4;
constexpr int TABLES_PER_CLASS = 2;  // Huffman tables for DC, and for AC, in a baseline JPEG
constexpr int MAX_QUANTIZERS = 4;
constexpr int64_t MAX_JPEG_SIDE = 65'500;  // libjpeg's limit: we crop no file that it refuses

// A component's share of an MCU.
struct Component {
    int id;
    int h, v, blocks;  // across, down, and in all
    int quantizer;
    int tables[2];  // Huffman table numbers for DC and AC coefficients
};

// The steps of 64 coefficients in zigzag order, in a DQT segment: its offset, 0 if missing, and bytes of a step.
struct Quantizer {
    int64_t at;
    int bytes;
};

// A sequential, Huffman-coded JPEG with one scan. Sizes are in pixels.
struct Frame {
    int64_t size_at;     // offset of the height, then the width, in the frame header
    int64_t data_begin;  // offset of the entropy-coded data
    int64_t height, width;
    int64_t mcu_height, mcu_width;
    int64_t mcu_rows, mcu_columns;
    int64_t restart_interval;                // MCUs; 0 without restart markers
    int64_t tables_at[2][TABLES_PER_CLASS];  // offsets of the DC and AC tables in DHT segments; 0: missing
    Quantizer quantizer[MAX_QUANTIZERS];
    int components;
    Component component[MAX_COMPONENTS];
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Reads the frame header whose length field is at `at`. False unless it has 8-bit samples and valid sampling factors.
bool read_frame(const unsigned char* data, int64_t at, int64_t length, Frame& frame) {
    if (length < 8 || data[at + 2] != 8) return false;
    const int components = data[at + 7];
    if (components < 1 || components > MAX_COMPONENTS || length != 8 + 3 * components) return false;
    frame.size_at = at + 3;
    frame.height = big_endian_16(data + at + 3), frame.width = big_endian_16(data + at + 5);
    frame.components = components;
    int max_v = 1, max_h = 1;
    for (int i = 0; i < components; ++i) {
        int h = data[at + 9 + 3 * i] >> 4, v = data[at + 9 + 3 * i] & 15;
        if (!v || !h || v > 4 || h > 4) return false;
        if (components == 1) h = v = 1;  // an MCU is one block (A.2.2)
        if (v > max_v) max_v = v;
        if (h > max_h) max_h = h;
        frame.component[i] = {data[at + 8 + 3 * i], h, v, v * h, data[at + 10 + 3 * i], {}};
    }
    frame.mcu_height = 8 * max_v, frame.mcu_width = 8 * max_h;
    frame.mcu_rows = ceil_div(frame.height, frame.mcu_height);
    frame.mcu_columns = ceil_div(frame.width, frame.mcu_width);
    const auto is_valid = [](int64_t side) { return side > 0 && side <= MAX_JPEG_SIDE; };
    return is_valid(frame.height) && is_valid(frame.width);
}

// Records the Huffman tables of the DHT segment in data[at .. end). False if it is damaged or no baseline JPEG's.
bool read_tables(const unsigned char* data, int64_t at, int64_t end, Frame& frame) {
    while (at < end) {
        const int table_class = data[at] >> 4, number = data[at] & 15;
        if (table_class > 1 || number >= TABLES_PER_CLASS || at + 17 > end) return false;
        frame.tables_at[table_class][number] = at + 1;
        int64_t symbols = 0;
        for (int i = 1; i <= 16; ++i) symbols += data[at + i];
        at += 17 + symbols;
        if (symbols > 256 || at > end) return false;
    }
    return true;
}

// Records the quantizers of the DQT segment in data[at .. end). False if it is damaged.
bool read_quantizers(const unsigned char* data, int64_t at, int64_t end, Frame& frame) {
    while (at < end) {
        const int bytes = (data[at] >> 4) + 1, number = data[at] & 15;
        if (bytes > 2 || number >= MAX_QUANTIZERS || at + 1 + 64 * bytes > end) return false;
        frame.quantizer[number] = {at + 1, bytes};
        at += 1 + 64 * bytes;
    }
    return true;
}

// Reads the scan header whose length field is at `at`. False unless it has all components, in the frame's order.
bool read_scan(const unsigned char* data, int64_t at, int64_t length, Frame& frame) {
    if (!frame.size_at || length != 6 + 2 * frame.components || data[at + 2] != frame.components) return false;
    for (int i = 0; i < frame.components; ++i) {
        Component& component = frame.component[i];
        if (data[at + 3 + 2 * i] != component.id) return false;
        component.tables[0] = data[at + 4 + 2 * i] >> 4, component.tables[1] = data[at + 4 + 2 * i] & 15;
    }
    return true;
}

// Reads the markers up to the scan. False if this is no such JPEG.
bool find_frame(const unsigned char* data, int64_t size, Frame& frame) {
    if (size < 3 || memcmp(data, "\xff\xd8\xff", 3) != 0) return false;
    frame = {};
    for (int64_t at = 2; at + 4 <= size && data[at] == 0xff;) {
        const int marker = data[at + 1];
        if (marker == FILL) {
            ++at;
            continue;
        }
        const int64_t length = big_endian_16(data + at + 2), end = at + 2 + length;
        if (length < 2 || end > size || marker == DAC || !(is_frame_marker(marker) || may_follow_scan(marker)))
            return false;
        if (marker == DRI && length != 4) return false;
        if (marker == DRI) frame.restart_interval = big_endian_16(data + at + 4);
        if (marker == DHT && !read_tables(data, at + 4, end, frame)) return false;
        if (marker == DQT && !read_quantizers(data, at + 4, end, frame)) return false;
        if (is_frame_marker(marker) && (marker > SOF1 || frame.size_at || !read_frame(data, at + 2, length, frame)))
            return false;
        if (marker == SOS) {
            frame.data_begin = end;
            return read_scan(data, at + 2, length, frame);
        }
        at = end;
    }
    return false;
}

}  // namespace
