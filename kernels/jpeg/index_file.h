// Computes: the file of a JPEG index, an append-only log that processes share: a header, then one record per image. A
//           record is written under flock and read without it. Checksums tell what is complete: a torn record at the
//           end, as a killed process leaves it, is cut off by the next writer. All access is by pread and pwrite, so
//           that a truncated file or a failing disk is a miss; a memory map would end the process (SIGBUS).
// Threads:  the caller holds a lock, except for `load`.
// Reference: the checksum folds 128-bit products, as wyhash does.
// Tests:    tests/codec/test_index_file.py, tests/loader/test_kept_index.py; under sanitizers:
//           tests/kernels/test_sanitizers.py.
#pragma once
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <random>
#include <unordered_map>
#include <vector>

#include "cpu/file_part.h"
#include "cpu/file_status.h"
#include "jpeg/entry_points.h"

namespace {

// Identifies a file by its bytes.
struct FileKey {
    uint64_t id, check;

    bool operator==(const FileKey& other) const { return id == other.id && check == other.check; }
};

uint64_t folded_product(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return uint64_t(product) ^ uint64_t(product >> 64);
}

// Checksum of all bytes, in four chains of 16 bytes at a time: the product of two keyed halves, folded. Random keys
// prevent crafted collisions, which would crop one file by another's index.
FileKey checksum(const uint64_t* keys, const void* bytes, int64_t size) {
    const auto* const data = static_cast<const unsigned char*>(bytes);
    uint64_t sums[4];
    for (int chain = 0; chain < 4; ++chain) sums[chain] = keys[chain] + uint64_t(size);
    const auto add_bytes = [&](const unsigned char* next, int chain) {
        uint64_t words[2];
        memcpy(words, next, 16);
        sums[chain] = folded_product(words[0] ^ keys[4 + chain], words[1] ^ sums[chain]);
    };
    int64_t at = 0;
    for (; at + 64 <= size; at += 64)
        for (int chain = 0; chain < 4; ++chain) add_bytes(data + at + 16 * chain, chain);
    unsigned char rest[64] = {};
    memcpy(rest, data + at, size_t(size - at));
    for (int chain = 0; chain < 4; ++chain) add_bytes(rest + 16 * chain, chain);
    return {folded_product(sums[0] ^ keys[4], sums[1]) ^ folded_product(sums[2] ^ keys[5], sums[3]),
            folded_product(sums[0] ^ keys[6], sums[2]) ^ folded_product(sums[3] ^ keys[7], sums[1])};
}

// All numbers are little-endian.
struct IndexHeader {
    char magic[8];
    uint64_t version;
    uint64_t keys[8];  // random, for all checksums of the file
    uint64_t sum;      // of the fields before

    static constexpr char MAGIC[9] = "\x89JPEGix\n";
    static constexpr uint64_t VERSION = 1;

    uint64_t own_sum() const { return checksum(keys, this, offsetof(IndexHeader, sum)).id; }
    bool is_valid() const { return !memcmp(magic, MAGIC, 8) && version == VERSION && sum == own_sum(); }

    static IndexHeader make() {
        IndexHeader header = {};
        memcpy(header.magic, MAGIC, 8);
        header.version = VERSION;
        std::random_device random;
        for (uint64_t& key : header.keys) key = uint64_t(random()) << 32 | random();
        header.sum = header.own_sum();
        return header;
    }
};

// Followed by `at` and `dc` of the entry points, padded to 8 bytes.
struct IndexRecord {
    FileKey key;
    uint32_t count;  // of entry points; 0: the file has no index
    uint32_t components, distance, unused;
    uint64_t payload_sum;
    uint64_t sum;  // of the fields before

