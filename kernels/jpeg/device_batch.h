// Computes: what a GPU decodes of a batch's JPEGs, in one block of memory. C interface of cuaug/codec/device_jpegs.py.
//           Many threads add images; then one prepares the batch, and one finishes it.
// Threads:  `add` may run for different images at once; its memory is reserved by an atomic counter.
// Reference: jpeg/device_jpeg.h.
// Tests:    tests/kernels/test_decode_jpeg.py; under sanitizers: tests/kernels/test_sanitizers.py.
#pragma once
#include <atomic>
#include <memory>

#include "jpeg/resident_jpeg.h"

namespace {

// Sizes in bytes, counts, and offsets in the batch's memory.
struct JpegLaunch {
    int64_t images, blocks, tiles, sets, scans;
    int64_t images_at, blocks_at, tiles_at, definitions_at, scans_at, statuses_at;
    int64_t upload_bytes, sample_bytes, target_bytes, lookup_bytes, scan_bytes;
    int64_t segment_bytes;  // at the begin of the memory for scans: `keep` takes a copy
    int64_t parts;          // images of which not all is decoded, without those in device memory
};

// Device addresses: the copy of the batch's memory, and what `prepare` sized.
struct DeviceAddresses {
    uint64_t upload, samples, targets, lookups, scans;
};

// Bytes of a file that are read in vain rather than skipped: a further read takes as long as 5 kB.
constexpr int64_t MAX_GAP = 4096;

class DeviceBatch {
  public:
    // Options of `cuaug_device_batch_new`.
    struct Options {
        bool fancy, scans, decodes_all;
    };

    DeviceBatch(uint8_t* memory, int64_t capacity, int64_t images, Options options)
        : jpegs(static_cast<DeviceJpeg*>(::operator new(sizeof(DeviceJpeg) * size_t(images)))),
          is_begun(size_t(images)),
          memory(memory),
          capacity(capacity),
          options(options) {}

    // Bytes of the batch's memory that suffice for a file and its part of the tables, whichever side is the height.
    static int64_t bound(int64_t size, int64_t height, int64_t width) {
        return std::max(stored_bound(size, height, width), stored_bound(size, width, height));
    }

    // Returns the offset of `bytes` bytes in the batch's memory, for an image that another decoder decodes. -1 if they do
    // not fit, or the image's share is taken: it has changed after its data were to be copied.
    int64_t reserve_whole(int64_t number, int64_t bytes) {
        return is_begun[size_t(number)] && jpegs[number].has_memory ? -1 : reserve(bytes);
    }

    // Adds image `number`. False if the kernels do not decode it.
    // file: what the index shall know of it, if it has an identity; null: nothing.
    bool add(int64_t number, const EncodedRegion& request, JpegIndex* index, const FileOrigin* file) {
        static thread_local HuffmanTables tables;
        static thread_local SegmentList list;
        const auto* const data = reinterpret_cast<const unsigned char*>(request.data);
        DeviceJpeg& jpeg = begin(number);
        if (file) jpeg.file = *file;
        Rectangle mcus;
        if (!describe(request, data, request.size, tables, jpeg, mcus)) return false;
        list.clear(0);
        if (jpeg.frame.restart_interval) {
            if (!list_by_restarts(jpeg.frame, data, request.size, mcus, jpeg.image, list)) return false;
        } else if (!list_segments(tables, data, request.size, mcus, index, jpeg, list)) {
            return false;
        }
        return store(list, request, jpeg, [&](uint8_t* out) {
            for (size_t i = 0; i < list.ranges.size(); i += 2) {
                const int64_t size = list.ranges[i + 1] - list.ranges[i];
                memcpy(out, data + list.ranges[i], size_t(size));
                out += size;
            }
            return true;
        });
    }

