// Computes: entry points into the entropy-coded data of JPEGs without restart markers: bit offset and DC coefficients
// at
//   the start of each MCU row, and along it. jpeg/crop.h crops by them. C interface of cuaug/codec/jpeg_crop.py.
//   Finding one entry point takes a pass over all codes before it, so one pass records all of a file. A checksum of its
//   bytes identifies a file: a rewritten file is another one.
// Threads: many may share a `JpegIndex`; a mutex guards it.
// Reference: ITU-T T.81, F.1.1.5.1 (DC prediction); the checksum folds 128-bit products, as wyhash does.
// Tests: tests/codec/test_index.py; under sanitizers: test_jpeg_sanitized.py.
#pragma once
#include <unistd.h>

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <unordered_map>
#include <vector>

#include "jpeg/huffman.h"
#include "jpeg/frame.h"

namespace {

// Distance of entry points, about: a crop is up to two distances wider than its region. The maximum is that of restart
// markers in cuaug/codec/jpegtran.py.
constexpr int64_t MIN_DISTANCE_PIXELS = 16, MAX_DISTANCE_PIXELS = 64;

int64_t mcus_in(const Frame& frame, int64_t pixels) { return frame.mcu_width < pixels ? pixels / frame.mcu_width : 1; }

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
struct FileIndex {
    int64_t size;                           // of the file, bytes
    int64_t components, distance, columns;  // distance: MCUs between entry points; columns: entry points per MCU row
    std::vector<uint32_t> at;               // bits from the start of the file, stuffed zeros included
    std::vector<int16_t> dc;                // DC coefficients before the entry point, per component

    const int16_t* prediction(int64_t number) const { return dc.data() + components * number; }
    BitPosition position(const unsigned char* data, int64_t number) const {
        return {data + at[size_t(number)] / 8, int(at[size_t(number)] % 8)};
    }

    FileIndex(const Frame& frame, int64_t size, int64_t distance)
        : size(size),
          components(frame.components),
          distance(distance),
          columns(ceil_div(frame.mcu_columns, distance)) {}

    // Whether this index was built for such a file, successfully.
    bool fits(const Frame& frame, int64_t file_size, int64_t file_distance) const {
        const FileIndex other(frame, file_size, file_distance);
        return size == other.size && components == other.components && distance == other.distance &&
               columns == other.columns && int64_t(at.size()) == other.entry_points(frame);
    }

    int64_t entry_points(const Frame& frame) const { return frame.mcu_rows * columns + 1; }
    int64_t bytes(int64_t count) const { return int64_t(sizeof(FileIndex)) + count * (4 + 2 * components); }

