// A part of a JPEG as a JPEG of its own, with no coefficient decoded: the C interface of cuaug/codec/jpeg_crop.py.
//
// Between two restart markers (ITU-T T.81, E.1.4 and F.1.1.5) the entropy-coded data depends on nothing before it.
// Where such intervals are whole rows of MCUs, or equal parts of a row, those of any rectangle of them make a picture.
//
// Without markers a unit depends on the one before it by its DC coefficients alone, which are coded as differences:
// where a row of the part begins, they are coded anew. The rest is copied from where an index says that it lies.
#pragma once
#include "jpeg/index.h"

namespace {

struct Rectangle {
    int64_t top, left, bottom, right;  // the ends excluded
};

// What parts are made of: so many rectangles of so many pixels.
struct Tiles {
    int64_t height, width, down, across;
};

// Of pictures that are a few pixels wide libjpeg does not smooth chroma: cuaug/codec/image.py has the same.
constexpr int64_t NARROW = 8;

// The rectangle of tiles, in pixels, that holds a region and as much around it as smoothing chroma reads.
Rectangle around(const Frame& frame, const Tiles& tiles, const Rectangle& region) {
    const int64_t rows = frame.mcu_height / 8, columns = frame.mcu_width / 8;  // a sample of chroma
    const int64_t top = region.top < rows ? 0 : (region.top - rows) / tiles.height * tiles.height;
    int64_t left = region.left < columns ? 0 : (region.left - columns) / tiles.width * tiles.width;
    int64_t bottom = ceil_div(region.bottom + rows, tiles.height) * tiles.height;
    int64_t right = ceil_div(region.right + columns, tiles.width) * tiles.width;
    if (bottom > frame.height) bottom = frame.height;
    if (right > frame.width) right = frame.width;
    if (left && right - left < NARROW) left -= tiles.width;  // what is left of the last tile is too little
    return {top, left, bottom, right};
}

bool is_whole(const Frame& frame, const Rectangle& part) {
    return part.bottom - part.top == frame.height && part.right - part.left == frame.width;
}

// Everything before the entropy-coded data, with the part's size. Gives how many bytes that is.
int64_t write_markers(const Frame& frame, const unsigned char* data, const Rectangle& part, unsigned char* out) {
    const int64_t height = part.bottom - part.top, width = part.right - part.left;
    memcpy(out, data, size_t(frame.begin));
    const unsigned char sizes[4] = {uint8_t(height >> 8), uint8_t(height), uint8_t(width >> 8), uint8_t(width)};
    memcpy(out + frame.size_at, sizes, 4);
    return frame.begin;
}

// --- by restart markers ----------------------------------------------------------------------------------------------

int64_t cut_by_restarts(const Frame& frame, const unsigned char* data, int64_t size, const Rectangle& region,
                        unsigned char* out, Rectangle& part) {
    const int64_t in_row = frame.interval < frame.across ? frame.interval : frame.across;
    const int64_t rows = frame.interval / in_row;
    if (frame.across % in_row || frame.interval % in_row) return 0;  // an interval is no rectangle
    const Tiles tiles = {rows * frame.mcu_height, in_row * frame.mcu_width, ceil_div(frame.down, rows),
                         frame.across / in_row};
    part = around(frame, tiles, region);
    if (is_whole(frame, part)) return 0;
    int64_t written = write_markers(frame, data, part, out), begin = frame.begin, number = 0, copied = 0;
    for (bool more = true; more;) {
        const int64_t at = next_marker(data, size, begin);
        if (at < 0) return 0;
        const int marker = data[at + 1];
        more = is_restart(marker);
        if (marker != (more ? 0xd0 + number % 8 : 0xd9)) return 0;  // one is lost, or this is not the end
        const int64_t y = number / tiles.across * tiles.height, x = number % tiles.across * tiles.width;
        if (y >= part.top && y < part.bottom && x >= part.left && x < part.right) {
            if (copied) out[written] = 0xff, out[written + 1] = uint8_t(0xd0 + (copied - 1) % 8), written += 2;
            memcpy(out + written, data + begin, size_t(at - begin));
            written += at - begin, ++copied;
        }
        begin = at + 2, ++number;
    }
    return number == tiles.across * tiles.down ? written : 0;
}

// --- by an index -----------------------------------------------------------------------------------------------------

// Copies a unit of these DC coefficients before it as one of others before it, and goes past it. False where there is
// no code for the difference.
bool copy_after(const Frame& frame, const Codes& codes, Bits& bits, const int16_t* were, const int16_t* are,
                Writer& to) {
    for (int i = 0; i < frame.components; ++i) {
        const Component& component = frame.component[i];
        const DcCode& code = codes.dc[component.codes[0]];
        for (int block = 0; block < component.blocks; ++block) {
            Place begin = bits.place();
            int64_t dc = were[i];
            if (!code.pass(bits, dc)) return false;
            if (block == 0) {
                if (!code.put(to, dc - are[i])) return false;
                begin = bits.place();
            }
            if (!codes.ac[component.codes[1]].pass(bits) || bits.ran_out()) return false;
            to.copy(begin, bits.place());
        }
    }
    return true;
}

int64_t cut_by_index(const Frame& frame, const unsigned char* data, int64_t size, const Rectangle& region,
                     Indexes& indexes, unsigned char* out, int64_t room, Rectangle& part) {
    const int64_t units = indexes.units_apart(frame);
    part =
        around(frame, {frame.mcu_height, units * frame.mcu_width, frame.down, ceil_div(frame.across, units)}, region);
    static thread_local Codes codes;
    if (is_whole(frame, part) || room < frame.begin + 2 || !make_codes(frame, data, codes)) return 0;
    // Going through the file takes half as long as decoding it: that pays at once where half of it need not be decoded.
    const int64_t left_out = part.bottom * frame.width - (part.bottom - part.top) * (part.right - part.left);
    const Index* const index = indexes.of(frame, codes, data, size, units, 2 * left_out > frame.height * frame.width);
    if (!index) return 0;
    const int64_t top = part.top / frame.mcu_height, bottom = ceil_div(part.bottom, frame.mcu_height);
    const int64_t left = part.left / (units * frame.mcu_width), right = ceil_div(part.right, units * frame.mcu_width);
    Writer to(out + write_markers(frame, data, part, out), out + room - 2);  // for the end's marker
    const int16_t zeros[MOST_COMPONENTS] = {}, *before = zeros;
    for (int64_t row = top; row < bottom; ++row) {
        const int64_t begin = row * index->across + left, end = row * index->across + right;
        Bits bits(index->place(data, begin), data + size);
        if (!copy_after(frame, codes, bits, index->before(begin), before, to)) return 0;
        to.copy(bits.place(), index->place(data, end));
        before = index->before(end);
    }
    to.finish();
    return to.full ? 0 : to.next - out;
}

// Writes a JPEG of a rectangle of the picture from which a decoder makes the same pixels of a region, if there is room.
// Gives how many bytes that is, and 0 where cuaug_crop_jpeg says that there is none.
int64_t cut_jpeg(const unsigned char* data, int64_t size, const Rectangle& wanted, Indexes* indexes, unsigned char* out,
                 int64_t room, Rectangle& part) {
    Frame frame;
    if (!find_frame(data, size, frame)) return 0;
    const bool lies_in = 0 <= wanted.top && wanted.top < wanted.bottom && wanted.bottom <= frame.height &&
                         0 <= wanted.left && wanted.left < wanted.right && wanted.right <= frame.width;
    if (!lies_in) return 0;
    int64_t written = 0;
    try {
        if (frame.interval && room >= size)
            written = cut_by_restarts(frame, data, size, wanted, out, part);
        else if (!frame.interval && indexes)
            written = cut_by_index(frame, data, size, wanted, *indexes, out, room, part);
    } catch (const std::bad_alloc&) {  // this file is not indexed then
    }
    if (!written) return 0;
    out[written++] = 0xff, out[written++] = 0xd9;
    return written;
}

}  // namespace

extern "C" {

// A part of a JPEG, as a JPEG. Gives how many bytes that is.
//
// region [4]: top, left, bottom and right of what is wanted, in pixels as stored. indexes: may be null. out [room]: the
// part; it may be some bytes larger than the file. shows [4]: the corners of what it shows. It is 0 where it does not
// fit, the region does not lie in the picture, all of the file is needed, there are neither an index nor restart
// markers, these are not all there or their intervals no rectangles, or the file is not as encoders write it.
EXPORT int64_t cuaug_crop_jpeg(const unsigned char* data, int64_t size, const int64_t* region, void* indexes,
                              unsigned char* out, int64_t room, int64_t* shows) {
    const Rectangle wanted = {region[0], region[1], region[2], region[3]};
    Rectangle part = {};
    const int64_t written = cut_jpeg(data, size, wanted, static_cast<Indexes*>(indexes), out, room, part);
    shows[0] = part.top, shows[1] = part.left, shows[2] = part.bottom, shows[3] = part.right;
    return written;
}
}
