// Computes: a smaller JPEG of the MCUs around a region, without decoding. C interface of cuaug/codec/jpeg_index.py.
//           Restart markers: the data of a restart interval depends on nothing before it. If intervals are whole MCU
//           rows, or equal parts of a row, the intervals of any rectangle form a JPEG.
//           Index: an MCU depends on the previous one by DC prediction alone. The first DC differences of each MCU row
//           of the crop are coded anew; all other bits are copied from the indexed entry points.
// Threads:  the caller's alone.
// Reference: ITU-T T.81, E.1.4 (restart intervals), F.1.1.5.1 (DC prediction), B.2.2 (image size in the frame header).
// Tests:    tests/codec/test_restarts.py, test_index.py; under sanitizers: tests/kernels/test_sanitizers.py.
#pragma once
#include "jpeg/index.h"

namespace {

struct Rectangle {
    int64_t top, left, bottom, right;  // pixels; the ends are excluded
};

// The grid whose tiles a crop consists of.
struct TileGrid {
    int64_t height, width;  // tile size, pixels
    int64_t rows, columns;
};

// libjpeg does not smooth the chroma of an image this narrow; MIN_CROP_SIDE in jpeg/decode_region.h.
constexpr int64_t MIN_CROP_WIDTH = 8;

// The tiles that hold a region and the chroma samples around it which smoothing reads, in pixels.
Rectangle cover(const Frame& frame, const TileGrid& tiles, const Rectangle& region) {
    const int64_t margin_y = frame.mcu_height / 8, margin_x = frame.mcu_width / 8;  // one chroma sample
    const int64_t top = region.top < margin_y ? 0 : (region.top - margin_y) / tiles.height * tiles.height;
    int64_t left = region.left < margin_x ? 0 : (region.left - margin_x) / tiles.width * tiles.width;
    int64_t bottom = ceil_div(region.bottom + margin_y, tiles.height) * tiles.height;
    int64_t right = ceil_div(region.right + margin_x, tiles.width) * tiles.width;
    if (bottom > frame.height) bottom = frame.height;
    if (right > frame.width) right = frame.width;
    if (left && right - left < MIN_CROP_WIDTH) left -= tiles.width;  // the last tile is cut off by the image's edge
    return {top, left, bottom, right};
}

bool is_whole(const Frame& frame, const Rectangle& crop) {
    return crop.bottom - crop.top == frame.height && crop.right - crop.left == frame.width;
}

// Writes everything before the entropy-coded data, with the crop's size. Returns the bytes written.
int64_t write_headers(const Frame& frame, const unsigned char* data, const Rectangle& crop, unsigned char* out) {
    const int64_t height = crop.bottom - crop.top, width = crop.right - crop.left;
    memcpy(out, data, size_t(frame.data_begin));
    const unsigned char sizes[4] = {uint8_t(height >> 8), uint8_t(height), uint8_t(width >> 8), uint8_t(width)};
    memcpy(out + frame.size_at, sizes, 4);
    return frame.data_begin;
}

// --- by restart markers ----------------------------------------------------------------------------------------------

int64_t crop_by_restarts(const Frame& frame, const unsigned char* data, int64_t size, const Rectangle& region,
                         unsigned char* out, Rectangle& crop) {
    const int64_t interval = frame.restart_interval;
    const int64_t mcus_in_row = interval < frame.mcu_columns ? interval : frame.mcu_columns;
    const int64_t mcu_rows = interval / mcus_in_row;
    if (frame.mcu_columns % mcus_in_row || interval % mcus_in_row) return 0;  // an interval is no rectangle
    const TileGrid tiles = {mcu_rows * frame.mcu_height, mcus_in_row * frame.mcu_width,
                            ceil_div(frame.mcu_rows, mcu_rows), frame.mcu_columns / mcus_in_row};
    crop = cover(frame, tiles, region);
    if (is_whole(frame, crop)) return 0;
    int64_t written = write_headers(frame, data, crop, out), begin = frame.data_begin, number = 0, copied = 0;
    for (bool has_next = true; has_next;) {
        const int64_t at = find_marker(data, size, begin);
        if (at < 0) return 0;
        const int marker = data[at + 1];
        has_next = is_restart_marker(marker);
        if (marker != (has_next ? RST0 + number % 8 : EOI)) return 0;  // a marker is missing, or this is not the end
        const int64_t y = number / tiles.columns * tiles.height, x = number % tiles.columns * tiles.width;
        if (y >= crop.top && y < crop.bottom && x >= crop.left && x < crop.right) {
            if (copied) out[written] = 0xff, out[written + 1] = uint8_t(RST0 + (copied - 1) % 8), written += 2;
            memcpy(out + written, data + begin, size_t(at - begin));
            written += at - begin, ++copied;
        }
        begin = at + 2, ++number;
    }
    return number == tiles.columns * tiles.rows ? written : 0;
}

// --- by an index -----------------------------------------------------------------------------------------------------

// Copies an MCU and skips it. Its DC prediction changes from `old_dc` to `new_dc`. False if the Huffman table has no
// code for the new difference.
bool copy_first_mcu(const Frame& frame, const HuffmanTables& tables, BitReader& reader, const int16_t* old_dc,
                    const int16_t* new_dc, BitWriter& writer) {
    for (int i = 0; i < frame.components; ++i) {
        const Component& component = frame.component[i];
        const DcTable& table = tables.dc[component.tables[0]];
        for (int block = 0; block < component.blocks; ++block) {
            BitPosition begin = reader.position();
            int64_t dc = old_dc[i];
            if (!table.skip(reader, dc)) return false;
            if (block == 0) {
                if (!table.write(writer, dc - new_dc[i])) return false;
                begin = reader.position();
            }
            if (!tables.ac[component.tables[1]].skip(reader) || reader.ran_out()) return false;
            writer.copy(begin, reader.position());
        }
    }
    return true;
}

int64_t crop_by_index(const Frame& frame, const unsigned char* data, int64_t size, const Rectangle& region,
                      JpegIndex& index, unsigned char* out, int64_t capacity, Rectangle& crop) {
    static thread_local HuffmanTables tables;
    static thread_local EntryPoints entries;
    const auto tiles = [&](int64_t distance) {
        return TileGrid{frame.mcu_height, distance * frame.mcu_width, frame.mcu_rows,
                        ceil_div(frame.mcu_columns, distance)};
    };
    if (is_whole(frame, cover(frame, tiles(1), region)) || capacity < frame.data_begin + 2 ||
        !build_tables(frame, data, tables) || !index.find(frame, tables, data, size, entries))
        return 0;
    const int64_t tile_width = entries.distance * frame.mcu_width;
    crop = cover(frame, tiles(entries.distance), region);
    if (is_whole(frame, crop)) return 0;
    const int64_t top = crop.top / frame.mcu_height, bottom = ceil_div(crop.bottom, frame.mcu_height);
    const int64_t left = crop.left / tile_width, right = ceil_div(crop.right, tile_width);
    BitWriter writer(out + write_headers(frame, data, crop, out), out + capacity - 2);  // 2 bytes for EOI
    const int16_t zeros[MAX_COMPONENTS] = {}, *prediction = zeros;
    for (int64_t row = top; row < bottom; ++row) {
        const int64_t begin = row * entries.columns + left, end = row * entries.columns + right;
        if (!entries.are_inside(frame, size, begin, end)) return 0;
        BitReader reader(entries.position(data, begin), data + size);
        if (!copy_first_mcu(frame, tables, reader, entries.prediction(begin), prediction, writer)) return 0;
        writer.copy(reader.position(), entries.position(data, end));
        prediction = entries.prediction(end);
    }
    writer.finish();
    return writer.is_full ? 0 : writer.next - out;
}

// Writes a JPEG of a rectangle from which a decoder makes the same pixels of a region. Returns the bytes written; 0 on
// failure.
int64_t crop_jpeg(const unsigned char* data, int64_t size, const Rectangle& region, JpegIndex* index,
                  unsigned char* out, int64_t capacity, Rectangle& crop) {
    Frame frame;
    if (!find_frame(data, size, frame)) return 0;
    const bool lies_inside = 0 <= region.top && region.top < region.bottom && region.bottom <= frame.height &&
                             0 <= region.left && region.left < region.right && region.right <= frame.width;
    if (!lies_inside) return 0;
    int64_t written = 0;
    try {
        if (frame.restart_interval && capacity >= size)
            written = crop_by_restarts(frame, data, size, region, out, crop);
        else if (!frame.restart_interval && index)
            written = crop_by_index(frame, data, size, region, *index, out, capacity, crop);
    } catch (const std::bad_alloc&) {  // no index; the whole file is decoded
    }
    if (!written) return 0;
    out[written++] = 0xff, out[written++] = EOI;
    return written;
}

}  // namespace

extern "C" {

// Crops a JPEG. region [4]: top, left, bottom, right, in pixels as stored. index: a `JpegIndex` or null.
// out [capacity]: the crop; it may be larger than the file by some bytes. crop [4]: the corners of its image.
// Returns the bytes written, or 0: it does not fit in `out`; the region is outside the image; the crop would be the
// whole image. 0 also if there is neither an index nor a complete set of restart markers, intervals are no rectangles,
// or no encoder writes such a file.
EXPORT int64_t cuaug_crop_jpeg(const unsigned char* data, int64_t size, const int64_t* region, void* index,
                               unsigned char* out, int64_t capacity, int64_t* crop) {
    Rectangle rectangle = {};
    const int64_t written = crop_jpeg(data, size, {region[0], region[1], region[2], region[3]},
                                      static_cast<JpegIndex*>(index), out, capacity, rectangle);
    crop[0] = rectangle.top, crop[1] = rectangle.left, crop[2] = rectangle.bottom, crop[3] = rectangle.right;
    return written;
}
}
