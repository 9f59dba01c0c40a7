// What the markers of a JPEG say of its only scan (ITU-T T.81, annex B): where its tables lie, how its units are made
// up, and where its entropy-coded data begins. For jpeg/crop.h, which cuts parts out of such files.
#pragma once
#include "jpeg/headers.h"

namespace {

constexpr int MOST_COMPONENTS = 4, CODES_OF_A_KIND = 2;  // of the latter a baseline JPEG has no more
constexpr int64_t LONGEST_SIDE = 65500;                  // libjpeg takes no more: what it refuses has no parts either

// A colour component's share of a minimum coded unit.
struct Component {
    int id;
    int blocks;
    int codes[2];  // the numbers of its codes, for DC and AC coefficients
};

// A sequential Huffman-coded JPEG of one scan. Sizes are in pixels.
struct Frame {
    int64_t size_at;                       // where the frame header has the picture's height, then its width
    int64_t begin;                         // of the entropy-coded data
    int64_t height, width;                 // of the picture
    int64_t mcu_height, mcu_width;         // of a minimum coded unit
    int64_t down, across;                  // units
    int64_t interval;                      // units between restart markers; 0: there are none
    int64_t codes_at[2][CODES_OF_A_KIND];  // where DHT segments have those for DC and AC; 0: nowhere
    int components;
    Component component[MOST_COMPONENTS];
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The frame header whose length field is at `at`; false unless it has 8 bits a sample, and factors as they should be.
bool read_frame(const unsigned char* data, int64_t at, int64_t length, Frame& found) {
    if (length < 8 || data[at + 2] != 8) return false;
    const int components = data[at + 7];
    if (components < 1 || components > MOST_COMPONENTS || length != 8 + 3 * components) return false;
    found.size_at = at + 3;
    found.height = big_endian_16(data + at + 3), found.width = big_endian_16(data + at + 5);
    found.components = components;
    int high = 1, wide = 1;
    for (int i = 0; i < components; ++i) {
        const int factors = components > 1 ? data[at + 9 + 3 * i] : 0x11;  // a single component's unit is one block
        if ((factors & 15) > high) high = factors & 15;
        if (factors >> 4 > wide) wide = factors >> 4;
        if (!(factors & 15) || !(factors >> 4)) return false;
        found.component[i] = {data[at + 8 + 3 * i], (factors & 15) * (factors >> 4), {}};
    }
    found.mcu_height = 8 * high, found.mcu_width = 8 * wide;
    found.down = ceil_div(found.height, found.mcu_height), found.across = ceil_div(found.width, found.mcu_width);
    const auto fits = [](int64_t side) { return side > 0 && side <= LONGEST_SIDE; };
    return fits(found.height) && fits(found.width) && high <= 4 && wide <= 4;
}

// The DHT segment in data[at .. end): where each code's definition is, its counts and then its symbols. False where it
// has more of them than a baseline JPEG, or is damaged.
bool find_codes(const unsigned char* data, int64_t at, int64_t end, Frame& found) {
    while (at < end) {
        const int kind = data[at] >> 4, number = data[at] & 15;
        if (kind > 1 || number >= CODES_OF_A_KIND || at + 17 > end) return false;
        found.codes_at[kind][number] = at + 1;
        int64_t symbols = 0;
        for (int i = 1; i <= 16; ++i) symbols += data[at + i];
        at += 17 + symbols;
        if (symbols > 256 || at > end) return false;
    }
    return true;
}

// The scan header whose length field is at `at`: which codes the components use; false unless it has all of them, in
// the frame's order.
bool read_scan(const unsigned char* data, int64_t at, int64_t length, Frame& found) {
    if (!found.size_at || length != 6 + 2 * found.components || data[at + 2] != found.components) return false;
    for (int i = 0; i < found.components; ++i) {
        Component& component = found.component[i];
        if (data[at + 3 + 2 * i] != component.id) return false;
        for (int kind = 0; kind < 2; ++kind) component.codes[kind] = data[at + 4 + 2 * i] >> (kind == 0 ? 4 : 0) & 15;
    }
    return true;
}

// Walks the markers up to the scan; false where this is no such JPEG.
bool find_frame(const unsigned char* data, int64_t size, Frame& found) {
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
        if (marker == 0xdd && length == 4) found.interval = big_endian_16(data + at + 4);
        if (marker == 0xc4 && !find_codes(data, at + 4, end, found)) return false;
        if (starts_frame(marker) && (marker > 0xc1 || found.size_at || !read_frame(data, at + 2, length, found)))
            return false;
        if (marker == 0xda) {
            found.begin = end;
            return read_scan(data, at + 2, length, found);
        }
        at = end;
    }
    return false;
}

}  // namespace
