// Computes: size, components, EXIF orientation and restart interval of JPEGs, from their markers, and whether these are
//           well-formed up to the last. C interface of cuaug/codec/sniff.py. No byte outside of a file is read.
// Threads:  the caller's alone; one call reads many files without the GIL.
// Reference: ITU-T T.81, annex B (markers: Table B.1); EXIF 2.3, 4.6.4, tag 274; TIFF 6.0, section 2.
// Tests:    tests/codec/test_jpeg_headers.py; under sanitizers: tests/kernels/test_sanitizers.py.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace {

// The second byte of a marker, after 0xFF (Table B.1).
enum Marker : int {
    TEM = 0x01,
    SOF0 = 0xc0,  // frames: baseline; SOF1: extended sequential; SOF2: progressive; SOF9, SOF10: arithmetic coding
    SOF1 = 0xc1,
    SOF2 = 0xc2,
    DHT = 0xc4,
    JPG = 0xc8,
    SOF9 = 0xc9,
    SOF10 = 0xca,
    DAC = 0xcc,
    SOF15 = 0xcf,
    RST0 = 0xd0,
    RST7 = 0xd7,
    SOI = 0xd8,
    EOI = 0xd9,
    SOS = 0xda,
    DQT = 0xdb,
    DRI = 0xdd,
    APP0 = 0xe0,
    APP1 = 0xe1,
    APP14 = 0xee,
    APP15 = 0xef,
    COM = 0xfe,
    FILL = 0xff,  // no marker: fill bytes may precede one
};

// Why a JPEG is left to Pillow, which decodes it or names the damage.
enum ForPillow : int {
    DAMAGED_MARKERS = -1,
    WITHOUT_END = -2,
    MAY_BE_RGB = -3,
    UNUSUAL_EXIF = -4,
    TOO_MANY_SCANS = -5
};

struct JpegHeader {
    int32_t height, width, components;  // as stored; 0 for Pillow
    int32_t orientation;                // 1 to 8, or a `ForPillow`
    int32_t restart_interval;           // MCUs; 0 without restart markers
};

int big_endian_16(const unsigned char* at) { return at[0] << 8 | at[1]; }

bool is_frame_marker(int marker) {
    return marker >= SOF0 && marker <= SOF15 && marker != DHT && marker != JPG && marker != DAC;
}

bool is_restart_marker(int marker) { return marker >= RST0 && marker <= RST7; }

// The orientation in the first directory of a TIFF structure, which an EXIF block is: 1 if the tag is missing or its
// value undefined; 0 if the structure is damaged, or the tag is repeated or anything but one SHORT.
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
    int value = -1;
    for (int64_t entry = begin; entry < end; entry += 12) {
        if (u16(entry) != 0x0112) continue;
        if (u16(entry + 2) != 3 || u32(entry + 4) != 1 || value >= 0) return 0;
        value = u16(entry + 8);
    }
    return value >= 1 && value <= 8 ? value : 1;
}

// Finds the first marker in data[at .. size): an 0xFF that is neither stuffed (F.1.2.3) nor a fill byte; -1 if none.
// Entropy-coded segments have a stuffed 0xFF every 200 bytes or so, at which memchr would stop.
int64_t find_marker(const unsigned char* data, int64_t size, int64_t at) {
#if defined(__SSE2__)
    const __m128i ones = _mm_set1_epi8(-1), zeros = _mm_setzero_si128();
    for (; at + 17 <= size; at += 16) {
        const __m128i here = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + at));
        const __m128i next = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + at + 1));
        const __m128i stuffed_or_fill = _mm_or_si128(_mm_cmpeq_epi8(next, zeros), _mm_cmpeq_epi8(next, ones));
        const int mask = _mm_movemask_epi8(_mm_andnot_si128(stuffed_or_fill, _mm_cmpeq_epi8(here, ones)));
        if (mask) return at + __builtin_ctz(unsigned(mask));
    }