    // As `add`, of a file that the index knows: reads its header, and the data that the region needs. is_same() tells
    // whether it still is that file; it may be overwritten at any moment, so the check comes last.
    template <class IsSame>
    bool add_known(int64_t number, const EncodedRegion& request, JpegIndex& index, const KnownFile& known,
                   const FilePart& file, IsSame is_same) {
        static thread_local HuffmanTables tables;
        static thread_local SegmentList list;
        static thread_local EntryPoints entries;
        static thread_local std::vector<unsigned char> header;
        DeviceJpeg& jpeg = begin(number);
        Rectangle mcus;
        header.resize(size_t(known.header_bytes));
        if (!file.read(header.data(), known.header_bytes) ||
            !describe(request, header.data(), known.header_bytes, tables, jpeg, mcus) ||
            index.load(known.key, jpeg.frame, entries) != JpegIndex::FOUND || entries.at.empty())
            return false;
        list.clear(MAX_GAP);
        return list_by_entry_points(jpeg.frame, request.size, entries, mcus, jpeg.image, list) &&
               store(list, request, jpeg,
                     [&](uint8_t* out) { return file.read_ranges(list.ranges, out) && is_same(); });
    }

    // Adds image `number` that is in device memory.
    void add_resident(int64_t number, const ResidentJpeg& resident, const EncodedRegion& request) {
        DeviceJpeg& jpeg = begin(number);
        const Frame& frame = resident.frame;
        jpeg.image = resident.image, jpeg.definitions = resident.definitions, jpeg.frame = frame;
        jpeg.image.target = 0;
        const Rectangle region = stored_rectangle(request.orientation, frame.height, frame.width,
                                                  {request.y0, request.x0, request.y1, request.x1});
        set_target(request, region, jpeg.image);
        choose_segments(resident, mcus_around(frame, region), jpeg);
        jpeg.is_added = jpeg.is_resident = true;
    }

    // Describes an image of a batch that `decodes_all` and is finished, so that its data and segments can stay in
    // device memory. places [5]: offset and bytes of the data in the upload; offset and bytes of the segments; whether
    // these are in the memory for scans.
    void make_resident(int64_t number, ResidentJpeg& resident, int64_t* places) const {
        const DeviceJpeg& jpeg = jpegs[number];
        resident = {jpeg.image, jpeg.definitions, jpeg.frame};
        places[0] = jpeg.data_at, places[1] = jpeg.image.data_size + DATA_PADDING;
        places[2] = jpeg.segments_at, places[3] = segment_count(resident) * int64_t(sizeof(JpegSegment));
        places[4] = jpeg.is_scanned;
    }

    // What add() returns; false without memory, too.
    template <class Add>
    static bool try_add(Add add) {
        try {
            return add();
        } catch (const std::bad_alloc&) {
            return false;
        }
    }

    // Sizes the batch after all images were added, and writes its tables but for addresses.
    JpegLaunch prepare() {
        JpegLaunch launch = {};
        for (size_t i = 0; i < is_begun.size(); ++i) {
            if (!is_added(i)) continue;
            DeviceJpeg& jpeg = jpegs[i];
            ++launch.images;
            launch.blocks += jpeg.blocks(), launch.tiles += jpeg.tiles();
            jpeg.samples_at = launch.sample_bytes;
            for (int i = 0; i < jpeg.image.components; ++i) launch.sample_bytes += jpeg.sample_bytes(i);
            jpeg.target_at = launch.target_bytes;
            launch.target_bytes += round_to_16(jpeg.target_bytes());
            jpeg.set = find_set(jpeg.definitions);
            launch.parts += !jpeg.is_resident && jpeg.target_bytes() != 3 * jpeg.frame.height * jpeg.frame.width;
            if (!jpeg.is_scanned) continue;
            ++launch.scans;
            jpeg.segments_at = launch.segment_bytes, launch.segment_bytes += segment_bytes(jpeg.scan);
            jpeg.cells_at = launch.scan_bytes, launch.scan_bytes += cell_bytes(jpeg.scan);
        }
        launch.scan_bytes += launch.segment_bytes;
        launch.sets = int64_t(sets.size()), launch.lookup_bytes = launch.sets * int64_t(sizeof(HuffmanLookups));
        launch.images_at = reserve(launch.images * int64_t(sizeof(JpegImage)));
        launch.blocks_at = reserve(launch.blocks * int64_t(sizeof(JpegWork)));
        launch.tiles_at = reserve(launch.tiles * int64_t(sizeof(JpegTile)));
        launch.definitions_at = reserve(launch.sets * int64_t(sizeof(HuffmanDefinitions)));
        launch.scans_at = reserve(launch.scans * int64_t(sizeof(JpegScan)));
        launch.statuses_at = reserve(4 * int64_t(is_begun.size()));
        const int64_t offsets[] = {launch.images_at,      launch.blocks_at, launch.tiles_at,
                                   launch.definitions_at, launch.scans_at,  launch.statuses_at};
        if (*std::min_element(offsets, offsets + 6) < 0) throw std::bad_alloc();
        memset(memory + launch.statuses_at, 0, 4 * is_begun.size());
        launch.upload_bytes = used;
        prepared = launch;
        write_tables();
        return launch;
    }

