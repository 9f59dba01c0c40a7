// Computes: what a GPU decodes of a batch's JPEGs: the entropy-coded bytes and the segments that their regions need,
// and
//   the tables of jpeg_batch.h. C interface of cuaug/codec/device_jpegs.py.
//   Many threads add images; then one thread plans and finishes the batch.
// Threads: `add` may run for different images at once; its memory is reserved by an atomic counter.
// Reference: jpeg_batch.h; libjpeg's rules for upsampling (jdsample.c) and colors (jdapimin.c).
// Tests: tests/kernels/test_decode_jpeg.py; under sanitizers: tests/kernels/test_device_jpegs_sanitized.py.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "jpeg/decode_region.h"

namespace {
#include "jpeg_batch.h"

constexpr int64_t round_to_16(int64_t size) { return (size + 15) / 16 * 16; }

// Place in a block of each coefficient in zigzag order (Figure A.6).
constexpr uint8_t ZIGZAG[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
                                41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
                                30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

constexpr int SEGMENTS_PER_BLOCK = 128;                            // JPEG_THREADS in cuda/decode_jpeg.cu
constexpr int64_t COLOR_TILE_WIDTH = 128, COLOR_TILE_HEIGHT = 16;  // core/color_jpeg.h
// Bytes that a GPU may load beyond an image's data.
constexpr int64_t DATA_PADDING = 16;

// --- one image -------------------------------------------------------------------------------------------------------

// Whether the longer codes fit the look-up table of a valid definition.
template <int LONGER_ENTRIES>
bool fits_lookup(const unsigned char* counts) {
    int bits_of_prefix[FIRST_ENTRIES] = {}, total = 0;
    for (int length = 1, code = 0; length <= 16; ++length, code <<= 1)
        for (int i = 0; i < counts[length - 1]; ++i, ++code)
            if (length > FIRST_BITS) bits_of_prefix[code >> (length - FIRST_BITS)] = length - FIRST_BITS;
    for (const int bits : bits_of_prefix) total += bits ? 1 << bits : 0;
    return total <= LONGER_ENTRIES;
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
    for (int64_t at = 2; at < frame.data_begin;) {
        if (data[at + 1] == FILL) {
            ++at;
            continue;
        }
        const int64_t end = at + 2 + big_endian_16(data + at + 2);
        if (data[at + 1] == APP0 && end - at >= 18 && !memcmp(data + at + 4, "JFIF", 5)) return YCC;
        if (data[at + 1] == APP14 && end - at >= 16 && !memcmp(data + at + 4, "Adobe", 5))
            adobe_transform = data[at + 15];
        at = end;
    }
    if (adobe_transform >= 0) return adobe_transform ? YCC : STORED_RGB;
    const auto* const its = frame.component;
    return its[0].id == 'R' && its[1].id == 'G' && its[2].id == 'B' ? STORED_RGB : YCC;
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

    void clear() { segments.clear(), ranges.clear(), bytes = lanes = 0; }

    // Begins a range at byte `begin`. Returns the offset to add to bits of the file.
    int64_t begin_range(int64_t begin, int64_t end) {
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

// Lists the segments between entry points that hold rows [top, bottom) and MCUs [left, right) of each.
bool list_by_entry_points(const Frame& frame, int64_t size, const EntryPoints& entries, const Rectangle& mcus,
                          JpegImage& image, SegmentList& list) {
    const int64_t begin = mcus.left / entries.distance, end = ceil_div(mcus.right, entries.distance);
    set_rectangle(frame, mcus.top, begin * entries.distance, mcus.bottom,
                  std::min(end * entries.distance, frame.mcu_columns), image);
    image.max_mcus = int(std::min(entries.distance, frame.mcu_columns));
    const bool is_joined = end - begin == entries.columns;  // whole rows: each ends where the next one begins
    image.across = int(is_joined ? (mcus.bottom - mcus.top) * entries.columns : end - begin);
    image.stride = image.across + 1;
    list.lanes = (mcus.bottom - mcus.top) * (end - begin);
    const auto add = [&](int64_t number, int64_t shift, int64_t x, int64_t y, int64_t count) {
        list.segments.push_back(make_segment(entries.at[size_t(number)] + shift, entries.prediction(number),
                                             frame.components, x, y, count));
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
    image.tiles_across = int(ceil_div(region.right - (region.left & ~int64_t(7)), COLOR_TILE_WIDTH));
    const int64_t pitch = 3 * (request.x1 - request.x0);
    const bool swaps = swaps_axes(request.orientation);
    image.row_step = swaps ? 3 : pitch, image.column_step = swaps ? pitch : 3;
    if (flips_rows(request.orientation))
        image.target += uint64((region.bottom - region.top - 1) * image.row_step), image.row_step *= -1;
    if (flips_columns(request.orientation))
        image.target += uint64((region.right - region.left - 1) * image.column_step), image.column_step *= -1;
}

// --- a batch ---------------------------------------------------------------------------------------------------------

struct DeviceJpeg {
    bool is_added = false;
    JpegImage image = {};
    HuffmanDefinitions definitions;
    int64_t lanes = 0;                               // segments to decode
    int64_t data_at = 0, segments_at = 0;            // offsets in the batch's memory
    int64_t samples_at = 0, target_at = 0, set = 0;  // by `plan`

    int64_t blocks() const { return ceil_div(lanes, SEGMENTS_PER_BLOCK); }
    int64_t tiles() const { return image.tiles_across * ceil_div(image.bottom - image.top, COLOR_TILE_HEIGHT); }
    int64_t target_bytes() const { return 3 * int64_t(image.bottom - image.top) * (image.right - image.left); }
    int64_t sample_bytes(int component) const {
        return int64_t(BLOCK_SAMPLES) * image.mcu_width * image.mcu_height * image.component[component].h *
               image.component[component].v;
    }
};

// Sizes in bytes, counts, and offsets in the batch's memory.
struct DevicePlan {
    int64_t images, blocks, tiles, sets;
    int64_t images_at, blocks_at, tiles_at, definitions_at, statuses_at;
    int64_t upload_bytes, sample_bytes, target_bytes, lookup_bytes;
};

// Device addresses: the copy of the batch's memory, and what `plan` sized.
struct DeviceAddresses {
    uint64_t upload, samples, targets, lookups;
};

class DeviceBatch {
  public:
    DeviceBatch(uint8_t* memory, int64_t capacity, int64_t images, bool fancy)
        : jpegs(size_t(images)), memory(memory), capacity(capacity), fancy(fancy) {}

    // Bytes of the batch's memory that suffice for a file and its part of the tables, whichever side is the height.
    static int64_t bound(int64_t size, int64_t height, int64_t width) {
        return std::max(stored_bound(size, height, width), stored_bound(size, width, height));
    }

    // Returns the offset of `bytes` bytes in the batch's memory; -1 if they do not fit.
    int64_t reserve(int64_t bytes) {
        const int64_t at = used.fetch_add(round_to_16(bytes), std::memory_order_relaxed);
        return at + bytes <= capacity ? at : -1;
    }

    // Adds image `number`. False if the kernels do not decode it.
    bool add(int64_t number, const EncodedRegion& request, JpegIndex* index) {
        static thread_local HuffmanTables tables;
        static thread_local EntryPoints entries;
        static thread_local SegmentList list;
        const auto* const data = reinterpret_cast<const unsigned char*>(request.data);
        DeviceJpeg& jpeg = jpegs[size_t(number)];
        Frame frame;
        const bool is_known =
            request.is_jpeg && request.size < int64_t(1) << 29 && find_frame(data, request.size, frame);
        if (!is_known || (frame.components != 1 && frame.components != 3) || !build_tables(frame, data, tables))
            return false;
        int64_t height = request.height, width = request.width;
        if (swaps_axes(request.orientation)) std::swap(height, width);
        if (frame.height != height || frame.width != width || !copy_definitions(frame, data, jpeg.definitions))
            return false;
        int blocks = 0;
        for (int i = 0; i < frame.components; ++i) {
            blocks += frame.component[i].blocks;
            if (!describe_component(frame, data, i, fancy, jpeg.image)) return false;
        }
        if (blocks > MAX_MCU_BLOCKS) return false;
        const Rectangle region = stored_rectangle(request.orientation, frame.height, frame.width,
                                                  {request.y0, request.x0, request.y1, request.x1});
        jpeg.image.components = frame.components, jpeg.image.mcu_columns = int(frame.mcu_columns);
        jpeg.image.color = find_color(frame, data);
        set_target(request, region, jpeg.image);
        list.clear();
        const Rectangle mcus = mcus_around(frame, region);
        if (frame.restart_interval) {
            if (!list_by_restarts(frame, data, request.size, mcus, jpeg.image, list)) return false;
        } else {
            // Without an index, or where it is full, damaged or not read yet, they are found each time.
            const bool has_entries = (index && index->find(frame, tables, data, request.size, entries)) ||
                                     entries.find_all(frame, tables, data, request.size, MIN_DISTANCE_PIXELS);
            if (!has_entries || !list_by_entry_points(frame, request.size, entries, mcus, jpeg.image, list))
                return false;
        }
        jpeg.lanes = list.lanes;
        return jpeg.is_added = store(data, list, bound(request.size, height, width), jpeg);
    }

    // As `add`; false without memory, too.
    bool try_add(int64_t number, const EncodedRegion& request, JpegIndex* index) {
        try {
            return add(number, request, index);
        } catch (const std::bad_alloc&) {
            return false;
        }
    }

    // Sizes the batch after all images were added.
    DevicePlan plan() {
        DevicePlan plan = {};
        for (DeviceJpeg& jpeg : jpegs) {
            if (!jpeg.is_added) continue;
            ++plan.images;
            plan.blocks += jpeg.blocks(), plan.tiles += jpeg.tiles();
            jpeg.samples_at = plan.sample_bytes;
            for (int i = 0; i < jpeg.image.components; ++i) plan.sample_bytes += jpeg.sample_bytes(i);
            jpeg.target_at = plan.target_bytes;
            plan.target_bytes += round_to_16(jpeg.target_bytes());
            jpeg.set = find_set(jpeg.definitions);
        }
        plan.sets = int64_t(sets.size()), plan.lookup_bytes = plan.sets * int64_t(sizeof(HuffmanLookups));
        plan.images_at = reserve(plan.images * int64_t(sizeof(JpegImage)));
        plan.blocks_at = reserve(plan.blocks * int64_t(sizeof(JpegWork)));
        plan.tiles_at = reserve(plan.tiles * int64_t(sizeof(JpegWork)));
        plan.definitions_at = reserve(plan.sets * int64_t(sizeof(HuffmanDefinitions)));
        plan.statuses_at = reserve(4 * int64_t(jpegs.size()));
        const int64_t offsets[] = {plan.images_at, plan.blocks_at, plan.tiles_at, plan.definitions_at,
                                   plan.statuses_at};
        if (*std::min_element(offsets, offsets + 5) < 0) throw std::bad_alloc();
        memset(memory + plan.statuses_at, 0, 4 * jpegs.size());
        plan.upload_bytes = used;
        return last_plan = plan;
    }

    // Writes the tables of the planned batch. targets [images]: receives each image's address; 0: it was not added.
    void finish(const DeviceAddresses& addresses, uint64_t* targets) const {
        auto* image = reinterpret_cast<JpegImage*>(memory + last_plan.images_at);
        auto* block = reinterpret_cast<JpegWork*>(memory + last_plan.blocks_at);
        auto* tile = reinterpret_cast<JpegWork*>(memory + last_plan.tiles_at);
        int number = 0;
        for (size_t i = 0; i < jpegs.size(); ++i) {
            const DeviceJpeg& jpeg = jpegs[i];
            targets[i] = jpeg.is_added ? addresses.targets + uint64_t(jpeg.target_at) : 0;
            if (!jpeg.is_added) continue;
            *image = jpeg.image;
            image->data = addresses.upload + uint64_t(jpeg.data_at);
            image->segments = addresses.upload + uint64_t(jpeg.segments_at);
            image->lookups = addresses.lookups + uint64_t(jpeg.set) * sizeof(HuffmanLookups);
            image->target += targets[i];
            image->status = addresses.upload + uint64_t(last_plan.statuses_at) + 4 * i;
            uint64_t samples = addresses.samples + uint64_t(jpeg.samples_at);
            for (int c = 0; c < image->components; ++c)
                image->component[c].samples = samples, samples += uint64_t(jpeg.sample_bytes(c));
            for (int64_t first = 0; first < jpeg.lanes; first += SEGMENTS_PER_BLOCK)
                *block++ = {number, int(first), int(std::min<int64_t>(SEGMENTS_PER_BLOCK, jpeg.lanes - first)), 0};
            for (int first = 0; first < jpeg.tiles(); ++first) *tile++ = {number, first, 1, 0};
            ++image, ++number;
        }
        auto* definitions = reinterpret_cast<HuffmanDefinitions*>(memory + last_plan.definitions_at);
        for (const HuffmanDefinitions* set : sets) *definitions++ = *set;
    }

  private:
    static int64_t stored_bound(int64_t size, int64_t height, int64_t width) {
        const int64_t rows = ceil_div(height, 8), segments = (rows + 1) * (ceil_div(width, MIN_DISTANCE_PIXELS) + 2);
        const int64_t tiles = ceil_div(height, COLOR_TILE_HEIGHT) * (width / COLOR_TILE_WIDTH + 2);
        const int64_t blocks = segments / SEGMENTS_PER_BLOCK + 1;
        return round_to_16(size + 3 * rows + DATA_PADDING) + int64_t(sizeof(JpegImage) + sizeof(HuffmanDefinitions)) +
               int64_t(sizeof(JpegSegment)) * segments + int64_t(sizeof(JpegWork)) * (tiles + blocks) + 128;
    }

    // Copies the segments and the data that they need.
    bool store(const unsigned char* data, const SegmentList& list, int64_t limit, DeviceJpeg& jpeg) {
        const int64_t segment_bytes = int64_t(list.segments.size() * sizeof(JpegSegment));
        const int64_t data_bytes = list.bytes + DATA_PADDING;
        const int64_t tables = int64_t(sizeof(JpegImage) + sizeof(HuffmanDefinitions) +
                                       sizeof(JpegWork) * size_t(jpeg.blocks() + jpeg.tiles()));
        if (segment_bytes + data_bytes + tables + 32 > limit) return false;  // many restart intervals
        jpeg.segments_at = reserve(segment_bytes), jpeg.data_at = reserve(data_bytes);
        if (jpeg.segments_at < 0 || jpeg.data_at < 0) return false;
        memcpy(memory + jpeg.segments_at, list.segments.data(), size_t(segment_bytes));
        uint8_t* out = memory + jpeg.data_at;
        for (size_t i = 0; i < list.ranges.size(); i += 2) {
            const int64_t size = list.ranges[i + 1] - list.ranges[i];
            memcpy(out, data + list.ranges[i], size_t(size));
            out += size;
        }
        memset(out, 0, DATA_PADDING);
        jpeg.image.data_size = int(list.bytes);
        return true;
    }

    // The number of a set of tables among those of the batch. Most files have the same ones.
    int64_t find_set(const HuffmanDefinitions& definitions) {
        const uint64_t keys[8] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb, 0xd6e8feb86659fd93,
                                  0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3, 0x589965cc75374cc3};
        auto& numbers = number_of_set[checksum(keys, &definitions, sizeof definitions).id];
        for (const int64_t number : numbers)
            if (!memcmp(sets[size_t(number)], &definitions, sizeof definitions)) return number;
        numbers.push_back(int64_t(sets.size())), sets.push_back(&definitions);
        return numbers.back();
    }

    std::vector<DeviceJpeg> jpegs;
    uint8_t* const memory;
    const int64_t capacity;
    const bool fancy;
    std::atomic<int64_t> used{0};
    std::vector<const HuffmanDefinitions*> sets;
    std::unordered_map<uint64_t, std::vector<int64_t>> number_of_set;
    DevicePlan last_plan = {};
};

}  // namespace

extern "C" {

// Bytes of the batch's memory that suffice for `count` images. requests [count]: `EncodedRegion`.
EXPORT int64_t cuaug_device_batch_bound(const void* requests, int64_t count) {
    const auto* const request = static_cast<const EncodedRegion*>(requests);
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; ++i)
        bytes += DeviceBatch::bound(request[i].size, request[i].height, request[i].width);
    return bytes;
}

// memory [capacity]: pinned, kept until the batch is deleted; a multiple of 16. fancy: whether chroma is interpolated.
// Null without memory.
EXPORT void* cuaug_device_batch_new(uint8_t* memory, int64_t capacity, int64_t images, int32_t fancy) {
    try {
        return new DeviceBatch(memory, capacity, images, fancy != 0);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

EXPORT void cuaug_device_batch_delete(void* batch) { delete static_cast<DeviceBatch*>(batch); }

// Adds `count` images in the calling thread. numbers [count]: their places in the batch. requests [count]:
// `EncodedRegion`. index: a `JpegIndex` or null. is_added [count]: 0 for those that another decoder has to decode.
EXPORT void cuaug_device_batch_add(void* batch, const int64_t* numbers, const void* requests, int64_t count,
                                   void* index, uint8_t* is_added) {
    const auto* const request = static_cast<const EncodedRegion*>(requests);
    for (int64_t i = 0; i < count; ++i)
        is_added[i] = static_cast<DeviceBatch*>(batch)->try_add(numbers[i], request[i], static_cast<JpegIndex*>(index));
}

// Offset of `bytes` bytes of the batch's memory, a multiple of 16, for the caller; -1 if they do not fit.
EXPORT int64_t cuaug_device_batch_reserve(void* batch, int64_t bytes) {
    return static_cast<DeviceBatch*>(batch)->reserve(bytes);
}

// plan: receives a `DevicePlan`. Returns 0; 1 without memory, or if the batch's is too small.
EXPORT int32_t cuaug_device_batch_plan(void* batch, void* plan) {
    try {
        *static_cast<DevicePlan*>(plan) = static_cast<DeviceBatch*>(batch)->plan();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

// addresses: `DeviceAddresses`. targets [images]: receives the address of each image's pixels, or 0.
EXPORT void cuaug_device_batch_finish(const void* batch, const void* addresses, uint64_t* targets) {
    static_cast<const DeviceBatch*>(batch)->finish(*static_cast<const DeviceAddresses*>(addresses), targets);
}
}
