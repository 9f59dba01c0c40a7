// What the markers of JPEG files say, and the EXIF block among them: the C interface of cuaug/codec/sniff.py, which
// says what these are for. The files are anybody's: nothing is read that does not lie in them.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace {

struct JpegHeader {
    int32_t height, width, components;  // as stored; 0 where no frame header tells
    int32_t orientation;                // 1 to 8; 0: the markers or the EXIF are not as an encoder writes them
    int32_t restarts;                   // MCUs between restart markers; 0: there are none
};

int big_endian_16(const unsigned char* at) { return at[0] << 8 | at[1]; }

bool starts_frame(int marker) {
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

// The orientation in the first directory of a TIFF structure, which is what EXIF is everywhere: 1 also where there is
// none, or it means nothing; 0 where the structure is damaged, or has the tag twice or as anything but one SHORT.
int tiff_orientation(const unsigned char* data, int64_t size) {
    if (size < 8) return 0;
    const bool big = memcmp(data, "MM\0*", 4) == 0;
    if (!big && memcmp(data, "II*\0", 4) != 0) return 0;
    const auto u16 = [=](int64_t at) { return big ? big_endian_16(data + at) : data[at + 1] << 8 | data[at]; };
    const auto u32 = [=](int64_t at) { return int64_t(u16(big ? at : at + 2)) << 16 | u16(big ? at + 2 : at); };
    const int64_t directory = u32(4);
    if (directory + 2 > size) return 0;
    const int64_t begin = directory + 2, end = begin + 12 * u16(directory);
    if (end > size) return 0;
    int found = -1;
    for (int64_t entry = begin; entry < end; entry += 12) {
        if (u16(entry) != 0x0112) continue;
        if (u16(entry + 2) != 3 || u32(entry + 4) != 1 || found >= 0) return 0;
        found = u16(entry + 8);
    }
    return found >= 1 && found <= 8 ? found : 1;
}

bool is_restart(int marker) { return marker >= 0xd0 && marker <= 0xd7; }

// The first marker in data[at .. size), an 0xFF that is neither stuffed nor a fill byte; -1 where there is none.
// Entropy-coded data has a stuffed one in every 200 bytes or so, which memchr would stop at.
int64_t next_marker(const unsigned char* data, int64_t size, int64_t at) {
#if defined(__SSE2__)
    const __m128i ones = _mm_set1_epi8(-1), zeros = _mm_setzero_si128();
    for (; at + 17 <= size; at += 16) {
        const __m128i here = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + at));
        const __m128i next = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + at + 1));
        const __m128i none = _mm_or_si128(_mm_cmpeq_epi8(next, zeros), _mm_cmpeq_epi8(next, ones));
        const int found = _mm_movemask_epi8(_mm_andnot_si128(none, _mm_cmpeq_epi8(here, ones)));
        if (found) return at + __builtin_ctz(unsigned(found));
    }
#endif
    for (; at + 2 <= size; ++at) {
        const void* const found = memchr(data + at, 0xff, size_t(size - 1 - at));
        if (!found) return -1;
        at = static_cast<const unsigned char*>(found) - data;
        if (data[at + 1] != 0x00 && data[at + 1] != 0xff) return at;
    }
    return -1;
}

// Where in data[at .. size) a JPEG's entropy-coded data ends: at the first marker that is no restart; -1 where there
// is none.
int64_t end_of_data(const unsigned char* data, int64_t size, int64_t at) {
    at = next_marker(data, size, at);
    while (at >= 0 && is_restart(data[at + 1])) at = next_marker(data, size, at + 2);
    return at;
}

// What the scans of a progressive JPEG bring. Where some coefficients do not come to their last bit, libjpeg smooths
// its blocks by those around them: at the edges of a region it would find others than in the picture.
struct Progress {
    int components = 0;  // 0: of a sequential frame
    unsigned char ids[4];
    uint64_t exact[4] = {};  // a bit for each coefficient of a block

    // Of the frame that has so many of them, whose first is described at `at`.
    void begin(int count, const unsigned char* at) {
        components = count;
        for (int i = 0; i < count; ++i) ids[i] = at[3 * i];
    }

    // Of the scan header whose length field is at `at`. False where it is not as libjpeg wants it.
    bool note(const unsigned char* at, int length) {
        const int count = length > 2 ? at[2] : 0;
        if (length != 6 + 2 * count) return false;
        const int first = at[3 + 2 * count], last = at[4 + 2 * count], below = at[5 + 2 * count] & 15;
        if (first > last || last > 63) return false;
        const uint64_t bits = ~uint64_t(0) >> (63 - last) >> first << first;
        for (int i = 0; i < count; ++i) {
            int which = 0;
            while (which < components && ids[which] != at[3 + 2 * i]) ++which;
            if (which == components) return false;
            if (below)
                exact[which] &= ~bits;
            else
                exact[which] |= bits;
        }
        return true;
    }