    // Writes the addresses into the prepared tables. targets [images]: receives each image's; 0: it was not added.
    void finish(const DeviceAddresses& addresses, uint64_t* targets) const {
        auto* image = reinterpret_cast<JpegImage*>(memory + prepared.images_at);
        auto* scan = reinterpret_cast<JpegScan*>(memory + prepared.scans_at);
        for (size_t i = 0; i < is_begun.size(); ++i) {
            targets[i] = 0;
            if (!is_added(i)) continue;
            const DeviceJpeg& jpeg = jpegs[i];
            targets[i] = addresses.targets + uint64_t(jpeg.target_at);
            image->data = jpeg.image.data, image->segments = jpeg.image.segments;
            if (!jpeg.is_resident) {
                image->data = addresses.upload + uint64_t(jpeg.data_at);
                image->segments = addresses.upload + uint64_t(jpeg.segments_at);
            }
            image->lookups = addresses.lookups + uint64_t(jpeg.set) * sizeof(HuffmanLookups);
            image->target = targets[i] + jpeg.image.target;
            image->status = addresses.upload + uint64_t(prepared.statuses_at) + 4 * i;
            uint64_t samples = addresses.samples + uint64_t(jpeg.samples_at);
            for (int c = 0; c < image->components; ++c)
                image->component[c].samples = samples, samples += uint64_t(jpeg.sample_bytes(c));
            if (jpeg.is_scanned) {
                scan->data = image->data, scan->lookups = image->lookups, scan->status = image->status;
                scan->segments = addresses.scans + uint64_t(jpeg.segments_at);
                scan->cells_at = addresses.scans + uint64_t(prepared.segment_bytes + jpeg.cells_at);
                image->segments = scan->segments;
                ++scan;
            }
            image->segments += uint64_t(jpeg.first_segment) * sizeof(JpegSegment);
            ++image;
        }
    }

    // Adds the entry points that the GPU has found to the index. Of an image that the kernels do not decode, the CPU
    // makes them, or learns that there are none, so that it is not scanned again.
    void keep(const uint8_t* segments, const int32_t* statuses, JpegIndex& index) const {
        static thread_local EntryPoints points;
        for (size_t i = 0; i < is_begun.size(); ++i) {
            if (!is_added(i) || !jpegs[i].is_scanned) continue;
            const DeviceJpeg& jpeg = jpegs[i];
            const bool is_new = index.add(jpeg.key, jpeg.frame, jpeg.scan.distance, points, [&](EntryPoints& its) {
                if (statuses[i] != JPEG_FINE)
                    return build_points(jpeg.frame, jpeg.definitions, memory + jpeg.data_at, jpeg.image.data_size, its);
                list_points(jpeg.frame, reinterpret_cast<const JpegSegment*>(segments + jpeg.segments_at), its);
                return true;
            });
            if (is_new) remember(jpeg, index);
        }
    }

  private:
    struct Free {
        void operator()(DeviceJpeg* memory) const { ::operator delete(memory); }
    };
    static_assert(std::is_trivially_destructible<DeviceJpeg>::value, "Free ends no lives");