#endif
    for (; at + 2 <= size; ++at) {
        const void* const byte = memchr(data + at, 0xff, size_t(size - 1 - at));
        if (!byte) return -1;
        at = static_cast<const unsigned char*>(byte) - data;
        if (data[at + 1] != 0x00 && data[at + 1] != FILL) return at;
    }
    return -1;
}

// Finds the end of a scan's entropy-coded data: the first marker that is no restart marker; -1 if none.
int64_t find_scan_end(const unsigned char* data, int64_t size, int64_t at) {
    at = find_marker(data, size, at);
    while (at >= 0 && is_restart_marker(data[at + 1])) at = find_marker(data, size, at + 2);
    return at;
}

// Coefficients that the scans of a progressive JPEG code exactly (G.1.1). libjpeg smooths the blocks of the others with
// their neighbors, which differ at the edges of a region.
struct ProgressiveScans {
    int components = 0;  // 0 in a sequential frame
    unsigned char ids[4];
    uint64_t exact[4] = {};  // a bit per coefficient of a block

    // Frame components start at `at`.
    void begin(int count, const unsigned char* at) {
        components = count;
        for (int i = 0; i < count; ++i) ids[i] = at[3 * i];
    }

    // Adds the scan header whose length field is at `at` (B.2.3). False if libjpeg would refuse it.
    bool add(const unsigned char* at, int length) {
        const int count = length > 2 ? at[2] : 0;
        if (length != 6 + 2 * count) return false;
        const int first = at[3 + 2 * count], last = at[4 + 2 * count], missing_bits = at[5 + 2 * count] & 15;
        if (first > last || last > 63) return false;
        const uint64_t coefficients = ~uint64_t(0) >> (63 - last) >> first << first;
        for (int i = 0; i < count; ++i) {
            int component = 0;
            while (component < components && ids[component] != at[3 + 2 * i]) ++component;
            if (component == components) return false;
            if (missing_bits)
                exact[component] &= ~coefficients;
            else
                exact[component] |= coefficients;
        }
        return true;
    }

    bool is_complete() const {
        for (int i = 0; i < components; ++i)
            if (~exact[i]) return false;
        return true;
    }
};

// Tables, scans and miscellaneous segments: all that may follow the first scan (B.2.1, B.2.4).
bool may_follow_scan(int marker) {
    return marker == DHT || marker == DAC || (marker >= SOS && marker <= DRI) || (marker >= APP0 && marker <= APP15) ||
           marker == COM;
}

// Whether Adobe's segment, whose marker is at `at`, says anything but YCbCr (ITU-T T.872, 6.5.3).
bool adobe_denies_ycbcr(const unsigned char* at, int length) {
    return length >= 14 && memcmp(at + 4, "Adobe", 5) == 0 && at[15] != 1;
}

// Whether the components of a frame, whose marker is at `at`, are named R, G and B: libjpeg takes them for RGB.
bool is_named_rgb(const unsigned char* at) { return at[10] == 'R' && at[13] == 'G' && at[16] == 'B'; }