    uint64_t own_sum(const uint64_t* keys) const { return checksum(keys, this, offsetof(IndexRecord, sum)).id; }
    static int64_t bytes(int64_t count, int64_t components) {
        return int64_t(sizeof(IndexRecord)) + (count * (4 + 2 * components) + 7) / 8 * 8;
    }
    bool is_valid(const uint64_t* keys) const { return sum == own_sum(keys) && components <= MAX_COMPONENTS; }
    int64_t bytes() const { return bytes(count, components); }
};

bool write_at(int file, const void* data, int64_t size, int64_t offset) {
    while (size) {
        const ssize_t n = pwrite(file, data, size_t(size), offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data = static_cast<const char*>(data) + n, size -= n, offset += n;
    }
    return true;
}

class FileLock {
  public:
    explicit FileLock(int file) : file(file) {
        while ((result = flock(file, LOCK_EX)) && errno == EINTR) continue;
    }
    ~FileLock() {
        if (is_held()) flock(file, LOCK_UN);
    }
    FileLock(const FileLock&) = delete;
    bool is_held() const { return !result; }

  private:
    const int file;
    int result;
};

struct IndexFile {
    // Takes the descriptor, unless it throws. A file that is no index of this version is emptied if it may be written.
    IndexFile(int file, int64_t limit, bool can_write) : file(file), limit(limit), can_write(can_write) { open(); }
    ~IndexFile() { close(file); }
    IndexFile(const IndexFile&) = delete;

    FileKey key_of(const unsigned char* data, int64_t size) const { return checksum(header.keys, data, size); }

    struct Place {
        int64_t offset, bytes;
    };

    // Where a file's record is; null if there is none. `has_all`: all records were looked at.
    const Place* find(const FileKey& key, bool& has_all) {
        auto found = places.find(key.id);
        has_all = found != places.end() || read_records(READ_BYTES);
        if (found == places.end()) found = places.find(key.id);
        return found == places.end() ? nullptr : &found->second;
    }

    // Reads and checks a record. False if it is damaged or no index of such a file. Memory of `points` is reused.
    bool load(const Place& place, const FileKey& key, const Frame& frame, EntryPoints& points) const {
        static thread_local std::vector<unsigned char> buffer;
        IndexRecord record;
        if (place.bytes > IndexRecord::bytes(frame.mcu_rows * frame.mcu_columns + 1, frame.components)) return false;
        buffer.resize(size_t(place.bytes));
        if (read_at(file, buffer.data(), place.bytes, place.offset) != place.bytes) return false;
        memcpy(&record, buffer.data(), sizeof record);
        const unsigned char* const payload = buffer.data() + sizeof record;
        if (!record.is_valid(header.keys) || !(record.key == key) || record.bytes() != place.bytes) return false;
        if (checksum(header.keys, payload, place.bytes - int64_t(sizeof record)).id != record.payload_sum) return false;
        const bool is_distance = 1 <= record.distance && record.distance <= frame.mcu_columns;
        if (!is_distance || record.components != uint32_t(frame.components)) return false;
        points.reset(frame, record.distance);
        if (record.count && record.count != points.expected(frame)) return false;
        points.at.resize(record.count), points.dc.resize(size_t(record.count) * record.components);
        memcpy(points.at.data(), payload, 4 * points.at.size());
        memcpy(points.dc.data(), payload + 4 * points.at.size(), 2 * points.dc.size());
        return true;
    }

    // Whether a record of this size may be added.
    bool has_room(int64_t bytes) {
        if (!can_write || !is_usable) return false;
        if (end + bytes > limit) is_full = true;
        return end + bytes <= limit;
    }

    void append(const FileKey& key, const EntryPoints& points) {
        std::vector<unsigned char> buffer(size_t(IndexRecord::bytes(int64_t(points.at.size()), points.components)));
        IndexRecord record = {
            key, uint32_t(points.at.size()), uint32_t(points.components), uint32_t(points.distance), 0, 0, 0};
        unsigned char* const payload = buffer.data() + sizeof record;
        memcpy(payload, points.at.data(), 4 * points.at.size());
        memcpy(payload + 4 * points.at.size(), points.dc.data(), 2 * points.dc.size());
        record.payload_sum = checksum(header.keys, payload, int64_t(buffer.size() - sizeof record)).id;
        record.sum = record.own_sum(header.keys);
        memcpy(buffer.data(), &record, sizeof record);
        append_record(key, buffer);
    }

    // A record was damaged: its file is indexed again.
    void drop(const FileKey& key, int64_t offset) {
        const auto found = places.find(key.id);
        if (found == places.end() || found->second.offset != offset) return;
        places.erase(found);
        ++damaged;
    }

    const int file;
    const int64_t limit;  // bytes of the file
    bool can_write;
    bool is_usable = false;
    bool is_full = false;
    bool was_foreign = false;  // another file of this name was emptied
    int error = 0;             // errno of the failure that ended writing
    int64_t damaged = 0;       // records and torn ends
    int64_t made = 0;          // records that this process wrote
    int64_t end = sizeof(IndexHeader);
    std::unordered_map<uint64_t, Place> places;

  private:
    static constexpr int64_t READ_BYTES = 1 << 20;  // per look-up: an index of 2.5 GB is read in 2,400 look-ups

    IndexHeader header = {};
    int64_t read_size = 0;  // the file's size when no further record was found

    void open() {
        is_usable = read_header(header);
        if (is_usable || !can_write || limit < int64_t(sizeof header)) return;
        const FileLock held(file);
        if (!held.is_held()) return stop_writing();
        FileStatus status;
        if (!status.read(file)) return stop_writing();
        is_usable = read_header(header);
        if (is_usable) return;  // another process was first
        was_foreign = status.size > 0;
        header = IndexHeader::make();
        if (ftruncate(file, 0) || !write_at(file, &header, sizeof header, 0)) return stop_writing();
        is_usable = true;
    }

    void stop_writing() { error = errno, can_write = false; }

    bool read_header(IndexHeader& out) const {
        return read_at(file, &out, sizeof out, 0) == int64_t(sizeof out) && out.is_valid();
    }

    // Looks at up to `most` bytes that others have added. Whether that was all.
    bool read_records(int64_t most) {
        FileStatus status;
        if (!is_usable || !status.read(file) || status.size == read_size) return true;
        static thread_local std::vector<unsigned char> buffer;
        const int64_t size = status.size - end < most ? status.size - end : most, begin = end;
        buffer.resize(size_t(size < 0 ? 0 : size));
        const int64_t got = read_at(file, buffer.data(), int64_t(buffer.size()), begin);
        while (end - begin + int64_t(sizeof(IndexRecord)) <= got) {
            IndexRecord record;
            memcpy(&record, buffer.data() + (end - begin), sizeof record);
            if (!record.is_valid(header.keys) || record.bytes() > status.size - end) break;
            places[record.key.id] = {end, record.bytes()};
            end += record.bytes();
        }
        const bool is_last = end == begin || end == status.size;
        if (is_last) read_size = status.size;
        return is_last;
    }

    void append_record(const FileKey& key, const std::vector<unsigned char>& record) {
        const FileLock held(file);
        if (!held.is_held()) return stop_writing();
        IndexHeader now;
        if (!read_header(now) || memcmp(&now, &header, sizeof now)) {  // another version of cuaug has emptied it
            is_usable = can_write = false, ++damaged;
            return;
        }
        read_size = 0;  // a record that was half written may be complete
        while (!read_records(READ_BYTES)) continue;
        FileStatus status;
        if (!status.read(file)) return stop_writing();
        if (status.size < end) {  // truncated by others: what this process knows of it is gone
            is_usable = can_write = false, ++damaged;
            return;
        }
        if (places.count(key.id) || !has_room(int64_t(record.size()))) return;
        if (status.size > end) {
            ++damaged;
            if (ftruncate(file, end)) return stop_writing();
        }
        if (!write_at(file, record.data(), int64_t(record.size()), end)) {
            stop_writing();
            if (ftruncate(file, end)) error = errno;
            return;
        }
        places[key.id] = {end, int64_t(record.size())};
        end += int64_t(record.size()), read_size = end, ++made;
    }
};

}  // namespace