    // Records all entry points. False if the data ends too soon, or no encoder writes it so. EOI must follow: a crop
    // leaves out later segments, on which a decoder may fail.
    bool build(const Frame& frame, const HuffmanTables& tables, const unsigned char* data) {
        BitReader reader({data + frame.data_begin, 0}, data + size);
        int64_t sums[MAX_COMPONENTS] = {};
        at.reserve(size_t(entry_points(frame))), dc.reserve(size_t(entry_points(frame) * components));
        for (int64_t row = 0; row < frame.mcu_rows; ++row)
            for (int64_t mcu = 0; mcu < frame.mcu_columns; mcu += distance) {
                const int64_t left = frame.mcu_columns - mcu, count = left < distance ? left : distance;
                if (!add(frame, data, reader, sums) || !skip_mcus(frame, tables, count, reader, sums)) return false;
            }
        if (!add(frame, data, reader, sums)) return false;
        const int64_t marker = find_marker(data, size, at.back() / 8);
        return marker >= 0 && data[marker + 1] == EOI;
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

// The indexes of many files, within a memory budget. A file is indexed at its second visit: a single pass over a data
// set would not pay for it. It is indexed at once if that pays. A forked child finds nothing in the parent's index,
// keeps nothing and does not free it: a thread of the parent may hold the mutex, in the middle of a change.
struct JpegIndex {
    JpegIndex(int64_t limit, int64_t files)
        : left(limit), left_for_new(limit / 2), share(limit / (files < 1 ? 1 : files)) {
        std::random_device random;
        for (uint64_t& key : keys) key = uint64_t(random()) << 32 | random();
    }

    // MCUs between entry points: the smallest distance at which all files fit, if they are like this one.
    int64_t choose_distance(const Frame& frame) const {
        for (int64_t pixels = MIN_DISTANCE_PIXELS; pixels < MAX_DISTANCE_PIXELS; pixels *= 2) {
            const FileIndex index(frame, 0, mcus_in(frame, pixels));
            if (ENTRY_BYTES + index.bytes(index.entry_points(frame)) <= share) return index.distance;
        }
        return mcus_in(frame, MAX_DISTANCE_PIXELS);
    }

    // A file's index, at a stable address; null if none can be built, or not yet.
    const FileIndex* find(const Frame& frame, const HuffmanTables& tables, const unsigned char* data, int64_t size,
                          int64_t distance, bool build_at_once) {
        if (!is_own() || size >= int64_t(1) << 29) return nullptr;  // beyond 2^29 bytes, bit offsets exceed 32 bits
        const uint64_t key = checksum(data, size);
        int64_t budget;
        {
            const std::lock_guard<std::mutex> hold(lock);
            const auto entry = entries.find(key);
            if (entry == entries.end()) {
                if (left >= ENTRY_BYTES && left_for_new >= ENTRY_BYTES)
                    entries.emplace(key, nullptr), left -= ENTRY_BYTES, left_for_new -= ENTRY_BYTES;
                if (!build_at_once) return nullptr;
            } else if (entry->second) {
                return entry->second->fits(frame, size, distance) ? entry->second.get() : nullptr;
            }
            budget = left;
        }
        auto built = std::make_unique<FileIndex>(frame, size, distance);
        if (budget < built->bytes(built->entry_points(frame))) return nullptr;
        if (!built->build(frame, tables, data)) *built = FileIndex(frame, size, distance);  // empty: never tried again
        const std::lock_guard<std::mutex> hold(lock);
        std::unique_ptr<FileIndex>& slot = entries[key];
        if (!slot) {  // else another thread was first
            const int64_t bytes = built->bytes(int64_t(built->at.size()));
            if (left < bytes) return nullptr;
            left -= bytes, slot = std::move(built);
        }
        return slot->fits(frame, size, distance) ? slot.get() : nullptr;
    }

    // Whether this process made it; a forked child did not.
    bool is_own() const { return process == getpid(); }

  private:
    static constexpr int64_t ENTRY_BYTES = 64;  // about the size of an entry without an index

    std::mutex lock;
    const pid_t process = getpid();
    std::unordered_map<uint64_t, std::unique_ptr<FileIndex>> entries;
    int64_t left;          // bytes of the budget
    int64_t left_for_new;  // bytes for files seen once, so that they leave room for indexes
    const int64_t share;   // bytes per file
    uint64_t keys[8];

    // Checksum of all bytes, in four chains of 16 bytes at a time: the product of two keyed halves, folded. Random keys
    // prevent crafted collisions, which would crop one file by another's index.
    uint64_t checksum(const unsigned char* data, int64_t size) const {
        uint64_t sums[4];
        for (int chain = 0; chain < 4; ++chain) sums[chain] = keys[chain] + uint64_t(size);
        const auto add_bytes = [&](const unsigned char* bytes, int chain) {
            uint64_t words[2];
            memcpy(words, bytes, 16);
            sums[chain] = folded_product(words[0] ^ keys[4 + chain], words[1] ^ sums[chain]);
        };
        int64_t at = 0;
        for (; at + 64 <= size; at += 64)
            for (int chain = 0; chain < 4; ++chain) add_bytes(data + at + 16 * chain, chain);
        unsigned char rest[64] = {};
        memcpy(rest, data + at, size_t(size - at));
        for (int chain = 0; chain < 4; ++chain) add_bytes(rest + 16 * chain, chain);
        return folded_product(sums[0] ^ keys[4], sums[1]) ^ folded_product(sums[2] ^ keys[5], sums[3]);
    }

    static uint64_t folded_product(uint64_t a, uint64_t b) {
        const auto product = static_cast<unsigned __int128>(a) * b;
        return uint64_t(product) ^ uint64_t(product >> 64);
    }
};

}  // namespace

extern "C" {

// limit: memory budget in bytes, shared by `files` files. Null without memory or a source of randomness.
EXPORT void* cuaug_jpeg_index_new(int64_t limit, int64_t files) {
    try {
        return new JpegIndex(limit, files);
    } catch (const std::exception&) {
        return nullptr;
    }
}

// No thread may be using it.
EXPORT void cuaug_jpeg_index_delete(void* index) {
    const auto its = static_cast<JpegIndex*>(index);
    if (its && its->is_own()) delete its;
}
}
