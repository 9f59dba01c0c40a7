// Computes: entry points into the entropy-coded data of a JPEG without restart markers: bit offset and DC coefficients
//           at the start of each MCU row, and along it. jpeg/crop.h crops by them. Finding one entry point takes a pass
//           over all codes before it, so one pass records all of a file.
// Threads:  the caller's alone.
// Reference: ITU-T T.81, F.1.1.5.1 (DC prediction).
// Tests:    tests/codec/test_index.py; under sanitizers: tests/kernels/test_sanitizers.py.
#pragma once
#include <algorithm>
#include <vector>

#include "jpeg/huffman.h"
#include "jpeg/frame.h"

namespace {

// Distance of entry points, about: a crop is up to two distances wider than its region. An index takes 7 % of its files'
// size at the minimum, and 2 % at the maximum.
constexpr int64_t MIN_DISTANCE_PIXELS = 16, MAX_DISTANCE_PIXELS = 64;

// Up to a row: an index of a longer distance would be none of such a file.
int64_t mcus_in(const Frame& frame, int64_t pixels) {
    return std::min(frame.mcu_width < pixels ? pixels / frame.mcu_width : 1, frame.mcu_columns);
}

struct HuffmanTables {
    DcTable dc[TABLES_PER_CLASS];
    AcTable ac[TABLES_PER_CLASS];
};

// Builds the tables that the frame uses; those of the previous file are reused. False if one is missing or invalid.
bool build_tables(const Frame& frame, const unsigned char* data, HuffmanTables& tables) {
    for (int i = 0; i < frame.components; ++i) {
        const int dc = frame.component[i].tables[0], ac = frame.component[i].tables[1];
        if (dc >= TABLES_PER_CLASS || ac >= TABLES_PER_CLASS) return false;
        const int64_t dc_at = frame.tables_at[0][dc], ac_at = frame.tables_at[1][ac];
        if (!dc_at || !ac_at || !tables.dc[dc].build(data + dc_at) || !tables.ac[ac].build(data + ac_at)) return false;
    }
    return true;
}

// One file's entry points, in raster order, and one more after its last row.
struct EntryPoints {
    int64_t components = 0, distance = 0, columns = 0;  // distance: MCUs between entry points; columns: per MCU row
    std::vector<uint32_t> at;                           // bits from the start of the file, stuffed zeros included
    std::vector<int16_t> dc;                            // DC coefficients before the entry point, per component

    const int16_t* prediction(int64_t number) const { return dc.data() + components * number; }
    BitPosition position(const unsigned char* data, int64_t number) const {
        return {data + at[size_t(number)] / 8, int(at[size_t(number)] % 8)};
    }

    // Begins the entry points of a file. Memory is reused.
    void reset(const Frame& frame, int64_t new_distance) {
        components = frame.components, distance = new_distance, columns = ceil_div(frame.mcu_columns, new_distance);
        at.clear(), dc.clear();
    }

    // Number of entry points of a whole file.
    int64_t expected(const Frame& frame) const { return frame.mcu_rows * columns + 1; }

    // Whether the first one is the start of the entropy-coded data.
    bool begins_at_start(const Frame& frame) const {
        return at[0] == 8 * frame.data_begin && std::count(dc.begin(), dc.begin() + components, 0) == components;
    }

    // Whether the entry points from `begin` to `end` lie in this order inside the entropy-coded data.
    bool are_inside(const Frame& frame, int64_t size, int64_t begin, int64_t end) const {
        return 8 * frame.data_begin <= at[size_t(begin)] && at[size_t(begin)] <= at[size_t(end)] &&
               at[size_t(end)] < 8 * size;
    }

    // Records all entry points. False if the data ends too soon, or no encoder writes it so. EOI must follow: a crop
    // leaves out later segments, on which a decoder may fail.
    bool build(const Frame& frame, const HuffmanTables& tables, const unsigned char* data, int64_t size) {
        BitReader reader({data + frame.data_begin, 0}, data + size);
        int64_t sums[MAX_COMPONENTS] = {};
        for (int64_t row = 0; row < frame.mcu_rows; ++row)
            for (int64_t mcu = 0; mcu < frame.mcu_columns; mcu += distance) {
                const int64_t left = frame.mcu_columns - mcu, count = left < distance ? left : distance;
                if (!add(frame, data, reader, sums) || !skip_mcus(frame, tables, count, reader, sums)) return false;
            }
        if (!add(frame, data, reader, sums)) return false;
        const int64_t marker = find_marker(data, size, at.back() / 8);
        return marker >= 0 && data[marker + 1] == EOI;
    }

    // As `build`, about `pixels` apart.
    bool find_all(const Frame& frame, const HuffmanTables& tables, const unsigned char* data, int64_t size,
                  int64_t pixels) {
        reset(frame, mcus_in(frame, pixels));
        return build(frame, tables, data, size);
    }

    static bool skip_mcus(const Frame& frame, const HuffmanTables& tables, int64_t count, BitReader& reader,
                          int64_t* sums) {
        BitReader local = reader;  // in registers
        for (int64_t mcu = 0; mcu < count; ++mcu)
            for (int i = 0; i < frame.components; ++i) {
                const Component& component = frame.component[i];
                const DcTable& dc = tables.dc[component.tables[0]];
                const AcTable& ac = tables.ac[component.tables[1]];
                for (int block = 0; block < component.blocks; ++block)
                    if (!dc.skip(local, sums[i]) || !ac.skip(local)) return false;
            }
        reader = local;
        return true;
    }

    bool add(const Frame& frame, const unsigned char* data, const BitReader& reader, const int64_t* sums) {
        if (reader.ran_out()) return false;
        const BitPosition here = reader.position();
        at.push_back(uint32_t(8 * (here.byte - data) + here.bit));
        for (int i = 0; i < frame.components; ++i) {
            if (sums[i] != int16_t(sums[i])) return false;
            dc.push_back(int16_t(sums[i]));
        }
        return true;
    }
};

}  // namespace