    DeviceJpeg& begin(int64_t number) {
        is_begun[size_t(number)] = 1;
        return *new (jpegs.get() + number) DeviceJpeg();
    }

    bool is_added(size_t number) const { return is_begun[number] && jpegs[number].is_added; }

    void write_tables() const {
        auto* image = reinterpret_cast<JpegImage*>(memory + prepared.images_at);
        auto* block = reinterpret_cast<JpegWork*>(memory + prepared.blocks_at);
        auto* tile = reinterpret_cast<JpegTile*>(memory + prepared.tiles_at);
        auto* scan = reinterpret_cast<JpegScan*>(memory + prepared.scans_at);
        int number = 0;
        for (size_t i = 0; i < is_begun.size(); ++i) {
            if (!is_added(i)) continue;
            const DeviceJpeg& jpeg = jpegs[i];
            *image = jpeg.image;
            if (jpeg.is_scanned) *scan++ = jpeg.scan;
            for (int64_t first = 0; first < jpeg.lanes; first += DECODE_THREADS)
                *block++ = {number, int(first), int(std::min<int64_t>(DECODE_THREADS, jpeg.lanes - first)), 0};
            for (int y = image->top; y < image->bottom; y += TILE_HEIGHT)
                for (int x = jpeg.tiles_left(); x < image->right; x += TILE_WIDTH) *tile++ = {number, y, x, 0};
            ++image, ++number;
        }
        auto* definitions = reinterpret_cast<HuffmanDefinitions*>(memory + prepared.definitions_at);
        for (const HuffmanDefinitions* set : sets) *definitions++ = *set;
    }

    // Returns the offset of `bytes` bytes in the batch's memory; -1 if they do not fit.
    int64_t reserve(int64_t bytes) {
        const int64_t at = used.fetch_add(round_to_16(bytes), std::memory_order_relaxed);
        return at + bytes <= capacity ? at : -1;
    }

    // Describes the image but for its data and segments, by the file or its header. mcus: receives what to decode.
    bool describe(const EncodedRegion& request, const unsigned char* data, int64_t size, HuffmanTables& tables,
                  DeviceJpeg& jpeg, Rectangle& mcus) const {
        Frame& frame = jpeg.frame;
        const bool is_known = request.is_jpeg && request.size < int64_t(1) << 29 && find_frame(data, size, frame);
        if (!is_known || (frame.components != 1 && frame.components != 3) || !build_tables(frame, data, tables))
            return false;
        int64_t height = request.height, width = request.width;
        if (swaps_axes(request.orientation)) std::swap(height, width);
        if (frame.height != height || frame.width != width || !copy_definitions(frame, data, jpeg.definitions))
            return false;
        int blocks = 0;
        for (int i = 0; i < frame.components; ++i) {
            blocks += frame.component[i].blocks;
            if (!describe_component(frame, data, i, options.fancy, jpeg.image)) return false;
        }
        if (blocks > MAX_MCU_BLOCKS) return false;
        const Rectangle region = stored_rectangle(request.orientation, frame.height, frame.width,
                                                  {request.y0, request.x0, request.y1, request.x1});
        jpeg.image.components = frame.components, jpeg.image.mcu_columns = int(frame.mcu_columns);
        jpeg.image.color = find_color(frame, data);
        set_target(request, region, jpeg.image);
        mcus = options.decodes_all ? Rectangle{0, 0, frame.mcu_rows, frame.mcu_columns} : mcus_around(frame, region);
        return true;
    }

