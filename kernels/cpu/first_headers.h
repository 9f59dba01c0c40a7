// Computes: sizes without loading: the headers of JPEGs up to their first scan, and of upright PNGs and WebPs. C
//           interface of cuaug/sources/image_sizes.py.
// Threads:  the caller's alone; one call reads many files without the GIL.
// Reference: `read_header` of the whole files.
// Tests:    tests/sources/test_image_sizes.py.
#pragma once
#include <cerrno>
#include <vector>

#include "cpu/crc32.h"
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

constexpr JpegHeader NO_HEADER = {0, 0, 0, DAMAGED_MARKERS, 0};

// An image's file, read at any place.
struct ImageFile {
    const HeaderPlace& place;
    int descriptor;  // of the path
    int64_t size;

    bool read(int64_t at, int64_t count, unsigned char* to) const {
        if (count > size - at) return false;
        return place.path ? read_at(descriptor, to, count, at) == count
                          : read_fully(*place.file, place.begin + at, count, to);
    }
};

int64_t big_endian_32(const unsigned char* at) { return int64_t(at[0]) << 24 | at[1] << 16 | at[2] << 8 | at[3]; }
int64_t little_endian_32(const unsigned char* at) { return int64_t(at[3]) << 24 | at[2] << 16 | at[1] << 8 | at[0]; }
int little_endian_24(const unsigned char* at) { return at[2] << 16 | at[1] << 8 | at[0]; }

bool is_chunk(const unsigned char* at, const char (&name)[5]) { return !memcmp(at, name, 4); }

JpegHeader upright(int64_t height, int64_t width) { return {int32_t(height), int32_t(width), 3, 1, 0}; }

