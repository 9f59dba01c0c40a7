// Computes: the headers of JPEGs up to their first scan, from the beginnings of files: sizes without loading. C interface
//           of cuaug/sources/image_sizes.py.
// Threads:  the caller's alone; one call reads many files without the GIL.
// Reference: read_jpeg_header of the whole files.
// Tests:    tests/sources/test_image_sizes.py.
#pragma once
#include <cerrno>
#include <vector>

#include "cpu/file_memory.h"
#include "jpeg/headers.h"

namespace {

// A file by its path, or a range of an open file or of bytes in memory.
struct HeaderPlace {
    const char* path;      // null: a range of `file`
    const OpenFile* file;  // null as well: nothing to read
    int64_t begin, size;   // of the range
};

// Most files tell their size here. A thumbnail or a color profile may come before it.
constexpr int64_t FIRST_HEADER_BYTES = 4 << 10;

JpegHeader first_header(const HeaderPlace& place, int descriptor, int64_t file_size, std::vector<unsigned char>& data) {
    const JpegHeader damaged = {0, 0, 0, DAMAGED_MARKERS, 0};
    for (int64_t size = FIRST_HEADER_BYTES;; size *= 4) {
        const int64_t count = std::min(size, file_size);
        if (int64_t(data.size()) < count) data.resize(size_t(count));
        const bool is_read = place.path ? read_at(descriptor, data.data(), count, 0) == count
                                        : read_fully(*place.file, place.begin, count, data.data());
        if (!is_read) return damaged;
        const JpegHeader header = read_jpeg_header(data.data(), count, 0, 0, true);
        if (header.orientation != WITHOUT_END || count == file_size) return header;
    }
}

JpegHeader first_header(const HeaderPlace& place, int64_t max_bytes, std::vector<unsigned char>& data) {
    JpegHeader header = {0, 0, 0, DAMAGED_MARKERS, 0};
    if (place.path) {
        const int descriptor = open(place.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
        if (descriptor < 0) return header;
        // Half as long as FileStatus; a pipe or a folder fails here or when it is read.
        const int64_t size = lseek(descriptor, 0, SEEK_END);
        if (size > 0 && size <= max_bytes) header = first_header(place, descriptor, size, data);
        close(descriptor);
    } else if (place.file && place.size <= max_bytes) {
        FileStatus status;
        header = first_header(place, -1, place.size, data);
        if (!is_unchanged(*place.file, status)) header = {0, 0, 0, DAMAGED_MARKERS, 0};
    }
    return header;
}

}  // namespace

extern "C" {

// places [n]: `HeaderPlace`. max_bytes: larger files are not read. out [n, 5]: fields of `JpegHeader`; zeros and a
// `ForPillow` for files that are no JPEGs, or that cannot be read. Returns 0; 1 when memory ran out.
EXPORT int32_t cuaug_first_headers(const void* places, int64_t n, int64_t max_bytes, int32_t* out) {
    try {
        std::vector<unsigned char> data;
        for (int64_t i = 0; i < n; ++i) {
            const JpegHeader header = first_header(static_cast<const HeaderPlace*>(places)[i], max_bytes, data);
            memcpy(out + 5 * i, &header, sizeof header);
        }
    } catch (const std::bad_alloc&) {
        return 1;
    }
    return 0;
}
}