// Reads all markers, past the scans. nvImageCodec 0.9.0 may return an image gray, as a success, where a marker is
// misplaced; Pillow refuses the file. On a GPU it takes three components for YCbCr, as a success; Pillow knows RGB.
// ends_at_scan: reads the markers before the first scan alone, of the file or its beginning: WITHOUT_END if that is
// too short.
JpegHeader read_jpeg_header(const unsigned char* data, int64_t size, int64_t max_scans, int64_t max_work,
                            bool ends_at_scan = false) {
    const auto left_to_pillow = [](ForPillow reason) { return JpegHeader{0, 0, 0, reason, 0}; };
    const JpegHeader damaged = left_to_pillow(DAMAGED_MARKERS);
    JpegHeader header = {0, 0, 0, 1, 0};
    if (size < 3 || memcmp(data, "\xff\xd8\xff", 3) != 0) return damaged;
    int64_t scans = 0;
    int missing = -1;  // components of a sequential frame without a scan so far; -1 in other frames
    bool has_exif = false, may_be_rgb = false;
    ProgressiveScans progress;
    for (int64_t at = 2; at + 2 <= size;) {
        if (data[at] != 0xff) return damaged;
        const int marker = data[at + 1];
        if (marker == FILL) {
            ++at;
            continue;
        }
        if (marker == EOI) {
            if (!scans || missing > 0 || !progress.is_complete()) return damaged;
            return may_be_rgb && header.components == 3 ? left_to_pillow(MAY_BE_RGB) : header;
        }
        const bool is_misplaced = marker < SOF0 || is_restart_marker(marker) || marker == SOI;
        if (is_misplaced || (scans && !may_follow_scan(marker))) return damaged;
        if (at + 4 > size) break;
        const int length = big_endian_16(data + at + 2);
        int64_t end = at + 2 + length;
        if (marker == SOS) {
            if (ends_at_scan) return header;
            if (at + 4 >= size || end > size) break;
            if (missing >= 0) {
                if (missing < data[at + 4]) return damaged;
                missing -= data[at + 4];
            }
            if (progress.components && !progress.add(data + at + 2, length)) return damaged;
            if (++scans > max_scans || scans * header.height * header.width > max_work)
                return left_to_pillow(TOO_MANY_SCANS);
            end = find_scan_end(data, size, end);
            if (end < 0) break;
        } else if (is_frame_marker(marker)) {
            if (at + 10 > size) break;
            if (header.components || length < 8 + 3 * data[at + 9]) return damaged;
            header.height = big_endian_16(data + at + 5), header.width = big_endian_16(data + at + 7);
            header.components = data[at + 9];
            may_be_rgb |= header.components == 3 && end <= size && is_named_rgb(data + at);
            if (marker == SOF0 || marker == SOF1 || marker == SOF9) missing = header.components;
            if (marker == SOF2 || marker == SOF10) {
                if (header.components > 4) return damaged;
                if (end > size) break;
                progress.begin(header.components, data + at + 10);
            }
        } else if (marker == DRI && !scans && length == 4 && end <= size) {
            header.restart_interval = big_endian_16(data + at + 4);
        } else if (marker == APP1 && at + 10 <= size && memcmp(data + at + 4, "Exif\0", 6) == 0) {
            if (end > size) break;
            if (has_exif || scans) return left_to_pillow(UNUSUAL_EXIF);
            has_exif = true;
            header.orientation = tiff_orientation(data + at + 10, end - (at + 10));
            if (!header.orientation) return left_to_pillow(UNUSUAL_EXIF);
        } else if (marker == APP14 && end <= size) {
            may_be_rgb |= adobe_denies_ycbcr(data + at, length);
        }
        at = end;
    }
    return left_to_pillow(WITHOUT_END);
}

// Counts the scans that libjpeg decodes, up to the end of the image. Like libjpeg it goes from segment to segment and
// skips bytes between them.
int64_t count_scans(const unsigned char* data, int64_t size) {
    int64_t scans = 0;
    for (int64_t at = 2; (at = find_marker(data, size, at)) >= 0;) {
        const int marker = data[at + 1];
        if (marker == EOI) break;
        at += 2;
        if (marker == TEM || marker == SOI || is_restart_marker(marker)) continue;  // these have no length
        scans += marker == SOS;
        const int length = at + 2 <= size ? big_endian_16(data + at) : 0;
        at += length < 2 ? 2 : length;
    }
    return scans;
}

}  // namespace

extern "C" {

// sizes [n]: bytes of each file. max_work: limit of scans * height * width. out [n, 5]: fields of `JpegHeader`.
EXPORT void cuaug_jpeg_headers(const unsigned char* const* files, const int64_t* sizes, int64_t n, int64_t max_scans,
                               int64_t max_work, int32_t* out) {
    for (int64_t i = 0; i < n; ++i) {
        const JpegHeader header = read_jpeg_header(files[i], sizes[i], max_scans, max_work);
        memcpy(out + 5 * i, &header, sizeof header);
    }
}

EXPORT int64_t cuaug_count_scans(const unsigned char* data, int64_t size) { return count_scans(data, size); }

EXPORT int cuaug_tiff_orientation(const unsigned char* data, int64_t size) { return tiff_orientation(data, size); }
}
