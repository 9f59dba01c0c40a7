// Computes: size, type and times of an open file.
// Threads:  any.
// Reference: Linux's statx, in glibc since 2.28. A library that calls fstat needs the glibc it was built with, or 2.33.
// Tests:    tests/sources, tests/loader/test_native_tars.py, tests/codec/test_index_file.py.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>

namespace {

struct FileStatus {
    bool is_regular;
    int64_t size, modified, changed;  // the times in nanoseconds

    // Whether the file could be examined; errno says why not.
    bool read(int file) {
        struct statx status;
        if (statx(file, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status)) return false;
        is_regular = S_ISREG(status.stx_mode);
        size = int64_t(status.stx_size);
        modified = nanoseconds(status.stx_mtime);
        changed = nanoseconds(status.stx_ctime);
        return true;
    }

  private:
    static int64_t nanoseconds(const statx_timestamp& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }
};

}  // namespace
