// Computes: what a GPU decodes of a JPEG: the tables of jpeg_batch.h, and the segments that a region needs: between
//           entry points, between restart markers, or those that the GPU finds.
// Threads:  the caller's alone.
// Reference: jpeg_batch.h; libjpeg's rules for upsampling (jdsample.c) and colors (jdapimin.c).
// Tests:    tests/kernels/test_decode_jpeg.py; under sanitizers: tests/kernels/test_sanitizers.py.
#pragma once
#include <vector>

#include "jpeg/decode_region.h"
#include "jpeg/device_scan.h"

namespace {

constexpr int64_t round_to_16(int64_t size) { return (size + 15) / 16 * 16; }

// Place in a block of each coefficient in zigzag order (Figure A.6).
constexpr uint8_t ZIGZAG[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
                                41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
                                30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// Bytes that a GPU may load beyond an image's data.
constexpr int64_t DATA_PADDING = 16;

// Whether the longer codes fit the look-up table of a valid definition.
template <int LONGER_ENTRIES>
bool fits_lookup(const unsigned char* counts) {
    static thread_local unsigned char last[16] = {};  // it fits: most files have the same tables
    if (!memcmp(counts, last, sizeof last)) return true;
    int bits_of_prefix[FIRST_ENTRIES] = {}, total = 0;
    for (int length = 1, code = 0; length <= 16; ++length, code <<= 1)
        for (int i = 0; i < counts[length - 1]; ++i, ++code)
            if (length > FIRST_BITS) bits_of_prefix[code >> (length - FIRST_BITS)] = length - FIRST_BITS;
    for (const int bits : bits_of_prefix) total += bits ? 1 << bits : 0;
    if (total > LONGER_ENTRIES) return false;
    memcpy(last, counts, sizeof last);
    return true;
}

// Copies the tables that the frame uses; the others are zeros. False if one does not fit.
bool copy_definitions(const Frame& frame, const unsigned char* data, HuffmanDefinitions& out) {
    out = {};
    const auto copy = [&](int64_t at, HuffmanDefinition& to) {
        int64_t symbols = 0;
        for (int i = 0; i < 16; ++i) symbols += data[at + i];
        memcpy(to.counts, data + at, 16), memcpy(to.symbols, data + at + 16, size_t(symbols));
    };
    for (int i = 0; i < frame.components; ++i) {
        const int* const tables = frame.component[i].tables;
        const int64_t dc = frame.tables_at[0][tables[0]], ac = frame.tables_at[1][tables[1]];
        if (!fits_lookup<DC_LONGER>(data + dc) || !fits_lookup<AC_LONGER>(data + ac)) return false;
        copy(dc, out.dc[tables[0]]), copy(ac, out.ac[tables[1]]);
    }
    return true;
}

// Finds how three components become RGB, as libjpeg does.
JpegColor find_color(const Frame& frame, const unsigned char* data) {
    if (frame.components == 1) return GRAY_ONLY;
    int adobe_transform = -1;
    bool is_named = false;
    for (int64_t at = 2; at < frame.data_begin;) {
        if (data[at + 1] == FILL) {
            ++at;
            continue;
        }
        const int64_t end = at + 2 + big_endian_16(data + at + 2);
        if (data[at + 1] == APP0 && end - at >= 18 && !memcmp(data + at + 4, "JFIF", 5)) return YCC;
        if (data[at + 1] == APP14 && end - at >= 16 && !memcmp(data + at + 4, "Adobe", 5))
            adobe_transform = data[at + 15];
        if (is_frame_marker(data[at + 1])) is_named = is_named_rgb(data + at);
        at = end;
    }
    if (adobe_transform >= 0) return adobe_transform ? YCC : STORED_RGB;
    return is_named ? STORED_RGB : YCC;
}

// Fills in a component but for its rectangle. False if the kernels do not decode such a one.
bool describe_component(const Frame& frame, const unsigned char* data, int number, bool fancy, JpegImage& image) {
    const Component& its = frame.component[number];
    JpegComponent& component = image.component[number];
    const int max_h = int(frame.mcu_width / 8), max_v = int(frame.mcu_height / 8);
    const auto is_scale = [](int scale) { return scale == 1 || scale == 2 || scale == 4; };
    component.scale_x = max_h / its.h, component.scale_y = max_v / its.v;
    if (max_h % its.h || max_v % its.v || !is_scale(component.scale_x) || !is_scale(component.scale_y)) return false;
    component.h = its.h, component.v = its.v;
    component.dc_table = its.tables[0], component.ac_table = its.tables[1];
    const bool is_wide = ceil_div(frame.width, component.scale_x) > 2;
    if (component.scale_x == 2 && component.scale_y == 1)
        component.upsampling = fancy && is_wide ? ACROSS : REPEAT;
    else if (component.scale_x == 1 && component.scale_y == 2)
        component.upsampling = fancy ? DOWN : REPEAT;
    else if (component.scale_x == 2 && component.scale_y == 2)
        component.upsampling = fancy && is_wide ? BOTH : REPEAT;
    else
        component.upsampling = REPEAT;
    if (its.quantizer >= MAX_QUANTIZERS || !frame.quantizer[its.quantizer].at) return false;
    const Quantizer& quantizer = frame.quantizer[its.quantizer];
    for (int k = 0; k < 64; ++k) {
        const unsigned char* const step = data + quantizer.at + quantizer.bytes * k;
        image.quantizer[number][k] =
            uint32_t(ZIGZAG[k]) << 16 | uint32_t(quantizer.bytes == 2 ? big_endian_16(step) : *step);
    }
    return true;
}

// Sets the rectangle of MCUs to decode.
void set_rectangle(const Frame& frame, int64_t top, int64_t left, int64_t bottom, int64_t right, JpegImage& image) {
    image.mcu_x = int(left), image.mcu_y = int(top);
    image.mcu_width = int(right - left), image.mcu_height = int(bottom - top);
    for (int i = 0; i < frame.components; ++i) {
        JpegComponent& component = image.component[i];
        component.blocks_across = image.mcu_width * component.h;
        component.left = int(8 * left) * component.h, component.top = int(8 * top) * component.v;
        component.right = int(std::min(8 * right * component.h, ceil_div(frame.width, component.scale_x)));
        component.bottom = int(std::min(8 * bottom * component.v, ceil_div(frame.height, component.scale_y)));
    }
}

// The segments and data ranges of one image; reused by the next one of the thread.
struct SegmentList {
    std::vector<JpegSegment> segments;
    std::vector<int64_t> ranges;  // begin, end: bytes of the file
    int64_t bytes = 0;            // of all ranges
    int64_t lanes = 0;            // segments to decode: all but the ends of runs
    int64_t max_gap = 0;          // ranges that lie so close are joined

    void clear(int64_t new_max_gap) {
        segments.clear(), ranges.clear();
        bytes = lanes = 0, max_gap = new_max_gap;
    }

    // Begins a range at byte `begin`, or extends the last one. Returns the offset to add to bits of the file.
    int64_t begin_range(int64_t begin, int64_t end) {
        if (!ranges.empty() && begin >= ranges.end()[-2] && begin - ranges.back() <= max_gap) {
            bytes += std::max(end - ranges.back(), int64_t(0));
            ranges.back() = std::max(end, ranges.back());
            return 8 * (bytes - ranges.back());
        }
        ranges.push_back(begin), ranges.push_back(end);
        const int64_t shift = 8 * (bytes - begin);
        bytes += end - begin;
        return shift;
    }
};

JpegSegment make_segment(int64_t bit, const int16_t* dc, int64_t components, int64_t x, int64_t y, int64_t mcus) {
    JpegSegment segment = {uint32_t(bit), {}, uint16_t(x), uint16_t(y), uint16_t(mcus)};
    for (int64_t i = 0; dc && i < components; ++i) segment.dc[i] = dc[i];
    return segment;
}

// The segments of a row of MCUs that hold a rectangle.
struct Along {
    int64_t begin, end;
};

// Extends the rectangle of MCUs to whole segments of `distance` MCUs.
Along set_segments(const Frame& frame, const Rectangle& mcus, int64_t distance, JpegImage& image) {
    const Along along = {mcus.left / distance, ceil_div(mcus.right, distance)};
    set_rectangle(frame, mcus.top, along.begin * distance, mcus.bottom,
                  std::min(along.end * distance, frame.mcu_columns), image);
    image.max_mcus = int(std::min(distance, frame.mcu_columns));
    return along;
}

// Lists the segments between entry points that hold rows [top, bottom) and MCUs [left, right) of each.
bool list_by_entry_points(const Frame& frame, int64_t size, const EntryPoints& entries, const Rectangle& mcus,
                          JpegImage& image, SegmentList& list) {
    const auto [begin, end] = set_segments(frame, mcus, entries.distance, image);
    const bool is_joined = end - begin == entries.columns;  // whole rows: each ends where the next one begins
    image.across = int(is_joined ? (mcus.bottom - mcus.top) * entries.columns : end - begin);
    image.stride = image.across + 1;
    list.lanes = (mcus.bottom - mcus.top) * (end - begin);
    const int64_t ends = is_joined ? 1 : mcus.bottom - mcus.top;
    list.segments.resize(size_t(list.lanes + ends));
    JpegSegment* next = list.segments.data();
    const auto add = [&](int64_t number, int64_t shift, int64_t x, int64_t y, int64_t count) {
        *next++ =
            make_segment(entries.at[size_t(number)] + shift, entries.prediction(number), frame.components, x, y, count);
    };
    int64_t shift = 0;
    for (int64_t row = mcus.top; row < mcus.bottom; ++row) {
        const int64_t last_row = is_joined ? mcus.bottom - 1 : row;
        const int64_t first = row * entries.columns + begin, last = last_row * entries.columns + end;
        if (!is_joined || row == mcus.top) {
            if (!entries.are_inside(frame, size, first, last)) return false;
            // From the image's start on, each segment's end tells whether the next one begins right.
            if (first == 0 && !entries.begins_at_start(frame)) return false;
            const int64_t begin_byte = entries.at[size_t(first)] / 8;
            // Two more: a zero may be stuffed there.
            shift = list.begin_range(begin_byte, std::min(int64_t(entries.at[size_t(last)] / 8) + 2, size));
        }
        for (int64_t i = begin; i < end; ++i) {
            const int64_t x = i * entries.distance;
            add(row * entries.columns + i, shift, x, row, std::min(entries.distance, frame.mcu_columns - x));
        }
        if (row == last_row) add(last, shift, 0, 0, 0);
    }
    return true;
}

// Lists the restart intervals that hold MCUs of the rectangle. False if markers are missing or not in order.
bool list_by_restarts(const Frame& frame, const unsigned char* data, int64_t size, const Rectangle& mcus,
                      JpegImage& image, SegmentList& list) {
    set_rectangle(frame, mcus.top, mcus.left, mcus.bottom, mcus.right, image);
    image.ends_at_markers = 1;
    const int64_t total = frame.mcu_rows * frame.mcu_columns, interval = frame.restart_interval;
    image.max_mcus = int(std::min(interval, total));
    // Whether MCUs first ... last, in raster order, meet the rectangle.
    const auto is_needed = [&](int64_t first, int64_t last) {
        const int64_t top = first / frame.mcu_columns, bottom = last / frame.mcu_columns;
        if (bottom < mcus.top || top >= mcus.bottom) return false;
        if (top != bottom)
            return bottom - top > 1 || first % frame.mcu_columns < mcus.right || last % frame.mcu_columns >= mcus.left;
        return first % frame.mcu_columns < mcus.right && last % frame.mcu_columns >= mcus.left;
    };
    int64_t begin = frame.data_begin, shift = 0;
    bool is_open = false;  // whether the last segment has no end yet
    for (int64_t first = 0, number = 0; first < total; first += interval, ++number) {
        const int64_t end = find_marker(data, size, begin), count = std::min(interval, total - first);
        const bool is_last = first + count == total;
        if (end < 0 || data[end + 1] != (is_last ? EOI : RST0 + number % 8)) return false;
        const bool needed = is_needed(first, first + count - 1);
        if (needed && !is_open) shift = list.begin_range(begin, begin);
        if (needed) {
            list.segments.push_back(make_segment(8 * begin + shift, nullptr, 0, first % frame.mcu_columns,
                                                 first / frame.mcu_columns, count));
            list.bytes += end + 2 - list.ranges.back(), list.ranges.back() = end + 2;
        }
        if (is_open && !needed) list.segments.push_back(make_segment(8 * begin + shift, nullptr, 0, 0, 0, 0));
        is_open = needed, begin = end + 2;
    }
    if (is_open) list.segments.push_back(make_segment(8 * begin + shift, nullptr, 0, 0, 0, 0));
    list.lanes = int64_t(list.segments.size()) - 1;
    image.across = image.stride = int(list.lanes);
    return true;
}

// The MCUs that a region and the chroma samples around it lie in.
Rectangle mcus_around(const Frame& frame, const Rectangle& region) {
    const int64_t margin_y = frame.mcu_height / 8, margin_x = frame.mcu_width / 8;
    return {std::max(region.top - margin_y, int64_t(0)) / frame.mcu_height,
            std::max(region.left - margin_x, int64_t(0)) / frame.mcu_width,
            std::min(ceil_div(region.bottom + margin_y, frame.mcu_height), frame.mcu_rows),
            std::min(ceil_div(region.right + margin_x, frame.mcu_width), frame.mcu_columns)};
}

// Sets the region, and where its pixels go: `target` is relative to the first pixel of the packed displayed region.
void set_target(const EncodedRegion& request, const Rectangle& region, JpegImage& image) {
    image.top = int(region.top), image.left = int(region.left);
    image.bottom = int(region.bottom), image.right = int(region.right);
    const int64_t pitch = 3 * (request.x1 - request.x0);
    const bool swaps = swaps_axes(request.orientation);
    image.row_step = swaps ? 3 : pitch, image.column_step = swaps ? pitch : 3;
    if (flips_rows(request.orientation))
        image.target += uint64((region.bottom - region.top - 1) * image.row_step), image.row_step *= -1;
    if (flips_columns(request.orientation))
        image.target += uint64((region.right - region.left - 1) * image.column_step), image.column_step *= -1;
}

// Where a file comes from, and its header; the identity is 0 if the file may have changed since it was read.
struct FileOrigin {
    FileKey identity;
    JpegHeader header;
};

struct DeviceJpeg {
    bool is_added = false;
    bool is_resident = false;  // its data and segments lie in device memory
    bool has_memory = false;   // its share of the batch's memory is taken
    JpegImage image = {};
    HuffmanDefinitions definitions;
    int64_t lanes = 0;                               // segments to decode
    int64_t data_at = 0, segments_at = 0;            // offsets in the batch's memory
    int64_t samples_at = 0, target_at = 0, set = 0;  // by `prepare`
    int64_t first_segment = 0;                       // to decode, of all
    Frame frame;
    // If the GPU finds the segments:
    bool is_scanned = false;
    FileKey key = {};  // of the file's bytes
    FileOrigin file = {};
    JpegScan scan = {};
    int64_t cells_at = 0;  // after all segments in the memory for scans; by `prepare`, as `segments_at`

    int64_t blocks() const { return ceil_div(lanes, DECODE_THREADS); }
    // The first pixel of all tiles. A thread of color_jpeg reads whole blocks.
    int tiles_left() const {
        const int begin = image.mcu_x * int(frame.mcu_width);
        return begin + (image.left - begin) / COLOR_PIXELS * COLOR_PIXELS;
    }
    int64_t tiles() const {
        return ceil_div(image.right - tiles_left(), TILE_WIDTH) * ceil_div(image.bottom - image.top, TILE_HEIGHT);
    }
    int64_t target_bytes() const { return 3 * int64_t(image.bottom - image.top) * (image.right - image.left); }
    int64_t sample_bytes(int component) const {
        return int64_t(BLOCK_SAMPLES) * image.mcu_width * image.mcu_height * image.component[component].h *
               image.component[component].v;
    }
};

// Lists nothing but the data of a JPEG whose segments the GPU finds, and those that it decodes.
bool list_for_scan(const unsigned char* data, int64_t size, const Rectangle& mcus, int64_t distance, DeviceJpeg& jpeg,
                   SegmentList& list) {
    if (!describe_scan(jpeg.frame, data, size, distance, jpeg.scan)) return false;
    const auto [begin, end] = set_segments(jpeg.frame, mcus, distance, jpeg.image);
    jpeg.image.across = int(end - begin), jpeg.image.stride = jpeg.scan.across;
    jpeg.first_segment = mcus.top * jpeg.scan.across + begin;
    list.lanes = (mcus.bottom - mcus.top) * (end - begin);
    list.begin_range(jpeg.frame.data_begin, jpeg.frame.data_begin + jpeg.scan.data_size + 2);
    return jpeg.is_scanned = true;
}

}  // namespace