// The size of a PNG of 8 bits or less (ISO/IEC 15948, 5.3 and 11.2.2), if none of its chunks can turn it, animate it or
// make a reader refuse it.
JpegHeader png_header(const ImageFile& file) {
    constexpr unsigned char BEGIN[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", PROFILE[] = "Raw profile type ";
    constexpr int64_t MAX_COMPRESSED_TEXT = 1 << 16;  // as in cuaug/codec/sniff.py
    unsigned char head[33], chunk[8], text[sizeof PROFILE - 1];
    if (!file.read(0, sizeof head, head) || memcmp(head, BEGIN, 16)) return NO_HEADER;
    if (crc32(head + 12, 17) != big_endian_32(head + 29)) return NO_HEADER;
    const int64_t width = big_endian_32(head + 16), height = big_endian_32(head + 20);
    const int depth = head[24], type = head[25];
    const bool is_small = (type == 0 || type == 3) && (depth == 1 || depth == 2 || depth == 4);
    const bool is_known = depth == 8 ? type == 0 || type == 2 || type == 3 || type == 4 || type == 6 : is_small;
    if (!is_known || head[26] || head[27] || head[28] > 1 || width > INT32_MAX || height > INT32_MAX) return NO_HEADER;
    bool has_pixels = false;
    int64_t compressed_text = 0;
    for (int64_t at = sizeof head; file.read(at, sizeof chunk, chunk);) {
        const int64_t length = big_endian_32(chunk);
        const unsigned char* name = chunk + 4;
        if (is_chunk(name, "IEND")) return has_pixels ? upright(height, width) : NO_HEADER;
        if (is_chunk(name, "eXIf") || is_chunk(name, "acTL")) break;
        has_pixels |= is_chunk(name, "IDAT");
        const bool is_compressed = is_chunk(name, "zTXt") || is_chunk(name, "iTXt");
        if (is_compressed || is_chunk(name, "tEXt")) {
            if (length >= int64_t(sizeof text) &&
                (!file.read(at + 8, sizeof text, text) || !memcmp(text, PROFILE, sizeof text)))
                break;
            compressed_text += is_compressed ? length : 0;
            if (compressed_text > MAX_COMPRESSED_TEXT) break;
        }
        at += 12 + length;
    }
    return NO_HEADER;
}

// The size of a WebP (RFC 9649, 2.3 to 2.7 and 3.4; RFC 6386, 9.1) without EXIF and animation.
JpegHeader webp_header(const ImageFile& file) {
    constexpr int EXIF = 8, ANIMATION = 2;  // flags of VP8X
    unsigned char head[12], chunk[18];
    if (!file.read(0, sizeof head, head)) return NO_HEADER;
    const int64_t end = 8 + little_endian_32(head + 4);
    JpegHeader found = NO_HEADER;
    bool has_pixels = false;
    for (int64_t at = 12; at < end; at += 8 + little_endian_32(chunk + 4) + (chunk[4] & 1)) {
        const int64_t left = std::min(end, file.size) - at;
        if (left < 8 || !file.read(at, std::min(left, int64_t(sizeof chunk)), chunk)) return NO_HEADER;
        const int64_t length = little_endian_32(chunk + 4);
        if (length > left - 8) return NO_HEADER;
        const unsigned char* data = chunk + 8;
        const bool is_lossy = is_chunk(chunk, "VP8 "), is_lossless = is_chunk(chunk, "VP8L");
        if (is_chunk(chunk, "EXIF") || is_chunk(chunk, "ANIM") || is_chunk(chunk, "ANMF")) return NO_HEADER;
        if (is_chunk(chunk, "VP8X")) {
            if (at != 12 || length < 10 || data[0] & (EXIF | ANIMATION)) return NO_HEADER;
            found = upright(little_endian_24(data + 7) + 1, little_endian_24(data + 4) + 1);
        } else if (is_lossy || is_lossless) {
            if (has_pixels || length < 10) return NO_HEADER;
            has_pixels = true;
            JpegHeader frame = NO_HEADER;
            if (is_lossy && !(data[0] & 1) && little_endian_24(data + 3) == 0x2a019d) {  // a key frame
                frame = upright((data[9] << 8 | data[8]) & 0x3fff, (data[7] << 8 | data[6]) & 0x3fff);
            } else if (is_lossless && data[0] == 0x2f) {
                const int64_t bits = little_endian_32(data + 1);
                if (!(bits >> 29)) frame = upright((bits >> 14 & 0x3fff) + 1, (bits & 0x3fff) + 1);
            }
            if (!frame.height || (found.height && (found.height != frame.height || found.width != frame.width)))
                return NO_HEADER;
            found = frame;
        }
    }
    return has_pixels ? found : NO_HEADER;
}

JpegHeader first_header(const ImageFile& file, std::vector<unsigned char>& data) {
    for (int64_t size = FIRST_HEADER_BYTES;; size *= 4) {
        const int64_t count = std::min(size, file.size);
        if (int64_t(data.size()) < count) data.resize(size_t(count));
        if (!file.read(0, count, data.data())) return NO_HEADER;
        if (count >= 12 && is_chunk(data.data(), "\x89PNG")) return png_header(file);
        if (count >= 12 && is_chunk(data.data(), "RIFF") && is_chunk(data.data() + 8, "WEBP")) return webp_header(file);
        const JpegHeader header = read_jpeg_header(data.data(), count, 0, 0, true);
        if (header.orientation != WITHOUT_END || count == file.size) return header;
    }
}

JpegHeader first_header(const HeaderPlace& place, int64_t max_bytes, std::vector<unsigned char>& data) {
    JpegHeader header = NO_HEADER;
    if (place.path) {
        const int descriptor = open(place.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
        if (descriptor < 0) return header;
        // Half as long as FileStatus; a pipe or a folder fails here or when it is read.
        const int64_t size = lseek(descriptor, 0, SEEK_END);
        if (size > 0 && size <= max_bytes) header = first_header({place, descriptor, size}, data);
        close(descriptor);
    } else if (place.file && place.size <= max_bytes) {
        FileStatus status;
        header = first_header({place, -1, place.size}, data);
        if (!is_unchanged(*place.file, status)) header = NO_HEADER;
    }
    return header;
}

}  // namespace

extern "C" {

// places [n]: `HeaderPlace`. max_bytes: larger files are not read. out [n, 5]: fields of `JpegHeader`; zeros and a
// `ForPillow` for files that must be read whole, or that cannot be read. Returns 0; 1 when memory ran out.
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