    bool complete() const {
        for (int i = 0; i < components; ++i)
            if (~exact[i]) return false;
        return true;
    }
};

// Walks the markers from the first to the last, past the scans: what nvImageCodec 0.9.0 makes of a file with a marker
// that has no business there may be gray, as a success, where Pillow refuses the file.
JpegHeader jpeg_header(const unsigned char* data, int64_t size, int64_t most_scans, int64_t most_pixels) {
    const JpegHeader odd = {0, 0, 0, 0, 0};
    JpegHeader found = {0, 0, 0, 1, 0};
    if (size < 3 || memcmp(data, "\xff\xd8\xff", 3) != 0) return odd;
    int64_t scans = 0;
    int missing = -1;  // components of a sequential frame that no scan has brought yet; -1: no such frame
    bool exif = false;
    Progress progress;
    for (int64_t at = 2; at + 2 <= size && data[at] == 0xff;) {
        const int marker = data[at + 1];
        if (marker == 0xff) {  // a fill byte
            ++at;
            continue;
        }
        if (marker == 0xd9) return scans > 0 && missing <= 0 && progress.complete() ? found : odd;
        const bool table = marker == 0xc4 || marker == 0xcc || (marker >= 0xda && marker <= 0xdd) || marker >= 0xe0;
        const bool between = table && (marker < 0xf0 || marker == 0xfe);  // what may stand between scans
        if (marker < 0xc0 || is_restart(marker) || marker == 0xd8 || (scans && !between) || at + 4 > size) return odd;
        const int length = big_endian_16(data + at + 2);
        int64_t end = at + 2 + length;
        if (marker == 0xda) {
            if (missing >= 0) {
                if (at + 4 >= size || missing < data[at + 4]) return odd;
                missing -= data[at + 4];
            }
            if (progress.components && (end > size || !progress.note(data + at + 2, length))) return odd;
            if (++scans > most_scans || scans * found.height * found.width > most_pixels) return odd;
            end = end_of_data(data, size, end);
            if (end < 0) return odd;
        } else if (starts_frame(marker)) {
            if (at + 10 > size || found.components || length < 8 + 3 * data[at + 9]) return odd;
            found.height = big_endian_16(data + at + 5), found.width = big_endian_16(data + at + 7);
            found.components = data[at + 9];
            if (marker == 0xc0 || marker == 0xc1 || marker == 0xc9) missing = found.components;
            if (marker == 0xc2 || marker == 0xca) {
                if (found.components > 4 || end > size) return odd;
                progress.begin(found.components, data + at + 10);
            }
        } else if (marker == 0xdd && !scans && length == 4 && end <= size) {
            found.restarts = big_endian_16(data + at + 4);
        } else if (marker == 0xe1 && at + 10 <= size && memcmp(data + at + 4, "Exif\0", 6) == 0) {
            if (exif || scans || end > size) return odd;
            exif = true;
            found.orientation = tiff_orientation(data + at + 10, end - (at + 10));
            if (!found.orientation) return odd;
        }
        at = end;
    }
    return odd;
}

// Counts the scans that libjpeg decodes: those before the end of the image. It walks the markers as libjpeg does, from
// segment to segment, and skips bytes between them.
int64_t count_scans(const unsigned char* data, int64_t size) {
    int64_t scans = 0;
    for (int64_t at = 2; (at = next_marker(data, size, at)) >= 0;) {
        const int marker = data[at + 1];
        if (marker == 0xd9) break;
        at += 2;
        if (marker == 0x01 || marker == 0xd8 || is_restart(marker)) continue;  // they have no length
        scans += marker == 0xda;
        const int length = at + 2 <= size ? big_endian_16(data + at) : 0;
        at += length < 2 ? 2 : length;
    }
    return scans;
}

}  // namespace

extern "C" {

// sizes [n]: bytes of each file. most_pixels: the limit of scans times height times width. out [n, 5]: the fields of
// its JpegHeader.
EXPORT void cuaug_jpeg_headers(const unsigned char* const* files, const int64_t* sizes, int64_t n, int64_t most_scans,
                               int64_t most_pixels, int32_t* out) {
    for (int64_t i = 0; i < n; ++i) {
        const JpegHeader header = jpeg_header(files[i], sizes[i], most_scans, most_pixels);
        memcpy(out + 5 * i, &header, sizeof header);
    }
}

EXPORT int64_t cuaug_count_scans(const unsigned char* data, int64_t size) { return count_scans(data, size); }

EXPORT int cuaug_tiff_orientation(const unsigned char* data, int64_t size) { return tiff_orientation(data, size); }
}
