// Computes: the index of many JPEGs: entry points of each (jpeg/entry_points.h), in a file (jpeg/index_file.h). The
//           first process that needs an image's entry points makes them. C interface of cuaug/codec/jpeg_index.py.
// Threads:  many may share a `JpegIndex`; a mutex guards it.
// Reference: none.
// Tests:    tests/codec/test_index.py, test_index_file.py; under sanitizers: tests/kernels/test_sanitizers.py.
#pragma once
#include <exception>
#include <mutex>
#include <new>

#include "jpeg/index_file.h"

namespace {

// What a thread knows of a file without reading it: by its place and its times.
struct KnownFile {
    FileKey key;  // of its bytes
    JpegHeader header;
    int64_t header_bytes;  // before the entropy-coded data
};

// A forked child finds nothing in the parent's index, adds nothing and does not free it: a thread of the parent may
// hold the mutex, in the middle of a change.
struct JpegIndex {
    JpegIndex(int file, int64_t limit, int64_t files, bool can_write)
        : log(file, limit, can_write), share(limit / (files < 1 ? 1 : files)) {}

    // MCUs between entry points: the smallest distance at which all files fit, if they are like this one.
    int64_t choose_distance(const Frame& frame) const {
        EntryPoints points;
        for (int64_t pixels = MIN_DISTANCE_PIXELS; pixels < MAX_DISTANCE_PIXELS; pixels *= 2) {
            points.reset(frame, mcus_in(frame, pixels));
            if (IndexRecord::bytes(points.expected(frame), frame.components) <= share) return points.distance;
        }
        return mcus_in(frame, MAX_DISTANCE_PIXELS);
    }

    enum Outcome { FOUND, ABSENT, UNKNOWN };

    // Looks for a file's entry points: none if it has no index. UNKNOWN: the index is not read to its end, or of no
    // use.
    Outcome look_up(const Frame& frame, const unsigned char* data, int64_t size, FileKey& key, EntryPoints& points) {
        if (!is_own() || size >= int64_t(1) << 29) return UNKNOWN;  // beyond 2^29 bytes, bit offsets exceed 32 bits
        key = log.key_of(data, size);
        return load(key, frame, points);
    }

    // As `look_up`, by the key of the file.
    Outcome load(const FileKey& key, const Frame& frame, EntryPoints& points) {
        IndexFile::Place place = {};
        {
            const std::lock_guard<std::mutex> hold(lock);
            if (!log.is_usable) return UNKNOWN;
            bool has_all;
            const auto* const found = log.find(key, has_all);
            if (!found) return has_all ? ABSENT : UNKNOWN;
            place = *found;
        }
        if (log.load(place, key, frame, points)) return FOUND;
        const std::lock_guard<std::mutex> hold(lock);
        log.drop(key, place.offset);
        return ABSENT;
    }

    // Adds what make(points) makes; false if it fails, which is noted so that it is never tried again, or without room.
    template <class Make>
    bool add(const FileKey& key, const Frame& frame, int64_t distance, EntryPoints& points, Make make) {
        if (!is_own()) return false;
        points.reset(frame, distance);
        {
            const std::lock_guard<std::mutex> hold(lock);
            if (!log.has_room(IndexRecord::bytes(points.expected(frame), points.components))) return false;
        }
        if (!make(points)) points.at.clear(), points.dc.clear();
        const std::lock_guard<std::mutex> hold(lock);
        log.append(key, points);
        return !points.at.empty();
    }

    // Finds or makes a file's entry points. False if it has none, or no room.
    bool find(const Frame& frame, const HuffmanTables& tables, const unsigned char* data, int64_t size,
              EntryPoints& points) {
        FileKey key;
        const Outcome outcome = look_up(frame, data, size, key, points);
        if (outcome != ABSENT) return outcome == FOUND && !points.at.empty();
        return add(key, frame, choose_distance(frame), points,
                   [&](EntryPoints& its) { return its.build(frame, tables, data, size); });
    }

    // Identifies a file, or a part of it, by its place and times.
    FileKey identify(const FileStatus& status, int64_t begin, int64_t size) const {
        const int64_t values[] = {status.device,  status.number, status.size, status.modified,
                                  status.changed, begin,         size};
        return log.key_of(reinterpret_cast<const unsigned char*>(values), sizeof values);
    }

    // Notes what the index has entry points of. Nothing is noted of a file without an identity, which is 0.
    void remember(const FileKey& identity, const KnownFile& file) {
        if (identity == FileKey{}) return;
        const std::lock_guard<std::mutex> hold(lock);
        known[identity.id] = {identity.check, file};
    }

    // Whether the file with this identity is known.
    bool recall(const FileKey& identity, KnownFile& file) {
        if (!is_own()) return false;
        const std::lock_guard<std::mutex> hold(lock);
        const auto found = known.find(identity.id);
        if (found == known.end() || found->second.first != identity.check) return false;
        file = found->second.second;
        return true;
    }

    // Whether this process made it; a forked child did not.
    bool is_own() const { return process == getpid(); }

    std::mutex lock;
    IndexFile log;

  private:
    std::unordered_map<uint64_t, std::pair<uint64_t, KnownFile>> known;  // by identity: its check, and the file
    const pid_t process = getpid();
    const int64_t share;  // bytes per file
};

}  // namespace

extern "C" {

// file: descriptor of the index's file, which this takes and closes. limit: its size in bytes, shared by `files` files.
// Null without memory or a source of randomness; the caller then closes the file.
EXPORT void* cuaug_jpeg_index_new(int32_t file, int64_t limit, int64_t files, int32_t can_write) {
    try {
        return new JpegIndex(file, limit, files, can_write);
    } catch (const std::exception&) {
        return nullptr;
    }
}

// No thread may be using it.
EXPORT void cuaug_jpeg_index_delete(void* index) {
    const auto its = static_cast<JpegIndex*>(index);
    if (its && its->is_own()) delete its;
}

// out [7]: images with an entry; bytes; entries that this process made; damaged entries; errno that ended writing;
// whether it is full; 1 if a foreign file was emptied, 2 if the file cannot be used.
EXPORT void cuaug_jpeg_index_stats(void* index, int64_t* out) {
    JpegIndex& its = *static_cast<JpegIndex*>(index);
    if (!its.is_own()) return;
    const std::lock_guard<std::mutex> hold(its.lock);
    const IndexFile& log = its.log;
    const int64_t state = !log.is_usable ? 2 : log.was_foreign;
    const int64_t values[] = {
        int64_t(log.places.size()), log.end, log.made, log.damaged, log.error, log.is_full, state};
    memcpy(out, values, sizeof values);
}
}