    // Lists the segments of a JPEG without restart markers. A thread of the CPU finds those of 108 kB in 0.7 ms; a GPU
    // in an estimated 0.2 ms for one file and 0.7 ms for 256. By that a scan pays for any batch and number of threads.
    bool list_segments(const HuffmanTables& tables, const unsigned char* data, int64_t size, const Rectangle& mcus,
                       JpegIndex* index, DeviceJpeg& jpeg, SegmentList& list) const {
        static thread_local EntryPoints entries;
        const Frame& frame = jpeg.frame;
        bool has_entries = false;
        if (options.scans) {
            const auto outcome =
                index ? index->look_up(frame, data, size, jpeg.key, entries) : JpegIndex::Outcome::UNKNOWN;
            const int64_t distance = index ? index->choose_distance(frame) : mcus_in(frame, MIN_DISTANCE_PIXELS);
            if (outcome != JpegIndex::FOUND) return list_for_scan(data, size, mcus, distance, jpeg, list);
            has_entries = !entries.at.empty();
            if (has_entries) remember(jpeg, *index);
        } else {
            // Without an index, or where it is full, damaged or not read yet, they are found each time.
            has_entries = (index && index->find(frame, tables, data, size, entries)) ||
                          entries.find_all(frame, tables, data, size, MIN_DISTANCE_PIXELS);
        }
        return has_entries && list_by_entry_points(frame, size, entries, mcus, jpeg.image, list);
    }

    static int64_t stored_bound(int64_t size, int64_t height, int64_t width) {
        const int64_t rows = ceil_div(height, 8), segments = (rows + 1) * (ceil_div(width, MIN_DISTANCE_PIXELS) + 2);
        const int64_t tiles = ceil_div(height, TILE_HEIGHT) * (width / TILE_WIDTH + 2);
        const int64_t blocks = segments / DECODE_THREADS + 1;
        return round_to_16(size + 3 * rows + DATA_PADDING) + int64_t(sizeof(JpegImage) + sizeof(HuffmanDefinitions)) +
               int64_t(sizeof(JpegSegment)) * segments + int64_t(sizeof(JpegWork)) * (tiles + blocks) + 128;
    }

    static void remember(const DeviceJpeg& jpeg, JpegIndex& index) {
        index.remember(jpeg.file.identity, {jpeg.key, jpeg.file.header, jpeg.frame.data_begin});
    }

