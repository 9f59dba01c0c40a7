// A part of a JPEG as a JPEG of its own, with nothing decoded: the C interface of cuaug/codec/restarts.py.
//
// Between two restart markers (ITU-T T.81, E.1.4 and F.1.1.5) the entropy-coded data depends on nothing before it.
// Where such intervals are whole rows of MCUs, or equal parts of a row, those of any rectangle of them make a picture.
#pragma once
#include <cstdint>
#include <cstring>

#include "host_jpeg.h"

namespace {

struct Rectangle {
    int64_t top, left, bottom, right;  // the ends excluded
};

// What the markers before the only scan of a sequential Huffman-coded JPEG say. Sizes are in pixels.
struct Intervals {
    int64_t size_at;                  // where the frame header has the picture's height, then its width
    int64_t begin;                    // of the entropy-coded data
    int64_t height, width;            // of the picture
    int64_t mcu_height, mcu_width;    // of a minimum coded unit
    int64_t mcus;                     // in an interval; 0: there are no restart markers
    int64_t tile_height, tile_width;  // of an interval's pixels, where they are a rectangle
    int64_t down, across;             // intervals
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The frame header whose length field is at `at`; false unless it has 8 bits a sample, and factors as they should be.
bool read_frame(const unsigned char* data, int64_t at, int64_t length, Intervals& found) {
    if (length < 8 || data[at + 2] != 8) return false;
    const int components = data[at + 7];
    if (components < 1 || components > 4 || length != 8 + 3 * components) return false;
    found.size_at = at + 3;
    found.height = big_endian_16(data + at + 3), found.width = big_endian_16(data + at + 5);
    int high = 1, wide = 1;
    for (int i = 0; components > 1 && i < components; ++i) {  // a single component's MCU is one block
        const int factors = data[at + 9 + 3 * i];
        if ((factors & 15) > high) high = factors & 15;
        if (factors >> 4 > wide) wide = factors >> 4;
    }
    found.mcu_height = 8 * high, found.mcu_width = 8 * wide;
    return found.height > 0 && found.width > 0 && high <= 4 && wide <= 4;
}

// Walks the markers up to the scan; false where this is no JPEG of intervals that are rectangles.
bool find_intervals(const unsigned char* data, int64_t size, Intervals& found) {
    if (size < 3 || memcmp(data, "\xff\xd8\xff", 3) != 0) return false;
    found = {};
    for (int64_t at = 2; at + 4 <= size && data[at] == 0xff;) {
        const int marker = data[at + 1];
        if (marker == 0xff) {  // a fill byte
            ++at;
            continue;
        }
        const int64_t length = big_endian_16(data + at + 2), end = at + 2 + length;
        if (length < 2 || end > size) return false;
        if (marker == 0xdd && length == 4) found.mcus = big_endian_16(data + at + 4);
        if (starts_frame(marker) && (marker > 0xc1 || found.size_at || !read_frame(data, at + 2, length, found)))
            return false;
        at = end;
        if (marker != 0xda) continue;
        if (!found.mcus || !found.size_at || length < 3 || data[at - length + 2] != data[found.size_at + 4])
            return false;
        found.begin = end;
        const int64_t across = ceil_div(found.width, found.mcu_width), down = ceil_div(found.height, found.mcu_height);
        const int64_t in_row = found.mcus < across ? found.mcus : across, rows = found.mcus / in_row;
        if (across % in_row || found.mcus % in_row) return false;
        found.tile_width = in_row * found.mcu_width, found.tile_height = rows * found.mcu_height;
        found.across = across / in_row, found.down = ceil_div(down, rows);
        return true;
    }
    return false;
}

// The rectangle of intervals, in pixels, that holds a region and as much around it as smoothing chroma reads.
Rectangle around(const Intervals& in, const Rectangle& region) {
    const int64_t rows = in.mcu_height / 8, columns = in.mcu_width / 8;  // a sample of chroma
    const int64_t top = region.top < rows ? 0 : (region.top - rows) / in.tile_height * in.tile_height;
    const int64_t left = region.left < columns ? 0 : (region.left - columns) / in.tile_width * in.tile_width;
    const int64_t bottom = ceil_div(region.bottom + rows, in.tile_height) * in.tile_height;
    const int64_t right = ceil_div(region.right + columns, in.tile_width) * in.tile_width;
    return {top, left, bottom < in.height ? bottom : in.height, right < in.width ? right : in.width};
}

}  // namespace

extern "C" {

// Writes a JPEG of the smallest rectangle of whole intervals from which a decoder makes the same pixels of a region.
//
// region, cut [4]: top, left, bottom and right of what is wanted and of what was written, in pixels as stored; the
// region must lie in the picture. out: room for `size` bytes. Gives how many were written; 0 where there are no such
// intervals, not all of them are there, or the region needs them all.
EXPORT int64_t cuaug_cut_jpeg(const unsigned char* data, int64_t size, const int64_t* region, unsigned char* out,
                              int64_t* cut) {
    Intervals in;
    if (!find_intervals(data, size, in)) return 0;
    if (region[0] < 0 || region[1] < 0 || region[2] > in.height || region[3] > in.width) return 0;
    const Rectangle part = around(in, {region[0], region[1], region[2], region[3]});
    const int64_t height = part.bottom - part.top, width = part.right - part.left;
    if (height == in.height && width == in.width) return 0;
    memcpy(out, data, size_t(in.begin));
    const unsigned char sizes[4] = {uint8_t(height >> 8), uint8_t(height), uint8_t(width >> 8), uint8_t(width)};
    memcpy(out + in.size_at, sizes, 4);
    int64_t written = in.begin, begin = in.begin, number = 0, copied = 0;
    for (bool more = true; more;) {
        const int64_t at = next_marker(data, size, begin);
        if (at < 0) return 0;
        const int marker = data[at + 1];
        more = is_restart(marker);
        if (marker != (more ? 0xd0 + number % 8 : 0xd9)) return 0;  // one is lost, or this is not the end
        const int64_t y = number / in.across * in.tile_height, x = number % in.across * in.tile_width;
        if (y >= part.top && y < part.bottom && x >= part.left && x < part.right) {
            if (copied) out[written] = 0xff, out[written + 1] = uint8_t(0xd0 + (copied - 1) % 8), written += 2;
            memcpy(out + written, data + begin, size_t(at - begin));
            written += at - begin, ++copied;
        }
        begin = at + 2, ++number;
    }
    if (number != in.across * in.down) return 0;
    out[written] = 0xff, out[written + 1] = 0xd9;
    cut[0] = part.top, cut[1] = part.left, cut[2] = part.bottom, cut[3] = part.right;
    return written + 2;
}
}
