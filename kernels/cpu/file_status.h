// Computes: size, type, place and times of a file.
// Threads:  any.
// Reference: Linux's statx, in glibc since 2.28. A library that calls fstat needs the glibc it was built with, or 2.33.
// Tests:    tests/sources, tests/loader/test_native_tars.py, tests/codec/test_index_file.py.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>
#include <ctime>

namespace {

struct FileStatus {
    bool is_regular;
    int64_t device, number;           // of the file system, and of the file there
    int64_t size, modified, changed;  // the times in nanoseconds

    // Whether the file could be examined; errno says why not.
    bool read(int file) { return read(file, "", AT_EMPTY_PATH); }

    // As `read`, of the file of this name. A network file system asks its server.
    bool read(const char* path) { return read(AT_FDCWD, path, AT_STATX_FORCE_SYNC); }

    bool operator==(const FileStatus& other) const {
        return is_regular == other.is_regular && device == other.device && number == other.number &&
               size == other.size && modified == other.modified && changed == other.changed;
    }

    // Whether a change from now on gives the file another time: some file systems count it in steps of two seconds.
    bool is_settled() const {
        timespec time;
        clock_gettime(CLOCK_REALTIME, &time);
        const int64_t now = int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
        return modified + MIN_AGE < now && changed + MIN_AGE < now;
    }

  private:
    static constexpr int64_t MIN_AGE = 3'000'000'000;

    bool read(int file, const char* path, int flags) {
        struct statx status;
        if (statx(file, path, flags, STATX_BASIC_STATS, &status)) return false;
        is_regular = S_ISREG(status.stx_mode);
        device = int64_t(status.stx_dev_major) << 32 | status.stx_dev_minor, number = int64_t(status.stx_ino);
        size = int64_t(status.stx_size);
        modified = nanoseconds(status.stx_mtime);
        changed = nanoseconds(status.stx_ctime);
        return true;
    }

    static int64_t nanoseconds(const statx_timestamp& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }
};

}  // namespace
