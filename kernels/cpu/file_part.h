// Computes: ranges of an open file, or of a part of one, in memory.
// Threads:  any.
// Reference: POSIX pread.
// Tests:    tests/dry_run/test_known_files.py.
#pragma once
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <vector>

namespace {

// Reads until the end of the file. Returns the bytes read; -1 on failure.
int64_t read_at(int file, void* out, int64_t size, int64_t offset) {
    int64_t total = 0;
    while (total < size) {
        const ssize_t n = pread(file, static_cast<char*>(out) + total, size_t(size - total), offset + total);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (!n) break;
        total += n;
    }
    return total;
}

struct FilePart {
    int descriptor;
    int64_t begin;  // byte of the file

    bool read(void* out, int64_t size, int64_t at = 0) const {
        return read_at(descriptor, out, size, begin + at) == size;
    }

    // Reads ranges, one after the other to `out`. ranges: begin and end of each.
    bool read_ranges(const std::vector<int64_t>& ranges, uint8_t* out) const {
        for (size_t i = 0; i < ranges.size(); out += ranges[i + 1] - ranges[i], i += 2)
            if (!read(out, ranges[i + 1] - ranges[i], ranges[i])) return false;
        return true;
    }
};

}  // namespace
