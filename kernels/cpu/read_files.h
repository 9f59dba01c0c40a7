// Computes: several files read in two calls without the GIL: the C interface of cuaug/sources/_bytes.py.
// Threads:  the caller's.
// Reference: POSIX open, fstat, read.
// Tests:    tests/sources.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

extern "C" {

// files: [n] a descriptor; -1 for a file that cannot be opened at once, is empty or is not regular
// sizes: [n] bytes, else 0
// at: the number of the current file, for a watching thread
EXPORT void cuaug_open_files(const char* const* paths, int64_t n, int32_t* files, int64_t* sizes,
                             volatile int64_t* at) {
    for (int64_t i = 0; i < n; ++i) {
        *at = i;
        struct stat status;
        int file = open(paths[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
        if (file >= 0 && (fstat(file, &status) || !S_ISREG(status.st_mode) || status.st_size == 0)) {
            close(file);
            file = -1;
        }
        files[i] = file, sizes[i] = file < 0 ? 0 : status.st_size;
    }
}

// Reads sizes[i] bytes of each file to to[i], and closes it. sizes[i] becomes 0 if some are missing.
EXPORT void cuaug_read_files(const int32_t* files, int64_t n, unsigned char* const* to, int64_t* sizes,
                             volatile int64_t* at) {
    for (int64_t i = 0; i < n; ++i) {
        if (files[i] < 0) continue;
        *at = i;
        int64_t done = 0;
        while (done < sizes[i]) {
            const ssize_t came = read(files[i], to[i] + done, size_t(sizes[i] - done));
            if (came > 0)
                done += came;
            else if (came == 0 || errno != EINTR)
                break;
        }
        close(files[i]);
        if (done < sizes[i]) sizes[i] = 0;
    }
}
}
