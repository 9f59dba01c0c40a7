// Computes: the native work of a batch on a pool's threads: reading files and parsing their JPEG headers; decoding and
//           augmenting images; describing JPEGs for a GPU. C interface of cuaug/pipeline/native_work.py, whose
//           structures have the same fields.
// Threads:  those of a `Pool`; an item is a sample, and writes its own rows alone.
// Reference: the same steps in Python: cuaug/pipeline/reader.py, cuaug/codec/cpu_decoder.py.
// Tests:    tests/loader/test_native_work.py (also under ThreadSanitizer), tests/loader/test_native_tars.py.
#pragma once
#include <ctime>

#include <vector>

#include "cpu/file_memory.h"
#include "cpu/work_pool.h"
#include "jpeg/decode_region.h"
#include "jpeg/device_batch.h"
#include "jpeg/headers.h"

namespace {

enum Stage : int64_t { READ = 0, PARSE = 1, DECODE = 2, AUGMENT = 3 };

int64_t now() {  // the clock of Python's time.perf_counter_ns
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// When a sample was at two stages in a row, and on which thread.
struct Times {
    int64_t thread, begin, middle, end;
};

// What all work of a batch has.
struct BatchWork {
    int64_t batch;
    const int64_t* cancelled;  // not zero: samples that have not begun are left out
    const int64_t* samples;    // [n] numbers in the source
    Times* times;              // [n]
    int64_t* totals;           // [2]: nanoseconds of all samples at either stage

    bool is_cancelled() const { return __atomic_load_n(cancelled, __ATOMIC_RELAXED) != 0; }
};

void set_times(const BatchWork& work, int64_t i, const Times& its) {
    work.times[i] = its;
    __atomic_fetch_add(&work.totals[0], its.middle - its.begin, __ATOMIC_RELAXED);
    __atomic_fetch_add(&work.totals[1], its.end - its.middle, __ATOMIC_RELAXED);
}

void begin(Worker& worker, const BatchWork& work, int64_t i, Stage stage, int64_t time) {
    constexpr auto relaxed = std::memory_order_relaxed;
    worker.activity.sample.store(work.samples[i], relaxed);
    worker.activity.stage.store(stage, relaxed);
    worker.activity.since.store(time, relaxed);
    worker.activity.batch.store(work.batch, relaxed);
}

// --- reading --------------------------------------------------------------------------------------------------------

// A file, or a range of one.
struct FileRow {
    const char* path;           // null: a range of `file`, or nothing to read
    const OpenFile* file;       // null: a whole file
    int64_t begin, header_crc;  // of the range
    const unsigned char* data;  // null if it could not be read at once
    int64_t size;
    int64_t chunk, offset;  // of `memory`, where the data are
    FileOrigin origin;
    int64_t is_known;  // the index knows the file: it was not read
};
static_assert(sizeof(FileRow) == 14 * sizeof(int64_t), "cuaug/pipeline/native_work.py writes int64");

struct ReadWork {
    BatchWork common;
    FileRow* rows;  // [n, rows_per_sample]: the image, then its labels' ranges
    int64_t rows_per_sample;
    int64_t header_bytes;  // before each range; 0: not checked
    FileMemory* memory;
    int64_t max_bytes;            // larger files are not read
    int64_t max_scans, max_work;  // as for read_jpeg_header
    JpegIndex* index;             // files that it knows are not read, only examined; null: all are read
};

// Whether the index knows the file or the range of an image. status: receives the file's.
bool recall_file(const ReadWork& work, FileRow& row, FileStatus& status) {
    KnownFile known;
    if (row.path ? !status.read(row.path) : row.file->descriptor < 0 || !is_unchanged(*row.file, status)) return false;
    if (row.path && (!status.is_regular || status.size > work.max_bytes)) return false;
    if (row.path) row.size = status.size;
    row.origin.identity = work.index->identify(status, row.begin, row.size);
    if (!work.index->recall(row.origin.identity, known)) return false;
    row.origin.header = known.header;
    return row.is_known = true;
}

// Whether the file has the same status before and after. status: receives it.
bool read_part(const ReadWork& work, FileRow& row, FileStatus& status) {
    if (row.path)
        return read_file(row.path, work.max_bytes, *work.memory, row.data, row.size, row.chunk, row.offset, status);
    return read_range(*row.file, row.begin, row.size, work.header_bytes, uint32_t(row.header_crc), work.max_bytes,
                      *work.memory, row.data, row.chunk, row.offset, status);
}

// Reads an image, unless the index knows it.
void read_image(const ReadWork& work, FileRow& row) {
    FileStatus status;
    if (work.index && recall_file(work, row, status)) return;
    const bool has_identity = read_part(work, row, status) && row.data && work.index && status.is_settled();
    row.origin.identity = has_identity ? work.index->identify(status, row.begin, row.size) : FileKey{};
}

void read_item(void* table, int64_t i, Worker& worker) {
    const ReadWork& work = *static_cast<const ReadWork*>(table);
    if (work.common.is_cancelled()) return;
    FileRow& row = work.rows[i * work.rows_per_sample];
    const int64_t start = now();
    begin(worker, work.common, i, READ, start);
    FileStatus status;
    if (row.path || row.file) read_image(work, row);
    for (FileRow* label = &row + 1; label < &row + work.rows_per_sample; ++label)
        if (label->file) read_part(work, *label, status);
    const int64_t middle = row.path || row.file ? now() : start;
    begin(worker, work.common, i, PARSE, middle);
    if (row.data) row.origin.header = read_jpeg_header(row.data, row.size, work.max_scans, work.max_work);
    // Python parses other files, and counts the time.
    set_times(work.common, i, {worker.number, start, middle, row.origin.header.orientation > 0 ? now() : middle});
}

// --- decoding and augmenting ----------------------------------------------------------------------------------------

// The tables of a compiled plan, and where its images go.
struct PlanTables {
    const char* rows;
    int64_t row_bytes, samples, passes;
    const void* ops;
    const float* tables;
    const uint64_t* targets;  // [samples] addresses
};

enum SampleStatus : int64_t {
    NOT_DECODED = 0,
    FROM_WHOLE_FILE = 1,
    FROM_JPEG_CROP = 2,
    FROM_PIXELS = 3,
    NO_DECODER = 4
};

struct SampleRow {
    EncodedRegion image;    // of an encoded image
    const uint8_t* pixels;  // or pixel (y0, x0) of a decoded one
    int64_t pitch;          // bytes between its rows
    int64_t sample;         // its number in the plan
    int64_t status;         // out: a SampleStatus
    int64_t lacks_memory;   // out: a pass needs more memory than allowed, or than there is
    int64_t text_length;    // out: bytes of text
};

struct RunWork {
    BatchWork common;
    SampleRow* rows;
    const Codec* codec;
    const char* decoder_options;
    int64_t fancy_upsampling;
    JpegIndex* index;
    int64_t isa, views, max_floats;
    PlanTables plan;
    char* text;  // [n, text_size]: lines printed to stderr
    int64_t text_size;
};

NativeDecoder* decoder_of(Worker& worker, const RunWork& work) {
    void*& decoder = worker.decoders[work.fancy_upsampling != 0];
    if (!decoder) decoder = cuaug_decoder_new(work.codec, work.decoder_options);
    return static_cast<NativeDecoder*>(decoder);
}

bool decode_row(SampleRow& row, const RunWork& work, Worker& worker, RegionPixels& pixels) {
    if (row.pixels) {
        pixels = {row.pixels, row.pitch};
        row.status = FROM_PIXELS;
        return true;
    }
    NativeDecoder* const decoder = decoder_of(worker, work);
    if (!decoder) {
        row.status = NO_DECODER;
        return false;
    }
    const StoredRegion stored = find_stored_region(row.image, work.index);
    row.status = decode_region(*decoder, row.image, stored, work.index, worker.pixels.reserve(stored.bytes), pixels);
    return row.status != NOT_DECODED;
}

void run_item(void* table, int64_t i, Worker& worker) {
    const RunWork& work = *static_cast<const RunWork*>(table);
    if (work.common.is_cancelled()) return;
    SampleRow& row = work.rows[i];
    const int64_t start = now();
    begin(worker, work.common, i, DECODE, start);
    RegionPixels pixels = {};
    bool is_decoded = false;
    capture.begin();
    try {
        is_decoded = decode_row(row, work, worker, pixels);
    } catch (const std::bad_alloc&) {
        row.status = NOT_DECODED;
    }
    row.text_length = capture.end(work.text + i * work.text_size, work.text_size);
    const int64_t middle = now();
    begin(worker, work.common, i, AUGMENT, middle);
    const PlanTables& plan = work.plan;
    const Image image = {pixels.first, pixels.pitch, int32_t(row.image.y0), int32_t(row.image.x0)};
    for (int64_t k = row.sample * work.views; is_decoded && k < (row.sample + 1) * work.views; ++k)
        row.lacks_memory |=
            run_on(int(work.isa), plan.rows + k * plan.row_bytes, plan.samples, int(plan.passes), plan.ops, plan.tables,
                   nullptr, image, reinterpret_cast<void*>(plan.targets[k]), 0, 0, work.max_floats) != 0;
    set_times(work.common, i, {worker.number, start, middle, now()});
}

// --- for a GPU ------------------------------------------------------------------------------------------------------

struct StagingWork {
    BatchWork common;
    DeviceBatch* batch;
    const FileRow* const* files;    // [N] of images that `ReadWork` read or knows; null for others
    const EncodedRegion* requests;  // [N]
    const int64_t* numbers;         // [n] places in the batch of N
    JpegIndex* index;               // or null
    uint8_t* is_added;              // [N] out: 0 for those that another decoder has to decode
    JpegLaunch* launch;             // out: the prepared batch; zeros without memory
};

// Adds a file that was not read. False if it has changed meanwhile.
bool add_known_file(const StagingWork& work, int64_t number) {
    const FileRow& row = *work.files[number];
    const int file = row.path ? open(row.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : int(row.file->descriptor);
    if (file < 0) return false;
    FileStatus status;
    KnownFile known;
    const FilePart part = {file, row.path ? 0 : row.begin};
    const auto is_same = [&] {
        return status.read(file) && work.index->identify(status, row.begin, row.size) == row.origin.identity;
    };
    const bool is_added =
        work.index->recall(row.origin.identity, known) && DeviceBatch::try_add([&] {
            return work.batch->add_known(number, work.requests[number], *work.index, known, part, is_same);
        });
    if (row.path) close(file);
    return is_added;
}

void staging_item(void* table, int64_t i, Worker& worker) {
    const StagingWork& work = *static_cast<const StagingWork*>(table);
    if (work.common.is_cancelled()) return;
    const int64_t start = now(), number = work.numbers[i];
    const FileRow* const file = work.files[number];
    const bool is_known = file && file->is_known;
    begin(worker, work.common, i, is_known ? READ : PARSE, start);
    work.is_added[number] = is_known ? add_known_file(work, number) : DeviceBatch::try_add([&] {
        return work.batch->add(number, work.requests[number], work.index, file ? &file->origin : nullptr);
    });
    const int64_t end = now();
    set_times(work.common, i, {worker.number, start, is_known ? end : start, end});
}

void prepare_batch(void* table) {
    const StagingWork& work = *static_cast<const StagingWork*>(table);
    if (work.common.is_cancelled()) return;
    cuaug_device_batch_prepare(work.batch, work.launch);
}

Worker::~Worker() {
    for (void* const decoder : decoders)
        if (decoder) cuaug_decoder_delete(decoder);
}

std::atomic<bool> parks_threads{false};

constexpr DoItem ITEMS[] = {nullptr, read_item, run_item, staging_item};
constexpr DoEnd ENDS[] = {nullptr, nullptr, nullptr, prepare_batch};

}  // namespace

extern "C" {

EXPORT void* cuaug_pool_new() { return new (std::nothrow) Pool; }

// After all its threads have ended. A forked child has none of them, and frees nothing.
EXPORT void cuaug_pool_delete(void* pool) {
    if (static_cast<Pool*>(pool)->process == getpid()) delete static_cast<Pool*>(pool);
}

// kind: 0 for a task of Python's, 1 for `ReadWork`, 2 for `RunWork`, 3 for `StagingWork`; table: the work, kept until its
// token comes back. not_before: see `Pool::add`. Returns whether there was memory for it.
EXPORT int32_t cuaug_pool_add(void* pool, int64_t priority, int64_t token, int32_t kind, void* table, int64_t count,
                              int64_t not_before) {
    try {
        static_cast<Pool*>(pool)->add(priority, token, ITEMS[kind], ENDS[kind], table, count, not_before);
    } catch (const std::bad_alloc&) {
        return 0;
    }
    return 1;
}

EXPORT void cuaug_pool_hurry(void* pool) { static_cast<Pool*>(pool)->hurry(); }

// The loop of thread `number`, from 0 on: returns the token of finished work, or of a task that the caller does; -1
// once stopped, or without memory for the thread.
EXPORT int64_t cuaug_pool_next(void* pool, int64_t number) {
    int64_t token = STOPPED;
    try {
        token = static_cast<Pool*>(pool)->next(number);
    } catch (const std::bad_alloc&) {
    }
    while (parks_threads) pause();
    return token;
}

// Before the interpreter finalizes: a thread that is still in a read, or a decode, must not return to Python.
EXPORT void cuaug_park_threads() { parks_threads = true; }

// A forked child has none of the threads, and its copy of their locks may be held for ever.
EXPORT void cuaug_pool_stop(void* pool) {
    if (static_cast<Pool*>(pool)->process == getpid()) static_cast<Pool*>(pool)->stop();
}

// out [4]: batch, -1 while the thread does no native work; sample; stage; since. Returns whether there is such a
// thread.
EXPORT int32_t cuaug_pool_activity(void* pool, int64_t number, int64_t* out) {
    constexpr auto relaxed = std::memory_order_relaxed;
    const Activity* const activity = static_cast<Pool*>(pool)->activity(number);
    if (!activity) return 0;
    out[0] = activity->batch.load(relaxed), out[1] = activity->sample.load(relaxed);
    out[2] = activity->stage.load(relaxed), out[3] = activity->since.load(relaxed);
    return 1;
}
}