    // Copies the segments, and by copy(out) the data that they need.
    template <class Copy>
    bool store(const SegmentList& list, const EncodedRegion& request, DeviceJpeg& jpeg, Copy copy) {
        jpeg.lanes = list.lanes;
        const int64_t segment_bytes = int64_t(list.segments.size() * sizeof(JpegSegment));
        const int64_t data_bytes = list.bytes + DATA_PADDING;
        const int64_t tables =
            int64_t(sizeof(JpegImage) + sizeof(HuffmanDefinitions) +
                    sizeof(JpegWork) * size_t(jpeg.blocks() + jpeg.tiles()) + (jpeg.is_scanned ? sizeof(JpegScan) : 0));
        if (segment_bytes + data_bytes + tables + 32 > bound(request.size, request.height, request.width))
            return false;  // many restart intervals
        jpeg.has_memory = true;
        jpeg.segments_at = reserve(segment_bytes), jpeg.data_at = reserve(data_bytes);
        if (jpeg.segments_at < 0 || jpeg.data_at < 0) return false;
        std::copy(list.segments.begin(), list.segments.end(),
                  reinterpret_cast<JpegSegment*>(memory + jpeg.segments_at));
        if (!copy(memory + jpeg.data_at)) return false;
        memset(memory + jpeg.data_at + list.bytes, 0, DATA_PADDING);
        jpeg.image.data_size = int(list.bytes);
        return jpeg.is_added = true;
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

    const std::unique_ptr<DeviceJpeg[], Free> jpegs;  // [images]; each begins in the thread that adds it
    std::vector<uint8_t> is_begun;                    // [images]
    uint8_t* const memory;
    const int64_t capacity;
    const Options options;
    std::atomic<int64_t> used{0};
    std::vector<const HuffmanDefinitions*> sets;
    std::unordered_map<uint64_t, std::vector<int64_t>> number_of_set;
    JpegLaunch prepared = {};
};

}  // namespace

extern "C" {

// Bytes of the batch's memory that suffice for the JPEGs among `count` images. requests [count]: `EncodedRegion`.
EXPORT int64_t cuaug_device_batch_bound(const void* requests, int64_t count) {
    const auto* const request = static_cast<const EncodedRegion*>(requests);
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; ++i)
        if (request[i].is_jpeg) bytes += DeviceBatch::bound(request[i].size, request[i].height, request[i].width);
    return bytes;
}

// memory [capacity]: pinned, kept until the batch is deleted; a multiple of 16. fancy: whether chroma is interpolated.
// scans: whether the GPU finds the segments of JPEGs without an entry in the index. decodes_all: whether all of an
// image is decoded, not only what its region needs. Null without memory.
EXPORT void* cuaug_device_batch_new(uint8_t* memory, int64_t capacity, int64_t images, int32_t fancy, int32_t scans,
                                    int32_t decodes_all) {
    try {
        return new DeviceBatch(memory, capacity, images, {fancy != 0, scans != 0, decodes_all != 0});
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
    auto& its = *static_cast<DeviceBatch*>(batch);
    for (int64_t i = 0; i < count; ++i)
        is_added[i] = DeviceBatch::try_add(
            [&] { return its.add(numbers[i], request[i], static_cast<JpegIndex*>(index), nullptr); });
}

// threads [4]: receives the threads of a block of build_lookups, scan_jpeg, decode_jpeg and color_jpeg. Returns how
// many blocks build a set of Huffman tables.
EXPORT int64_t cuaug_jpeg_threads(int64_t* threads) {
    threads[0] = LOOKUP_THREADS, threads[1] = SCAN_THREADS, threads[2] = DECODE_THREADS, threads[3] = COLOR_THREADS;
    return TABLES_PER_SET;
}

// Bytes of a `ResidentJpeg`.
EXPORT int64_t cuaug_resident_jpeg_bytes() { return int64_t(sizeof(ResidentJpeg)); }

// Adds `count` images that are in device memory. residents [count]: addresses of `ResidentJpeg`s.
EXPORT void cuaug_device_batch_add_residents(void* batch, const int64_t* numbers, const uint64_t* residents,
                                             const void* requests, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
        static_cast<DeviceBatch*>(batch)->add_resident(numbers[i], *reinterpret_cast<const ResidentJpeg*>(residents[i]),
                                                       static_cast<const EncodedRegion*>(requests)[i]);
}

// resident, places [5]: receive what `DeviceBatch::make_resident` says.
EXPORT void cuaug_device_batch_make_resident(const void* batch, int64_t number, void* resident, int64_t* places) {
    static_cast<const DeviceBatch*>(batch)->make_resident(number, *static_cast<ResidentJpeg*>(resident), places);
}

// Offset of `bytes` bytes of the batch's memory, a multiple of 16, for image `number`, which another decoder decodes. -1
// if they do not fit, or its share is taken.
EXPORT int64_t cuaug_device_batch_reserve(void* batch, int64_t number, int64_t bytes) {
    return static_cast<DeviceBatch*>(batch)->reserve_whole(number, bytes);
}

// launch: receives a `JpegLaunch`, unless there is no memory, or the batch's is too small.
EXPORT void cuaug_device_batch_prepare(void* batch, void* launch) {
    try {
        *static_cast<JpegLaunch*>(launch) = static_cast<DeviceBatch*>(batch)->prepare();
    } catch (const std::bad_alloc&) {
    }
}

// addresses: `DeviceAddresses`. targets [images]: receives the address of each image's pixels, or 0.
EXPORT void cuaug_device_batch_finish(const void* batch, const void* addresses, uint64_t* targets) {
    static_cast<const DeviceBatch*>(batch)->finish(*static_cast<const DeviceAddresses*>(addresses), targets);
}

// Adds the entry points that the GPU has found to the index. segments: copy of the first `segment_bytes` bytes of the
// memory for scans. statuses [images]: as the kernels left them.
EXPORT void cuaug_device_batch_keep(const void* batch, const uint8_t* segments, const int32_t* statuses, void* index) {
    try {
        static_cast<const DeviceBatch*>(batch)->keep(segments, statuses, *static_cast<JpegIndex*>(index));
    } catch (const std::bad_alloc&) {
    }
}
}
